/* SPDX-License-Identifier: MIT
 *
 * See tuning.h. Rank 0 reads the file, and writes it. In between, as long as a rank meets products
 * without a choice, the first such rank times them and tells the others: in DDP that is rank 0
 * alone, in a pipeline each stage has shapes of its own. When two jobs have timed the same products
 * the file keeps the choices of the first, and the second takes those. */
#include "config.h"

#include "mode/tuning.h"

#include "comm/comm.h"
#include "core/atomic_file.h"
#include "core/cache_folder.h"
#include "core/clock.h"
#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)4 << 20) /* of the file: some ten thousand products */
#define LOCK_MS    2000
#define HEAD                                                                                       \
    "# ddprun: algorithms of matrix products, chosen by timing. This file may be deleted.\n"

struct tuning {
    ddp_comm *comm;
    const struct ddp_tuning_unit *units;
    int count;
    char path[4096]; /* of the file; on rank 0 */
};

static ddp_device *first_device(const struct tuning *t)
{
    return t->units[0].device;
}

/* --- the file --------------------------------------------------------------------------------- */

/* Why there can be no file; NULL: there can. */
static const char *find_file(struct tuning *t)
{
    static char why[512];
    char folder[3800];
    const char *name = ddp_device_choices_name(first_device(t));
    *why = '\0';
    if (!name)
        return "it is switched off";
    if (!ddp_cache_folder(folder, sizeof folder, why, sizeof why))
        return why;
    snprintf(t->path, sizeof t->path, "%s/%s", folder, name);
    if (access(t->path, F_OK) == 0 && access(t->path, R_OK) != 0)
        snprintf(why, sizeof why, "%.400s: %s", t->path, strerror(errno));
    return *why ? why : NULL;
}

/* The devices add the file's choices to theirs, or replace these. A file that cannot be read is as
 * good as none. */
static enum ddp_status import_file(const struct tuning *t, bool replace, size_t *damaged)
{
    char why[512], *text = NULL, *ended;
    size_t bytes = 0;
    *damaged = 0;
    if (access(t->path, F_OK) == 0) {
        ddp_log_hold(why, sizeof why);
        enum ddp_status status = ddp_input_file_read_whole(
            t->path, "not a list of ddprun's choices", MOST_BYTES, &text, &bytes);
        ddp_log_hold(NULL, 0);
        if (status != DDP_OK)
            ddp_log(DDP_LOG_WARNING, "%s: it is ignored", why);
    }
    ended = ddp_array_alloc(bytes + 1, 1);
    for (size_t i = 0; ended && i < bytes; i++)
        ended[i] = text[i] ? text[i] : '?'; /* which damages the line */
    free(text);
    enum ddp_status status =
        ended ? ddp_device_choices_import(first_device(t), ended, replace, damaged)
              : DDP_ERR_MEMORY;
    free(ended);
    return status;
}

/* Exclusive as long as the folder, which is returned, is open; -1, and without a lock, where the
 * file system has none or somebody holds it for long. */
static int lock_folder(const char *path)
{
    const int64_t deadline_ns = ddp_deadline_ns(LOCK_MS);
    const struct timespec nap = {.tv_nsec = 10000000};
    char *folder = ddp_directory_of(path);
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
           !ddp_deadline_passed(deadline_ns))
        nanosleep(&nap, NULL);
    return fd;
}

static enum ddp_status write_file(const char *path, const char *text)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status != DDP_OK)
        return status;
    status = ddp_atomic_file_write(file, HEAD, strlen(HEAD));
    if (status == DDP_OK)
        return ddp_atomic_file_end(file, text);
    ddp_atomic_file_close(file);
    return status;
}

/* What other jobs have written meanwhile holds, and then ours. What cannot be kept is not used
 * either: the next run would have other bits. */
static enum ddp_status keep(const struct tuning *t)
{
    ddp_device *device = first_device(t);
    char *own = NULL, *all = NULL, why[512];
    size_t damaged;
    const int lock = lock_folder(t->path);
    enum ddp_status status = ddp_device_choices_export(device, &own);
    if (status == DDP_OK)
        status = import_file(t, true, &damaged);
    if (status == DDP_OK)
        status = ddp_device_choices_import(device, own, false, &damaged);
    if (status == DDP_OK)
        status = ddp_device_choices_export(device, &all);
    if (status == DDP_OK) {
        ddp_log_hold(why, sizeof why);
        const enum ddp_status written = write_file(t->path, all);
        ddp_log_hold(NULL, 0);
        if (written != DDP_OK) {
            ddp_log(DDP_LOG_WARNING, "%s: algorithms of products are not chosen by timing", why);
            status = import_file(t, true, &damaged);
        }
    }
    free(own);
    free(all);
    if (lock >= 0)
        close(lock);
    return status;
}

/* --- ranks ------------------------------------------------------------------------------------ */

