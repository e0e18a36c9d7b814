/* SPDX-License-Identifier: MIT
 *
 * See progress.h. */
#include "config.h"

#include "train/progress.h"

#include "core/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_WIDTH    24
#define BAR_COLUMNS  60 /* on narrower terminals the numbers matter more than the bar */
#define REDRAW_NS    100000000
#define LINE_COLUMNS 80 /* used at most */

void ddp_train_progress_start(struct ddp_train_progress *progress, FILE *out)
{
    const char *term = getenv("TERM");
    progress->out = out;
    progress->terminal = out && isatty(fileno(out)) && term && *term && strcmp(term, "dumb") != 0;
    progress->start_ns = ddp_clock_ns();
}

void ddp_train_progress_epoch(struct ddp_train_progress *progress, int64_t step,
                              double wait_seconds)
{
    progress->epoch_ns = ddp_clock_ns();
    progress->epoch_first_step = step;
    progress->loss_sum = 0;
    progress->wait_seconds = wait_seconds;
}

/* Columns that a line may fill, asked each time, for windows change; the last one stays free, where
 * some terminals wrap. */
static int line_columns(const struct ddp_train_progress *progress)
{
    struct winsize size;
    int columns = LINE_COLUMNS;
    if (ioctl(fileno(progress->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 &&
        size.ws_col < columns)
        columns = size.ws_col;
    return columns - 1;
}

void ddp_train_progress_clear(struct ddp_train_progress *progress)
{
    if (progress->bar_shown)
        fprintf(progress->out, "\r%*s\r", line_columns(progress), "");
    progress->bar_shown = false;
}

/* "1:05", "2:03:59". */
static const char *clock_text(double seconds, char *text, size_t size)
{
    int64_t s = seconds > 0 && seconds < 1e9 ? (int64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(text, size, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(text, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return text;
}

static void draw_bar(struct ddp_train_progress *progress, int64_t step, float loss, int64_t now)
{
    const int64_t in_epoch = step - progress->epoch_first_step + 1;
    int64_t of = progress->total_steps - progress->epoch_first_step;
    if (of > progress->steps_per_epoch)
        of = progress->steps_per_epoch;
    const double seconds = (double)(now - progress->start_ns) / 1e9;
    const double left = seconds / (double)(step + 1) * (double)(progress->total_steps - step - 1);
    const double rate = (double)in_epoch * (double)progress->samples_per_step /
                        ((double)(now - progress->epoch_ns) / 1e9 + 1e-9);
    char bar[BAR_WIDTH + 1], eta[32];
    const int full = (int)((double)in_epoch / (double)of * BAR_WIDTH);
    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    bar[BAR_WIDTH] = '\0';
    char line[192];
    const int columns = line_columns(progress);
    int used = columns >= BAR_COLUMNS ? snprintf(line, sizeof line, "[%s] ", bar) : 0;
    snprintf(line + used, sizeof line - (size_t)used,
             "%" PRId64 "/%" PRId64 "  loss %.4f  %.0f samples/s  ETA %s", in_epoch, of,
             (double)loss, rate, clock_text(left, eta, sizeof eta));
    fprintf(progress->out, "\r%-*.*s", columns, columns, line);
    fflush(progress->out);
    progress->bar_shown = true;
    progress->drawn_ns = now;
}

void ddp_train_progress_step(struct ddp_train_progress *progress, int64_t step, float loss)
{
    progress->loss_sum += (double)loss;
    if (!progress->out)
        return;
    if (progress->log_every > 0 && (step + 1) % progress->log_every == 0) {
        ddp_train_progress_clear(progress);
        fprintf(progress->out, "step %" PRId64 "/%" PRId64 ": loss %.6f\n", step + 1,
                progress->total_steps, (double)loss);
        fflush(progress->out);
    }
    if (!progress->terminal)
        return;
    int64_t now = ddp_clock_ns();
    if (now - progress->drawn_ns >= REDRAW_NS)
        draw_bar(progress, step, loss, now);
}

void ddp_train_progress_epoch_end(struct ddp_train_progress *progress, int64_t epoch, int64_t step,
                                  double wait_seconds)
{
    if (!progress->out)
        return;
    const double seconds = (double)(ddp_clock_ns() - progress->epoch_ns) / 1e9;
    const int64_t steps = step - progress->epoch_first_step + 1;
    const double samples = (double)steps * (double)progress->samples_per_step;
    ddp_train_progress_clear(progress);
    fprintf(progress->out, "epoch %" PRId64, epoch + 1);
    if (progress->epochs)
        fprintf(progress->out, "/%" PRId64, progress->epochs);
    fprintf(progress->out, ": loss %.4f, %.2f s, %.0f samples/s, %.0f %% waiting for data\n",
            progress->loss_sum / (double)steps, seconds, samples / (seconds + 1e-9),
            100.0 * (wait_seconds - progress->wait_seconds) / (seconds + 1e-9));
    fflush(progress->out);
}
