/* SPDX-License-Identifier: MIT
 *
 * The ordered reduction on a GPU; see reduce.h. A thread takes its elements of all sources through
 * the tree in registers, as a binary counter: after source i the levels that are full are the bits
 * of i + 1, and what is left over at the end joins from the right, which is the same tree. Bound:
 * the element's size for each source and each destination. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/reduce.h"

#define LEVELS 7 /* log2(DDP_REDUCE_MAX) + 1 */
#define AHEAD  4 /* sources whose loads are on their way together */

struct reduce {
    int64_t count;
    int source_count, destination_count;
    const void *sources[DDP_REDUCE_MAX];
    void *destinations[DDP_REDUCE_MAX];
};

template <typename T, int OP> static __device__ inline T combined(T a, T b)
{
    if (OP == DDP_SUM)
        return a + b;
    if (OP == DDP_MIN)
        return b < a ? b : a;
    return b > a ? b : a;
}

template <typename T, int W, int OP>
static __device__ inline ddp_pack<T, W> combine(const ddp_pack<T, W> &a, const ddp_pack<T, W> &b)
{
    ddp_pack<T, W> result;
    for (int i = 0; i < W; i++)
        result.at[i] = combined<T, OP>(a.at[i], b.at[i]);
    return result;
}

template <typename T, int W>
static __device__ inline ddp_pack<T, W> load(const struct reduce &args, int source, int64_t at)
{
    return ddp_load<T, W>((const T *)args.sources[source] + at);
}

/* All indices of `level` are known when compiling, so that it stays in registers. */
template <typename T, int W, int OP>
static __device__ inline void reduce_pack(const struct reduce &args, int64_t at)
{
    ddp_pack<T, W> level[LEVELS];
    for (int first = 0; first < args.source_count; first += AHEAD) {
        ddp_pack<T, W> value[AHEAD];
#pragma unroll
        for (int s = 0; s < AHEAD; s++)
            if (first + s < args.source_count)
                value[s] = load<T, W>(args, first + s, at);
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
            bool carries = first + s < args.source_count;
#pragma unroll
            for (int l = 0; l < LEVELS; l++) {
                const bool full = (first + s) >> l & 1;
                if (carries && full)
                    value[s] = combine<T, W, OP>(level[l], value[s]);
                else if (carries)
                    level[l] = value[s];
                carries = carries && full;
            }
        }
    }
    ddp_pack<T, W> result;
    bool any = false;
#pragma unroll
    for (int l = 0; l < LEVELS; l++)
        if (args.source_count >> l & 1) {
            result = any ? combine<T, W, OP>(level[l], result) : level[l];
            any = true;
        }
    for (int d = 0; d < args.destination_count; d++)
        ddp_store<T, W>((T *)args.destinations[d] + at, result);
}

template <typename T, int W, int OP> static __global__ void reduce_all(struct reduce args)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= args.count)
        reduce_pack<T, W, OP>(args, at);
    else
        for (int64_t i = at; i < args.count; i++)
            reduce_pack<T, 1, OP>(args, i);
}

template <typename T, int OP>
static void launch(const struct reduce &reduce, bool aligned, struct ddp_cuda *cuda)
{
    enum { W = 16 / sizeof(T) };
    if (aligned)
        DDP_LAUNCH((reduce_all<T, W, OP>), ddp_cuda_blocks(reduce.count, W * DDP_BLOCK), DDP_BLOCK,
                   0, cuda->stream, reduce);
    else
        DDP_LAUNCH((reduce_all<T, 1, OP>), ddp_cuda_blocks(reduce.count, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, reduce);
}

/* Integers are added as unsigned numbers: they wrap instead of being undefined. */
template <typename T, typename SUM>
static void launch_op(enum ddp_redop op, const struct reduce &reduce, bool aligned,
                      struct ddp_cuda *cuda)
{
    if (op == DDP_SUM)
        launch<SUM, DDP_SUM>(reduce, aligned, cuda);
    else if (op == DDP_MIN)
        launch<T, DDP_MIN>(reduce, aligned, cuda);
    else
        launch<T, DDP_MAX>(reduce, aligned, cuda);
}

extern "C" enum ddp_status ddp_cuda_reduce(const struct ddp_reduce *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_reduce_check(args);
    if (status || args->count == 0)
        return status;
    struct reduce reduce;
    bool aligned = true;
    for (int i = 0; i < DDP_REDUCE_MAX; i++) {
        reduce.sources[i] = i < args->source_count ? args->sources[i] : NULL;
        reduce.destinations[i] = i < args->destination_count ? args->destinations[i] : NULL;
        aligned = aligned && ddp_aligned(reduce.sources[i]) && ddp_aligned(reduce.destinations[i]);
    }
    reduce.count = args->count;
    reduce.source_count = args->source_count;
    reduce.destination_count = args->destination_count;
    if (args->dtype == DDP_F32)
        launch_op<float, float>(args->op, reduce, aligned, cuda);
    else if (args->dtype == DDP_F64)
        launch_op<double, double>(args->op, reduce, aligned, cuda);
    else if (args->dtype == DDP_I32)
        launch_op<int32_t, uint32_t>(args->op, reduce, aligned, cuda);
    else
        launch_op<int64_t, uint64_t>(args->op, reduce, aligned, cuda);
    return ddp_cuda_launched(cuda, "reduce");
}
