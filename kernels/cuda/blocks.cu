/* SPDX-License-Identifier: MIT
 *
 * See blocks.h. The same values as core/blocks.c makes, which are products of two numbers. Bound by
 * the bytes that are written: a thread stores 16. */
#include "kernels/cuda/blocks.h"

#include "core/blocks.h"
#include "kernels/cuda/ptx.h"

struct ddp_unpacking {
    enum ddp_dtype type;
    const uint8_t *from;
    int64_t first, count;
    void *to;
    float codes[16]; /* of NF4 */
};

/* W / 2 or W bytes, or the one that W = 1 is in: all blocks have an even number of bytes. */
template <int N> static __device__ inline void read_bytes(uint8_t (&bytes)[N], const uint8_t *from)
{
    if constexpr (N == 1) {
        bytes[0] = *from;
    } else {
        for (int i = 0; i < N; i += 2) {
            const unsigned pair = *reinterpret_cast<const uint16_t *>(from + i);
            bytes[i] = (uint8_t)pair;
            bytes[i + 1] = (uint8_t)(pair >> 8);
        }
    }
}

static __device__ inline float half_at(const uint8_t *at)
{
    return ddp_cuda_f32_of(ddp_half{*reinterpret_cast<const uint16_t *>(at)});
}

/* W values of one block, from `at` on. */
template <int W>
static __device__ inline ddp_pack<float, W> nf4(const uint8_t *from, int64_t at, const float *codes,
                                                bool rounded)
{
    const uint8_t *block = from + at / 64 * 36;
    const int i = (int)(at % 64);
    const float scale = __uint_as_float(*reinterpret_cast<const unsigned *>(block));
    uint8_t bytes[W > 1 ? W / 2 : 1];
    ddp_pack<float, W> values;
    read_bytes(bytes, block + 4 + i / 2);
    for (int k = 0; k < W; k++) {
        const int code = (i + k) % 2 ? bytes[k / 2] & 15 : bytes[k / 2] >> 4;
        const float value = codes[code] * scale;
        values.at[k] = rounded ? ddp_rounded<uint16_t>(value) : value;
    }
    return values;
}

template <int W> static __device__ inline ddp_pack<float, W> q8_0(const uint8_t *from, int64_t at)
{
    const uint8_t *block = from + at / 32 * 34;
    const float scale = half_at(block);
    uint8_t bytes[W];
    ddp_pack<float, W> values;
    read_bytes(bytes, block + 2 + at % 32);
    for (int k = 0; k < W; k++)
        values.at[k] = (float)(int8_t)bytes[k] * scale;
    return values;
}

/* The second half of a block is in the upper halves of its bytes. */
template <int W> static __device__ inline ddp_pack<float, W> q4_0(const uint8_t *from, int64_t at)
{
    const uint8_t *block = from + at / 32 * 18;
    const int i = (int)(at % 32), shift = i / 16 * 4;
    const float scale = half_at(block);
    uint8_t bytes[W];
    ddp_pack<float, W> values;
    read_bytes(bytes, block + 2 + i % 16);
    for (int k = 0; k < W; k++)
        values.at[k] = (float)((bytes[k] >> shift & 15) - 8) * scale;
    return values;
}

template <typename T, int W>
static __device__ inline void unpack(const struct ddp_unpacking *u, const float *codes, int64_t at)
{
    const int64_t from = u->first + at;
    ddp_write<W>((T *)u->to + at, u->type == DDP_Q8_0 ? q8_0<W>(u->from, from)
                                  : u->type == DDP_Q4_0
                                      ? q4_0<W>(u->from, from)
                                      : nf4<W>(u->from, from, codes, u->type == DDP_NF4_BF16));
}

/* Thread I copies code I: not a loop, for which nvcc would put all parameters in local memory. */
template <int I>
static __device__ inline void fill_codes(float *codes, const struct ddp_unpacking &u)
{
    if ((int)threadIdx.x == I)
        codes[I] = u.codes[I];
    if constexpr (I < 15)
        fill_codes<I + 1>(codes, u);
}

/* The codes are in shared memory, each in a bank of its own. What begins within a pack is unpacked
 * one by one. */
template <typename T, int W>
static __global__ void __launch_bounds__(DDP_BLOCK) unpack_blocks_kernel(struct ddp_unpacking u)
{
    __shared__ float codes[16];
    fill_codes<0>(codes, u);
    __syncthreads();
    const int64_t at = ddp_first_of_pack(W);
    if (u.first % W == 0 && at + W <= u.count)
        unpack<T, W>(&u, codes, at);
    else
        for (int64_t i = at; i < at + W && i < u.count; i++)
            unpack<T, 1>(&u, codes, i);
}

template <typename T> static void launch(const struct ddp_unpacking *u, struct ddp_cuda *cuda)
{
    constexpr int wide = 16 / (int)sizeof(T);
    DDP_LAUNCH((unpack_blocks_kernel<T, wide>), ddp_cuda_blocks(u->count, wide * DDP_BLOCK),
               DDP_BLOCK, 0, cuda->stream, *u);
}

extern "C" enum ddp_status ddp_cuda_unpack(const struct ddp_cuda_blocks *args,
                                           struct ddp_cuda *cuda)
{
    struct ddp_unpacking u = {
        args->type, (const uint8_t *)args->values, args->first, args->count, args->to, {}};
    if (args->count == 0)
        return DDP_OK;
    for (int i = 0; i < 16; i++)
        u.codes[i] = ddp_nf4_codes[i];
    if (args->result == DDP_F32)
        launch<float>(&u, cuda);
    else if (args->result == DDP_BF16)
        launch<uint16_t>(&u, cuda);
    else
        launch<ddp_half>(&u, cuda);
    return ddp_cuda_launched(cuda, "unpacking of frozen weights");
}
