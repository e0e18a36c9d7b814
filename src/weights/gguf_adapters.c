/* SPDX-License-Identifier: MIT
 *
 * What GGUF files of adapters say: ours, and those of llama.cpp's convert_lora_to_gguf. */
#include "config.h"

#include "core/log.h"
#include "weights/gguf.h"
#include "weights/hf_keys.h"

#include <inttypes.h>

#define RANK_MOST  4096
#define ALPHA_MOST 1e9

bool ddp_gguf_is_adapters(const char *path)
{
    return ddp_gguf_is_of(path, "general.type", "adapter");
}

/* The rank of the adapter of one linear layer; 0: it has none. */
static int64_t rank_of(const struct ddp_gguf *gguf, int64_t layer, int linear)
{
    char hf_name[DDP_HF_LLAMA_NAME + 32], name[DDP_GGUF_NAME];
    snprintf(hf_name, sizeof hf_name, "model.layers.%" PRId64 ".%s.lora_B.weight", layer,
             ddp_llama_linear_names[linear]);
    const struct ddp_gguf_tensor *up =
        ddp_gguf_name(name, hf_name) ? ddp_gguf_find(gguf, name) : NULL;
    return up ? up->dims[0] : 0;
}

/* What a tensor says that does not belong is said when it is read. */
static enum ddp_status read_targets(struct ddp_lora *lora, const struct ddp_gguf *gguf,
                                    int64_t layers)
{
    for (int64_t l = 0; l < layers; l++) {
        int64_t targets = 0;
        for (int i = 0; i < DDP_LLAMA_LINEARS; i++) {
            const int64_t rank = rank_of(gguf, l, i);
            if (rank > 0 && lora->rank > 0 && rank != lora->rank)
                return ddp_fail(DDP_ERR_FORMAT,
                                "%s: adapters of ranks %" PRId64 " and %" PRId64
                                ": they must all be of one rank",
                                gguf->file.path, lora->rank, rank);
            lora->rank = rank > 0 ? rank : lora->rank;
            targets |= (int64_t)(rank > 0) << i;
        }
        if (l > 0 && targets != lora->targets)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: layer %" PRId64 " has adapters of other modules than layer 0: "
                            "they must be the same in all layers",
                            gguf->file.path, l);
        lora->targets = targets;
    }
    if (lora->targets == 0 || lora->rank > RANK_MOST)
        return ddp_fail(DDP_ERR_FORMAT,
                        lora->targets ? "%s: the rank of its adapters is over %d"
                                      : "%s: no adapters of linear layers of the base's blocks",
                        gguf->file.path, RANK_MOST);
    return DDP_OK;
}

static enum ddp_status read_lora(struct ddp_lora *lora, const struct ddp_gguf *gguf,
                                 const struct ddp_llama *base)
{
    const char *architecture = ddp_gguf_architecture(base->family);
    const struct ddp_hf_keys in = {gguf->file.path, "", gguf->keys};
    if (!ddp_gguf_says(gguf, "general.type", "adapter"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: general.type is not \"adapter\": a model belongs to "
                        "--load",
                        gguf->file.path);
    if (!ddp_gguf_says(gguf, "adapter.type", "lora"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: adapter.type is not \"lora\", which alone is supported",
                        gguf->file.path);
    if (!ddp_gguf_says(gguf, "general.architecture", architecture))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: these adapters are not those of a base with general.architecture "
                        "\"%s\"",
                        gguf->file.path, architecture);
    enum ddp_status status =
        ddp_hf_keys_real(&in, "adapter.lora.alpha", 0, ALPHA_MOST, &lora->alpha);
    if (status == DDP_OK)
        status = read_targets(lora, gguf, base->layers);
    lora->alpha = lora->alpha > 0 ? ddp_gguf_shortest(lora->alpha) : (double)lora->rank;
    return status;
}

enum ddp_status ddp_gguf_read_adapters(struct ddp_lora *lora, const char *path,
                                       const struct ddp_llama *base)
{
    struct ddp_gguf gguf;
    *lora = (struct ddp_lora){.rank = 0};
    enum ddp_status status = ddp_gguf_open(&gguf, path);
    if (status == DDP_OK)
        status = read_lora(lora, &gguf, base);
    ddp_gguf_close(&gguf);
    return status;
}
