/* SPDX-License-Identifier: MIT
 *
 * Rounding to bf16 and float16 on a GPU, and bf16 back; see bf16.h. Bound: 6 bytes an element. */
#include "kernels/bf16.h"
#include "kernels/cuda/ptx.h"
#include "kernels/kernels_cuda.h"

struct bf16_elements {
    const float *x;
    uint16_t *y;

    template <int W> __device__ void run(int64_t at) const
    {
        const ddp_pack<float, W> value = ddp_read<W>(x + at);
        ddp_pack<uint16_t, W> rounded;
        for (int i = 0; i < W; i++)
            rounded.at[i] = ddp_cuda_bf16_of(value.at[i]);
        ddp_store(y + at, rounded);
    }
};

extern "C" enum ddp_status ddp_cuda_to_bf16(const struct ddp_to_bf16 *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const struct bf16_elements elements = {args->x, args->y};
    const enum ddp_status status = ddp_to_bf16_check(args);
    if (status || args->count == 0)
        return status;
    /* eight elements a thread, so that its store has 16 bytes too */
    ddp_cuda_elements<8>(elements, args->count, ddp_aligned(args->x) && ddp_aligned(args->y), cuda);
    return ddp_cuda_launched(cuda, "to bf16");
}

template <typename T> struct f16_elements {
    const T *x;
    ddp_half *y;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_write<W>(y + at, ddp_read<W>(x + at));
    }
};

template <typename T>
static void round_f16(const T *x, const struct ddp_round_f16 *args, struct ddp_cuda *cuda)
{
    const struct f16_elements<T> elements = {
        x, (ddp_half *)args->y
    };
    ddp_cuda_elements<8>(elements, args->count, ddp_aligned(x) && ddp_aligned(args->y), cuda);
}

extern "C" enum ddp_status ddp_cuda_round_f16(const struct ddp_round_f16 *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    if (args->count > 0 && args->x)
        round_f16(args->x, args, cuda);
    else if (args->count > 0)
        round_f16(args->x_bf16, args, cuda);
    return ddp_cuda_launched(cuda, "to float16");
}

struct bf16_widened {
    const uint16_t *x;
    float *y;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_store(y + at, ddp_read<W>(x + at));
    }
};

extern "C" enum ddp_status ddp_cuda_from_bf16(const struct ddp_from_bf16 *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const struct bf16_widened elements = {args->x, args->y};
    const enum ddp_status status = ddp_from_bf16_check(args);
    if (status || args->count == 0)
        return status;
    ddp_cuda_elements<8>(elements, args->count, ddp_aligned(args->x) && ddp_aligned(args->y), cuda);
    return ddp_cuda_launched(cuda, "from bf16");
}
