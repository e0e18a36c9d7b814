/* SPDX-License-Identifier: MIT
 *
 * See wait.h. */
#include "config.h"

#include "comm/wait.h"

#include "core/clock.h"
#include "core/futex.h"

#include <sched.h>

#define NAP_NS 20000000 /* how late an abort or a deadline can be noticed */

/* The store and the load of `sleepers` are both sequentially consistent, as are their counterparts
 * in sleep_until(): one side sees the other. */
void ddp_comm_publish(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers)
{
    atomic_store(word, value);
    if (atomic_load(sleepers))
        ddp_futex_wake(word);
}

static bool stopped(const struct ddp_comm_waiting *waiting)
{
    return waiting->stop && atomic_load_explicit(waiting->stop, memory_order_acquire);
}

static enum ddp_status sleep_until(const struct ddp_comm_waiting *waiting, _Atomic uint32_t *word,
                                   uint32_t target, _Atomic uint32_t *sleepers)
{
    const int64_t deadline = ddp_deadline_ns(waiting->timeout_ms);
    for (;;) {
        if (stopped(waiting)) /* it may have come before */
            return ddp_comm_reached(word, target) ? DDP_OK : DDP_ERR_ABORTED;
        if (ddp_deadline_passed(deadline))
            return DDP_ERR_TIMEOUT;
        const int64_t left = deadline - ddp_clock_ns();
        atomic_fetch_add(sleepers, 1);
        const uint32_t value = atomic_load(word);
        if ((int32_t)(value - target) < 0 && left > 0)
            ddp_futex_wait(word, value, left < NAP_NS ? left : NAP_NS);
        atomic_fetch_sub(sleepers, 1);
        if (ddp_comm_reached(word, target))
            return DDP_OK;
    }
}

enum ddp_status ddp_comm_wait(const struct ddp_comm_waiting *waiting, _Atomic uint32_t *word,
                              uint32_t target, _Atomic uint32_t *sleepers)
{
    for (int i = 0; i < waiting->spins; i++) {
        if (ddp_comm_reached(word, target))
            return DDP_OK;
        ddp_cpu_relax();
    }
    for (int i = 0; i < waiting->yields; i++) {
        if (ddp_comm_reached(word, target))
            return DDP_OK;
        sched_yield();
    }
    if (ddp_comm_reached(word, target))
        return DDP_OK;
    return sleep_until(waiting, word, target, sleepers);
}