/* The choices of a rank's first device go to all devices of all ranks.
 *   replace  else they are added */
static enum ddp_status spread(const struct tuning *t, int root, bool replace)
{
    char *text = NULL;
    size_t damaged;
    const bool own = ddp_comm_rank(t->comm) == root;
    enum ddp_status status = own ? ddp_device_choices_export(first_device(t), &text) : DDP_OK;
    int64_t bytes = text ? (int64_t)strlen(text) : 0;
    if (status == DDP_OK)
        status = ddp_comm_broadcast(t->comm, &bytes, 1, DDP_I64, root);
    const size_t words = (size_t)bytes / 4 + 1; /* with the 0 behind it */
    if (status == DDP_OK && bytes > 0) {
        char *message = ddp_array_alloc(words, 4);
        if (message && text)
            memcpy(message, text, (size_t)bytes);
        free(text);
        text = message;
        status = text ? ddp_comm_broadcast(t->comm, text, words, DDP_I32, root) : DDP_ERR_MEMORY;
    }
    for (int i = own; status == DDP_OK && i < t->count; i++)
        status = ddp_device_choices_import(t->units[i].device, text ? text : "", replace, &damaged);
    free(text);
    return status;
}

/* Runs a unit's products on its device, and counts those without a choice. */
static enum ddp_status meet(const struct ddp_tuning_unit *unit, bool time, int *missing)
{
    enum ddp_status status = DDP_OK;
    ddp_device_tune_begin(unit->device, time);
    for (int i = 0; status == DDP_OK && i < 2; i++)
        if (unit->execs[i])
            status = ddp_exec_run_products(unit->execs[i], unit->gradients);
    *missing = ddp_device_tune_end(unit->device);
    return status;
}

/* Times what has no choice here, unit by unit: what one has found the next one knows. */
static enum ddp_status time_own(const struct tuning *t)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < t->count; i++) {
        char *text = NULL;
        size_t damaged;
        int missing;
        status = meet(&t->units[i], true, &missing);
        if (status == DDP_OK)
            status = ddp_device_choices_export(t->units[i].device, &text);
        for (int j = 0; status == DDP_OK && j < t->count; j++)
            status = ddp_device_choices_import(t->units[j].device, text, false, &damaged);
        free(text);
    }
    return status;
}

/* The first rank that misses choices, of those that have not timed; the number of ranks: none. */
static enum ddp_status find_root(const struct tuning *t, bool done, int *root)
{
    enum ddp_status status = DDP_OK;
    int32_t first = ddp_comm_size(t->comm);
    for (int i = 0; status == DDP_OK && !done && i < t->count; i++) {
        int missing;
        status = meet(&t->units[i], false, &missing);
        if (missing > 0)
            first = ddp_comm_rank(t->comm);
    }
    if (status == DDP_OK)
        status = ddp_comm_allreduce(t->comm, &first, 1, DDP_I32, DDP_MIN);
    *root = first;
    return status;
}

/* Rank 0's first: are there choices to be made? */
static enum ddp_status begin(struct tuning *t, bool *on)
{
    const bool first = ddp_comm_rank(t->comm) == 0;
    const char *why = first ? find_file(t) : NULL;
    int32_t yes = why == NULL;
    size_t damaged;
    if (why)
        ddp_log(DDP_LOG_DEBUG, "algorithms of products are not chosen by timing: %s", why);
    enum ddp_status status = ddp_comm_broadcast(t->comm, &yes, 1, DDP_I32, 0);
    *on = yes;
    if (status != DDP_OK || !yes)
        return status;
    if (first)
        status = import_file(t, true, &damaged);
    if (status == DDP_OK && first && damaged)
        ddp_log(DDP_LOG_WARNING, "%s: %zu damaged lines are ignored", t->path, damaged);
    return status == DDP_OK ? spread(t, 0, true) : status;
}

enum ddp_status ddp_tuning_run(ddp_comm *comm, const struct ddp_tuning_unit *units, int count)
{
    struct tuning t = {.comm = comm, .units = units, .count = count};
    const int size = ddp_comm_size(comm), rank = ddp_comm_rank(comm);
    bool on = false, timed = false;
    int root = size, roots = 0;
    if (!ddp_device_has_choices(units[0].device))
        return DDP_OK;
    enum ddp_status status = begin(&t, &on);
    if (status == DDP_OK && on)
        status = find_root(&t, timed, &root);
    for (; status == DDP_OK && root < size; roots++) {
        if (root == rank)
            status = time_own(&t);
        timed = timed || root == rank;
        if (status == DDP_OK)
            status = spread(&t, root, false);
        if (status == DDP_OK)
            status = find_root(&t, timed, &root);
    }
    if (status != DDP_OK || roots == 0)
        return status;
    if (rank == 0)
        status = keep(&t);
    return status == DDP_OK ? spread(&t, 0, true) : status;
}
