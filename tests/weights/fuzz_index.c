/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a model.safetensors.index.json of Hugging Face's. */
#include "config.h"

#include "tests/lib/fuzz.h"
#include "weights/safetensors_index.h"

#include <assert.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_safetensors_index index;
    if (ddp_safetensors_index_parse(&index, "input", (const char *)data, size) != DDP_OK)
        return false;
    assert(index.file_count > 0 && index.file_count <= json_object_size(index.map));
    for (size_t i = 0; i < index.file_count; i++) {
        assert(*index.files[i] && *index.files[i] != '.' && !strchr(index.files[i], '/'));
        for (size_t k = 0; k < i; k++)
            assert(strcmp(index.files[i], index.files[k]) != 0);
    }
    ddp_safetensors_index_free(&index);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
