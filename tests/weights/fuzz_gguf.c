/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a GGUF file: its header, the model that its keys describe, its tokenizer, and the
 * values of its tensors. */
#include "config.h"

#include "data/text/tokenizer.h"
#include "tests/lib/fuzz.h"
#include "tests/weights/hf_formula.h"
#include "weights/gguf.h"

#include <assert.h>
#include <sys/mman.h>
#include <unistd.h>

#define VALUES (1 << 20) /* of a model that is read */

static bool accepts(const char *path)
{
    struct ddp_hf_llama config;
    struct ddp_hf_llama_files files;
    struct formula formula;
    int64_t count, adapters;
    if (ddp_gguf_read(&config, path) != DDP_OK || ddp_gguf_check(path, &config, &files) != DDP_OK ||
        ddp_hf_llama_count(&config, 1, &count, &adapters) != DDP_OK || count > VALUES)
        return false;
    assert(files.bytes > 0 && files.dtype);
    formula_make(&formula, &config, DDP_F32, false);
    const enum ddp_status status = ddp_gguf_load(path, &config, formula.values, formula.count);
    uint8_t *types = calloc((size_t)config.shape.layers + 1, DDP_LLAMA_LINEARS);
    assert(types && ddp_gguf_linear_types(path, &config, types) == DDP_OK);
    free(types);
    for (size_t i = 0; i < formula.count; i++) /* in blocks, some as they lie */
        if (formula.values[i].dim_count == 2 && formula.values[i].dims[1] % 32 == 0)
            formula.values[i].dtype = i % 2 ? DDP_Q8_0 : DDP_Q4_0;
    assert(ddp_gguf_load(path, &config, formula.values, formula.count) == status);
    formula_free(&formula);
    return status == DDP_OK;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char path[64];
    ddp_tokenizer *tokenizer = NULL;
    const int fd = memfd_create("gguf", 0);
    assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const bool accepted = accepts(path);
    if (ddp_gguf_is(path) && ddp_tokenizer_open(&tokenizer, path) == DDP_OK)
        ddp_tokenizer_close(tokenizer);
    close(fd);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
