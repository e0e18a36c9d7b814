/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a trace of trainer --trace. */
#include "config.h"

#include "reporter/trace_file.h"
#include "tests/lib/fuzz.h"

#include <assert.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct trace trace;
    struct trace_exposed exposed = {.steps = 0};
    const bool accepted = trace_parse(&trace, "trace.json", (const char *)data, size) == DDP_OK;
    if (accepted) {
        assert(trace.span_count > 0);
        trace_exposed(&trace, &exposed);
    }
    trace_free(&trace);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
