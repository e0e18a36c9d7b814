/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: what trainer --plan printed. What is accepted is a run without steps. */
#include "config.h"

#include "reporter/plan_text.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct run_log log = {.count = 0};
    const char *text = (const char *)data;
    const bool accepted =
        plan_text_is(text, size) && plan_text_parse(&log, "plan.txt", text, size) == DDP_OK;
    if (accepted) {
        assert(log.count == 1 && log.runs[0].step_count == 0);
        assert(strcmp(run_log_fact(&log.runs[0], "plan"), "-") != 0);
        assert(log.runs[0].batch_size > 0 && log.runs[0].world_size > 0);
    }
    run_log_free(&log);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
