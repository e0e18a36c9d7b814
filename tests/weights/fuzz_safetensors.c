/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: one safetensors file. */
#include "config.h"

#include "tests/lib/fuzz.h"
#include "weights/safetensors.h"

#include <assert.h>

static volatile unsigned used;

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    ddp_safetensors *file = NULL;
    if (ddp_safetensors_parse(&file, "input", data, size) != DDP_OK) {
        assert(!file);
        return false;
    }
    for (size_t i = 0; i < ddp_safetensors_count(file); i++) {
        const struct ddp_safetensor *tensor = ddp_safetensors_at(file, i);
        const unsigned char *bytes = tensor->data;
        assert(ddp_safetensors_find(file, tensor->name) == tensor);
        for (size_t j = 0; j < tensor->bytes; j++)
            used += bytes[j];
    }
    ddp_safetensors_metadata(file, "format");
    ddp_safetensors_close(file);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
