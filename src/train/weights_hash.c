/* SPDX-License-Identifier: MIT
 *
 * See weights_hash.h. */
#include "config.h"

#include "train/weights_hash.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK (INT64_C(1) << 18) /* elements: 1 MiB */

typedef unsigned char digest[DDP_SHA256_BYTES];

static int compare_names(const void *a, const void *b)
{
    const struct ddp_parameter *const *first = a, *const *second = b;
    return strcmp((*first)->name, (*second)->name);
}

static size_t block_count(const struct ddp_parameter *tensor)
{
    return (size_t)((tensor->count + BLOCK - 1) / BLOCK);
}

static enum ddp_status list_tensors(struct ddp_weights_hash *hash, const ddp_graph *graph)
{
    hash->count = ddp_graph_parameter_count(graph);
    hash->tensors = ddp_array_alloc((size_t)hash->count, sizeof *hash->tensors);
    hash->digests = ddp_array_alloc((size_t)hash->count, sizeof *hash->digests);
    if (!hash->tensors || !hash->digests)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < hash->count; i++)
        hash->tensors[i] = ddp_graph_parameter_at(graph, i);
    qsort(hash->tensors, (size_t)hash->count, sizeof *hash->tensors, compare_names);
    return DDP_OK;
}

/* This worker's blocks; the hashes of others stay zero. In a pipeline a block is hashed by one
 * replica, in the stage that has it. */
static enum ddp_status hash_blocks(const struct ddp_weights_hash *hash, const struct ddp_run *run,
                                   digest *digests)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    const int stages = ddp_train_plan_stage_workers(plan);
    const size_t shares = (size_t)(plan->world_size / stages),
                 share = (size_t)(plan->rank / stages);
    enum ddp_status status = DDP_OK;
    size_t block = 0;
    float *values = ddp_array_alloc((size_t)BLOCK, sizeof *values);
    if (!values)
        return DDP_ERR_MEMORY;
    for (int i = 0; i < hash->count; i++) {
        const struct ddp_parameter *tensor = hash->tensors[i];
        for (int64_t at = 0; status == DDP_OK && at < tensor->count; at += BLOCK, block++) {
            const int64_t count = tensor->count - at < BLOCK ? tensor->count - at : BLOCK;
            const bool mine = block % shares == share;
            bool own = mine;
            if (ddp_mode_lacks_weights(run->mode)) /* all bring them here */
                status = ddp_mode_get_weights(run->mode, tensor->offset + at, count,
                                              mine ? values : NULL);
            else if (mine)
                status = ddp_mode_own_weights(run->mode, tensor->offset + at, count, values, &own);
            if (status == DDP_OK && own)
                ddp_sha256(digests[block], values, (size_t)count * sizeof *values, NULL, 0);
        }
    }
    free(values);
    return status;
}

static void join(struct ddp_weights_hash *hash, const digest *digests)
{
    digest all;
    for (int i = 0; i < hash->count; i++) {
        const size_t blocks = block_count(hash->tensors[i]);
        ddp_sha256(hash->digests[i], digests, blocks * sizeof *digests, NULL, 0);
        digests += blocks;
    }
    ddp_sha256(all, hash->digests, (size_t)hash->count * sizeof *hash->digests, NULL, 0);
    ddp_sha256_text(hash->text, all);
}

enum ddp_status ddp_weights_hash_take(struct ddp_weights_hash *hash, struct ddp_run *run)
{
    size_t blocks = 0;
    *hash = (struct ddp_weights_hash){.count = 0};
    enum ddp_status status = list_tensors(hash, run->planned.graph);
    for (int i = 0; status == DDP_OK && i < hash->count; i++)
        blocks += block_count(hash->tensors[i]);
    digest *digests = status == DDP_OK ? ddp_array_alloc(blocks, sizeof *digests) : NULL;
    if (!digests)
        return DDP_ERR_MEMORY;
    status = ddp_mode_average(run->mode);
    if (status == DDP_OK)
        status = hash_blocks(hash, run, digests);
    if (status == DDP_OK) /* each is somewhere, and zero elsewhere */
        status = ddp_comm_allreduce(run->comm, digests, blocks * sizeof *digests / sizeof(int64_t),
                                    DDP_I64, DDP_SUM);
    if (status == DDP_OK)
        join(hash, digests);
    free(digests);
    return status;
}

void ddp_weights_hash_free(struct ddp_weights_hash *hash)
{
    free(hash->tensors);
    free(hash->digests);
    *hash = (struct ddp_weights_hash){.count = 0};
}

const char *ddp_weights_hash_brief(char text[DDP_SHA256_TEXT], const struct ddp_weights_hash *hash,
                                   int tensor)
{
    ddp_sha256_text(text, hash->digests[tensor]);
    text[DDP_HASH_BRIEF] = '\0';
    return text;
}
