/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: the header of a model file of llm.c, followed by the size of the
 * file in eight bytes. */
#include "config.h"

#include "tests/lib/fuzz.h"
#include "weights/interchange.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_llmc_model model;
    uint64_t file_bytes = 0;
    if (size < sizeof file_bytes)
        return false;
    size -= sizeof file_bytes;
    memcpy(&file_bytes, data + size, sizeof file_bytes);
    (void)ddp_llmc_model_is(data, size);
    if (ddp_llmc_model_parse(&model, "input", data, size, file_bytes) != DDP_OK)
        return false;
    const struct ddp_gpt2_shape *shape = &model.shape;
    assert(ddp_llmc_model_is(data, size));
    assert(shape->layers > 0 && shape->heads > 0 && shape->channels % shape->heads == 0);
    assert(shape->vocabulary > 0 && model.padded >= shape->vocabulary && shape->context > 0);
    /* The embedding alone is no larger than the file. */
    assert((uint64_t)(model.padded * shape->channels) * (model.bf16 ? 2 : 4) < file_bytes);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
