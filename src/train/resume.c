/* SPDX-License-Identifier: MIT
 *
 * A run's checkpoints: when they are written and with what, and how a run resumes from one. Rank 0
 * reads and writes, and sends what it reads to all. */
#include "config.h"

#include "train/run.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/terminal.h"
#include "core/text.h"
#include "job/job.h"
#include "train/hooks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOCK_WAIT_MS 10000 /* a killed worker may take that long to end */

static struct ddp_checkpoint_cursor cursor_at(const struct ddp_run *run, int64_t step)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    const int64_t in_epoch = step % plan->steps_per_epoch;
    return (struct ddp_checkpoint_cursor){
        .seed = run->planned.options->seed,
        .step = step,
        .epoch = step / plan->steps_per_epoch,
        .step_in_epoch = in_epoch,
        .sample = in_epoch * plan->batch_size * plan->global_shards,
    };
}

/* --- resuming from one ------------------------------------------------------------------------ */

enum ddp_status ddp_run_checkpoint_open(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    run->saved_step = -1;
    if (!options->checkpoint || run->planned.plan.rank != 0)
        return DDP_OK;
    return ddp_checkpoint_dir_open(&run->checkpoint_dir, options->checkpoint, LOCK_WAIT_MS);
}

/* The highest step in the run's directory, by name only; -1: there is none. */
static enum ddp_status find_newest(const struct ddp_run *run, int64_t *newest)
{
    int64_t *steps = NULL;
    size_t count = 0;
    *newest = -1;
    if (!run->checkpoint_dir.path)
        return DDP_OK;
    enum ddp_status status = ddp_checkpoint_dir_list(&run->checkpoint_dir, &steps, &count);
    if (status == DDP_OK && count > 0)
        *newest = steps[0];
    free(steps);
    return status;
}

/* Is the checkpoint one of those in the run's directory? */
static bool is_own(const struct ddp_run *run, const char *path)
{
    struct stat own, above, itself;
    char *parent = NULL;
    if (fstat(run->checkpoint_dir.fd, &own) < 0 || asprintf(&parent, "%s/..", path) < 0)
        return false;
    const bool known = stat(parent, &above) == 0 && stat(path, &itself) == 0;
    free(parent);
    return known && ((above.st_dev == own.st_dev && above.st_ino == own.st_ino) ||
                     (itself.st_dev == own.st_dev && itself.st_ino == own.st_ino));
}

/* What an earlier process has left in memory, unless it is damaged, which a warning says. */
static enum ddp_status take_copy(struct ddp_run *run)
{
    struct ddp_checkpoint *resumed = &run->resumed;
    char reason[DDP_CHECKPOINT_REASON];
    if (ddp_copy_step(run->copy) < 0)
        return DDP_OK;
    if (!ddp_copy_read(run->copy, &resumed->state, &resumed->own, reason)) {
        ddp_log(DDP_LOG_WARNING, "the copy in memory cannot be used: %s", reason);
        return DDP_OK;
    }
    run->from_copy = true;
    run->source = run->copy;
    resumed->path = strdup("the copy in memory");
    return resumed->path ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* Without --resume the checkpoints of another run would be mixed up with the new ones; those that
 * are there after a restart are the run's own. */
static enum ddp_status find_checkpoint(struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    const bool restarted = run->had_begun;
    const bool continues = options->checkpoint && (options->resume || restarted);
    int64_t newest;
    enum ddp_status status = find_newest(run, &newest);
    if (status == DDP_OK && restarted && run->copy && ddp_copy_step(run->copy) >= newest)
        status = take_copy(run);
    run->saved_step = newest;
    if (status == DDP_OK && continues && !run->resumed.path)
        status = ddp_checkpoint_read_latest(&run->resumed, &run->checkpoint_dir);
    if (status != DDP_OK || run->resumed.path)
        return status;
    if (newest >= 0 && !continues && !(options->resume_from && is_own(run, options->resume_from)))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: there are checkpoints already, the last one of step %" PRId64
                        ": use --resume to continue, or another directory for a new run",
                        run->checkpoint_dir.path, newest);
    return options->resume_from ? ddp_checkpoint_read(&run->resumed, options->resume_from) : DDP_OK;
}

