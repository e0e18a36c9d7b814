/* SPDX-License-Identifier: MIT
 *
 * Joining partial sums on the CPU; see merge.h. */
#include "config.h"

#include "kernels/merge.h"

#include "core/bf16.h"
#include "kernels/cpu/cpu.h"

/* Elements of a task, at least: the destination stays in L1 while all partial sums join. */
#define BLOCK 4096

/* destination = left + right; any of them may be equal. */
DDP_MULTIVERSION
static void add(float *destination, const float *left, const float *right, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        destination[i] = left[i] + right[i];
}

/* The same where both sides and the sum are rounded to bf16; without `left` the right one is. */
DDP_MULTIVERSION
static void add_rounded(float *destination, const float *left, const float *right, int64_t count)
{
    for (int64_t i = 0; left && i < count; i++)
        destination[i] = ddp_bf16_round(ddp_bf16_round(left[i]) + ddp_bf16_round(right[i]));
    for (int64_t i = 0; !left && i < count; i++)
        destination[i] = ddp_bf16_round(right[i]);
}

static void merge_range(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_merge *args = arg;
    const int64_t border = args->count - args->rounded;
    int64_t count;
    /* A piece at a time, so that destination and sum never leave the nearest cache. */
    for (int64_t at = begin; at < end; at += count) {
        const int64_t stop = at < border && border < end ? border : end;
        count = stop - at < BLOCK ? stop - at : BLOCK;
        float sum[BLOCK];
        const float *right = args->leaf + at;
        for (int p = 0; p < args->partial_count; p++) {
            bool last = p + 1 == args->partial_count;
            float *destination = last ? args->destination + at : sum;
            (at < border ? add : add_rounded)(destination, args->partials[p] + at, right, count);
            right = destination;
        }
        if (args->partial_count == 0 && at >= border)
            add_rounded(args->destination + at, NULL, right, count);
        else if (args->partial_count == 0)
            memmove(args->destination + at, right, (size_t)count * sizeof(float));
    }
}

enum ddp_status ddp_merge(const struct ddp_merge *args, void *stream)
{
    enum ddp_status status = ddp_merge_check(args);
    if (status)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->count, BLOCK, DDP_LANES), merge_range, args, stream);
    return DDP_OK;
}
