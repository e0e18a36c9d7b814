/* SPDX-License-Identifier: MIT
 *
 * The shape of a Llama-type decoder (Llama 2 and 3, SmolLM, Qwen 2 and 3, Mistral, Phi 3),
 * for the model itself and for those who read and write files of other programs. Glossary: C
 * channels, H heads, K key and value heads, D head size, F hidden width of the perceptron. */
#ifndef DDP_MODEL_LLAMA_H
#define DDP_MODEL_LLAMA_H

#include "model/model.h"

/* model_type of a config.json. */
enum ddp_llama_family {
    DDP_LLAMA_LLAMA,
    DDP_LLAMA_QWEN2,
    DDP_LLAMA_QWEN3,
    DDP_LLAMA_MISTRAL,
    DDP_LLAMA_SMOLLM3,
    DDP_LLAMA_PHI3,
};

enum ddp_rope_kind { DDP_ROPE_DEFAULT, DDP_ROPE_LINEAR, DDP_ROPE_LLAMA3, DDP_ROPE_YARN };

/* How positions turn queries and keys; transformers' rope_parameters. */
struct ddp_rope {
    int64_t kind;     /* enum ddp_rope_kind */
    int64_t size;     /* leading features of a head that turn, even; D unless rotation is partial */
    int64_t original; /* llama3, yarn: original_max_position_embeddings */
    double theta;
    double factor;                  /* all kinds but default */
    double low_factor, high_factor; /* llama3: low_freq_factor, high_freq_factor */
    double beta_fast, beta_slow;    /* yarn */
    double attention_factor;        /* yarn: of cos and sin, resolved; 1 for all other kinds */
    bool untruncated;               /* yarn: the ramp's ends are not rounded */
};

#define DDP_LLAMA_LAYERS   256  /* at most */
#define DDP_LLAMA_HEAD     1024 /* features of a head, at most */
#define DDP_LLAMA_INIT_STD 0.02 /* deviation of new matrices; initializer_range */

/* A set of layers: bit l % 32 of word l / 32. */
struct ddp_llama_layers {
    int64_t words[DDP_LLAMA_LAYERS / 32];
    int count; /* words that are set from the start; the others are 0 */
};

/* The linear layers of a block, in the order of the graph. */
enum ddp_llama_linear {
    DDP_LLAMA_Q,
    DDP_LLAMA_K,
    DDP_LLAMA_V,
    DDP_LLAMA_O,
    DDP_LLAMA_GATE,
    DDP_LLAMA_UP,
    DDP_LLAMA_DOWN,
    DDP_LLAMA_LINEARS
};
extern const char *const ddp_llama_linear_names[]; /* "self_attn.q_proj", ... */

/* Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021) in
 * PEFT's form: y = W x + s B A dropout(x), where W, and all else but A (r,in) and B (out,r), is
 * frozen. */
struct ddp_lora {
    int64_t rank;     /* r; 0: no adapters, everything is learned */
    int64_t targets;  /* bit DDP_LLAMA_...: these have adapters; 0: the family's default */
    double alpha;     /* s = alpha / r */
    double dropout;   /* of what A gets */
    bool rslora;      /* s = alpha / sqrt(r) */
    bool frozen_bf16; /* the frozen matrices are bf16 in memory */
    int64_t blocks;   /* enum ddp_dtype of those of linear layers, in blocks; 0: as the others */
    /* ... of each one: of layer N the DDP_LLAMA_LINEARS from N DDP_LLAMA_LINEARS on; borrowed, and
     * not in a description. NULL: all are of `blocks` */
    const uint8_t *each;
};

struct ddp_llama {
    struct ddp_lora lora; /* first: ddp_lora_options */
    int64_t family;       /* enum ddp_llama_family */
    int64_t layers, channels, heads, kv_heads, head_size, hidden;
    int64_t context; /* max_position_embeddings */
    int64_t window;  /* keys that a query sees in the layers of `windowed`, itself included */
    double norm_eps;
    struct ddp_rope rope;
    bool qkv_bias, o_bias, mlp_bias;
    bool qk_norm; /* queries and keys are normed, each head for itself */
    bool tied;    /* the head is the token embedding */
    struct ddp_llama_layers windowed;
    struct ddp_llama_layers unrotated; /* layers without rope */
};

/* --lora, of models whose own struct begins with their adapters. */
extern const struct ddp_option ddp_lora_options[];

static inline bool ddp_llama_has_layer(const struct ddp_llama_layers *set, int64_t layer)
{
    return layer / 32 < set->count && (set->words[layer / 32] >> (layer % 32) & 1);
}

static inline void ddp_llama_add_layer(struct ddp_llama_layers *set, int64_t layer)
{
    set->words[layer / 32] |= (int64_t)1 << (layer % 32);
    if (set->count <= layer / 32)
        set->count = (int)(layer / 32) + 1;
}

/* Reads "r=16,alpha=32,targets=q_proj,v_proj,dropout=0.05,rslora" or "targets=all-linear" into
 * struct ddp_lora *member. Returns NULL, or what is wrong, as a phrase. */
const char *ddp_lora_read(void *member, const char *value);
/* The factor s. */
double ddp_lora_scale(const struct ddp_lora *lora);

/* Of a config of ddp_model_llama. */
struct ddp_llama *ddp_llama_of(union ddp_model_own *own);
const struct ddp_llama *ddp_llama_in(const struct ddp_model_config *config);

/* The model with what a file says of it, as its own descriptions do. */
void ddp_llama_describe(const struct ddp_llama *shape, int64_t vocabulary,
                        const struct ddp_model **model, struct ddp_model_config *config);

#endif
