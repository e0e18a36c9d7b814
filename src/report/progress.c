/* SPDX-License-Identifier: MIT
 *
 * What a person sees while training: a bar on a terminal, plain lines elsewhere; lines of epochs
 * and evaluations on both. */
#include "config.h"

#include "report/metrics.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/portable_math.h"
#include "core/terminal.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BAR_MIN      10
#define BAR_MAX      40
#define LINE_COLUMNS 256
#define KEY_COLUMNS  2 /* the "^C" that a terminal shows */
#define REDRAW_NS    INT64_C(100000000)
#define SILENCE_NS   INT64_C(30000000000) /* without a terminal: a line at least this often */
#define SMOOTH_S     8.0                  /* over about how long speed is averaged */
#define PAUSE_S      2.0 /* a step this long, and PAUSE_FACTOR times the average: a stop by ^Z */
#define PAUSE_FACTOR 20

static const int ending_signals[] = {SIGINT, SIGTERM};

struct progress {
    FILE *out;
    const struct ddp_train_facts *facts;
    bool terminal;
    int64_t printed_ns;
    /* Averages that forget: seconds a step and items a second. */
    double step_seconds, item_rate, weight;
    /* Of the epoch so far. */
    double loss_sum, seconds, wait_seconds, items;
    int64_t steps;             /* with a loss */
    double evaluation_seconds; /* the last evaluation */
};

/* Columns for the bar, asked each time, for windows change. The last one stays free, for some
 * terminals wrap there, and so do those of a key that is pressed. */
static int bar_columns(const struct progress *p)
{
    const int columns = ddp_terminal_columns(fileno(p->out));
    const int room = (columns > 0 ? columns : 80) - 1 - KEY_COLUMNS;
    return room > LINE_COLUMNS ? LINE_COLUMNS : room;
}

/* "1:05", "2:03:59", "3 d 4 h". */
static const char *clock_text(double seconds, char *text, size_t size)
{
    int64_t s = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 172800)
        snprintf(text, size, "%" PRId64 " d %d h", s / 86400, (int)(s / 3600 % 24));
    else if (s >= 3600)
        snprintf(text, size, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(text, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return text;
}

/* Of the steps that are left, and of the evaluations between them. */
static double seconds_left(const struct progress *p, const struct ddp_train_event *step)
{
    const int64_t every = p->facts->evaluation_steps;
    const int64_t end = p->facts->total_steps;
    const int64_t evaluations = (end + every - 1) / every - step->step / every;
    return p->step_seconds * (double)(end - step->step - 1) +
           p->evaluation_seconds * (double)evaluations;
}

static void average(struct progress *p, const struct ddp_train_event *step)
{
    if (p->weight > 0 && step->seconds > PAUSE_S && step->seconds > PAUSE_FACTOR * p->step_seconds)
        return;
    const double keep = ddp_math_exp(-step->seconds / SMOOTH_S);
    const double weight = p->weight * keep + step->seconds;
    if (weight <= 0)
        return;
    p->item_rate = (p->item_rate * p->weight * keep + step->items) / weight;
    /* An average over time too: the steps in it count as long as they took. */
    const double steps_rate =
        ((p->step_seconds > 0 ? p->weight * keep / p->step_seconds : 0) + 1) / weight;
    p->step_seconds = 1 / steps_rate;
    p->weight = weight;
}

/* Appends what fits whole. */
static int append(char *line, int used, int columns, const char *text)
{
    const int length = (int)strlen(text);
    if (used + length > columns)
        return used;
    memcpy(line + used, text, (size_t)length + 1);
    return used + length;
}

static int append_bar(char *line, int used, int width, double share)
{
    const int full = (int)(share * width);
    line[used++] = '[';
    for (int i = 0; i < width; i++)
        line[used++] = i < full ? '=' : i == full ? '>' : ' ';
    line[used++] = ']';
    line[used++] = ' ';
    line[used] = '\0';
    return used;
}

/* "epoch 2/5 [=====>    ] 412/938  loss 0.4312  31200 samples/s  lr 0.041  ETA 0:21". What is more
 * important stays longest when there is little room: count, loss, ETA, speed, rate, bar, epoch. */
static int compose(const struct progress *p, const struct ddp_train_event *step, int columns,
                   char *line)
{
    enum { EPOCH, BAR, COUNT, LOSS, SPEED, RATE, ETA, PARTS };
    static const int order[] = {COUNT, LOSS, ETA, SPEED, RATE, EPOCH};
    char text[PARTS][64] = {""}, eta[32];
    bool shown[PARTS] = {false};
    const int64_t begin = step->step - step->in_epoch;
    int64_t done = step->step + 1, of = p->facts->total_steps;
    if (p->facts->epochs) {
        done = step->in_epoch + 1;
        of = of - begin < p->facts->steps_per_epoch ? of - begin : p->facts->steps_per_epoch;
        snprintf(text[EPOCH], sizeof text[EPOCH], "epoch %" PRId64 "/%" PRId64 " ", step->epoch + 1,
                 p->facts->epochs);
    } else {
        snprintf(text[EPOCH], sizeof text[EPOCH], "step ");
    }
    snprintf(text[COUNT], sizeof text[COUNT], "%" PRId64 "/%" PRId64, done, of);
    snprintf(text[LOSS], sizeof text[LOSS], "  loss %.4f", step->loss);
    snprintf(text[SPEED], sizeof text[SPEED], "  %.*f %s/s", p->item_rate < 10 ? 1 : 0,
             p->item_rate, step->unit);
    snprintf(text[RATE], sizeof text[RATE], "  lr %.3g", step->rate);
    snprintf(text[ETA], sizeof text[ETA], "  ETA %s",
             clock_text(seconds_left(p, step), eta, sizeof eta));
    int room = columns;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        const int length = (int)strlen(text[order[i]]);
        shown[order[i]] = length <= room;
        room -= shown[order[i]] ? length : 0;
    }
    int used = 0;
    line[0] = '\0';
    for (int part = 0; part < PARTS; part++) {
        if (part == BAR && room >= BAR_MIN + 3)
            used = append_bar(line, used, room - 3 > BAR_MAX ? BAR_MAX : room - 3,
                              (double)done / (double)of);
        else if (shown[part])
            used = append(line, used, columns, text[part]);
    }
    return used;
}

