/* SPDX-License-Identifier: MIT
 *
 * See best.h. */
#include "config.h"

#include "train/best.h"

#include "core/log.h"
#include "core/terminal.h"
#include "core/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- the best so far -------------------------------------------------------------------------- */

/* Does anything depend on the best evaluation? */
static bool seeks_best(const struct ddp_run *run)
{
    return run->planned.options->patience > 0 || run->planned.options->keep_best;
}

/* Was the run to end at the last evaluation? */
static bool out_of_patience(const struct ddp_run *run)
{
    return run->planned.options->patience > 0 && run->best.since >= run->planned.options->patience;
}

/* Rank 0: what the evaluations of this run are of, so that only losses that can be compared are. */
static enum ddp_status name_samples(const struct ddp_run *run, char *text, size_t size)
{
    uint64_t fingerprint;
    const int64_t all = ddp_dataset_info(run->planned.test)->sample_count;
    const int64_t samples =
        run->planned.plan.eval_samples < all ? run->planned.plan.eval_samples : all;
    enum ddp_status status = ddp_dataset_fingerprint(run->planned.test, &fingerprint);
    if (status == DDP_OK)
        snprintf(text, size, "%" PRId64 " of %016" PRIx64, samples, fingerprint);
    return status;
}

/* Rank 0: from the checkpoint. */
static enum ddp_status take_best(struct ddp_run *run)
{
    struct ddp_checkpoint_best *best = &run->best;
    char samples[sizeof best->samples] = "";
    if (run->is_resumed)
        *best = run->resumed.state.best;
    if (!run->evaluator)
        return DDP_OK; /* what is known is kept for a run that evaluates again */
    enum ddp_status status = name_samples(run, samples, sizeof samples);
    if (status != DDP_OK)
        return status;
    if (*best->samples && strcmp(best->samples, samples) != 0) {
        if (best->step > 0 && seeks_best(run))
            ddp_log(DDP_LOG_WARNING,
                    "%s: its best evaluation, after step %" PRId64
                    ", was on other test samples: this run begins a new search for the best",
                    run->resumed.path, best->step);
        *best = (struct ddp_checkpoint_best){0};
    }
    memcpy(best->samples, samples, sizeof samples);
    return DDP_OK;
}

/* A kill may have come between a checkpoint and its link. */
static void restore_link(const struct ddp_run *run)
{
    const struct ddp_checkpoint_dir *dir = &run->checkpoint_dir;
    const int64_t best = run->best.step;
    if (!run->planned.options->keep_best || best == 0 || ddp_checkpoint_dir_best(dir) == best)
        return;
    if (ddp_checkpoint_looks_whole(dir->fd, best))
        ddp_checkpoint_dir_set_best(dir, best);
    else
        ddp_log(DDP_LOG_WARNING,
                "%s: the checkpoint of the best evaluation so far, after step %" PRId64
                ", is not there: only a better one will be kept",
                dir->path, best);
}

enum ddp_status ddp_run_best_open(struct ddp_run *run)
{
    struct ddp_checkpoint_best *best = &run->best;
    enum ddp_status status = DDP_OK;
    if (run->planned.plan.rank == 0 && (run->is_resumed || run->planned.options->checkpoint))
        status = take_best(run);
    if (status == DDP_OK && run->checkpoint_dir.path && run->planned.plan.rank == 0)
        restore_link(run);
    if (status == DDP_OK && run->is_resumed)
        status = ddp_comm_broadcast(run->comm, &best->step, 1, DDP_I64, 0);
    if (status == DDP_OK && run->is_resumed)
        status = ddp_comm_broadcast(run->comm, &best->loss, 1, DDP_F64, 0);
    if (status == DDP_OK && run->is_resumed)
        status = ddp_comm_broadcast(run->comm, &best->since, 1, DDP_I64, 0);
    run->end_step = run->planned.plan.total_steps;
    if (out_of_patience(run) && run->first_step < run->end_step)
        run->end_step = run->first_step;
    return status;
}

