/* SPDX-License-Identifier: MIT
 *
 * See sort.h. Radix sort by eight bits at a time: each tile counts its digits, one block adds
 * the counts up, and each tile puts its elements where the counts say. Within a warp, the lanes
 * with equal digits find each other by votes. Bound: latency, at the sizes of a batch of tokens. */
#include "kernels/cuda/sort.h"

#define DIGITS   256 /* threads of a block as well */
#define BITS     8
#define WARPS    (DIGITS / DDP_WARP)
#define ROUNDS   8 /* of a warp in a tile: elements of a lane */
#define TILE     (DIGITS * ROUNDS)
#define SCANNERS 1024

struct sort_pass {
    int64_t count;
    int shift;
    int32_t limit;
    const int32_t *numbers; /* the first pass: keys as they came; else NULL */
    const int32_t *keys, *places;
    int32_t *next_keys, *next_places;
    int32_t *counts; /* (DIGITS,tiles), then where each tile's elements begin */
    int tiles;
};

static __device__ inline int32_t key_at(const struct sort_pass &pass, int64_t at)
{
    if (!pass.numbers)
        return pass.keys[at];
    const int32_t number = pass.numbers[at];
    return number >= 0 && number < pass.limit ? number : pass.limit;
}

static __device__ inline int digit_of(const struct sort_pass &pass, int32_t key)
{
    return key >> pass.shift & (DIGITS - 1);
}

/* The lanes of this warp whose digit is this lane's, of those that have one. All lanes call it. */
static __device__ inline unsigned peers_of(int digit, bool has_one)
{
    unsigned peers = __ballot_sync(DDP_FULL_MASK, has_one);
#pragma unroll
    for (int bit = 0; bit < BITS; bit++) {
        const bool set = digit >> bit & 1;
        const unsigned voters = __ballot_sync(DDP_FULL_MASK, set);
        peers &= set ? voters : ~voters;
    }
    return peers;
}

