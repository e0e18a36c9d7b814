/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a config.json of Hugging Face's. */
#include "config.h"

#include "tests/lib/fuzz.h"
#include "weights/hf_config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_hf_config config;
    if (ddp_hf_config_parse(&config, "input", (const char *)data, size) != DDP_OK)
        return false;
    assert(config.shape.layers > 0 && config.shape.heads > 0);
    assert(config.shape.channels > 0 && config.shape.channels % config.shape.heads == 0);
    assert(config.shape.vocabulary > 0 && config.shape.context > 0);
    assert(config.dropout >= 0 && config.dropout < 1 && config.norm_eps > 0);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
