/* SPDX-License-Identifier: MIT
 *
 * What Llama-type models and GPT-2, and their tensors, are called in GGUF. */
#include "config.h"

#include "core/text.h"
#include "weights/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[][2] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};
#define NAMES       (sizeof names / sizeof names[0])
#define LAYERS      "model.layers."
#define GPT2_LAYERS "h."

static const char *suffix_of(const char *hf_name)
{
    return ddp_text_ends_with(hf_name, ".lora_A.weight")   ? ".lora_A.weight"
           : ddp_text_ends_with(hf_name, ".lora_B.weight") ? ".lora_B.weight"
           : ddp_text_ends_with(hf_name, ".bias")          ? ".bias"
                                                           : ".weight";
}

bool ddp_gguf_name(char name[DDP_GGUF_NAME], const char *hf_name)
{
    const char *suffix = suffix_of(hf_name), *module = hf_name;
    const size_t layers = strncmp(hf_name, LAYERS, sizeof LAYERS - 1) == 0 ? sizeof LAYERS - 1
                          : strncmp(hf_name, GPT2_LAYERS, sizeof GPT2_LAYERS - 1) == 0
                              ? sizeof GPT2_LAYERS - 1
                              : 0;
    char *end;
    long layer = -1;
    if (!ddp_text_ends_with(hf_name, suffix))
        return false;
    if (layers > 0) {
        layer = strtol(hf_name + layers, &end, 10);
        module = end + (*end == '.');
    }
    const size_t length = strlen(module) - strlen(suffix);
    suffix = strcmp(suffix, ".lora_A.weight") == 0   ? ".weight.lora_a"
             : strcmp(suffix, ".lora_B.weight") == 0 ? ".weight.lora_b"
                                                     : suffix;
    for (size_t i = 0; i < NAMES; i++)
        if (strlen(names[i][0]) == length && memcmp(names[i][0], module, length) == 0) {
            if (layer >= 0)
                snprintf(name, DDP_GGUF_NAME, "blk.%ld.%s%s", layer, names[i][1], suffix);
            else
                snprintf(name, DDP_GGUF_NAME, "%s%s", names[i][1], suffix);
            return true;
        }
    return false;
}

int64_t ddp_gguf_permuted(const struct ddp_llama *shape, const char *hf_name)
{
    const bool family = shape->family == DDP_LLAMA_LLAMA || shape->family == DDP_LLAMA_MISTRAL ||
                        shape->family == DDP_LLAMA_SMOLLM3;
    const bool turned = strstr(hf_name, ".q_proj.") || strstr(hf_name, ".k_proj.");
    return family && turned && !strstr(hf_name, ".lora_A.") ? shape->head_size : 0;
}

const char *ddp_gguf_architecture(int64_t family)
{
    return family == DDP_LLAMA_MISTRAL ? "llama" : ddp_hf_llama_family(family);
}

int ddp_gguf_type_named(const char *name)
{
    static const int written[] = {DDP_GGUF_F32, DDP_GGUF_F16, DDP_GGUF_BF16, DDP_GGUF_Q8_0,
                                  DDP_GGUF_Q4_0};
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
        if (strcmp(ddp_gguf_block(written[i])->name, name) == 0)
            return written[i];
    return -1;
}
