/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a log of trainer --log. Of what is accepted, times are taken and curves made. */
#include "config.h"

#include "reporter/series.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <string.h>

static void use(const struct log_run *run)
{
    struct step_times times;
    assert(step_times_of(&times, run->steps, run->step_count) == DDP_OK);
    for (int panel = 0; panel < PANELS; panel++)
        for (int axis = X_STEP; axis <= X_TIME; axis++) {
            struct series series;
            if (series_make(&series, run, (enum panel)panel, (enum x_axis)axis) == DDP_OK) {
                assert(series.count == run->step_count);
                for (size_t i = 0; i < run->restart_count; i++)
                    series_place(&series, run, run->restarts[i].step);
                series_smooth(&series);
                size_t shown[SERIES_POINTS];
                const size_t count = series_thin(&series, shown);
                assert(count <= SERIES_POINTS && (count == 0 || shown[count - 1] < series.count));
            }
            series_free(&series);
        }
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct run_log log = {.count = 0};
    const bool accepted =
        run_log_parse(&log, "log.jsonl", (const char *)data, size, true) == DDP_OK;
    if (accepted) {
        assert(log.count > 0);
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
