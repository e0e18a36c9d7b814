/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: an adapter_config.json of PEFT's, for bases of two and of one layer. */
#include "config.h"

#include "tests/lib/fuzz.h"
#include "weights/peft.h"

#include <assert.h>

static bool accepts(const uint8_t *data, size_t size, int64_t layers)
{
    struct ddp_peft peft;
    enum ddp_status status = ddp_peft_parse(&peft, "input", (const char *)data, size, layers, NULL);
    const struct ddp_lora lora = peft.lora;
    ddp_peft_free(&peft);
    if (status != DDP_OK)
        return false;
    assert(lora.rank > 0 && lora.rank <= 4096);
    assert(lora.targets > 0 && lora.targets < 1 << DDP_LLAMA_LINEARS);
    assert(lora.dropout >= 0 && lora.dropout < 1);
    assert(ddp_lora_scale(&lora) > 0 && ddp_lora_scale(&lora) <= 1e6);
    return true;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    accepts(data, size, 1);
    return accepts(data, size, 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
