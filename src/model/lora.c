/* SPDX-License-Identifier: MIT
 *
 * What low-rank adapters are told to be: the value of --lora. The formula and the defaults are
 * PEFT's (LoraConfig). */
#include "config.h"

#include "model/llama.h"

#include "core/parse.h"

#include <math.h>
#include <string.h>

#define RANKS 4096 /* at most */

const char *const ddp_llama_linear_names[] = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",    NULL,
};

/* The bits of a target's name; 0: there is none of that name. */
static int64_t target_bits(const char *name)
{
    static const char *const projections[] = {"query", "key", "value"};
    if (strcmp(name, "all-linear") == 0)
        return ((int64_t)1 << DDP_LLAMA_LINEARS) - 1;
    for (int i = 0; i <= DDP_LLAMA_V; i++) /* BERT's names */
        if (strcmp(projections[i], name) == 0)
            return (int64_t)1 << i;
    for (int i = 0; i < DDP_LLAMA_LINEARS; i++)
        if (strcmp(strchr(ddp_llama_linear_names[i], '.') + 1, name) == 0)
            return (int64_t)1 << i;
    return 0;
}

/* One "key=value", or the next of several targets. Returns NULL, or what is wrong. */
static const char *read_word(struct ddp_lora *lora, const char *word, bool *in_targets)
{
    static const char wrong_target[] =
        "targets are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj or all-linear, "
        "of bert query, key and value";
    const char *equals = strchr(word, '=');
    const size_t key = equals ? (size_t)(equals - word) : strlen(word);
    const char *value = equals ? equals + 1 : NULL;
    const bool continues = *in_targets && !equals && strcmp(word, "rslora") != 0;
    *in_targets = continues;
    if (continues || (equals && key == 7 && strncmp(word, "targets", key) == 0)) {
        const int64_t bits = target_bits(continues ? word : value);
        *in_targets = true;
        lora->targets |= bits;
        return bits ? NULL : wrong_target;
    }
    if (strcmp(word, "rslora") == 0) {
        lora->rslora = true;
        return NULL;
    }
    if (equals && key == 1 && word[0] == 'r')
        return ddp_parse_int64(value, 1, RANKS, &lora->rank) ? NULL : "r must be from 1 to 4096";
    if (equals && key == 5 && strncmp(word, "alpha", key) == 0)
        return ddp_parse_double(value, 1e-6, 1e6, &lora->alpha) ? NULL
                                                                : "alpha must be a number above 0";
    if (equals && key == 7 && strncmp(word, "dropout", key) == 0)
        return ddp_parse_double(value, 0, 0.99, &lora->dropout)
                   ? NULL
                   : "dropout must be a number from 0 to 0.99";
    return "must be like r=16,alpha=32,targets=q_proj,v_proj,dropout=0.05,rslora, in any order";
}

const char *ddp_lora_read(void *member, const char *value)
{
    struct ddp_lora *lora = member, read = {.rank = 8, .frozen_bf16 = lora->frozen_bf16};
    char copy[256], *rest = copy;
    bool in_targets = false;
    if (snprintf(copy, sizeof copy, "%s", value) >= (int)sizeof copy)
        return "is too long";
    while (rest) {
        const char *wrong = read_word(&read, strsep(&rest, ","), &in_targets);
        if (wrong)
            return wrong;
    }
    if (read.alpha == 0)
        read.alpha = 8;
    *lora = read;
    return NULL;
}

double ddp_lora_scale(const struct ddp_lora *lora)
{
    return lora->alpha / (lora->rslora ? sqrt((double)lora->rank) : (double)lora->rank);
}