static void judge(struct ddp_run *run, int64_t step, double loss)
{
    struct ddp_checkpoint_best *best = &run->best;
    if (isfinite(loss) && (best->step == 0 || loss < best->loss)) {
        best->step = step;
        best->loss = loss;
        best->since = 0;
    } else {
        best->since++;
    }
    if (out_of_patience(run))
        run->end_step = step;
}

/* --- evaluating ------------------------------------------------------------------------------- */

bool ddp_run_evaluation_due(const struct ddp_run *run, int64_t step)
{
    return step % ddp_planned_evaluation_steps(&run->planned) == 0 ||
           step == run->planned.plan.total_steps;
}

enum ddp_status ddp_run_evaluate(struct ddp_run *run, int64_t step, struct ddp_train_scores *scores)
{
    struct ddp_train_evaluation evaluation = {
        .step = step - 1,
        .shows_step = run->planned.options->eval_every > 0,
        .shows_best = seeks_best(run),
        .patience = run->planned.options->patience,
    };
    ddp_job_report(run->job, "evaluate", step - 1);
    ddp_train_metrics_begin_aside(run->metrics);
    enum ddp_status status = ddp_mode_average(run->mode);
    if (status == DDP_OK)
        status = ddp_train_evaluator_run(run->evaluator, &evaluation.scores);
    if (status != DDP_OK)
        return status;
    if (step > run->first_step) /* not once more that of the checkpoint */
        judge(run, step, evaluation.scores.loss);
    evaluation.best_step = run->best.step;
    evaluation.best_loss = run->best.loss;
    evaluation.since_best = run->best.since;
    evaluation.ends_run = out_of_patience(run) && step < run->planned.plan.total_steps;
    ddp_train_metrics_evaluation(run->metrics, &evaluation);
    if (scores)
        *scores = evaluation.scores;
    if (evaluation.ends_run && run->out) {
        ddp_train_metrics_pause(run->metrics);
        ddp_terminal_print(
            run->out,
            "early end after %" PRId64 " of %" PRId64 " steps: the test loss did not fall in "
            "%" PRId64 " evaluation%s%s\n",
            step, run->planned.plan.total_steps, run->best.since, run->best.since == 1 ? "" : "s",
            step == run->first_step ? "; a larger --patience continues" : "");
    }
    return DDP_OK;
}

/* --- what is printed -------------------------------------------------------------------------- */

/* Where the best checkpoint is. */
static const char *best_place(const struct ddp_run *run, char *text, size_t size)
{
    const struct ddp_checkpoint_dir *dir = &run->checkpoint_dir;
    const int64_t step = run->best.step;
    char name[DDP_CHECKPOINT_NAME], shown[DDP_TEXT_SHOWN];
    if (!run->planned.options->keep_best)
        return " (--keep N,best keeps a checkpoint of it)";
    ddp_text_show(shown, dir->path);
    ddp_checkpoint_name(name, step);
    if (ddp_checkpoint_dir_best(dir) == step)
        snprintf(text, size, ": %s/%s, which is %s", shown, DDP_CHECKPOINT_BEST, name);
    else if (ddp_checkpoint_looks_whole(dir->fd, step))
        snprintf(text, size, ": %s/%s", shown, name);
    else
        snprintf(text, size, ": its checkpoint is not in %s", shown);
    return text;
}

void ddp_run_best_print(const struct ddp_run *run)
{
    const struct ddp_checkpoint_best *best = &run->best;
    char place[DDP_TEXT_SHOWN + 128];
    if (!run->out || !seeks_best(run))
        return;
    ddp_train_metrics_pause(run->metrics);
    if (best->step > 0)
        ddp_terminal_print(run->out, "best     test loss %.4f after step %" PRId64 "%s\n",
                           best->loss, best->step, best_place(run, place, sizeof place));
    else
        fprintf(run->out, "best     none: %s\n",
                best->since > 0 ? "no test loss was finite" : "nothing was evaluated yet");
}
