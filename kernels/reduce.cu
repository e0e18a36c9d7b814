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

struct reduce_arrays {
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

template <typename T, int OP> struct reduce_elements {
    struct reduce_arrays arrays;

    /* All indices of `level` are known when compiling, so that it stays in registers. */
    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<T, W> level[LEVELS];
        for (int first = 0; first < arrays.source_count; first += AHEAD) {
            ddp_pack<T, W> value[AHEAD];
#pragma unroll
            for (int s = 0; s < AHEAD; s++)
                if (first + s < arrays.source_count)
                    value[s] = ddp_load<T, W>((const T *)arrays.sources[first + s] + at);
#pragma unroll
            for (int s = 0; s < AHEAD; s++) {
                bool carries = first + s < arrays.source_count;
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
#ifdef __CUDACC__
        ddp_pack<T, W> result;
#else
        ddp_pack<T, W> result = {}; /* gcc 14 does not see that some level is full */
#endif
        bool any = false;
#pragma unroll
        for (int l = 0; l < LEVELS; l++)
            if (arrays.source_count >> l & 1) {
                result = any ? combine<T, W, OP>(level[l], result) : level[l];
                any = true;
            }
        for (int d = 0; d < arrays.destination_count; d++)
            ddp_store<T, W>((T *)arrays.destinations[d] + at, result);
    }
};

/* --- sums of subtrees --- */

#define ROOT_LEVELS 10 /* of subtrees before the last: log2 of 1024 leaves */

struct reduce_roots {
    const float *sources[DDP_REDUCE_DEVICE];
    float *destination;
    int source_count;
    uint16_t ends[DDP_REDUCE_DEVICE];
};

/* The same counter. A subtree that is not the last has a power of two of leaves, and begins at a
 * multiple of it: it counts from that level on. The last one joins what is there. */
struct reduce_roots_elements {
    struct reduce_roots roots;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<float, W> level[ROOT_LEVELS];
        for (int s = 0; s < roots.source_count; s++) {
            const int begin = s > 0 ? roots.ends[s - 1] : 0, size = roots.ends[s] - begin;
            const bool last = s == roots.source_count - 1;
            ddp_pack<float, W> value = ddp_load<float, W>(roots.sources[s] + at);
            bool carries = true;
#pragma unroll
            for (int l = 0; l < ROOT_LEVELS; l++) {
                const bool counts = carries && (last || size >> l <= 1);
                const bool full = begin >> l & 1;
                if (counts && full)
                    value = combine<float, W, DDP_SUM>(level[l], value);
                else if (counts && !last)
                    level[l] = value;
                carries = carries && (!counts || full || last);
            }
            if (last)
                ddp_store<float, W>(roots.destination + at, value);
        }
    }
};

static enum ddp_status launch_roots(const struct ddp_reduce *args, struct ddp_cuda *cuda)
{
    reduce_roots_elements reduce;
    bool aligned = ddp_aligned(args->destinations[0]);
    if (args->source_count > DDP_REDUCE_DEVICE || args->dtype != DDP_F32 || args->op != DDP_SUM ||
        args->destination_count != 1 || args->ends[args->source_count - 1] > 1 << ROOT_LEVELS)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "reduce: %d sums of subtrees on a device",
                        args->source_count);
    for (int s = 0; s < DDP_REDUCE_DEVICE; s++) {
        const bool used = s < args->source_count;
        reduce.roots.sources[s] = used ? (const float *)args->sources[s] : NULL;
        reduce.roots.ends[s] = (uint16_t)(used ? args->ends[s] : 0);
        aligned = aligned && ddp_aligned(reduce.roots.sources[s]);
    }
    reduce.roots.destination = (float *)args->destinations[0];
    reduce.roots.source_count = args->source_count;
    ddp_cuda_elements<4>(reduce, args->count, aligned, cuda);
    return ddp_cuda_launched(cuda, "reduce");
}

/* --- launching --- */

template <typename T, int OP>
static void launch(const struct reduce_arrays &arrays, int64_t count, bool aligned,
                   struct ddp_cuda *cuda)
{
    const reduce_elements<T, OP> reduce = {arrays};
    ddp_cuda_elements<16 / sizeof(T)>(reduce, count, aligned, cuda);
}

/* Integers are added as unsigned numbers: they wrap instead of being undefined. */
template <typename T, typename SUM>
static void launch_op(enum ddp_redop op, const struct reduce_arrays &arrays, int64_t count,
                      bool aligned, struct ddp_cuda *cuda)
{
    if (op == DDP_SUM)
        launch<SUM, DDP_SUM>(arrays, count, aligned, cuda);
    else if (op == DDP_MIN)
        launch<T, DDP_MIN>(arrays, count, aligned, cuda);
    else
        launch<T, DDP_MAX>(arrays, count, aligned, cuda);
}

extern "C" enum ddp_status ddp_cuda_reduce(const struct ddp_reduce *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    enum ddp_status status = ddp_reduce_check(args);
    if (status || args->count == 0)
        return status;
    if (args->ends)
        return launch_roots(args, cuda);
    struct reduce_arrays arrays;
    bool aligned = true;
    for (int i = 0; i < DDP_REDUCE_MAX; i++) {
        arrays.sources[i] = i < args->source_count ? args->sources[i] : NULL;
        arrays.destinations[i] = i < args->destination_count ? args->destinations[i] : NULL;
        aligned = aligned && ddp_aligned(arrays.sources[i]) && ddp_aligned(arrays.destinations[i]);
    }
    arrays.source_count = args->source_count;
    arrays.destination_count = args->destination_count;
    if (args->dtype == DDP_F32)
        launch_op<float, float>(args->op, arrays, args->count, aligned, cuda);
    else if (args->dtype == DDP_F64)
        launch_op<double, double>(args->op, arrays, args->count, aligned, cuda);
    else if (args->dtype == DDP_I32)
        launch_op<int32_t, uint32_t>(args->op, arrays, args->count, aligned, cuda);
    else
        launch_op<int64_t, uint64_t>(args->op, arrays, args->count, aligned, cuda);
    return ddp_cuda_launched(cuda, "reduce");
}
