/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: state.json of a checkpoint. An accepted one is written anew and
 * must read the same. The last line of an input may be the word "sign": its checksum is then made
 * right first, so that the parser behind it is reached. */
#include "config.h"

#include "tests/lib/fuzz.h"
#include "checkpoint/state.h"

#include <zlib.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    static const char key[] = "\"checksum\": \"", sign[] = "\nsign";
    struct ddp_checkpoint_state state, again;
    char reason[DDP_CHECKPOINT_REASON];
    const size_t key_length = sizeof key - 1, sign_length = sizeof sign - 1;
    char *text = malloc(size + 1);
    if (!text)
        return false;
    memcpy(text, data, size);
    if (size > sign_length && memcmp(text + size - sign_length, sign, sign_length) == 0) {
        size -= sign_length - 1; /* the line's end stays */
        char *found = memmem(text, size - 1, key, key_length);
        if (found && (size_t)(text + size - found) > key_length + 8) {
            char digits[9];
            memcpy(found + key_length, "00000000", 8);
            snprintf(digits, sizeof digits, "%08lx",
                     crc32_z(0, (const Bytef *)text, size - 1) & 0xffffffff);
            memcpy(found + key_length, digits, 8);
        }
    }
    const bool accepted = ddp_checkpoint_state_parse(&state, text, size, reason);
    free(text);
    if (!accepted) {
        assert(strlen(reason) > 0);
        return false;
    }
    size_t bytes = 0;
    if (ddp_checkpoint_state_format(&text, &bytes, &state) != DDP_OK)
        return true;
    assert(ddp_checkpoint_state_parse(&again, text, bytes, reason));
    assert(memcmp(&state.cursor, &again.cursor, sizeof state.cursor) == 0);
    assert(state.facts.count == again.facts.count);
    assert(strcmp(state.best.samples, again.best.samples) == 0);
    assert(state.best.step == again.best.step && state.best.since == again.best.since);
    assert(state.best.step == 0 || state.best.loss == again.best.loss);
    assert(memcmp(state.parts, again.parts, sizeof state.parts) == 0);
    assert(state.has_rate == again.has_rate && state.rate == again.rate);
    assert(state.loss_scale == again.loss_scale && state.good_steps == again.good_steps);
    assert(state.skipped_steps == again.skipped_steps);
    assert(strcmp(state.own_file, again.own_file) == 0);
    assert(state.own.bytes == again.own.bytes && state.own.crc32 == again.own.crc32);
    free(text);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
