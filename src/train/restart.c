/* SPDX-License-Identifier: MIT
 *
 * A run's copy of its state in memory that ddprun holds, for workers that take the place of lost
 * ones: how often one is made, and of what. Rank 0 writes it, as it does with checkpoints;
 * resume.c reads it. Where nodes come and go, one rank of each other node keeps the same, because
 * any node may be that of rank 0 next. */
#include "config.h"

#include "train/run.h"

#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/text.h"
#include "job/job.h"
#include "train/hooks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PRICE 0.02 /* the share of the time that copies may take */

/* One program may train several times in a job; what has other options is another run.
 *   own  ... on this node: also paths, which other nodes may have otherwise */
static uint64_t id_of(const struct ddp_train_options *options, bool own)
{
    const struct ddp_option *table = ddp_train_option_table();
    uint64_t id[3] = {1, 0, 0};
    for (const struct ddp_option *row = table; row->name; row++) {
        const char *value = options->given.values[row - table];
        if (!ddp_train_given(options, row->name) || (!own && row->scope & DDP_OF_NODE))
            continue;
        id[1] = ddp_hash(row->name, strlen(row->name));
        id[2] = value ? ddp_hash(value, strlen(value)) : 0;
        id[0] = ddp_hash(id, sizeof id);
    }
    return id[0] ? id[0] : 1;
}

/* Do other nodes keep the copy too? */
static bool travels(const struct ddp_run *run)
{
    return ddp_job_nodes_change(run->job) && ddp_job_node_count(run->job) > 1;
}

enum ddp_status ddp_run_copy_open(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    const bool keeps =
        run->planned.plan.rank == 0 || (travels(run) && ddp_job_node_rank(run->job) == 0);
    run->id = id_of(options, false);
    if (!run->planned.plan.copies || options->plan || !keeps)
        return DDP_OK;
    enum ddp_status status =
        ddp_copy_open(&run->copy, ddp_job_copy_fd(run->job), id_of(options, true));
    run->had_begun =
        ddp_job_had_begun(run->job, run->id) || (status == DDP_OK && ddp_copy_has_begun(run->copy));
    return status;
}

/* --- making copies ---------------------------------------------------------------------------- */

/* Does all that is planned fit, with both slots? The kernel would kill the job later. */
static enum ddp_status check_room(const struct ddp_run *run)
{
    const struct ddp_planned *planned = &run->planned;
    const struct ddp_memory_limits limits = {INFINITY, (double)ddp_memory_total()};
    struct ddp_memory memory;
    enum ddp_status status =
        ddp_memory_plan(planned, &planned->plan, &planned->model_config, &memory);
    return status == DDP_OK && !ddp_memory_fits(&planned->plan, &memory, &limits) ? DDP_ERR_MEMORY
                                                                                  : status;
}

/* Without room the run goes on without copies, unless they were asked for by name. */
static enum ddp_status reserve(const struct ddp_run *run)
{
    const int array_count = ddp_run_array_count(run);
    const size_t bytes = (size_t)ddp_graph_flat_count(run->planned.graph) * sizeof(float);
    enum ddp_status status = check_room(run);
    char text[DDP_TEXT_BYTES];
    if (status == DDP_OK)
        status = ddp_copy_reserve(run->copy, array_count, bytes);
    if (status != DDP_ERR_MEMORY)
        return status;
    ddp_text_bytes((double)ddp_copy_bytes(array_count, bytes), text);
    if (run->planned.options->copy_every && run->planned.plan.rank == 0)
        return ddp_fail(DDP_ERR_MEMORY,
                        "--copy-every: no room in memory for two copies of the state, %s", text);
    ddp_log(DDP_LOG_WARNING,
            "no room in memory for two copies of the state, %s: a restart begins with the last "
            "checkpoint, or from the beginning",
            text);
    return status;
}

/* When a copy has taken `cost_ns`, and the steps since the one before `spent_ns`. The first comes
 * early: the second is due when both are paid for. */
static int64_t next_step(const struct ddp_run *run, int64_t cost_ns, int64_t spent_ns)
{
    const int64_t every = run->planned.options->copy_every, step = run->step;
    const double one_ns = (double)spent_ns / (double)(step - run->copied_step);
    const double owed_ns = (double)cost_ns * (run->copied_step == run->first_step ? 2 : 1);
    if (every > 0)
        return (step / every + 1) * every;
    return step + (int64_t)ceil(fmax(owed_ns / PRICE / fmax(one_ns, 1), 1));
}

enum ddp_status ddp_run_copy_reserve(struct ddp_run *run)
{
    const int64_t every = run->planned.options->copy_every, first = run->first_step;
    enum ddp_status status = DDP_OK;
    run->copy_next = INT64_MAX;
    if (!run->planned.plan.copies)
        return DDP_OK;
    if (run->copy)
        status = reserve(run);
    if (status == DDP_ERR_MEMORY && run->planned.plan.rank > 0) { /* the others keep theirs */
        ddp_copy_close(run->copy, false);
        run->copy = NULL;
        status = DDP_OK;
    }
    if (run->copy && status == DDP_OK)
        run->copy_next = every > 0 ? (first / every + 1) * every : first + 1;
    else if (status == DDP_ERR_MEMORY && every == 0)
        status = DDP_OK;
    if (status == DDP_OK)
        status = ddp_comm_broadcast(run->comm, &run->copy_next, 1, DDP_I64, 0);
    run->planned.plan.copies = run->copy_next < INT64_MAX;
    if (status == DDP_OK && run->planned.plan.copies && !run->planned.options->checkpoint)
        ddp_job_accept_change(run->job);
    return status;
}

