/* SPDX-License-Identifier: MIT
 *
 * Resuming with another number of steps. A rate that falls towards the end of the run is planned
 * anew on request only (--extend): what a checkpoint says of the rate is read here, replaced by the
 * new plan, and told apart from differences that make it another run. */
#include "config.h"

#include "train/run.h"

#include "core/log.h"
#include "core/parse.h"
#include "core/terminal.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

#define LITTLE_RATE 0.01 /* of the highest: hardly anything is learned */

/* --- what was planned ------------------------------------------------------------------------- */

/* Takes the words of `format` off a text, in which a ? stands for a word: "? to ? over ? steps".
 *   words [out]  those, in a text of their own, which is overwritten */
static bool split(char *text, const char *format, char *words[4])
{
    char copy[64], *rest = copy;
    int count = 0;
    snprintf(copy, sizeof copy, "%s", format);
    while (rest) {
        const char *wanted = strsep(&rest, " ");
        char *word = strsep(&text, " ");
        if (!word)
            return false;
        if (strcmp(wanted, "?") == 0)
            words[count++] = word;
        else if (strcmp(wanted, word) != 0)
            return false;
    }
    return !text;
}

static bool read_number(const struct ddp_checkpoint_facts *facts, const char *name, double *number)
{
    return ddp_parse_double(ddp_checkpoint_fact_value(facts, name), 0, DBL_MAX, number);
}

/* The schedule of the run that wrote these facts. false: its rate does not depend on the number of
 * steps. */
static bool read_schedule(struct ddp_schedule *schedule, const struct ddp_checkpoint_facts *facts)
{
    char text[sizeof facts->facts[0].value], *words[4];
    *schedule = (struct ddp_schedule){.kind = DDP_SCHEDULE_LINEAR};
    snprintf(text, sizeof text, "%s", ddp_checkpoint_fact_value(facts, DDP_FACT_SCHEDULE));
    if (!split(text, "? to ? over ? steps", words))
        return false;
    if (strcmp(words[0], ddp_schedule_names[DDP_SCHEDULE_COSINE]) == 0)
        schedule->kind = DDP_SCHEDULE_COSINE;
    else if (strcmp(words[0], ddp_schedule_names[DDP_SCHEDULE_LINEAR]) != 0)
        return false;
    if (!ddp_parse_double(words[1], 0, DBL_MAX, &schedule->min_rate) ||
        !ddp_parse_int64(words[2], 1, INT64_MAX, &schedule->total_steps) ||
        !read_number(facts, DDP_FACT_RATE, &schedule->rate) ||
        !ddp_parse_int64(ddp_checkpoint_fact_value(facts, DDP_FACT_WARMUP), 0, INT64_MAX,
                         &schedule->warmup_steps))
        return false;
    snprintf(text, sizeof text, "%s", ddp_checkpoint_fact_value(facts, DDP_FACT_EXTENDED));
    if (split(text, "at step ? from rate ?", words))
        return ddp_parse_int64(words[0], 1, INT64_MAX, &schedule->extended_at) &&
               ddp_parse_double(words[1], 0, DBL_MAX, &schedule->extended_rate);
    return true;
}

/* --- what is planned now ---------------------------------------------------------------------- */

/* --extend begins from another rate where --lr asks for one. */
static bool takes_rate(const struct ddp_run *run)
{
    return run->planned.options->extend && ddp_train_given(run->planned.options, "lr");
}

static bool is_same_plan(const struct ddp_run *run, const struct ddp_schedule *now)
{
    const struct ddp_schedule *before = &run->schedule_before;
    return now->total_steps == before->total_steps && now->min_rate == before->min_rate &&
           (now->rate == before->rate || !takes_rate(run));
}

void ddp_run_take_schedule(struct ddp_run *run)
{
    struct ddp_schedule *now = &run->planned.plan.schedule;
    const int64_t step = run->resumed.state.cursor.step;
    if (!read_schedule(&run->schedule_before, &run->resumed.state.facts) ||
        run->schedule_before.kind != now->kind) {
        run->schedule_before = *now;
    } else if (is_same_plan(run, now)) {
        now->extended_at = run->schedule_before.extended_at;
        now->extended_rate = run->schedule_before.extended_rate;
    } else if (run->planned.options->extend && now->total_steps > step) {
        ddp_schedule_extend(now, &run->schedule_before, step);
        run->is_extended = true;
        if (now->extended_at > 0 && now->extended_rate < LITTLE_RATE * now->rate)
            ddp_log(DDP_LOG_WARNING,
                    "--extend: after %" PRId64 " steps the learning rate has fallen from %.3g to "
                    "%.3g, at which little is learned: give --lr RATE too to begin from a higher "
                    "one",
                    step, now->rate, now->extended_rate);
    }
}

