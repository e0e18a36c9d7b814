/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a config.json of a model of the Llama kind, and the one that an export makes of it,
 * which must say the same and not change again. */
#include "config.h"

#include "tests/lib/fuzz.h"
#include "weights/hf_llama.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void use_shape(const struct ddp_hf_llama *config)
{
    const struct ddp_llama *shape = &config->shape;
    assert(shape->layers > 0 && shape->layers <= DDP_LLAMA_LAYERS);
    assert(shape->heads > 0 && shape->kv_heads > 0 && shape->heads % shape->kv_heads == 0);
    assert(shape->channels > 0 && shape->hidden > 0 && shape->context > 0);
    assert(config->vocabulary > 0 && shape->norm_eps > 0);
    assert(shape->rope.size > 0 && shape->rope.size % 2 == 0);
    assert(shape->rope.size <= shape->head_size && shape->rope.theta > 1);
    assert((shape->window > 0) == (shape->windowed.count > 0));
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_hf_llama config;
    char *once, *twice;
    if (ddp_hf_llama_parse(&config, "input", (const char *)data, size) != DDP_OK)
        return false;
    use_shape(&config);
    /* A key with escapes may be one that is added: then it would be there twice. */
    if (ddp_hf_llama_config_text(&once, &config, "input", (const char *)data, size, "F32") !=
        DDP_OK)
        return true;
    if (ddp_hf_llama_config_text(&twice, &config, "edited", once, strlen(once), "F32") != DDP_OK)
        abort();
    assert(strcmp(once, twice) == 0);
    free(once);
    free(twice);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
