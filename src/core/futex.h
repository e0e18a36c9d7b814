/* SPDX-License-Identifier: MIT
 *
 * Futex calls for 32-bit words, also in memory shared between processes. */
#ifndef DDP_CORE_FUTEX_H
#define DDP_CORE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word == value, at most max_ns nanoseconds; may return early, so callers loop. */
void ddp_futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t max_ns);

/* Wakes every process and thread that sleeps on the word. */
void ddp_futex_wake(_Atomic uint32_t *word);

/* Tells the processor that this is a spin loop. */
static inline void ddp_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
