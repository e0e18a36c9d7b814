/* SPDX-License-Identifier: MIT
 *
 * The keys of a GPT-2 in GGUF files. Its matrices are ours as they are, and its head is the
 * embedding. */
#include "config.h"

#include "core/log.h"
#include "weights/gguf.h"
#include "weights/hf_keys.h"

#include <inttypes.h>

#define ARCHITECTURE "gpt2"
#define MOST         ((int64_t)1 << 30)

bool ddp_gguf_is_gpt2(const char *path)
{
    return ddp_gguf_is_of(path, "general.architecture", ARCHITECTURE);
}

/* The matrix of that name, with rows of so many values; their number, or 0. */
static int64_t rows_of(const struct ddp_gguf *gguf, const char *name, int64_t columns)
{
    const struct ddp_gguf_tensor *tensor = ddp_gguf_find(gguf, name);
    return tensor && tensor->dim_count == 2 && tensor->dims[0] == columns ? tensor->dims[1] : 0;
}

static enum ddp_status check_shape(const struct ddp_gguf *gguf, struct ddp_gpt2_shape *shape,
                                   int64_t hidden)
{
    const char *path = gguf->file.path;
    shape->vocabulary = rows_of(gguf, "token_embd.weight", shape->channels);
    if (shape->vocabulary == 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: there is no matrix token_embd.weight with rows of %" PRId64 " values",
                        path, shape->channels);
    if (rows_of(gguf, "position_embd.weight", shape->channels) != shape->context)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: there is no matrix position_embd.weight with %" PRId64 " rows of "
                        "%" PRId64 " values",
                        path, shape->context, shape->channels);
    if (hidden != 4 * shape->channels)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: gpt2.feed_forward_length is %" PRId64 ", and only four times "
                        "gpt2.embedding_length is supported",
                        path, hidden);
    if ((uint64_t)shape->layers > gguf->count)
        return ddp_fail(DDP_ERR_FORMAT, "%s: gpt2.block_count is %" PRId64 ", of %zu tensors", path,
                        shape->layers, gguf->count);
    return DDP_OK;
}

static enum ddp_status read_keys(struct ddp_gguf_gpt2 *gpt2, const struct ddp_gguf *gguf)
{
    const struct ddp_hf_keys in = {gguf->file.path, "", gguf->keys};
    struct ddp_gpt2_shape *shape = &gpt2->shape;
    int64_t hidden = 0;
    const struct {
        const char *key;
        int64_t *value;
    } rows[] = {
        {"gpt2.block_count", &shape->layers},         {"gpt2.context_length", &shape->context},
        {"gpt2.embedding_length", &shape->channels},  {"gpt2.feed_forward_length", &hidden},
        {"gpt2.attention.head_count", &shape->heads},
    };
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < sizeof rows / sizeof rows[0]; i++) {
        status = ddp_hf_keys_count(&in, rows[i].key, MOST, rows[i].value);
        if (status == DDP_OK && *rows[i].value == 0)
            status = ddp_fail(DDP_ERR_FORMAT, "%s: the key %s is missing", in.name, rows[i].key);
    }
    if (status == DDP_OK)
        status = ddp_hf_keys_real(&in, "gpt2.attention.layer_norm_epsilon", 0, 1, &gpt2->norm_eps);
    gpt2->norm_eps = ddp_gguf_shortest(gpt2->norm_eps);
    return status == DDP_OK ? check_shape(gguf, shape, hidden) : status;
}

enum ddp_status ddp_gguf_read_gpt2(struct ddp_gguf_gpt2 *gpt2, const char *path)
{
    struct ddp_gguf gguf;
    *gpt2 = (struct ddp_gguf_gpt2){.norm_eps = 1e-5};
    enum ddp_status status = ddp_gguf_open(&gguf, path);
    if (status == DDP_OK)
        status = read_keys(gpt2, &gguf);
    ddp_gguf_close(&gguf);
    return status;
}

enum ddp_status ddp_gguf_set_gpt2(json_t *keys, const struct ddp_gguf_gpt2 *gpt2)
{
    const struct ddp_gpt2_shape *shape = &gpt2->shape;
    json_t *own = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "general.architecture", ARCHITECTURE,
        "general.type", "model", "gpt2.block_count", shape->layers, "gpt2.context_length",
        shape->context, "gpt2.embedding_length", shape->channels, "gpt2.feed_forward_length",
        4 * shape->channels, "gpt2.attention.head_count", shape->heads, "gpt2.vocab_size",
        shape->vocabulary, "gpt2.attention.layer_norm_epsilon", gpt2->norm_eps);
    const int failed = !own || json_object_update(keys, own) != 0;
    json_decref(own);
    return failed ? ddp_fail(DDP_ERR_MEMORY, "out of memory") : DDP_OK;
}
