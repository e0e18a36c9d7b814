/* SPDX-License-Identifier: MIT
 *
 * CUDA C++ for a C++ compiler: the qualifiers, variables and functions of device code, and the
 * launch of a kernel. What a .cu file may use of CUDA is what stands here; the header comes after
 * cuda_runtime.h, NVIDIA's or ours. */
#ifndef DDP_TESTS_CUDASIM_CUDASIM_H
#define DDP_TESTS_CUDASIM_CUDASIM_H

#ifdef __cplusplus

#include <cuda_runtime.h>

#include <math.h>
#include <string.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "device.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
/* One block runs at a time. With CUDASIM_THREAD_LOCAL_SHARED, shared memory is poisoned before
 * every block; without it, AddressSanitizer guards it. */
#ifdef CUDASIM_THREAD_LOCAL_SHARED
#define __shared__     static __thread
#define CUDASIM_POISON 1
#else
#define __shared__     static
#define CUDASIM_POISON 0
#endif

#define CUDASIM_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* --- launch --- */

namespace cudasim
{
template <typename... P> struct call_of {
    typedef std::tuple<void (*)(P...), typename std::decay<P>::type...> pack;

    template <size_t... I> static void apply(pack &arguments, std::index_sequence<I...>)
    {
        std::get<0>(arguments)(std::get<I + 1>(arguments)...);
    }
    static void run(void *arguments)
    {
        apply(*static_cast<pack *>(arguments), std::index_sequence_for<P...>());
    }
    template <typename T>
    static void pointer(const pack &all, const T &one, struct cudasim_kernel &k, unsigned *offsets)
    {
        if (std::is_pointer<T>::value)
            offsets[k.pointer_count++] = static_cast<unsigned>(
                reinterpret_cast<const char *>(&one) - reinterpret_cast<const char *>(&all));
    }
    template <size_t... I>
    static void pointers(const pack &all, struct cudasim_kernel &k,
                         [[maybe_unused]] unsigned *offsets, std::index_sequence<I...>)
    {
        (pointer(all, std::get<I + 1>(all), k, offsets), ...);
    }
};

/* The arguments are converted to the kernel's parameters and copied now, as CUDA does. */
template <typename... P, typename... A>
static inline void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                          size_t shared_bytes, cudaStream_t stream, A &&...arguments)
{
    typedef call_of<P...> call;
    static_assert(sizeof...(P) == sizeof...(A), "a kernel gets as many arguments as it has");
    static_assert((std::is_trivially_copyable<P>::value && ...), "plain arguments only");
    typename call::pack pack(kernel, static_cast<P>(std::forward<A>(arguments))...);
    unsigned offsets[sizeof...(P) + 1];
    struct cudasim_kernel k = {
        name, reinterpret_cast<const void *>(kernel), call::run,      offsets,
        0,    static_cast<unsigned>(sizeof pack),     CUDASIM_POISON, 0};
    call::pointers(pack, k, offsets, std::index_sequence_for<P...>());
    cudasim_launch_kernel(&k, grid, block, shared_bytes, stream, &pack);
}
} // namespace cudasim

#define cudasim_launch(kernel, ...) cudasim::launch(#kernel, kernel, __VA_ARGS__)

/* --- threads of a block --- */

static inline void __syncthreads(CUDASIM_SITE)
{
    cudasim_barrier(CUDASIM_BARRIER, 0, file, line);
}

static inline int __syncthreads_count(int predicate, CUDASIM_SITE)
{
    return cudasim_barrier(CUDASIM_COUNT, predicate, file, line);
}

static inline int __syncthreads_and(int predicate, CUDASIM_SITE)
{
    return cudasim_barrier(CUDASIM_AND, predicate, file, line);
}

static inline int __syncthreads_or(int predicate, CUDASIM_SITE)
{
    return cudasim_barrier(CUDASIM_OR, predicate, file, line);
}

static inline void __threadfence()
{
}

static inline void __threadfence_block()
{
}

/* --- lanes of a warp --- */

static inline void __syncwarp(unsigned mask = 0xffffffffu, CUDASIM_SITE)
{
    cudasim_warp(CUDASIM_SYNC, mask, 0, 0, 32, file, line);
}

namespace cudasim
{
template <typename T>
static inline T shuffle(enum cudasim_warp kind, unsigned mask, T value, int parameter, int width,
                        const char *file, int line)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a value of 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = cudasim_warp(kind, mask, bits, parameter, width, file, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}
} // namespace cudasim

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CUDASIM_SITE)
{
    return cudasim::shuffle(CUDASIM_SHUFFLE, mask, value, lane, width, file, line);
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDASIM_SITE)
{
    return cudasim::shuffle(CUDASIM_SHUFFLE_UP, mask, value, static_cast<int>(delta), width, file,
                            line);
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                 CUDASIM_SITE)
{
    return cudasim::shuffle(CUDASIM_SHUFFLE_DOWN, mask, value, static_cast<int>(delta), width, file,
                            line);
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, CUDASIM_SITE)
{
    return cudasim::shuffle(CUDASIM_SHUFFLE_XOR, mask, value, lanes, width, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, CUDASIM_SITE)
{
    return static_cast<unsigned>(
        cudasim_warp(CUDASIM_BALLOT, mask, predicate != 0, 0, 32, file, line));
}

static inline int __any_sync(unsigned mask, int predicate, CUDASIM_SITE)
{
    return cudasim_warp(CUDASIM_BALLOT, mask, predicate != 0, 0, 32, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, CUDASIM_SITE)
{
    return cudasim_warp(CUDASIM_BALLOT, mask, predicate != 0, 0, 32, file, line) == mask;
}

static inline int __reduce_add_sync(unsigned mask, int value, CUDASIM_SITE)
{
    return static_cast<int>(
        cudasim_warp(CUDASIM_REDUCE_ADD, mask, static_cast<uint64_t>(value), 0, 32, file, line));
}

static inline int __reduce_max_sync(unsigned mask, int value, CUDASIM_SITE)
{
    return static_cast<int>(
        cudasim_warp(CUDASIM_REDUCE_MAX, mask, static_cast<uint64_t>(value), 0, 32, file, line));
}

static inline int __reduce_min_sync(unsigned mask, int value, CUDASIM_SITE)
{
    return static_cast<int>(
        cudasim_warp(CUDASIM_REDUCE_MIN, mask, static_cast<uint64_t>(value), 0, 32, file, line));
}

#include "cudasim_math.h"

#endif
#endif
