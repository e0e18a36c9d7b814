/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: one NumPy array. */
#include "config.h"

#include "data/npy_file.h"
#include "tests/lib/fuzz.h"

#include <assert.h>

static volatile unsigned used;

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_npy npy = {.kind = 'x'};
    const struct ddp_blob blob = {.name = "input", .memory = data, .bytes = size};
    char text[160];
    if (ddp_npy_open(&npy, &blob) != DDP_OK) {
        assert(npy.kind == 'x');
        return false;
    }
    assert(npy.offset + npy.count * (uint64_t)npy.width == size);
    used += (unsigned)ddp_npy_describe(&npy, text, sizeof text)[0];
    for (uint64_t i = 0; i < npy.count; i++) {
        float value;
        ddp_npy_to_floats(&npy, data + npy.offset + i * (uint64_t)npy.width, 1, &value);
        used += value > 0;
        if (npy.kind != 'f')
            used += ddp_npy_to_integer(&npy, data + npy.offset + i * (uint64_t)npy.width) != 0;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
