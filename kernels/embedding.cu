/* SPDX-License-Identifier: MIT
 *
 * Embedding on a GPU; see embedding.h. Forward: a warp has a row. Backward: the tokens are sorted,
 * so that a warp has all rows of dy that go to one row of the table, and adds them first to last:
 * no atomics, and the bits of the CPU. Bound: 12 bytes an element forward, 10 to bf16; backward
 * 4 of dy, or 2 of bf16, for each table, and 8 for each row of the tables that is touched (4 more
 * for all of dwte when it starts from zeros). A token that fills a large part of the batch is bound
 * by latency instead. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/sort.h"
#include "kernels/embedding.h"
#include "kernels/kernels_cuda.h"

#define CHECKERS 1024 /* threads that look for bad tokens */
#define WARPS    (DDP_BLOCK / DDP_WARP)

/* --- tokens --------------------------------------------------------------------------------- */

struct embedding_tokens {
    int64_t batch, length, vocabulary;
    const int32_t *tokens;
};

static __device__ inline bool is_token(int32_t token, int64_t vocabulary)
{
    return token >= 0 && token < vocabulary;
}

/* Reports the first bad token, as the CPU's version does. */
static __global__ void __launch_bounds__(CHECKERS)
    check_tokens(struct embedding_tokens args, struct ddp_cuda_fault *fault)
{
    __shared__ int64_t partial[DDP_WARPS_MAX];
    const int64_t count = args.batch * args.length;
    int64_t bad = count;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < count; i += CHECKERS)
        if (!is_token(args.tokens[i], args.vocabulary) && i < bad)
            bad = i;
    bad = ddp_warps_reduce<CHECKERS / DDP_WARP, DDP_MIN>(bad, partial);
    if (threadIdx.x == 0 && bad < count && fault->code == DDP_CUDA_FAULT_NONE) {
        fault->value = args.tokens[bad];
        fault->limit = (int32_t)args.vocabulary;
        fault->row = bad / args.length;
        fault->column = bad % args.length;
        fault->code = DDP_CUDA_FAULT_TOKEN;
    }
}

/* --- forward -------------------------------------------------------------------------------- */

/* Of float, or of bf16. */
template <int W>
static __device__ inline ddp_pack<float, W> read_table(const float *table, const uint16_t *bf16,
                                                       int64_t at)
{
    return table ? ddp_read<W>(table + at) : ddp_read<W>(bf16 + at);
}

/* Zeros where the token is bad. */
template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK) look_up(struct ddp_embedding_forward args)
{
    const int64_t n = args.features;
    const int64_t row = (int64_t)blockIdx.x * WARPS + (int)threadIdx.x / DDP_WARP;
    if (row >= args.batch * args.length)
        return;
    const int32_t token = args.tokens[row];
    const bool good = is_token(token, args.vocabulary);
    const int64_t from = (good ? token : 0) * n;
    const int64_t place = (args.first + row % args.length) * n;
    const bool places = args.wpe || args.wpe_bf16;
#pragma unroll 2
    for (int64_t i = (int)threadIdx.x % DDP_WARP * W; i < n; i += DDP_WARP * W) {
        ddp_pack<float, W> value = {};
        if (good)
            value = read_table<W>(args.wte, args.wte_bf16, from + i);
        if (places) {
            const ddp_pack<float, W> other = read_table<W>(args.wpe, args.wpe_bf16, place + i);
            for (int j = 0; j < W; j++)
                value.at[j] += other.at[j];
        }
        ddp_write<W>((T *)args.y + row * n + i, value);
    }
}

template <typename T>
static void launch_look_up(const struct ddp_embedding_forward *args, struct ddp_cuda *cuda)
{
    constexpr int W = ddp_width<T>;
    const unsigned blocks = ddp_cuda_blocks(args->batch * args->length, WARPS);
    if (args->features % W == 0 && ddp_aligned(args->wte) && ddp_aligned(args->wpe) &&
        ddp_aligned(args->wte_bf16) && ddp_aligned(args->wpe_bf16) && ddp_aligned(args->y))
        DDP_LAUNCH((look_up<T, W>), blocks, DDP_BLOCK, 0, cuda->stream, *args);
    else
        DDP_LAUNCH((look_up<T, 1>), blocks, DDP_BLOCK, 0, cuda->stream, *args);
}

