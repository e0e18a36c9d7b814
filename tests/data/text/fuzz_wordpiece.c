/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a vocab.txt, and behind the last newline a text; what counts is whether the
 * vocabulary is accepted. */
#include "config.h"

#include "data/text/wordpiece.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    const uint8_t *newline = size > 0 ? memrchr(data, '\n', size) : NULL;
    const size_t bytes = newline ? (size_t)(newline - data) + 1 : size;
    bool accepted = false;
    for (int lowers = 0; lowers < 2; lowers++) {
        ddp_wordpiece *w = NULL;
        int32_t *ids = NULL;
        size_t count = 0;
        accepted = ddp_wordpiece_parse(&w, "input", (const char *)data, bytes, lowers) == DDP_OK;
        if (accepted)
            (void)ddp_wordpiece_encode(w, (const char *)data + bytes, size - bytes, &ids, &count);
        for (size_t i = 0; i < count; i++)
            assert(ids[i] >= 0 && ids[i] < ddp_wordpiece_ids(w));
        free(ids);
        ddp_wordpiece_close(w);
    }
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
