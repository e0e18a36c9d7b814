/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a log of trainer --log. What is accepted goes into a table and into curves. */
#include "config.h"

#include "reporter/run_table.h"
#include "reporter/series.h"
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <string.h>

static void use(const struct log_run *run)
{
    for (int panel = 0; panel < PANELS; panel++)
        for (int axis = X_STEP; axis <= X_TIME; axis++) {
            struct series series;
            if (series_make(&series, run, (enum panel)panel, (enum x_axis)axis) == DDP_OK) {
                assert(series.count == run->step_count);
                for (size_t i = 0; i < run->restart_count; i++)
                    series_place(&series, run, run->restarts[i].step);
                series_smooth(&series);
                series_thin(&series);
                assert(series.count <= SERIES_POINTS);
            }
            series_free(&series);
        }
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct run_log log;
    struct table table;
    const bool accepted =
        run_log_parse(&log, "log.jsonl", (const char *)data, size, true) == DDP_OK;
    if (accepted) {
        assert(log.count > 0);
        assert(run_table_make(&table, log.runs, log.count) == DDP_OK);
        table_free(&table);
        for (size_t i = 0; i < log.count; i++)
            use(&log.runs[i]);
    }
    run_log_free(&log);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
