/* SPDX-License-Identifier: MIT
 *
 * Waiting for a word that another process or thread counts up. A wait spins briefly and then
 * sleeps on the word itself. */
#ifndef DDP_COMM_WAIT_H
#define DDP_COMM_WAIT_H

#include "ddp.h"

#include <stdatomic.h>

struct ddp_comm_waiting {
    const _Atomic uint32_t *stop; /* non-zero ends the wait; NULL: nothing does */
    int spins, yields;            /* before it yields, and before it sleeps */
    int timeout_ms;               /* negative: none */
};

static inline bool ddp_comm_reached(const _Atomic uint32_t *word, uint32_t target)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - target) >= 0;
}

/* Stores a word that has one writer, and wakes those that sleep on it. */
void ddp_comm_publish(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers);

/* Waits until the word reaches the target; `sleepers` as its writer has it. DDP_ERR_ABORTED,
 * DDP_ERR_TIMEOUT, neither of them logged. */
enum ddp_status ddp_comm_wait(const struct ddp_comm_waiting *waiting, _Atomic uint32_t *word,
                              uint32_t target, _Atomic uint32_t *sleepers);

#endif