static void draw(struct progress *p, const struct ddp_train_event *step, int64_t now)
{
    char line[LINE_COLUMNS + 1];
    ddp_bar_clear();
    const int length = compose(p, step, bar_columns(p), line);
    ddp_bar_shown(length); /* a signal may end this process as soon as it stands there, */
    fputs(line, p->out);
    fflush(p->out);
    ddp_bar_shown(length); /* and a message may have come before */
    p->printed_ns = now;
}

static void print_step(struct progress *p, const struct ddp_train_event *step, int64_t now)
{
    char eta[32];
    ddp_bar_clear();
    ddp_terminal_print(
        p->out, "step %" PRId64 "/%" PRId64 ": loss %.6f, learning rate %g, %.*f %s/s, ETA %s\n",
        step->step + 1, p->facts->total_steps, step->loss, step->rate, p->item_rate < 10 ? 1 : 0,
        p->item_rate, step->unit, clock_text(seconds_left(p, step), eta, sizeof eta));
    fflush(p->out);
    p->printed_ns = now;
}

static void end_epoch(struct progress *p, const struct ddp_train_event *step, int64_t now)
{
    char of[32] = "";
    ddp_bar_clear();
    if (p->facts->epochs)
        snprintf(of, sizeof of, "/%" PRId64, p->facts->epochs);
    ddp_terminal_print(
        p->out, "epoch %" PRId64 "%s: loss %.4f, %.2f s, %.0f %s/s, %.0f %% waiting for data\n",
        step->epoch + 1, of, p->steps > 0 ? p->loss_sum / (double)p->steps : NAN, p->seconds,
        p->items / (p->seconds + 1e-9), step->unit, 100.0 * p->wait_seconds / (p->seconds + 1e-9));
    fflush(p->out);
    p->loss_sum = p->seconds = p->wait_seconds = p->items = 0;
    p->steps = 0;
    p->printed_ns = now;
}

static void progress_pause(void *state)
{
    (void)state;
    ddp_bar_clear();
}

static enum ddp_status progress_open(void **state, const struct ddp_train_facts *facts)
{
    const char *term = getenv("TERM");
    if (!facts->out)
        return DDP_OK;
    struct progress *p = ddp_array_alloc(1, sizeof *p);
    if (!p)
        return DDP_ERR_MEMORY;
    p->out = facts->out;
    p->facts = facts;
    p->terminal = isatty(fileno(p->out)) && term && *term && strcmp(term, "dumb") != 0;
    p->printed_ns = p->terminal ? 0 : ddp_clock_ns(); /* the first step shows the bar */
    if (p->terminal) {
        ddp_bar_set_terminal(fileno(p->out));
        for (size_t i = 0; i < sizeof ending_signals / sizeof ending_signals[0]; i++)
            ddp_bar_guard(ending_signals[i]);
    }
    *state = p;
    return DDP_OK;
}