/* The checkpoint's lanes are taken over, unless --lanes asks for others, which is refused as every
 * difference is. In checkpoints that do not name them each shard was a lane. */
static void take_lanes(struct ddp_run *run)
{
    struct ddp_checkpoint_facts *saved = &run->resumed.state.facts;
    struct ddp_train_plan *plan = &run->planned.plan;
    int64_t lanes = plan->global_shards;
    /* Anything else comes from another number of shards, which differs as well. */
    if (!ddp_parse_int64(ddp_checkpoint_fact_value(saved, DDP_CHECKPOINT_LANES), 1, lanes, &lanes))
        ddp_checkpoint_fact_add(saved, DDP_CHECKPOINT_LANES, "%" PRId64, lanes);
    if (ddp_train_given(run->planned.options, "lanes"))
        return;
    ddp_train_plan_lanes(plan, lanes);
    if (plan->lanes == lanes)
        return;
    const int units = ddp_train_plan_units(plan);
    ddp_log(DDP_LOG_WARNING,
            "%s: lanes %" PRId64 " (now %" PRId64 ", to fit %d %s%s): the weights agree with those "
            "of a run without interruption within rounding, not to the bit",
            run->resumed.path, lanes, plan->lanes, units, ddp_train_plan_unit_name(plan),
            units == 1 ? "" : "s");
    ddp_checkpoint_fact_add(saved, DDP_CHECKPOINT_LANES, "%" PRId64, plan->lanes);
}

static enum ddp_status check_checkpoint(struct ddp_run *run)
{
    const struct ddp_checkpoint_cursor *saved = &run->resumed.state.cursor;
    struct ddp_checkpoint_facts facts;
    take_lanes(run);
    ddp_run_take_schedule(run);
    ddp_run_collect_facts(run, &facts);
    if (run->planned.options->plan && run->planned.options->objective.kind) /* the same */
        ddp_checkpoint_fact_add(
            &facts, DDP_CHECKPOINT_REFERENCE, "%s",
            ddp_checkpoint_fact_value(&run->resumed.state.facts, DDP_CHECKPOINT_REFERENCE));
    if (run->planned.options->plan &&
        ddp_graph_frozen_count(run->planned.graph) > 0) /* it has not read them */
        ddp_checkpoint_fact_add(
            &facts, DDP_CHECKPOINT_FROZEN, "%s",
            ddp_checkpoint_fact_value(&run->resumed.state.facts, DDP_CHECKPOINT_FROZEN));
    enum ddp_status status = ddp_run_match(run, &facts);
    const struct ddp_checkpoint_cursor now = cursor_at(run, saved->step);
    if (status == DDP_OK && memcmp(&now, saved, sizeof now) != 0)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: its cursor (step %" PRId64 ", epoch %" PRId64 ", sample %" PRId64
                          ") is not in this data",
                          run->resumed.path, saved->step, saved->epoch, saved->sample);
    return status;
}

/* Each worker's weights are for as many workers. */
static enum ddp_status check_workers(const struct ddp_run *run)
{
    const struct ddp_checkpoint_apart *apart = &run->resumed.state.apart;
    const struct ddp_mode_local *local = &run->planned.plan.local;
    const int64_t step = run->resumed.state.cursor.step;
    if (!apart->weights || apart->workers == run->planned.plan.world_size || local->every <= 1)
        return DDP_OK;
    const int64_t before = step - (step - local->from) % local->every;
    return ddp_fail(DDP_ERR_INVALID,
                    "%s: it has the weights of %" PRId64 " workers between two synchronisations, "
                    "and this run has %d: resume on %" PRId64 ", or from a checkpoint of a "
                    "synchronisation, such as step %" PRId64 " or %" PRId64,
                    run->resumed.path, apart->workers, run->planned.plan.world_size, apart->workers,
                    before, before + local->every);
}