/* --- what makes it another run ---------------------------------------------------------------- */

static enum ddp_status fail_length(const struct ddp_run *run,
                                   const struct ddp_checkpoint_facts *facts)
{
    const struct ddp_checkpoint *from = &run->resumed;
    const struct ddp_train_options *options = run->planned.options;
    const int64_t done = from->state.cursor.step, steps = run->planned.plan.total_steps;
    if (steps < done)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: %" PRId64 " steps are done, and --%s %" PRId64 " asks for %" PRId64
                        " in all: ask for more, or resume from an earlier checkpoint with "
                        "--resume-from",
                        from->path, done, options->steps ? "steps" : "epochs",
                        options->steps ? options->steps : run->planned.plan.epochs, steps);
    return ddp_fail(
        DDP_ERR_INVALID,
        "%s: the learning rate was planned as %s, and would now be %s: add --extend to plan it "
        "anew from here, after %" PRId64 " steps, and to keep the optimizer's state",
        from->path, ddp_checkpoint_fact_value(&from->state.facts, DDP_FACT_SCHEDULE),
        ddp_checkpoint_fact_value(facts, DDP_FACT_SCHEDULE), done);
}

enum ddp_status ddp_run_match(const struct ddp_run *run, const struct ddp_checkpoint_facts *facts)
{
    const char *const names[] = {DDP_FACT_SCHEDULE, DDP_FACT_EXTENDED,
                                 takes_rate(run) ? DDP_FACT_RATE : NULL};
    const struct ddp_checkpoint *from = &run->resumed;
    const struct ddp_schedule *now = &run->planned.plan.schedule;
    const bool shorter = run->planned.plan.total_steps < from->state.cursor.step;
    const bool differs = ddp_schedule_depends_on_length(now) &&
                         run->schedule_before.kind == now->kind && !is_same_plan(run, now);
    struct ddp_checkpoint_state same = from->state; /* except the length */
    const bool again = run->planned.options->verify_step > 0 || run->from_copy;
    char unsaid[256];
    for (size_t i = 0; differs && i < sizeof names / sizeof names[0]; i++)
        if (names[i])
            ddp_checkpoint_fact_add(&same.facts, names[i], "%s",
                                    ddp_checkpoint_fact_value(facts, names[i]));
    if ((differs && !run->is_extended) || shorter) {
        ddp_log_hold(unsaid, sizeof unsaid);
        const enum ddp_status status =
            ddp_checkpoint_state_match(&same, from->path, run->planned.options->seed, facts, again);
        ddp_log_hold(NULL, 0);
        if (status == DDP_OK)
            return fail_length(run, facts);
        same = from->state; /* the length is one difference of several: all are told */
    }
    return ddp_checkpoint_state_match(&same, from->path, run->planned.options->seed, facts, again);
}

/* --- what is said ----------------------------------------------------------------------------- */

void ddp_run_extension_print(const struct ddp_run *run)
{
    const struct ddp_schedule *now = &run->planned.plan.schedule;
    const int64_t step = run->first_step;
    const double rate = ddp_schedule_rate(now, step);
    if (!run->is_extended)
        return;
    struct ddp_terminal_text line;
    FILE *out = ddp_terminal_begin(&line, run->out);
    fprintf(out,
            "extended: %" PRId64 " steps were planned, and now %" PRId64
            "; the learning rate goes from %.3g in step %" PRId64 " ",
            run->schedule_before.total_steps, now->total_steps, rate, step + 1);
    if (now->extended_at == 0)
        fprintf(out, "on to %.3g in step %" PRId64 ", and then ", now->rate, now->warmup_steps);
    fprintf(out, "to %.3g at the new end (%s)\n", now->min_rate, ddp_schedule_names[now->kind]);
    ddp_terminal_end(&line);
}
