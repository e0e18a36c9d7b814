/* SPDX-License-Identifier: MIT
 *
 * SwiGLU on a GPU; see swiglu.h. Bound: 12 bytes an element forward, 20 backward, 4 more for each
 * gradient that is added to; half of that in bf16. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.h"
#include "kernels/kernels_cuda.h"
#include "kernels/swiglu.h"

/* 1 / (1 + e^-z). */
template <typename T> static __device__ inline float sigmoid(float z)
{
    if constexpr (sizeof(T) == sizeof(float))
        return 1 / (1 + expf(-z));
    return ddp_fast_reciprocal(1 + ddp_fast_exp2(z * -1.44269504f));
}

template <typename T> struct swiglu_elements {
    const T *gate, *up;
    T *y;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<float, W> value = ddp_read<W>(gate + at);
        const ddp_pack<float, W> factor = ddp_read<W>(up + at);
        for (int i = 0; i < W; i++)
            value.at[i] = value.at[i] * sigmoid<T>(value.at[i]) * factor.at[i];
        ddp_write<W>(y + at, value);
    }
};

template <typename T> struct swiglu_gradients {
    const T *gate, *up, *dy;
    T *dgate, *dup; /* or NULL */
    bool accumulate_dgate, accumulate_dup;

    template <int W> __device__ void run(int64_t at) const
    {
        ddp_pack<float, W> z = ddp_read<W>(gate + at), u = ddp_read<W>(up + at);
        const ddp_pack<float, W> d = ddp_read<W>(dy + at);
        for (int i = 0; i < W; i++) {
            const float s = sigmoid<T>(z.at[i]), silu = z.at[i] * s;
            z.at[i] = d.at[i] * u.at[i] * (s + silu * (1 - s));
            u.at[i] = d.at[i] * silu;
        }
        if (dgate)
            ddp_put(dgate + at, z, accumulate_dgate);
        if (dup)
            ddp_put(dup + at, u, accumulate_dup);
    }
};

template <typename T>
static void launch_forward(const struct ddp_swiglu_forward *args, struct ddp_cuda *cuda)
{
    const swiglu_elements<T> op = {(const T *)args->gate, (const T *)args->up, (T *)args->y};
    const bool aligned = ddp_aligned(op.gate) && ddp_aligned(op.up) && ddp_aligned(op.y);
    ddp_cuda_elements<ddp_width<T>>(op, args->count, aligned, cuda);
}

template <typename T>
static void launch_backward(const struct ddp_swiglu_backward *args, struct ddp_cuda *cuda)
{
    const swiglu_gradients<T> op = {
        (const T *)args->gate, (const T *)args->up,    (const T *)args->dy, (T *)args->dgate,
        (T *)args->dup,        args->accumulate_dgate, args->accumulate_dup};
    const bool aligned = ddp_aligned(op.gate) && ddp_aligned(op.up) && ddp_aligned(op.dy) &&
                         ddp_aligned(op.dgate) && ddp_aligned(op.dup);
    ddp_cuda_elements<ddp_width<T>>(op, args->count, aligned, cuda);
}

extern "C" enum ddp_status ddp_cuda_swiglu_forward(const struct ddp_swiglu_forward *args,
                                                   void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_swiglu_check_forward(args);
    if (status || args->count == 0)
        return status;
    DDP_BY_DTYPE(args->dtype, launch_forward, args, cuda);
    return ddp_cuda_launched(cuda, "swiglu");
}

extern "C" enum ddp_status ddp_cuda_swiglu_backward(const struct ddp_swiglu_backward *args,
                                                    void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const enum ddp_status status = ddp_swiglu_check_backward(args);
    if (status || args->count == 0)
        return status;
    DDP_BY_DTYPE(args->dtype, launch_backward, args, cuda);
    return ddp_cuda_launched(cuda, "swiglu backward");
}
