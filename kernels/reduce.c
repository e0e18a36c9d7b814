/* SPDX-License-Identifier: MIT
 *
 * The ordered reduction on the CPU; see reduce.h. A block of elements at a time goes through the
 * tree in the nearest cache and from there to all destinations, so memory is read once for each
 * source and written once for each destination, whatever their numbers. */
#include "config.h"

#include "kernels/reduce.h"

#include "core/bf16.h"
#include "core/log.h"
#include "kernels/cpu/cpu.h"

#include <assert.h>

#define BLOCK_BYTES 8192
#define MAX_DEPTH   12 /* log2(DDP_REDUCE_LEAVES) */

#define COMBINE_SUM(a, b)     ((a) + (b))
#define COMBINE_ROUNDED(a, b) ddp_bf16_round(ddp_bf16_round(a) + ddp_bf16_round(b))
#define COMBINE_MIN(a, b)     ((b) < (a) ? (b) : (a))
#define COMBINE_MAX(a, b)     ((b) > (a) ? (b) : (a))

/* out[i] = combine(a[i], b[i]): the one loop under every reduction. Restrict holds: `out` is a
 * scratch block. */
#define DEFINE_COMBINE(name, type, combine)                                                        \
    DDP_MULTIVERSION                                                                               \
    static void name(void *restrict out, const void *restrict a, const void *restrict b,           \
                     size_t count)                                                                 \
    {                                                                                              \
        type *restrict o = out;                                                                    \
        const type *restrict x = a, *restrict y = b;                                               \
        for (size_t i = 0; i < count; i++)                                                         \
            o[i] = combine(x[i], y[i]);                                                            \
    }

/* Integers are added as unsigned numbers: they wrap instead of being undefined. */
DEFINE_COMBINE(sum_f32, float, COMBINE_SUM)
DEFINE_COMBINE(sum_rounded, float, COMBINE_ROUNDED)
DEFINE_COMBINE(sum_f64, double, COMBINE_SUM)
DEFINE_COMBINE(sum_i32, uint32_t, COMBINE_SUM)
DEFINE_COMBINE(sum_i64, uint64_t, COMBINE_SUM)
DEFINE_COMBINE(min_f32, float, COMBINE_MIN)
DEFINE_COMBINE(min_f64, double, COMBINE_MIN)
DEFINE_COMBINE(min_i32, int32_t, COMBINE_MIN)
DEFINE_COMBINE(min_i64, int64_t, COMBINE_MIN)
DEFINE_COMBINE(max_f32, float, COMBINE_MAX)
DEFINE_COMBINE(max_f64, double, COMBINE_MAX)
DEFINE_COMBINE(max_i32, int32_t, COMBINE_MAX)
DEFINE_COMBINE(max_i64, int64_t, COMBINE_MAX)

/* The sum in place of two float arrays, the all-reduce of two ranks, without the detour through a
 * scratch block: 1 MiB takes half the time. With 8 arrays the same loop is 3 times slower than
 * blocks: too many lines of one cache set are in use at once. Plain stores everywhere: the lines
 * were just read, and stores around the cache took twice the time (64 MiB on 2 ranks: 5.5
 * against 1.9 ms). Different arrays: restrict holds. */
DDP_MULTIVERSION
static void sum_two_in_place(float *restrict a, float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

/* The same for one of them: a reduce-scatter of two ranks. */
DDP_MULTIVERSION
static void sum_into(float *restrict a, const float *restrict b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        a[i] = a[i] + b[i];
}

typedef void combine_fn(void *restrict out, const void *restrict a, const void *restrict b,
                        size_t count);

static combine_fn *const combines[3][4] = {
    [DDP_SUM] = {sum_f32, sum_f64, sum_i32, sum_i64},
    [DDP_MIN] = {min_f32, min_f64, min_i32, min_i64},
    [DDP_MAX] = {max_f32, max_f64, max_i32, max_i64},
};

struct tree {
    combine_fn *combine;
    const char *const *sources;
    const int *ends;                 /* of their subtrees; or NULL */
    int next;                        /* source, from the left */
    size_t at;                       /* bytes from the start of each source */
    size_t count;                    /* elements of the block */
    char (*scratch)[2][BLOCK_BYTES]; /* by depth: left and right */
};

/* The block's value over leaves [low, high): a source itself, or `out` filled. */
static const void *run_tree(struct tree *tree, int low, int high, int depth, void *out)
{
    if (tree->ends ? tree->ends[tree->next] == high : high - low == 1)
        return tree->sources[tree->next++] + tree->at;
    assert(high - low > 1);
    const int middle = ddp_reduce_middle(low, high);
    const void *left = run_tree(tree, low, middle, depth + 1, tree->scratch[depth][0]);
    const void *right = run_tree(tree, middle, high, depth + 1, tree->scratch[depth][1]);
    tree->combine(out, left, right, tree->count);
    return out;
}

/* The sum of two float arrays: 2 when it goes into both, 1 when into one of them, else 0. */
static int two_in_place(const struct ddp_reduce *args)
{
    if (args->source_count != 2 || args->rounded > 0 || args->dtype != DDP_F32 ||
        args->op != DDP_SUM || args->sources[0] == args->sources[1])
        return 0;
    if (args->destination_count == 1)
        return args->destinations[0] == args->sources[0] ||
               args->destinations[0] == args->sources[1];
    const bool both = args->destination_count == 2 && args->sources[0] == args->destinations[0] &&
                      args->sources[1] == args->destinations[1];
    return both ? 2 : 0;
}

enum ddp_status ddp_reduce(const struct ddp_reduce *args)
{
    _Alignas(64) char scratch[MAX_DEPTH][2][BLOCK_BYTES];
    _Alignas(64) char result[BLOCK_BYTES];
    enum ddp_status status = ddp_reduce_check(args);
    if (status)
        return status;
    const int in_place = two_in_place(args);
    if (in_place == 2)
        sum_two_in_place(args->destinations[0], args->destinations[1], (size_t)args->count);
    if (in_place == 1)
        sum_into(args->destinations[0], args->sources[args->sources[0] == args->destinations[0]],
                 (size_t)args->count);
    if (in_place)
        return DDP_OK;
    const size_t size = ddp_dtype_bytes(args->dtype), total = (size_t)args->count * size;
    struct tree tree = {.combine = combines[args->op][args->dtype],
                        .sources = (const char *const *)args->sources,
                        .ends = args->ends,
                        .scratch = scratch};
    const int leaves = args->ends ? args->ends[args->source_count - 1] : args->source_count;
    const size_t border = total - (size_t)args->rounded * size;
    for (size_t bytes; tree.at < total; tree.at += bytes) {
        const size_t left = (tree.at < border ? border : total) - tree.at;
        bytes = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        tree.count = bytes / size;
        if (tree.at == border && args->rounded > 0)
            tree.combine = sum_rounded;
        tree.next = 0;
        const void *block = run_tree(&tree, 0, leaves, 0, result);
        for (int i = 0; i < args->destination_count; i++) {
            char *destination = (char *)args->destinations[i] + tree.at;
            if (block != destination)
                memcpy(destination, block, bytes);
        }
    }
    return DDP_OK;
}