extern "C" enum ddp_status ddp_cuda_embedding_forward(const struct ddp_embedding_forward *args,
                                                      void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const struct embedding_tokens tokens = {args->batch, args->length, args->vocabulary,
                                            args->tokens};
    const enum ddp_status status = ddp_embedding_check_forward(args);
    const int64_t rows = args->batch * args->length;
    if (status || rows == 0)
        return status;
    DDP_LAUNCH(check_tokens, 1, CHECKERS, 0, cuda->stream, tokens, cuda->fault);
    if (args->features > 0 && args->dtype == DDP_BF16)
        launch_look_up<uint16_t>(args, cuda);
    else if (args->features > 0)
        launch_look_up<float>(args, cuda);
    return ddp_cuda_launched(cuda, "embedding");
}

/* --- backward ------------------------------------------------------------------------------- */

/* Some of the tokens, sorted. */
struct embedding_chunk {
    struct ddp_cuda_sorted sorted;
    int64_t begin, count;
    int64_t features, vocabulary;
    const void *dy;
    float *dwte;
};

/* Adds GROUP rows of dy, whose numbers the lanes from `first` on have; all of them are on their way
 * before the first is added. W is 4 or 1 for either type: what there is most of is float. */
template <typename T, int W, int GROUP>
static __device__ inline void add_group(ddp_pack<float, W> *sum, const T *dy, int64_t n, int place,
                                        int first)
{
    ddp_pack<float, W> rows[GROUP];
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        const int64_t row = __shfl_sync(DDP_FULL_MASK, place, first + i);
        rows[i] = ddp_read<W>(dy + row * n);
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        for (int j = 0; j < W; j++)
            sum->at[j] += rows[i].at[j];
}

/* The rows that the first `count` lanes have. */
template <typename T, int W>
static __device__ inline void add_rows(ddp_pack<float, W> *sum, const T *dy, int64_t n, int place,
                                       int count)
{
    int first = 0;
    for (; first + 16 <= count; first += 16)
        add_group<T, W, 16>(sum, dy, n, place, first);
    for (; first + 4 <= count; first += 4)
        add_group<T, W, 4>(sum, dy, n, place, first);
    for (; first < count; first++)
        add_group<T, W, 1>(sum, dy, n, place, first);
}

/* A warp begins at each element of the sorted list, and goes on where a new token begins: it has
 * all rows of that token, and 32 W columns of them. */
template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK, 2) add_tokens(struct embedding_chunk chunk)
{
    const int lane = (int)threadIdx.x % DDP_WARP;
    int64_t at = (int64_t)blockIdx.x * WARPS + (int)threadIdx.x / DDP_WARP;
    if (at >= chunk.count)
        return;
    const int32_t token = chunk.sorted.keys[at];
    if (token >= chunk.vocabulary || (at > 0 && chunk.sorted.keys[at - 1] == token))
        return;
    int64_t column = ((int64_t)blockIdx.y * DDP_WARP + lane) * W;
    const bool inside = column < chunk.features;
    column = inside ? column : 0; /* lanes behind the end do the first column for nothing */
    float *to = chunk.dwte + token * chunk.features + column;
    const T *dy = (const T *)chunk.dy + chunk.begin * chunk.features + column;
    ddp_pack<float, W> sum = {};
    if (inside)
        sum = ddp_load<float, W>(to);
    for (int count = DDP_WARP; count == DDP_WARP; at += DDP_WARP) {
        const bool own = at + lane < chunk.count && chunk.sorted.keys[at + lane] == token;
        const int place = own ? chunk.sorted.places[at + lane] : 0;
        count = __popc(__ballot_sync(DDP_FULL_MASK, own));
        add_rows<T, W>(&sum, dy, chunk.features, place, count);
    }
    if (inside)
        ddp_store(to, sum);
}

