/* SPDX-License-Identifier: MIT
 *
 * See update.h. */
#include "config.h"

#include "kernels/cpu/update.h"

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"

#define BLOCK 16384 /* elements of a task, at least */
#define CHUNK 2048  /* elements that are still near when they are rounded to bf16 */

struct run {
    const struct ddp_update *update;
    struct ddp_blocks blocks;
};

DDP_MULTIVERSION
static void round_weights(uint16_t *restrict out, const float *restrict w, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = ddp_bf16_of(w[i]);
}

static void run_piece(const struct ddp_update *update, int64_t begin, int64_t end, bool decay)
{
    const int64_t chunk = update->weight_bf16 ? CHUNK : end - begin;
    for (int64_t at = begin; at < end; at += chunk) {
        const int64_t until = end - at < chunk ? end : at + chunk;
        update->piece(update->args, at, until, decay);
        if (update->weight_bf16)
            round_weights(update->weight_bf16 + at, update->weight + at, until - at);
    }
}

static void run_task(void *arg, size_t index)
{
    const struct run *run = arg;
    const struct ddp_update *update = run->update;
    const int64_t first = update->first;
    struct ddp_range piece;
    bool spared;
    struct ddp_range_walk walk = ddp_range_walk_start(update->no_decay, update->no_decay_count,
                                                      first + ddp_block_begin(&run->blocks, index),
                                                      first + ddp_block_end(&run->blocks, index));
    while (ddp_range_walk_next(&walk, &piece, &spared))
        run_piece(update, piece.begin - first, piece.end - first, !spared);
}

void ddp_update_run(const struct ddp_update *update, void *stream)
{
    struct run run = {update, ddp_blocks_cut(update->count, BLOCK, DDP_LANES)};
    ddp_pool_run(ddp_stream_pool(stream), run.blocks.count, run_task, &run);
}
