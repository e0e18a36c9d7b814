/* SPDX-License-Identifier: MIT
 *
 * See run_table.h. */
#include "config.h"

#include "reporter/run_table.h"

#include "core/memory.h"
#include "reporter/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUN, MODE, STEPS, LOSS, TEST_LOSS, ACCURACY, MS, SPREAD, SPEED, RESTARTS, END, COLUMNS };

enum ddp_status step_times_of(struct step_times *times, const struct log_step *steps, size_t count)
{
    const size_t first = count > 1;
    double *seconds = ddp_array_alloc(count + 1, sizeof *seconds);
    size_t known = 0;
    if (!seconds)
        return DDP_ERR_MEMORY;
    for (size_t i = first; i < count; i++)
        if (!isnan(steps[i].seconds))
            seconds[known++] = steps[i].seconds;
    times->median = units_quantile(seconds, known, 0.5);
    times->low = units_quantile(seconds, known, 0.25);
    times->high = units_quantile(seconds, known, 0.75);
    free(seconds);
    return DDP_OK;
}

static void set_titles(struct table *table, bool tokens)
{
    static const char *const titles[COLUMNS] = {"run",       "mode",     "steps",   "loss",
                                                "test loss", "accuracy", "ms/step", "25..75 %",
                                                NULL,        "restarts", "end"};
    for (size_t c = 0; c < COLUMNS; c++)
        table_set(table, 0, c, "%s", titles[c] ? titles[c] : tokens ? "tokens/s" : "samples/s");
}

/* "-" for an end that is not known: the run goes on, or was killed. */
static const char *end_of(const struct log_run *run)
{
    return run->status[0] == '\0'                ? "-"
           : run->ended_early                    ? "early"
           : strcmp(run->status, "success") == 0 ? "done"
                                                 : run->status;
}

static enum ddp_status set_row(struct table *table, size_t row, const struct log_run *run)
{
    struct step_times times;
    char text[2][UNITS_TEXT];
    const int64_t units = run->replicas > 1 ? run->replicas : run->world_size;
    enum ddp_status status = step_times_of(&times, run->steps, run->step_count);
    if (status != DDP_OK)
        return status;
    const struct log_step *last = run->step_count ? &run->steps[run->step_count - 1] : NULL;
    const struct log_evaluation *test =
        run->evaluation_count ? &run->evaluations[run->evaluation_count - 1] : NULL;
    const double items = last ? run->steps[0].items : NAN;
    table_set(table, row, RUN, "%s", run->name);
    table_set(table, row, MODE, "%s x%" PRId64, run->mode, units);
    table_set(table, row, STEPS, "%" PRId64 "/%" PRId64, last ? last->step : 0, run->total_steps);
    table_set(table, row, LOSS, "%s", units_number(text[0], last ? last->loss : NAN));
    table_set(table, row, TEST_LOSS, "%s", units_number(text[0], test ? test->loss : NAN));
    if (test && !isnan(test->accuracy))
        table_set(table, row, ACCURACY, "%.2f %%", 100 * test->accuracy);
    else
        table_set(table, row, ACCURACY, "-");
    table_set(table, row, MS, "%s", units_number(text[0], 1e3 * times.median));
    table_set(table, row, SPREAD, "%s..%s", units_number(text[0], 1e3 * times.low),
              units_number(text[1], 1e3 * times.high));
    table_set(table, row, SPEED, "%s", units_number(text[0], items / times.median));
    table_set(table, row, RESTARTS, "%zu", run->restart_count);
    table_set(table, row, END, "%s", end_of(run));
    return DDP_OK;
}

enum ddp_status run_table_make(struct table *table, const struct log_run *runs, size_t count)
{
    enum ddp_status status = table_make(table, count + 1, COLUMNS);
    if (status != DDP_OK)
        return status;
    set_titles(table, count > 0 && runs[0].tokens);
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        status = set_row(table, i + 1, &runs[i]);
    return status;
}
