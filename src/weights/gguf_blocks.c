/* SPDX-License-Identifier: MIT
 *
 * The values of GGUF's tensors: floats, and blocks of small integers with a scale. */
#include "config.h"

#include "core/bf16.h"
#include "core/blocks.h"
#include "weights/gguf.h"

#define BLOCK 32 /* values in a block of Q5_0 */

enum ddp_dtype ddp_gguf_dtype(int type)
{
    return type == DDP_GGUF_Q8_0   ? DDP_Q8_0
           : type == DDP_GGUF_Q4_0 ? DDP_Q4_0
           : type == DDP_GGUF_Q4_K ? DDP_Q4_K
           : type == DDP_GGUF_Q6_K ? DDP_Q6_K
           : type == DDP_GGUF_BF16 ? DDP_BF16
                                   : DDP_F32;
}

/* Like Q4_0, with the fifth bits of all values in one word. */
static void decode_q5_0(const uint8_t *raw, float *values)
{
    uint16_t half;
    uint32_t high;
    memcpy(&half, raw, sizeof half);
    const float scale = ddp_f16_to_f32(half);
    memcpy(&high, raw + 2, sizeof high);
    for (int i = 0; i < BLOCK / 2; i++) {
        const int low = raw[6 + i];
        values[i] = (float)(((low & 15) | (int)(high >> i & 1) << 4) - 16) * scale;
        values[i + BLOCK / 2] =
            (float)((low >> 4 | (int)(high >> (i + BLOCK / 2) & 1) << 4) - 16) * scale;
    }
}

/* Products and sums are rounded one by one, as in ggml's reference. */
void ddp_gguf_decode(int type, const void *raw, int64_t count, float *values)
{
    const struct ddp_gguf_block *block = ddp_gguf_block(type);
    const uint8_t *at = raw;
    if (type == DDP_GGUF_F16)
        ddp_hf_values_convert(values, raw, "F16", (size_t)count);
    else if (type != DDP_GGUF_Q5_0)
        ddp_values_unpack(ddp_gguf_dtype(type), raw, 0, count, values);
    for (int64_t i = 0; type == DDP_GGUF_Q5_0 && i < count; i += BLOCK, at += block->bytes)
        decode_q5_0(at, values + i);
}

void ddp_gguf_encode(int type, const float *values, int64_t count, void *raw)
{
    if (type != DDP_GGUF_F16)
        ddp_values_pack(ddp_gguf_dtype(type), values, count, raw);
    for (int64_t i = 0; i < count && type == DDP_GGUF_F16; i++)
        ((uint16_t *)raw)[i] = ddp_f16_of(values[i]);
}