static void progress_step(void *state, const struct ddp_train_event *step)
{
    struct progress *p = state;
    const int64_t now = ddp_clock_ns();
    if (step->counted > 0) { /* else there is no loss */
        p->loss_sum += step->loss;
        p->steps++;
    }
    p->seconds += step->seconds;
    p->wait_seconds += step->wait_seconds;
    p->items += step->items;
    average(p, step);
    const struct ddp_report_options *options = &p->facts->options;
    const bool line_due = options->log_every > 0 && (step->step + 1) % options->log_every == 0;
    if (options->verbose) {
        ddp_bar_clear();
        fprintf(p->out, "epoch %" PRId64 " step %" PRId64 ": loss %.6f, learning rate %g\n",
                step->epoch + 1, step->in_epoch + 1, step->loss, step->rate);
    } else if (line_due || (!p->terminal && now - p->printed_ns >= SILENCE_NS)) {
        print_step(p, step, now);
    } else if (p->terminal && now - p->printed_ns >= REDRAW_NS) {
        draw(p, step, now);
    }
    if (step->last_of_epoch)
        end_epoch(p, step, now);
}

static const char *best_text(const struct ddp_train_evaluation *evaluation, char *text, size_t size)
{
    char patience[64] = "";
    if (evaluation->since_best == 0)
        return ", the lowest so far";
    if (evaluation->patience > 0)
        snprintf(patience, sizeof patience, " (patience %" PRId64 " of %" PRId64 ")",
                 evaluation->since_best, evaluation->patience);
    if (evaluation->best_step > 0)
        snprintf(text, size, ", lowest %.4f at step %" PRId64 "%s", evaluation->best_loss,
                 evaluation->best_step, patience);
    else
        snprintf(text, size, "%s", patience);
    return text;
}

static void progress_evaluation(void *state, const struct ddp_train_evaluation *evaluation)
{
    struct progress *p = state;
    const struct ddp_train_scores *scores = &evaluation->scores;
    char step[64] = "", accuracy[64] = "", errors[128] = "", perplexity[64] = "", bits[64] = "",
         rewards[96] = "", best[192] = "";
    p->evaluation_seconds = evaluation->seconds;
    if (evaluation->shows_step)
        snprintf(step, sizeof step, "step %" PRId64 "/%" PRId64 ": ", evaluation->step + 1,
                 p->facts->total_steps);
    if (!isnan(scores->accuracy))
        snprintf(accuracy, sizeof accuracy, "test accuracy %.2f %%, ", 100 * scores->accuracy);
    if (scores->has_perplexity)
        snprintf(perplexity, sizeof perplexity, ", perplexity %.5g", scores->perplexity);
    if (scores->has_bits_per_byte)
        snprintf(bits, sizeof bits, ", %.4f bits per byte", scores->bits_per_byte);
    if (scores->has_errors)
        snprintf(errors, sizeof errors,
                 ", R2 %.4f, mean squared error %.5g, mean absolute error %.5g", scores->r2,
                 scores->squared_error, scores->absolute_error);
    if (scores->has_preferences)
        snprintf(rewards, sizeof rewards, ", rewards of chosen %.4f, of rejected %.4f",
                 scores->preferences.chosen, scores->preferences.rejected);
    if (scores->has_choices)
        snprintf(accuracy, sizeof accuracy, "test accuracy %.2f %%, by length %.2f %%, ",
                 100 * scores->accuracy, 100 * scores->normalized);
    if (scores->has_preferences && !isnan(scores->preferences.accuracy))
        snprintf(accuracy, sizeof accuracy, "%.2f %% in order, ",
                 100 * scores->preferences.accuracy);
    ddp_bar_clear();
    ddp_terminal_print(p->out, "%s%stest loss %.4f%s%s%s%s%s\n", step, accuracy, scores->loss,
                       perplexity, bits, errors, rewards,
                       evaluation->shows_best ? best_text(evaluation, best, sizeof best) : "");
    fflush(p->out);
    p->printed_ns = ddp_clock_ns();
}

static void progress_text(void *state, const struct ddp_train_text *text)
{
    struct progress *p = state;
    ddp_bar_clear();
    fprintf(p->out, "--- step %" PRId64, text->step + 1);
    if (text->count > 1)
        fprintf(p->out, ", sample %" PRId64 " of %" PRId64, text->index + 1, text->count);
    fprintf(p->out, " ---\n%s\n", text->text);
    if (text->index == text->count - 1)
        fputs("---\n", p->out);
    fflush(p->out);
    p->printed_ns = ddp_clock_ns();
}

static void progress_close(void *state, enum ddp_status status)
{
    struct progress *p = state;
    (void)status;
    ddp_bar_clear();
    if (p->terminal) {
        ddp_bar_set_terminal(-1);
        for (size_t i = 0; i < sizeof ending_signals / sizeof ending_signals[0]; i++)
            ddp_bar_unguard(ending_signals[i]);
    }
    fflush(p->out);
    free(p);
}

const struct ddp_train_sink_ops ddp_train_sink_progress = {
    .open = progress_open,
    .step = progress_step,
    .evaluation = progress_evaluation,
    .text = progress_text,
    .pause = progress_pause,
    .close = progress_close,
};
