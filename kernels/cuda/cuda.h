/* SPDX-License-Identifier: MIT
 *
 * What the CUDA versions of the operations share: the context that they get as their stream, the
 * launch macro, and small device functions. The .cu files compile with nvcc and, for tests on
 * machines without a GPU, as C++ against a simulation of the device; so they use the portable
 * subset of CUDA C++ only: no cooperative groups, no atomics, and inline PTX in ptx.h alone, beside
 * its twins for the simulation.
 *
 * Rules for kernels: kernels and their templates are static; blocks do not talk to each other; a
 * sum's order depends on the shape alone, never on the device, so that all devices of a kind give
 * the same bits; nothing synchronises and nothing allocates. A struct that a kernel takes has a
 * name of its own among all .cu files: templates of the same types are one function to a linker. */
#ifndef DDP_KERNELS_CUDA_CUDA_H
#define DDP_KERNELS_CUDA_CUDA_H

#include "ddp.h"

#include "core/log.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_cudnn;

/* Memory on the device that is free between operations: cublasLt's, and behind it what an operation
 * with products in it has for itself. The simulation makes do with less. */
#ifdef DDP_CUDASIM
#define DDP_CUDA_BLAS_BYTES  ((size_t)1 << 20)
#define DDP_CUDA_SPARE_BYTES ((size_t)1 << 20)
#else
#define DDP_CUDA_BLAS_BYTES  ((size_t)32 << 20)
#define DDP_CUDA_SPARE_BYTES ((size_t)32 << 20)
#endif
#define DDP_CUDA_WORKSPACE_BYTES (DDP_CUDA_BLAS_BYTES + DDP_CUDA_SPARE_BYTES)

/* Libraries that are loaded if they are there: the simulation has its own. */
#ifdef DDP_CUDASIM
void *cudasim_dlopen(const char *name);
void *cudasim_dlsym(void *library, const char *name);
#define ddp_cuda_dlopen(name)         cudasim_dlopen(name)
#define ddp_cuda_dlsym(library, name) cudasim_dlsym(library, name)
#else
#define ddp_cuda_dlopen(name)         dlopen(name, RTLD_NOW | RTLD_LOCAL)
#define ddp_cuda_dlsym(library, name) dlsym(library, name)
#endif

/* What is wrong with the data, found by a kernel: written by plain stores (any of several writers
 * may win), read by the host at the next synchronisation. */
enum ddp_cuda_fault_code {
    DDP_CUDA_FAULT_NONE = 0,
    DDP_CUDA_FAULT_LABEL,   /* row, value, limit: a label that is not a class */
    DDP_CUDA_FAULT_TOKEN,   /* row, column, value, limit: a token that is not in the vocabulary */
    DDP_CUDA_FAULT_PAIRS,   /* row: is none of pairs of answers */
    DDP_CUDA_FAULT_PRODUCT, /* row, value: an element and a path of the self-test */
};

struct ddp_cuda_fault {
    int32_t code;
    int32_t value, limit;
    int64_t row, column;
};

/* The stream of a CUDA device: the last argument of every operation in ddp_kernels_cuda. Made and
 * owned by the device (cuda/device.c). */
struct ddp_cuda {
    cudaStream_t stream; /* compute */
    cublasLtHandle_t blas;
    void *workspace;              /* on the device, for this stream: DDP_CUDA_WORKSPACE_BYTES */
    struct ddp_cuda_fault *fault; /* device address of host memory */
    int index;                    /* of the device */
    int capability;               /* 90 for compute capability 9.0 */
    int mma_code;            /* capability that kernels on tensor cores have code for; 0: ask */
    bool synchronous;        /* DDP_CUDA_SYNC: wait after every operation */
    void *plans;             /* products that cublasLt has chosen algorithms for, by shape */
    struct ddp_cudnn *cudnn; /* cuDNN, once it is wanted (cudnn_library.c) */
};

/* DDP_CUDA_SPARE_BYTES that no product touches. */
static inline void *ddp_cuda_spare(const struct ddp_cuda *cuda)
{
    return (char *)cuda->workspace + DDP_CUDA_BLAS_BYTES;
}