/* dwpe: a thread has a pack of a position, and adds the batch's rows first to last. */
template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK) add_places(struct ddp_embedding_backward args)
{
    const int64_t at = ddp_first_of_pack(W), n = args.features, size = args.length * n;
    if (at >= args.positions * n)
        return;
    ddp_pack<float, W> sum = {};
    if (args.accumulate_dwpe)
        sum = ddp_load<float, W>(args.dwpe + at);
    if (at < size) {
#pragma unroll 8
        for (int64_t row = 0; row < args.batch; row++) {
            const ddp_pack<float, W> value = ddp_read<W>((const T *)args.dy + row * size + at);
            for (int j = 0; j < W; j++)
                sum.at[j] += value.at[j];
        }
    }
    ddp_store(args.dwpe + at, sum);
}

template <typename T>
static enum ddp_status backward_tokens(const struct ddp_embedding_backward *args, bool packs,
                                       struct ddp_cuda *cuda)
{
    const int64_t rows = args->batch * args->length, n = args->features;
    if (!args->accumulate_dwte) {
        const size_t bytes = (size_t)(args->vocabulary * n) * sizeof *args->dwte;
        const cudaError_t error = cudaMemsetAsync(args->dwte, 0, bytes, cuda->stream);
        if (error != cudaSuccess)
            return ddp_cuda_failed(error, "embedding backward");
    }
    struct embedding_chunk chunk;
    chunk.features = n;
    chunk.vocabulary = args->vocabulary;
    chunk.dy = args->dy;
    chunk.dwte = args->dwte;
    const int64_t most = ddp_cuda_sort_most(DDP_CUDA_WORKSPACE_BYTES);
    const int64_t columns = packs ? n / 4 : n;
    for (chunk.begin = 0; chunk.begin < rows; chunk.begin += chunk.count) {
        chunk.count = rows - chunk.begin < most ? rows - chunk.begin : most;
        ddp_cuda_sort(args->tokens + chunk.begin, chunk.count, (int32_t)args->vocabulary,
                      cuda->workspace, &chunk.sorted, cuda);
        const dim3 grid(ddp_cuda_blocks(chunk.count, WARPS), ddp_cuda_blocks(columns, DDP_WARP));
        if (packs)
            DDP_LAUNCH((add_tokens<T, 4>), grid, DDP_BLOCK, 0, cuda->stream, chunk);
        else
            DDP_LAUNCH((add_tokens<T, 1>), grid, DDP_BLOCK, 0, cuda->stream, chunk);
    }
    return DDP_OK;
}

template <typename T>
static void backward_places(const struct ddp_embedding_backward *args, bool packs,
                            struct ddp_cuda *cuda)
{
    const int64_t count = args->positions * args->features;
    if (count > 0 && packs)
        DDP_LAUNCH((add_places<T, 4>), ddp_cuda_blocks(count, 4 * DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *args);
    else if (count > 0)
        DDP_LAUNCH((add_places<T, 1>), ddp_cuda_blocks(count, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, *args);
}

template <typename T>
static enum ddp_status backward(const struct ddp_embedding_backward *args, struct ddp_cuda *cuda)
{
    enum ddp_status status = DDP_OK;
    const bool packs = args->features % 4 == 0 && ddp_aligned(args->dy) &&
                       ddp_aligned(args->dwte) && ddp_aligned(args->dwpe);
    if (args->dwte && args->features > 0 && args->vocabulary > 0)
        status = backward_tokens<T>(args, packs, cuda);
    if (status == DDP_OK && args->dwpe && args->features > 0)
        backward_places<T>(args, packs, cuda);
    return status;
}

extern "C" enum ddp_status ddp_cuda_embedding_backward(const struct ddp_embedding_backward *args,
                                                       void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const struct embedding_tokens tokens = {args->batch, args->length, args->vocabulary,
                                            args->tokens};
    const int64_t rows = args->batch * args->length;
    enum ddp_status status = ddp_embedding_check_backward(args);
    if (status)
        return status;
    if (rows > 0)
        DDP_LAUNCH(check_tokens, 1, CHECKERS, 0, cuda->stream, tokens, cuda->fault);
    status = DDP_BY_DTYPE(args->dtype, backward, args, cuda);
    return status ? status : ddp_cuda_launched(cuda, "embedding backward");
}