/* --- a copy on each node --- */

static bool is_of_step(ddp_copy *copy, int64_t step)
{
    struct ddp_checkpoint_state state;
    char reason[DDP_CHECKPOINT_REASON];
    void *own = NULL;
    const bool good =
        copy && ddp_copy_step(copy) == step && ddp_copy_read(copy, &state, &own, reason);
    free(own);
    return good;
}

static void release_copy(struct ddp_run *run)
{
    if (run->source != run->copy)
        ddp_copy_close(run->source, false);
    run->source = NULL;
}

/* Rank 0 begins with its copy after `step` steps: if every node has that, all ranks read their own.
 */
static enum ddp_status find_copies(struct ddp_run *run, int64_t step)
{
    ddp_copy *copy = run->copy;
    enum ddp_status status = DDP_OK;
    int64_t found = 1;
    if (ddp_job_node_count(run->job) == 1)
        return DDP_OK;
    if (!copy)
        status = ddp_copy_view(&copy, ddp_job_copy_fd(run->job));
    if (status == DDP_OK && !run->source)
        found = is_of_step(copy, step);
    run->source = copy;
    if (status == DDP_OK)
        status = ddp_comm_allreduce(run->comm, &found, 1, DDP_I64, DDP_MIN);
    run->everywhere = status == DDP_OK && found != 0;
    if (!run->everywhere && run->planned.plan.rank > 0)
        release_copy(run);
    return status;
}

/* --- what rank 0 finds, for all --- */

struct found {
    int64_t is_resumed, step, from_copy, saved_step, lanes, extended_at, workers, weights, state,
        good_steps, skipped_steps;
    double rate, extended_rate, own_rate, loss_scale; /* as bits: they travel as they are */
};

enum ddp_status ddp_run_resume(struct ddp_run *run)
{
    struct ddp_schedule *schedule = &run->planned.plan.schedule;
    struct found found = {0};
    enum ddp_status status = DDP_OK;
    const struct ddp_train_options *options = run->planned.options;
    if (!options->resume && !options->resume_from && !options->checkpoint &&
        !options->report.hash_every && !options->verify_step && !run->planned.plan.copies)
        return DDP_OK;
    if (run->planned.plan.rank == 0) {
        status = ddp_dataset_fingerprint(run->planned.data, &run->data_fingerprint);
        if (status == DDP_OK)
            status = find_checkpoint(run);
        if (status == DDP_OK && !run->resumed.path && run->weights_due)
            status = ddp_run_begin_weights(run);
        if (status == DDP_OK && run->resumed.path) {
            const struct ddp_checkpoint_apart *apart = &run->resumed.state.apart;
            status = check_checkpoint(run);
            if (status == DDP_OK)
                status = check_workers(run);
            found = (struct found){
                .is_resumed = 1,
                .from_copy = run->from_copy,
                .step = run->resumed.state.cursor.step,
                .saved_step = run->from_copy ? run->saved_step : run->resumed.state.cursor.step,
                .lanes = run->planned.plan.wanted_lanes,
                .workers = apart->workers,
                .weights = apart->weights,
                .state = apart->state,
                .extended_at = schedule->extended_at,
                .rate = schedule->rate,
                .extended_rate = schedule->extended_rate,
                .own_rate = run->resumed.state.has_rate ? run->resumed.state.rate : NAN,
                .good_steps = run->resumed.state.good_steps,
                .skipped_steps = run->resumed.state.skipped_steps,
                .loss_scale = run->resumed.state.loss_scale};
        }
    }
    if (status == DDP_OK)
        status = ddp_comm_broadcast(run->comm, &found, sizeof found / sizeof(int64_t), DDP_I64, 0);
    /* A reference is made before, of those that training began with; a copy's are read where they
     * lie. */
    run->weights_later = found.is_resumed && (ddp_run_refers(run) || !found.from_copy);
    if (status == DDP_OK && found.from_copy)
        status = find_copies(run, found.step);
    if (status == DDP_OK) {
        run->is_resumed = found.is_resumed != 0;
        run->first_step = found.step;
        ddp_job_begin_run(run->job, run->id);
        if (run->copy)
            ddp_copy_start(run->copy, found.step);
        run->saved_step = run->is_resumed ? found.saved_step : -1;
    }
    if (status == DDP_OK && run->is_resumed) {
        run->resumed_apart =
            (struct ddp_mode_apart){(int)found.workers, found.weights != 0, found.state != 0};
        ddp_train_plan_lanes(&run->planned.plan, found.lanes);
        schedule->extended_at = found.extended_at;
        schedule->extended_rate = found.extended_rate;
        schedule->rate = found.rate;
        run->own_rate = found.own_rate;
        run->resumed_scale = (struct ddp_loss_scale){
            (float)found.loss_scale, (int32_t)found.good_steps, found.skipped_steps};
    } else if (status == DDP_OK && !ddp_train_evaluates_only(options)) {
        status = ddp_train_plan_check_lanes(&run->planned.plan);
    }
    return status;
}