/* Whether the environment has this variable with this value. */
bool ddp_cuda_is_set(const char *variable, const char *value);

/* After the launches of an operation: reports an error of theirs with the operation's name. */
enum ddp_status ddp_cuda_launched(struct ddp_cuda *cuda, const char *operation);

/* The device has products of the type (DDP_BF16: 8.0, DDP_F16: 7.5), and the kernels that use the
 * tensor cores themselves (attention/mma.cu) were compiled for it: what the driver makes of older
 * PTX has no products in it. Warns where a device that could do them lacks it. Remembered. */
bool ddp_cuda_has_mma_code(struct ddp_cuda *cuda, enum ddp_dtype type);

/* Turns an error of a CUDA call into a status, logged as "OPERATION: words of CUDA, what to do". */
enum ddp_status ddp_cuda_failed(cudaError_t error, const char *operation);

#ifdef __cplusplus
}
#endif

/* --- for .cu files --- */
#if defined(__CUDACC__) || (defined(DDP_CUDASIM) && defined(__cplusplus))
#ifdef DDP_CUDASIM
#include <cudasim.h>
#define DDP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    cudasim_launch(kernel, grid, block, shared_bytes, stream, __VA_ARGS__)
#define DDP_DYN_SHARED(type, name) type *const name = (type *)cudasim_dynamic_shared()
#else
#define DDP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
#define DDP_DYN_SHARED(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char ddp_dynamic_shared[];                            \
    type *const name = reinterpret_cast<type *>(ddp_dynamic_shared)
#endif

#define DDP_WARP      32
#define DDP_FULL_MASK 0xffffffffu

#define DDP_BLOCK 256 /* threads of a block where an operation has no reason for others */

/* Blocks of `size` that cover `count` elements. */
static inline unsigned ddp_cuda_blocks(int64_t count, int64_t size)
{
    return (unsigned)((count + size - 1) / size);
}

/* Consecutive elements that are loaded and stored as one access, of 16 bytes when W * sizeof(T) is
 * 16. An operation over a flat array gives each thread one pack and is built for two widths: whole
 * packs where all its arrays allow it, else one element. */
template <typename T, int W> struct alignas(sizeof(T) * W) ddp_pack {
    T at[W];
};

template <typename T, int W>
static __host__ __device__ inline ddp_pack<T, W> ddp_load(const T *from)
{
    return *reinterpret_cast<const ddp_pack<T, W> *>(from);
}

template <typename T, int W>
static __host__ __device__ inline void ddp_store(T *to, const ddp_pack<T, W> &pack)
{
#ifdef __CUDA_ARCH__
    /* nvcc would store 16-bit elements one by one. */
    if constexpr (sizeof(T) == 2 && W % 4 == 0) {
        ddp_pack<unsigned long long, W / 4> words;
        for (int i = 0; i < W / 4; i++)
            words.at[i] = (unsigned long long)pack.at[4 * i] |
                          (unsigned long long)pack.at[4 * i + 1] << 16 |
                          (unsigned long long)pack.at[4 * i + 2] << 32 |
                          (unsigned long long)pack.at[4 * i + 3] << 48;
        *reinterpret_cast<ddp_pack<unsigned long long, W / 4> *>(to) = words;
        return;
    }
#endif
    *reinterpret_cast<ddp_pack<T, W> *>(to) = pack;
}

template <int W> static __device__ inline ddp_pack<float, W> ddp_pack_of(float value)
{
    ddp_pack<float, W> pack;
    for (int i = 0; i < W; i++)
        pack.at[i] = value;
    return pack;
}

/* --- bf16 --- */