/* counts[w][d]: how many elements of warp w's part of the tile have digit d. */
static __device__ inline void count_digits(const struct sort_pass &pass, int (*counts)[DIGITS])
{
    const int warp = (int)threadIdx.x / DDP_WARP, lane = (int)threadIdx.x % DDP_WARP;
    for (int w = 0; w < WARPS; w++)
        counts[w][threadIdx.x] = 0;
    __syncthreads();
    const int64_t begin = (int64_t)blockIdx.x * TILE + warp * ROUNDS * DDP_WARP;
    for (int round = 0; round < ROUNDS && begin + round * DDP_WARP < pass.count; round++) {
        const int64_t at = begin + round * DDP_WARP + lane;
        const bool has_one = at < pass.count;
        const int digit = has_one ? digit_of(pass, key_at(pass, at)) : 0;
        const unsigned peers = peers_of(digit, has_one);
        if (has_one && __ffs((int)peers) - 1 == lane) /* one of them counts for all */
            counts[warp][digit] += __popc(peers);
        __syncwarp();
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(DIGITS) count_tile(struct sort_pass pass)
{
    __shared__ int counts[WARPS][DIGITS];
    count_digits(pass, counts);
    int sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += counts[w][threadIdx.x];
    pass.counts[(int64_t)threadIdx.x * pass.tiles + blockIdx.x] = sum;
}

/* Each count becomes the sum of those before it. */
static __global__ void __launch_bounds__(SCANNERS) add_counts(struct sort_pass pass)
{
    __shared__ int sums[SCANNERS / DDP_WARP];
    const int warp = (int)threadIdx.x / DDP_WARP, lane = (int)threadIdx.x % DDP_WARP;
    const int64_t total = (int64_t)DIGITS * pass.tiles;
    int before = 0;
    for (int64_t at = threadIdx.x; at - (int)threadIdx.x < total; at += SCANNERS) {
        const int own = at < total ? pass.counts[at] : 0;
        int sum = own;
#pragma unroll
        for (int step = 1; step < DDP_WARP; step *= 2) {
            const int left = __shfl_up_sync(DDP_FULL_MASK, sum, step);
            sum += lane >= step ? left : 0;
        }
        if (lane == DDP_WARP - 1)
            sums[warp] = sum;
        __syncthreads();
        int warps = 0, all = 0;
        for (int w = 0; w < SCANNERS / DDP_WARP; w++) {
            warps += w < warp ? sums[w] : 0;
            all += sums[w];
        }
        __syncthreads();
        if (at < total)
            pass.counts[at] = before + warps + sum - own;
        before += all;
    }
}

static __global__ void __launch_bounds__(DIGITS) place_tile(struct sort_pass pass)
{
    __shared__ int offsets[WARPS][DIGITS];
    count_digits(pass, offsets);
    int next = pass.counts[(int64_t)threadIdx.x * pass.tiles + blockIdx.x];
    for (int w = 0; w < WARPS; w++) {
        const int count = offsets[w][threadIdx.x];
        offsets[w][threadIdx.x] = next;
        next += count;
    }
    __syncthreads();
    const int warp = (int)threadIdx.x / DDP_WARP, lane = (int)threadIdx.x % DDP_WARP;
    const int64_t begin = (int64_t)blockIdx.x * TILE + warp * ROUNDS * DDP_WARP;
    for (int round = 0; round < ROUNDS && begin + round * DDP_WARP < pass.count; round++) {
        const int64_t at = begin + round * DDP_WARP + lane;
        const bool has_one = at < pass.count;
        const int32_t key = has_one ? key_at(pass, at) : 0;
        const int digit = digit_of(pass, key);
        const unsigned peers = peers_of(digit, has_one);
        const int offset = offsets[warp][digit];
        __syncwarp();
        if (has_one) {
            const int to = offset + __popc(peers & ((1u << lane) - 1));
            pass.next_keys[to] = key;
            pass.next_places[to] = pass.numbers ? (int32_t)at : pass.places[at];
            if (__ffs((int)peers) - 1 == lane)
                offsets[warp][digit] = offset + __popc(peers);
        }
        __syncwarp();
    }
}

static int64_t tiles_of(int64_t count)
{
    return (count + TILE - 1) / TILE;
}

extern "C" size_t ddp_cuda_sort_bytes(int64_t count)
{
    return ((size_t)count * 4 + (size_t)tiles_of(count) * DIGITS) * sizeof(int32_t);
}

extern "C" int64_t ddp_cuda_sort_most(size_t bytes)
{
    const int64_t tiles = (int64_t)(bytes / ddp_cuda_sort_bytes(TILE)) * TILE;
    return tiles < INT32_MAX / 2 ? tiles : INT32_MAX / 2;
}

extern "C" void ddp_cuda_sort(const int32_t *numbers, int64_t count, int32_t limit, void *memory,
                              struct ddp_cuda_sorted *sorted, struct ddp_cuda *cuda)
{
    int32_t *keys[2], *places[2];
    for (int i = 0; i < 2; i++) {
        keys[i] = (int32_t *)memory + i * count;
        places[i] = (int32_t *)memory + (2 + i) * count;
    }
    struct sort_pass pass;
    pass.count = count;
    pass.limit = limit;
    pass.tiles = (int)tiles_of(count);
    pass.counts = (int32_t *)memory + 4 * count;
    pass.numbers = numbers;
    int from = 1;
    for (pass.shift = 0; pass.shift == 0 || limit >> pass.shift > 0; pass.shift += BITS) {
        pass.keys = keys[from];
        pass.places = places[from];
        pass.next_keys = keys[1 - from];
        pass.next_places = places[1 - from];
        DDP_LAUNCH(count_tile, (unsigned)pass.tiles, DIGITS, 0, cuda->stream, pass);
        DDP_LAUNCH(add_counts, 1, SCANNERS, 0, cuda->stream, pass);
        DDP_LAUNCH(place_tile, (unsigned)pass.tiles, DIGITS, 0, cuda->stream, pass);
        pass.numbers = NULL;
        from = 1 - from;
        if (pass.shift + BITS >= 32)
            break;
    }
    sorted->keys = keys[from];
    sorted->places = places[from];
}