/* Array 0 is the weights, then the optimizer's state. */
static enum ddp_status put_array(struct ddp_run *run, int array, int64_t begin, int64_t count,
                                 const float *values)
{
    return array == 0
               ? ddp_mode_put_weights(run->mode, begin, count, values)
               : ddp_mode_load_state(run->mode, array - 1, begin, count, values, run->everywhere);
}

/* Rank 0 gives an array to all, in pieces if no node has room for it; or all read their own copy.
 */
static enum ddp_status restore_array(struct ddp_run *run, int array)
{
    const ddp_graph *graph = run->planned.graph;
    const int64_t count = ddp_graph_flat_count(graph), piece = DDP_FLAT_PIECE / sizeof(float);
    const char *name = array ? ddp_mode_state_name(run->mode, array - 1) : NULL;
    const bool parted = ddp_train_plan_in_parts(&run->planned.plan);
    const int64_t most = parted && count > piece ? piece : count;
    const size_t bytes = (size_t)most * sizeof(float);
    const float *kept = NULL;
    if (run->source) {
        enum ddp_status found =
            ddp_copy_array(run->source, array, (size_t)count * sizeof *kept, &kept);
        return found == DDP_OK ? put_array(run, array, 0, count, kept) : found;
    }
    const bool reads = run->planned.plan.rank == 0;
    float *values = reads ? ddp_pages_alloc(bytes) : NULL;
    enum ddp_status status = !reads || values ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t at = 0; status == DDP_OK && at < count; at += most) {
        const int64_t some = count - at < most ? count - at : most;
        if (reads)
            status = ddp_checkpoint_take(&run->resumed, graph, name, at, some, values);
        if (status == DDP_OK)
            status = put_array(run, array, at, some, values);
    }
    ddp_pages_free(values, bytes);
    return status;
}

static enum ddp_status create_writer(struct ddp_run *run)
{
    const int count = ddp_run_array_count(run);
    const char **names = ddp_array_alloc((size_t)count, sizeof *names);
    if (!names)
        return DDP_ERR_MEMORY;
    for (int i = 1; i < count; i++)
        names[i] = ddp_mode_state_name(run->mode, i - 1);
    const struct ddp_checkpoint_writer_config config = {
        .dir = &run->checkpoint_dir,
        .graph = run->planned.graph,
        .keep = run->planned.options->keep,
        .keep_best = run->planned.options->keep_best,
        .array_count = count,
        .array_names = names,
        .source = run->parts.fetch ? &run->parts : NULL,
    };
    enum ddp_status status = ddp_checkpoint_writer_create(&run->checkpoints, &config);
    free(names);
    return status;
}

enum ddp_status ddp_run_restore(struct ddp_run *run)
{
    enum ddp_status status = run->weights_later ? restore_array(run, 0) : DDP_OK;
    for (int i = 0; run->is_resumed && status == DDP_OK && ddp_mode_state_name(run->mode, i); i++)
        if (ddp_mode_has_state(run->mode, i, &run->resumed_apart))
            status = restore_array(run, 1 + i);
    if (status == DDP_OK && run->resumed_scale.scale > 0)
        ddp_mode_set_loss_scale(run->mode, &run->resumed_scale);
    ddp_checkpoint_drop_files(&run->resumed);
    release_copy(run);
    ddp_run_find_source(run);
    return status == DDP_OK && run->checkpoint_dir.path ? create_writer(run) : status;
}