/* By the rule of bf16.h. */
static __device__ inline uint16_t ddp_cuda_bf16_of(float value)
{
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static __device__ inline float ddp_cuda_bf16_to_f32(uint16_t value)
{
    return __uint_as_float((unsigned)value << 16);
}

/* An element of either type, as it is stored. */
static __device__ inline float ddp_cuda_f32_of(float value)
{
    return value;
}

static __device__ inline float ddp_cuda_f32_of(uint16_t value)
{
    return ddp_cuda_bf16_to_f32(value);
}

static __device__ inline void ddp_cuda_round_to(float *to, float value)
{
    *to = value;
}

static __device__ inline void ddp_cuda_round_to(uint16_t *to, float value)
{
    *to = ddp_cuda_bf16_of(value);
}

/* Elements of bf16, two in a word: one access too, which nvcc would not make of 16-bit ones. */
template <int N> struct [[gnu::may_alias]] alignas(4 * N) ddp_words {
    unsigned at[N];
};

/* Two elements of bf16 in a word, the first in its lower half. The same numbers as above; which NaN
 * a NaN becomes is the device's choice. */
static __device__ inline unsigned ddp_cuda_bf16_pair(float first, float second)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second); /* one instruction */
    return *reinterpret_cast<const unsigned *>(&pair);
#else
    return (unsigned)ddp_cuda_bf16_of(first) | (unsigned)ddp_cuda_bf16_of(second) << 16;
#endif
}

/* W elements of an activation, whichever type it has, as floats: kernels compute with these. The
 * memory is aligned to a pack, of at most 16 bytes. ddp_write() rounds to bf16 once. Kernels over
 * activations are templates over T, float or uint16_t (bf16), and over W, ddp_width<T> or 1. */
template <typename T> static constexpr int ddp_width = 16 / (int)sizeof(T);

template <int W> static __device__ inline ddp_pack<float, W> ddp_read(const float *from)
{
    constexpr int part = W > 4 ? 4 : W;
    ddp_pack<float, W> values;
#pragma unroll
    for (int first = 0; first < W; first += part) {
        const ddp_pack<float, part> read = ddp_load<float, part>(from + first);
        for (int i = 0; i < part; i++)
            values.at[first + i] = read.at[i];
    }
    return values;
}

template <int W> static __device__ inline ddp_pack<float, W> ddp_read(const uint16_t *from)
{
    ddp_pack<float, W> values;
    if constexpr (W == 1) {
        values.at[0] = ddp_cuda_bf16_to_f32(*from);
    } else {
        constexpr int part = W > 8 ? 8 : W;
#pragma unroll
        for (int first = 0; first < W; first += part) {
            const auto words = *reinterpret_cast<const ddp_words<part / 2> *>(from + first);
            for (int i = 0; i < part / 2; i++) {
                values.at[first + 2 * i] = __uint_as_float(words.at[i] << 16);
                values.at[first + 2 * i + 1] = __uint_as_float(words.at[i] & 0xffff0000u);
            }
        }
    }
    return values;
}

/* A pack as it lies in memory, for kernels that read several before they use one: what ddp_read()
 * makes of bf16 waits for the load, and takes twice the registers. */
template <typename T, int W> struct ddp_raw {
    ddp_pack<T, W> kept;
};

template <int W> struct ddp_raw<uint16_t, W> {
    ddp_words<W / 2> kept;
};

template <> struct ddp_raw<uint16_t, 1> {
    uint16_t kept;
};

template <int W, typename T> static __device__ inline ddp_raw<T, W> ddp_read_raw(const T *from)
{
    return {*reinterpret_cast<const decltype(ddp_raw<T, W>::kept) *>(from)};
}

template <typename T, int W>
static __device__ inline ddp_pack<float, W> ddp_widened(const ddp_raw<T, W> &raw)
{
    return ddp_read<W>(reinterpret_cast<const T *>(&raw.kept));
}

template <int W>
static __device__ inline void ddp_write(float *to, const ddp_pack<float, W> &values)
{
    constexpr int part = W > 4 ? 4 : W;
#pragma unroll
    for (int first = 0; first < W; first += part) {
        ddp_pack<float, part> written;
        for (int i = 0; i < part; i++)
            written.at[i] = values.at[first + i];
        ddp_store<float, part>(to + first, written);
    }
}

