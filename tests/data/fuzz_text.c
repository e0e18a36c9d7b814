/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a text that is unpacked, perhaps compressed, as it is and as JSON lines; what counts
 * is whether it is JSON lines. */
#include "config.h"

#include "data/text_file.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>

#define MOST ((size_t)1 << 22)

static volatile unsigned used;

static bool read_as(const uint8_t *data, size_t size, bool jsonl, size_t *bytes)
{
    struct ddp_text text = {0};
    FILE *file = size > 0 ? fmemopen((void *)(uintptr_t)data, size, "r") : fopen("/dev/null", "r");
    if (!file)
        return false;
    const bool accepted = ddp_text_read(&text, file, "input", jsonl, MOST) == DDP_OK;
    fclose(file);
    assert(accepted == (text.at != NULL) && text.bytes <= MOST);
    for (size_t i = 0; i < text.bytes; i++)
        used += text.at[i];
    *bytes = text.bytes;
    free(text.at);
    return accepted;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    size_t whole, documents;
    const bool unpacked = read_as(data, size, false, &whole);
    const bool accepted = read_as(data, size, true, &documents);
    assert(unpacked || !accepted);
    assert(!accepted || documents <= whole); /* they are written over their lines */
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