void ddp_run_resume_print(const struct ddp_run *run)
{
    const int64_t steps = run->planned.plan.steps_per_epoch;
    char shown[DDP_TEXT_SHOWN];
    if (!run->out)
        return;
    if (run->is_resumed && run->first_step >= run->planned.plan.total_steps)
        ddp_terminal_print(run->out, "resumed from %s: all %" PRId64 " steps are done\n",
                           ddp_text_show(shown, run->resumed.path), run->first_step);
    else if (run->is_resumed)
        ddp_terminal_print(run->out,
                           "resumed from %s: %" PRId64 " of %" PRId64
                           " steps are done, epoch %" PRId64 " continues at its step %" PRId64 "\n",
                           ddp_text_show(shown, run->resumed.path), run->first_step,
                           run->planned.plan.total_steps, run->first_step / steps + 1,
                           run->first_step % steps + 1);
    if (run->is_resumed && !isnan(run->own_rate))
        ddp_terminal_print(run->out, "learning rate %g, as the program had set it\n",
                           run->own_rate);
    if (run->is_resumed)
        ddp_run_extension_print(run);
    else if (run->planned.options->resume)
        ddp_terminal_print(run->out,
                           "there is no checkpoint in %s yet: starting from the beginning\n",
                           ddp_text_show(shown, run->planned.options->checkpoint));
}

/* --- writing ---------------------------------------------------------------------------------- */

bool ddp_run_suits_others(const struct ddp_run *run)
{
    return !ddp_job_nodes_change(run->job) ||
           ddp_mode_local_synchronises(&run->planned.plan.local, run->step);
}

bool ddp_run_checkpoint_due(const struct ddp_run *run, int64_t step, bool last)
{
    const int64_t every = run->planned.options->checkpoint_every
                              ? run->planned.options->checkpoint_every
                              : run->planned.plan.steps_per_epoch;
    if (!run->planned.options->checkpoint || step == run->saved_step || !ddp_run_suits_others(run))
        return false;
    return last || step % every == 0 || step == run->end_step ||
           (run->planned.options->keep_best && step == run->best.step);
}

void ddp_run_describe_state(const struct ddp_run *run, struct ddp_checkpoint_state *state)
{
    const struct ddp_mode_apart apart = ddp_mode_apart_now(run->mode);
    const struct ddp_loss_scale scale = ddp_mode_loss_scale(run->mode);
    *state = (struct ddp_checkpoint_state){.cursor = cursor_at(run, run->step),
                                           .best = run->best,
                                           .apart = {apart.workers, apart.weights, apart.state},
                                           .has_rate = isfinite(run->own_rate),
                                           .rate = run->own_rate,
                                           .loss_scale = (double)scale.scale,
                                           .good_steps = scale.good,
                                           .skipped_steps = scale.skipped};
    ddp_run_collect_facts(run, &state->facts);
}

/* The copy for which training stops, unless it stops for the files. Collective in the modes that
 * share the state out. */
static enum ddp_status take_snapshot(struct ddp_run *run)
{
    float *const *arrays = NULL;
    enum ddp_status status = DDP_OK;
    const int64_t start = ddp_clock_ns();
    if (run->checkpoints)
        status = ddp_checkpoint_begin(run->checkpoints, &arrays);
    if (status == DDP_OK)
        status = ddp_mode_average(run->mode);
    run->checkpoint_wait_ns += ddp_clock_ns() - start;
    if (status == DDP_OK && !run->parts.fetch)
        status = ddp_run_fill_arrays(run, arrays);
    const struct ddp_mode_apart apart = ddp_mode_apart_now(run->mode);
    for (int i = 0; run->checkpoints && ddp_mode_state_name(run->mode, i); i++)
        if (!ddp_mode_has_state(run->mode, i, &apart))
            ddp_checkpoint_leave_out(run->checkpoints, 1 + i);
    return status;
}

