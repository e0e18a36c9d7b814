/* SPDX-License-Identifier: MIT
 *
 * See pool.h. Tasks are claimed from one 64-bit word, run number and tasks left, so a thread that
 * wakes late can only see that there is nothing for it: the caller waits for tasks, never for
 * threads. */
#include "config.h"

#include "core/pool.h"

#include "core/clock.h"
#include "core/futex.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/rounding.h"
#include "core/thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 1024
#define SPIN_NS     30000 /* about what a sleep and a wake-up cost */
#define TASKS_MAX   UINT32_MAX

struct ddp_pool {
    /* Run number in the upper half, tasks not yet claimed in the lower one. */
    _Alignas(DDP_CACHE_LINE) _Atomic uint64_t work;
    _Alignas(DDP_CACHE_LINE) _Atomic uint32_t
        unfinished; /* tasks not yet done; the caller sleeps on it */
    _Atomic uint32_t caller_sleeps;
    _Alignas(DDP_CACHE_LINE) _Atomic uint32_t
        wakeups; /* changes with each run; idle threads sleep on it */
    _Atomic uint32_t sleepers;
    atomic_bool stop;

    /* Written between runs, read by those who hold a task of the run. */
    ddp_pool_task *task;
    void *arg;
    size_t first;
    uint32_t count;

    bool running;
    int64_t spin_ns;
    int threads; /* with the caller */
    pthread_t workers[];
};

/* Runs one task if there is one. */
static bool run_one(ddp_pool *pool)
{
    uint64_t work = atomic_load_explicit(&pool->work, memory_order_acquire);
    do {
        if ((uint32_t)work == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->work, &work, work - 1,
                                                    memory_order_acquire, memory_order_acquire));
    pool->task(pool->arg, pool->first + (pool->count - (uint32_t)work));
    if (atomic_fetch_sub(&pool->unfinished, 1) == 1 && atomic_load(&pool->caller_sleeps))
        ddp_futex_wake(&pool->unfinished);
    return true;
}

static bool idle(ddp_pool *pool)
{
    return (uint32_t)atomic_load_explicit(&pool->work, memory_order_relaxed) == 0 &&
           !atomic_load_explicit(&pool->stop, memory_order_relaxed);
}

static bool unfinished(ddp_pool *pool)
{
    return atomic_load_explicit(&pool->unfinished, memory_order_acquire) != 0;
}

/* Spins while waiting(pool), for a bounded time. */
static void spin(ddp_pool *pool, bool (*waiting)(ddp_pool *))
{
    if (pool->spin_ns == 0)
        return;
    int64_t end = ddp_clock_ns() + pool->spin_ns;
    do {
        for (int i = 0; i < 16; i++) {
            if (!waiting(pool))
                return;
            ddp_cpu_relax();
        }
    } while (ddp_clock_ns() < end);
}

static void *worker_main(void *arg)
{
    ddp_pool *pool = arg;
    for (;;) {
        uint32_t wakeups = atomic_load(&pool->wakeups);
        while (run_one(pool))
            ;
        if (atomic_load(&pool->stop))
            return NULL;
        spin(pool, idle);
        if (!idle(pool))
            continue;
        /* A run that starts from here on changes `wakeups` first: the kernel does not let us sleep
         * then. */
        atomic_fetch_add(&pool->sleepers, 1);
        ddp_futex_wait(&pool->wakeups, wakeups, INT64_MAX);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
}

static void wake_workers(ddp_pool *pool)
{
    atomic_fetch_add(&pool->wakeups, 1);
    if (atomic_load(&pool->sleepers))
        ddp_futex_wake(&pool->wakeups);
}

static void stop_workers(ddp_pool *pool, int workers)
{
    atomic_store(&pool->stop, true);
    wake_workers(pool);
    for (int i = 0; i < workers; i++)
        pthread_join(pool->workers[i], NULL);
}

enum ddp_status ddp_pool_create(ddp_pool **result, int threads)
{
    if (!result || threads < 1 || threads > THREADS_MAX)
        return ddp_fail(DDP_ERR_INVALID, "a pool of %d threads: it can have 1 to %d", threads,
                        THREADS_MAX);
    size_t bytes = sizeof(ddp_pool) + (size_t)threads * sizeof(pthread_t);
    ddp_pool *pool = aligned_alloc(DDP_CACHE_LINE, ddp_align_up(bytes, DDP_CACHE_LINE));
    if (!pool)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: a pool of %d threads", threads);
    memset(pool, 0, bytes);
    pool->threads = threads;
    pool->spin_ns = threads <= ddp_cpu_count() ? SPIN_NS : 0;

    int error = 0, started = 0;
    while (started < threads - 1 && error == 0) {
        error = ddp_thread_create(&pool->workers[started], worker_main, pool);
        if (error == 0)
            started++;
    }
    enum ddp_status status = DDP_OK;
    if (error)
        status = ddp_thread_failed(error, "thread %d of %d", started + 2, threads);
    if (status != DDP_OK) {
        stop_workers(pool, started);
        free(pool);
        return status;
    }
    *result = pool;
    return DDP_OK;
}

void ddp_pool_destroy(ddp_pool *pool)
{
    if (!pool)
        return;
    stop_workers(pool, pool->threads - 1);
    free(pool);
}

int ddp_pool_threads(const ddp_pool *pool)
{
    return pool ? pool->threads : 1;
}

static void run_batch(ddp_pool *pool, size_t first, uint32_t count)
{
    uint64_t run = atomic_load_explicit(&pool->work, memory_order_relaxed) >> 32;
    pool->first = first;
    pool->count = count;
    atomic_store(&pool->unfinished, count);
    atomic_store(&pool->work, (run + 1) << 32 | count);
    wake_workers(pool);
    while (run_one(pool))
        ;
    spin(pool, unfinished);
    if (!unfinished(pool))
        return;
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t left; (left = atomic_load(&pool->unfinished)) != 0;)
        ddp_futex_wait(&pool->unfinished, left, INT64_MAX);
    atomic_store(&pool->caller_sleeps, 0);
}

static void run_batches(ddp_pool *pool, size_t count, ddp_pool_task *task, void *arg)
{
    assert(!pool->running); /* neither from a task of its own nor from a second thread */
    pool->running = true;
    pool->task = task;
    pool->arg = arg;
    for (size_t first = 0; first < count;) {
        size_t batch = count - first < TASKS_MAX ? count - first : TASKS_MAX;
        run_batch(pool, first, (uint32_t)batch);
        first += batch;
    }
    pool->running = false;
}

void ddp_pool_run(ddp_pool *pool, size_t count, ddp_pool_task *task, void *arg)
{
    struct ddp_rounding rounding;
    ddp_rounding_hold(&rounding);
    if (pool && pool->threads > 1 && count > 1)
        run_batches(pool, count, task, arg);
    else
        for (size_t i = 0; i < count; i++)
            task(arg, i);
    ddp_rounding_release(&rounding);
}
