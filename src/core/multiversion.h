/* SPDX-License-Identifier: MIT
 *
 * Code for several instruction sets. */
#ifndef DDP_CORE_MULTIVERSION_H
#define DDP_CORE_MULTIVERSION_H

/* Before a hot function: it is compiled for each instruction set, and the processor's best one is
 * called. All of them round alike: no contraction of a*b+c, and no sum that the compiler may
 * reorder. Functions called from it must be DDP_INLINE, or they stay plain; for clang they
 * take no vectors, nor return any (those called from them may). Wants config.h. */
#ifdef DDP_TARGET_CLONES
#define DDP_MULTIVERSION __attribute__((target_clones(DDP_TARGET_CLONES)))
#else
#define DDP_MULTIVERSION
#endif
#define DDP_INLINE static inline __attribute__((always_inline, unused))

#endif