/* Rank 0: adds what the program has of its own, and starts to write. */
static enum ddp_status start_checkpoint(struct ddp_run *run)
{
    struct ddp_checkpoint_state state;
    struct ddp_own own;
    enum ddp_status status = ddp_run_save_own(run, &own);
    if (status == DDP_OK && *own.file)
        status = ddp_checkpoint_add_own(run->checkpoints, own.file, own.bytes, own.count);
    if (status != DDP_OK)
        return status;
    ddp_run_describe_state(run, &state);
    return ddp_checkpoint_start(run->checkpoints, &state);
}

/* What all ranks do while one writes. */
static enum ddp_status write_pieces(struct ddp_run *run)
{
    if (run->planned.plan.rank != 0)
        return ddp_run_bring_pieces(run);
    enum ddp_status status = start_checkpoint(run);
    const enum ddp_status ended = ddp_run_end_pieces(run);
    return status == DDP_OK ? ended : status;
}

enum ddp_status ddp_run_checkpoint(struct ddp_run *run, int64_t step)
{
    const int64_t start = ddp_clock_ns();
    ddp_job_report(run->job, "checkpoint", step > 0 ? step - 1 : 0);
    ddp_train_metrics_begin_aside(run->metrics);
    enum ddp_status status = take_snapshot(run);
    if (status == DDP_OK && run->parts.fetch)
        status = write_pieces(run);
    else if (status == DDP_OK && run->checkpoints)
        status = start_checkpoint(run);
    run->saved_step = step;
    run->checkpoint_count++;
    if (status == DDP_OK)
        ddp_train_metrics_checkpoint(run->metrics, step);
    else
        ddp_train_metrics_end_aside(run->metrics, "checkpoint");
    run->checkpoint_ns += ddp_clock_ns() - start;
    return status;
}

enum ddp_status ddp_run_checkpoint_poll(const struct ddp_run *run)
{
    return run->checkpoints ? ddp_checkpoint_poll(run->checkpoints) : DDP_OK;
}

enum ddp_status ddp_run_checkpoint_finish(struct ddp_run *run, bool stopped)
{
    char name[DDP_CHECKPOINT_NAME], shown[DDP_TEXT_SHOWN];
    const int64_t start = ddp_clock_ns();
    if (!run->checkpoints)
        return DDP_OK;
    enum ddp_status status = ddp_checkpoint_wait(run->checkpoints);
    if (status != DDP_OK || !run->out)
        return status;
    ddp_checkpoint_name(name, run->saved_step);
    if (stopped)
        ddp_terminal_print(run->out,
                           "stopped on request after %" PRId64 " of %" PRId64
                           " steps; to continue: the same command with --resume\n",
                           run->saved_step, run->planned.plan.total_steps);
    if (run->checkpoint_count > 0)
        ddp_terminal_print(
            run->out,
            "checkpoint %s/%s (%" PRId64 " written; training stopped %.3f s to %s, %.3f s "
            "for one still being written, %.3f s at the end)\n",
            ddp_text_show(shown, run->checkpoint_dir.path), name, run->checkpoint_count,
            (double)(run->checkpoint_ns - run->checkpoint_wait_ns) * 1e-9,
            run->parts.fetch ? "write" : "copy", (double)run->checkpoint_wait_ns * 1e-9,
            (double)(ddp_clock_ns() - start) * 1e-9);
    return DDP_OK;
}

void ddp_run_checkpoint_close(struct ddp_run *run)
{
    ddp_checkpoint_writer_destroy(run->checkpoints);
    ddp_checkpoint_free(&run->resumed);
    release_copy(run);
    ddp_copy_close(run->copy, run->complete && !run->stopped);
    if (run->checkpoint_dir.path)
        ddp_checkpoint_dir_close(&run->checkpoint_dir);
}
