/* SPDX-License-Identifier: MIT
 *
 * Encoding of many texts: short ones in groups, a group a task; long ones one after another, each
 * by all threads. */
#include "config.h"

#include "core/memory.h"
#include "data/text/encode.h"

#define GROUP_BYTES ((size_t)1 << 17)
#define LONG_BYTES  ((size_t)1 << 20)
#define GROUPS      256 /* whose ids are held beside the result */

struct group {
    size_t begin, end; /* texts */
    struct ddp_tokens tokens;
    enum ddp_status status;
    size_t failed, bad; /* the text, and where in it */
};

struct job {
    const ddp_tokenizer *tokenizer;
    const struct ddp_text_part *texts;
    unsigned flags;
    size_t *ends; /* counted from the group's first id, at first */
    struct group groups[GROUPS];
};

static void encode_group(void *arg, size_t index)
{
    struct job *job = arg;
    struct group *group = &job->groups[index];
    struct ddp_encoder *encoder = NULL;
    group->status = ddp_encoder_take(&encoder, job->tokenizer);
    for (size_t i = group->begin; group->status == DDP_OK && i < group->end; i++) {
        group->failed = i;
        group->status =
            ddp_encode_text(encoder, NULL, &job->texts[i], job->flags, &group->tokens, &group->bad);
        if (job->ends)
            job->ends[i] = group->tokens.count;
    }
    ddp_encoder_give_back(encoder);
}

/* Appends what the groups found, up to the first that failed. */
static enum ddp_status collect(struct job *job, size_t count, struct ddp_tokens *out)
{
    enum ddp_status status = DDP_OK;
    for (size_t g = 0; g < count; g++) {
        struct group *group = &job->groups[g];
        if (status == DDP_OK && group->status != DDP_OK)
            status = ddp_encode_failed(&job->texts[group->failed], group->status, group->bad);
        if (status == DDP_OK)
            status = ddp_tokens_reserve(out, group->tokens.count);
        if (status == DDP_OK) {
            for (size_t i = group->begin; job->ends && i < group->end; i++)
                job->ends[i] += out->count;
            if (group->tokens.count > 0)
                memcpy(out->ids + out->count, group->tokens.ids,
                       group->tokens.count * sizeof *out->ids);
            out->count += group->tokens.count;
        }
        free(group->tokens.ids);
    }
    return status;
}

/* Encodes short texts from *next on, as many as fit into the groups, up to the next long one. */
static enum ddp_status encode_groups(struct job *job, ddp_pool *pool, size_t *next, size_t count,
                                     struct ddp_tokens *out)
{
    size_t groups = 0;
    while (groups < GROUPS && *next < count && job->texts[*next].bytes < LONG_BYTES) {
        struct group *group = &job->groups[groups++];
        *group = (struct group){.begin = *next};
        for (size_t bytes = 0;
             *next < count && job->texts[*next].bytes < LONG_BYTES && bytes < GROUP_BYTES;
             (*next)++)
            bytes += job->texts[*next].bytes + 1;
        group->end = *next;
    }
    ddp_pool_run(pool, groups, encode_group, job);
    return collect(job, groups, out);
}

static enum ddp_status encode_long_text(struct job *job, ddp_pool *pool, size_t index,
                                        struct ddp_tokens *out)
{
    struct ddp_encoder *encoder = NULL;
    size_t bad = 0;
    enum ddp_status status = ddp_encoder_take(&encoder, job->tokenizer);
    if (status != DDP_OK)
        return status;
    status = ddp_encode_text(encoder, pool, &job->texts[index], job->flags, out, &bad);
    ddp_encoder_give_back(encoder);
    if (job->ends)
        job->ends[index] = out->count;
    return status == DDP_OK ? status : ddp_encode_failed(&job->texts[index], status, bad);
}

enum ddp_status ddp_tokenizer_encode_many(const ddp_tokenizer *tokenizer,
                                          const struct ddp_text_part *texts, size_t count,
                                          unsigned flags, int threads, struct ddp_tokens *tokens,
                                          size_t *ends)
{
    ddp_pool *pool = NULL;
    const size_t before = tokens->count;
    struct job *job = ddp_array_alloc(1, sizeof *job);
    if (!job)
        return DDP_ERR_MEMORY;
    job->tokenizer = tokenizer;
    job->texts = texts;
    job->flags = flags;
    job->ends = ends;
    enum ddp_status status = threads > 1 ? ddp_pool_create(&pool, threads) : DDP_OK;
    for (size_t next = 0; status == DDP_OK && next < count;) {
        if (texts[next].bytes < LONG_BYTES)
            status = encode_groups(job, pool, &next, count, tokens);
        else
            status = encode_long_text(job, pool, next++, tokens);
    }
    ddp_pool_destroy(pool);
    free(job);
    if (status != DDP_OK)
        tokens->count = before;
    return status;
}