template <int W>
static __device__ inline void ddp_write(uint16_t *to, const ddp_pack<float, W> &values)
{
    if constexpr (W == 1) {
        *to = (uint16_t)ddp_cuda_bf16_pair(values.at[0], 0);
    } else {
        constexpr int part = W > 8 ? 8 : W;
#pragma unroll
        for (int first = 0; first < W; first += part) {
            ddp_words<part / 2> words;
            for (int i = 0; i < part / 2; i++)
                words.at[i] =
                    ddp_cuda_bf16_pair(values.at[first + 2 * i], values.at[first + 2 * i + 1]);
            *reinterpret_cast<ddp_words<part / 2> *>(to + first) = words;
        }
    }
}

/* One element, likewise. */
template <typename T> static __device__ inline float ddp_read_one(const T *from)
{
    return ddp_read<1>(from).at[0];
}

template <typename T> static __device__ inline void ddp_write_one(T *to, float value)
{
    ddp_write<1>(to, {{value}});
}

/* Writes values, or adds them to those that are there and writes the sums. */
template <typename T, int W>
static __device__ inline void ddp_put(T *to, ddp_pack<float, W> values, bool accumulate)
{
    if (accumulate) {
        const ddp_pack<float, W> old = ddp_read<W>(to);
        for (int i = 0; i < W; i++)
            values.at[i] = old.at[i] + values.at[i];
    }
    ddp_write<W>(to, values);
}

template <typename T> static __device__ inline void ddp_put_one(T *to, float value, bool accumulate)
{
    ddp_put<T, 1>(to, {{value}}, accumulate);
}

/* What would be read where value is written. */
template <typename T> static __device__ inline float ddp_rounded(float value)
{
    if constexpr (sizeof(T) == sizeof(float))
        return value;
    return __uint_as_float(ddp_cuda_bf16_pair(value, 0) << 16);
}

/* Whether memory is aligned to 16 bytes; NULL is. */
static inline bool ddp_aligned(const void *memory)
{
    return reinterpret_cast<uintptr_t>(memory) % 16 == 0;
}

/* The first element of this thread's pack of W, the blocks of the grid lying one behind another. */
static __device__ inline int64_t ddp_first_of_pack(int W)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * W;
}

/* Most operations over flat arrays: OP has the arrays and a function run<W>(at), which does W
 * elements from `at` on. A thread does W of them if that can be one access, else one. */
template <int W, typename OP>
static __global__ void __launch_bounds__(DDP_BLOCK) ddp_elements_kernel(OP op, int64_t count)
{
    const int64_t at = ddp_first_of_pack(W);
    if (at + W <= count)
        op.template run<W>(at);
    else
        for (int64_t i = at; i < count; i++)
            op.template run<1>(i);
}

template <int W, typename OP>
static void ddp_cuda_elements(const OP &op, int64_t count, bool aligned, struct ddp_cuda *cuda)
{
    if (aligned)
        DDP_LAUNCH((ddp_elements_kernel<W, OP>), ddp_cuda_blocks(count, W * DDP_BLOCK), DDP_BLOCK,
                   0, cuda->stream, op, count);
    else
        DDP_LAUNCH((ddp_elements_kernel<1, OP>), ddp_cuda_blocks(count, DDP_BLOCK), DDP_BLOCK, 0,
                   cuda->stream, op, count);
}

/* Calls the function for the type that activations of `dtype` have. */
#define DDP_BY_DTYPE(dtype, function, ...)                                                         \
    ((dtype) == DDP_BF16 ? function<uint16_t>(__VA_ARGS__) : function<float>(__VA_ARGS__))

/* a * b, rounded before anything is added to it: as the CPU's, which has no fused operations. */
static __device__ inline float ddp_product(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

/* a * b + c, rounded once on a GPU. nvcc fuses nothing by itself (-fmad=false), so that a kernel's
 * bits do not depend on its version; this is for loops whose time is that of their arithmetic. */
static __device__ inline float ddp_fused(float a, float b, float c)
{
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, c);
#else
    return a * b + c;
#endif
}

#endif
#endif
