/* SPDX-License-Identifier: MIT
 *
 * The instruction sets that kernels have versions for, and the processor's best one. A kernel that
 * needs fused multiply-add, or more than the compiler does by itself (DDP_MULTIVERSION in cpu.h),
 * has a version for each set and chooses by this. All versions give the same bits. */
#ifndef DDP_KERNELS_CPU_ISA_H
#define DDP_KERNELS_CPU_ISA_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each set of x86 has what the ones before it have. */
enum ddp_isa {
    DDP_ISA_PLAIN,      /* C and nothing else */
    DDP_ISA_NEON,       /* AArch64 */
    DDP_ISA_AVX2,       /* with FMA */
    DDP_ISA_AVX512,     /* F, VL, BW and DQ */
    DDP_ISA_AVX512_BF16 /* vdpbf16ps */
};

/* Attributes of functions for a set. */
#define DDP_TARGET_AVX2   __attribute__((target("avx2,fma")))
#define DDP_TARGET_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#define DDP_TARGET_AVX512_BF16                                                                     \
    __attribute__((target("avx512bf16,avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))

/* Whether the processor can run code for a set. */
bool ddp_cpu_has(enum ddp_isa isa);

/* The best set. The environment variable DDP_ISA (plain, avx2, avx512), for tests, is read at the
 * first call: no better set than it names. */
enum ddp_isa ddp_cpu_isa(void);

#ifdef __cplusplus
}
#endif

#endif
