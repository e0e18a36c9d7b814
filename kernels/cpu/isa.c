/* SPDX-License-Identifier: MIT
 *
 * See isa.h. */
#include "config.h"

#include "kernels/cpu/isa.h"

#include "core/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

bool ddp_cpu_has(enum ddp_isa isa)
{
    switch (isa) {
    case DDP_ISA_PLAIN:
        return true;
    case DDP_ISA_NEON:
#ifdef __aarch64__
        return true;
#else
        return false;
#endif
#ifdef __x86_64__
    case DDP_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case DDP_ISA_AVX512:
        return ddp_cpu_has(DDP_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq");
    case DDP_ISA_AVX512_BF16:
        return ddp_cpu_has(DDP_ISA_AVX512) && __builtin_cpu_supports("avx512bf16");
#else
    case DDP_ISA_AVX2:
    case DDP_ISA_AVX512:
    case DDP_ISA_AVX512_BF16:
        return false;
#endif
    }
    return false;
}

/* What DDP_ISA allows. */
static enum ddp_isa allowed(void)
{
    const char *name = getenv("DDP_ISA");
    if (!name || !*name)
        return DDP_ISA_AVX512_BF16;
    if (strcmp(name, "avx512") == 0)
        return DDP_ISA_AVX512;
    if (strcmp(name, "avx2") == 0)
        return DDP_ISA_AVX2;
    if (strcmp(name, "plain") != 0)
        ddp_log(DDP_LOG_WARNING, "DDP_ISA=%s is not an instruction set: plain, avx2 or avx512",
                name);
    return DDP_ISA_PLAIN;
}

/* Intel's vdpbf16ps takes as long as four fused multiply-adds (Sapphire Rapids), AMD's as one. */
static bool is_slow(enum ddp_isa isa)
{
#ifdef __x86_64__
    return isa == DDP_ISA_AVX512_BF16 && __builtin_cpu_is("intel");
#else
    (void)isa;
    return false;
#endif
}

enum ddp_isa ddp_cpu_isa(void)
{
    static atomic_int known = -1;
    int isa = atomic_load_explicit(&known, memory_order_relaxed);
    if (isa >= 0)
        return (enum ddp_isa)isa;
    for (isa = (int)allowed(); !ddp_cpu_has((enum ddp_isa)isa) || is_slow((enum ddp_isa)isa); isa--)
        ;
    atomic_store_explicit(&known, isa, memory_order_relaxed);
    return (enum ddp_isa)isa;
}