/* What rank 0 alone knows of a copy: the text of its state, then what the program has of its own.
 */
struct words {
    int64_t text_bytes, own_bytes;
    char *bytes;
};

/* In units in which bytes travel. */
static size_t units_of(const struct words *words)
{
    return ((size_t)words->text_bytes + (size_t)words->own_bytes + 7) / 8;
}

static enum ddp_status write_words(struct ddp_run *run, struct words *words)
{
    struct ddp_checkpoint_state state;
    struct ddp_own own;
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status = ddp_run_save_own(run, &own);
    if (status == DDP_OK) {
        ddp_run_describe_state(run, &state);
        memcpy(state.own_file, own.file, sizeof state.own_file);
        state.own.bytes = own.count;
        status = ddp_checkpoint_state_format(&text, &bytes, &state);
    }
    if (status != DDP_OK)
        return status;
    words->text_bytes = (int64_t)bytes;
    words->own_bytes = (int64_t)own.count;
    words->bytes = calloc(units_of(words), 8);
    if (words->bytes) {
        memcpy(words->bytes, text, bytes);
        if (own.count > 0)
            memcpy(words->bytes + bytes, own.bytes, own.count);
    }
    free(text);
    return words->bytes ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

static enum ddp_status send_words(const struct ddp_run *run, struct words *words)
{
    int64_t head[] = {words->text_bytes, words->own_bytes};
    enum ddp_status status = ddp_comm_broadcast(run->comm, head, 2, DDP_I64, 0);
    if (status != DDP_OK)
        return status;
    words->text_bytes = head[0];
    words->own_bytes = head[1];
    if (!words->bytes && !(words->bytes = malloc(8 * units_of(words))))
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    return ddp_comm_broadcast(run->comm, words->bytes, units_of(words), DDP_I64, 0);
}

/* *arrays stays NULL where the program's own state takes too much now: without rank 0 nobody makes
 * copies any more, and other nodes keep their last ones. */
static enum ddp_status begin_copy(const struct ddp_run *run, const struct words *words,
                                  float *const **arrays)
{
    enum ddp_status status = ddp_copy_begin(run->copy, words->bytes, (size_t)words->text_bytes,
                                            (size_t)words->own_bytes, arrays);
    if (status != DDP_ERR_MEMORY)
        return status;
    if (run->planned.plan.rank == 0)
        ddp_log(DDP_LOG_WARNING, "no room in memory any more for copies of the state");
    return DDP_OK;
}

/* Each node's copy is filled where it is: what several have does not travel. */
static enum ddp_status make_copy(struct ddp_run *run)
{
    const bool leads = run->planned.plan.rank == 0;
    const int64_t begin = ddp_clock_ns();
    float *const *arrays = NULL;
    struct words words = {0};
    int64_t next = INT64_MAX;
    ddp_job_report(run->job, "copy", run->step - 1);
    ddp_train_metrics_begin_aside(run->metrics);
    enum ddp_status status = ddp_mode_average(run->mode);
    if (status == DDP_OK && leads)
        status = write_words(run, &words);
    if (status == DDP_OK && travels(run))
        status = send_words(run, &words);
    if (status == DDP_OK && run->copy)
        status = begin_copy(run, &words, &arrays);
    free(words.bytes);
    if (status == DDP_OK)
        status = ddp_run_fill_arrays(run, arrays);
    if (status == DDP_OK && arrays)
        ddp_copy_end(run->copy, run->step);
    if (status == DDP_OK) /* the next step would wait for the slowest */
        status = ddp_comm_barrier(run->comm);
    if (status == DDP_OK && arrays && leads)
        next = next_step(run, ddp_clock_ns() - begin, begin - run->copied_ns);
    if (status == DDP_OK)
        status = ddp_comm_broadcast(run->comm, &next, 1, DDP_I64, 0);
    run->copy_next = next;
    run->copied_step = run->step;
    run->copied_ns = ddp_clock_ns();
    ddp_train_metrics_end_aside(run->metrics, "copy");
    return status;
}

/* A copy counts as whole once the checkpoints before it are safe: a restart would not write them
 * again. */
enum ddp_status ddp_run_copy(struct ddp_run *run, bool stop)
{
    const bool due = stop ? run->step > run->first_step
                          : run->step >= run->copy_next && run->step < run->end_step &&
                                ddp_run_suits_others(run);
    if (!run->planned.plan.copies && !run->copy)
        return DDP_OK;
    if (run->step == run->first_step) {
        run->copied_step = run->step;
        run->copied_ns = ddp_clock_ns();
    }
    enum ddp_status status = due ? make_copy(run) : DDP_OK;
    if (status != DDP_OK || !run->copy)
        return status;
    ddp_copy_progress(run->copy, run->step);
    if (!run->checkpoints || !ddp_checkpoint_is_writing(run->checkpoints))
        ddp_copy_publish(run->copy);
    return DDP_OK;
}
