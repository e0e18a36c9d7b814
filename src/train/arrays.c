/* SPDX-License-Identifier: MIT
 *
 * Flat arrays of a run's weights and state: what files and copies are made from. Rank 0 has them in
 * memory; or, where each node of several has a part of them alone, fetches one piece after another
 * from all ranks, which wait for that. */
#include "config.h"

#include "train/run.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"
#include "job/job.h"
#include "plan/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum ddp_status ddp_run_begin_weights(struct ddp_run *run)
{
    run->weights = ddp_array_alloc((size_t)ddp_graph_flat_count(run->planned.graph), sizeof(float));
    return run->weights ? ddp_planned_begin_weights(&run->planned, run->weights, run->frozen.values)
                        : DDP_ERR_MEMORY;
}

enum ddp_status ddp_run_fetch_weights(struct ddp_run *run, bool wanted)
{
    if (wanted && !run->weights)
        run->weights =
            ddp_array_alloc((size_t)ddp_graph_flat_count(run->planned.graph), sizeof(float));
    if (wanted && !run->weights)
        return DDP_ERR_MEMORY;
    return ddp_mode_get_weights(run->mode, 0, ddp_graph_flat_count(run->planned.graph),
                                wanted ? run->weights : NULL);
}

int ddp_run_array_count(const struct ddp_run *run)
{
    int count = 1;
    while (ddp_mode_state_name(run->mode, count - 1))
        count++;
    return count;
}

enum ddp_status ddp_run_fill_arrays(struct ddp_run *run, float *const *arrays)
{
    const struct ddp_mode_apart apart = ddp_mode_apart_now(run->mode);
    const int64_t count = ddp_graph_flat_count(run->planned.graph);
    enum ddp_status status = ddp_mode_get_weights(run->mode, 0, count, arrays ? arrays[0] : NULL);
    for (int i = 0; status == DDP_OK && ddp_mode_state_name(run->mode, i); i++)
        if (ddp_mode_has_state(run->mode, i, &apart))
            status = ddp_mode_save_state(run->mode, i, 0, count, arrays ? arrays[1 + i] : NULL);
    return status;
}

/* --- in pieces -------------------------------------------------------------------------------- */

struct piece {
    int64_t array, begin, count; /* `count` 0: there are no more */
};

static enum ddp_status bring(struct ddp_run *run, const struct piece *piece, float *values)
{
    return piece->array == 0 ? ddp_mode_get_weights(run->mode, piece->begin, piece->count, values)
                             : ddp_mode_save_state(run->mode, (int)piece->array - 1, piece->begin,
                                                   piece->count, values);
}

static enum ddp_status announce(const struct ddp_run *run, struct piece *piece)
{
    return ddp_comm_broadcast(run->comm, piece, sizeof *piece / sizeof(int64_t), DDP_I64, 0);
}

/* As ddp_flat_source::fetch, on rank 0. */
static enum ddp_status fetch(void *arg, int array, int64_t begin, int64_t count, float *values)
{
    struct piece piece = {array, begin, count};
    enum ddp_status status = announce(arg, &piece);
    return status == DDP_OK ? bring(arg, &piece, values) : status;
}

void ddp_run_find_source(struct ddp_run *run)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    if (ddp_train_plan_in_parts(plan))
        run->parts = (struct ddp_flat_source){.fetch = fetch, .arg = run};
}

enum ddp_status ddp_run_bring_pieces(struct ddp_run *run)
{
    struct piece piece;
    for (;;) {
        enum ddp_status status = announce(run, &piece);
        if (status != DDP_OK || piece.count == 0)
            return status;
        status = bring(run, &piece, NULL);
        if (status != DDP_OK)
            return status;
    }
}

enum ddp_status ddp_run_end_pieces(struct ddp_run *run)
{
    struct piece none = {0, 0, 0};
    return announce(run, &none);
}

/* --- in a file -------------------------------------------------------------------------------- */

/* Beside `path`, without a name once it is open. */
static enum ddp_status open_nameless(const char *path, int *fd)
{
    char *name = NULL;
    char *directory = ddp_directory_of(path);
    if (!directory || asprintf(&name, "%s/.weights.tmp-XXXXXX", directory) < 0) {
        free(directory);
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    *fd = mkostemp(name, O_CLOEXEC);
    enum ddp_status status = *fd < 0 ? ddp_fail_path(name, "make") : DDP_OK;
    if (*fd >= 0)
        unlink(name);
    free(name);
    free(directory);
    return status;
}

static enum ddp_status put(void *arg, const void *data, size_t bytes)
{
    return ddp_write_all(*(int *)arg, data, bytes) < 0 ? DDP_ERR_IO : DDP_OK;
}

enum ddp_status ddp_run_map_weights(struct ddp_run *run, const char *path, float **weights)
{
    const int64_t count = ddp_graph_flat_count(run->planned.graph);
    int fd = -1;
    enum ddp_status status = open_nameless(path, &fd);
    if (status != DDP_OK)
        return status;
    status = ddp_flat_source_put(&run->parts, 0, 0, count, put, &fd);
    if (status == DDP_ERR_IO)
        status = ddp_fail_path(path, "write the weights beside it");
    void *memory = MAP_FAILED;
    if (status == DDP_OK)
        memory = mmap(NULL, (size_t)count * sizeof(float), PROT_READ, MAP_SHARED, fd, 0);
    if (status == DDP_OK && memory == MAP_FAILED)
        status = ddp_fail_path(path, "map the weights beside it");
    *weights = memory;
    close(fd);
    return status;
}

void ddp_run_unmap_weights(const struct ddp_run *run, float *weights)
{
    munmap(weights, (size_t)ddp_graph_flat_count(run->planned.graph) * sizeof *weights);
}
