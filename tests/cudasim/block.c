/* SPDX-License-Identifier: MIT
 *
 * Runs a kernel: its blocks one after another, the threads of a block as fibres. Fibres are lazy:
 * one runs thread after thread as a plain loop, and only where a thread must wait does the next one
 * get another fibre. Barriers and operations of a warp are in sync.c. */
#include "config.h"

#include "tests/cudasim/block.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void __asan_poison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
const int warpSize = SIM_WARP;

struct sim_block sim_block;
static struct sim_fibre *free_fibres;
static char *shared_end; /* of the memory that dynamic shared memory ends at */

static size_t stack_bytes(void)
{
    return (size_t)128 << 10;
}

void sim_threads_free(struct sim_threads *threads)
{
    if (!threads)
        return;
    for (int i = 0; i < SIM_MAX_THREADS; i++)
        sim_fibre_destroy(threads->fibres[i]);
    free(threads);
}

static void set_current(int thread)
{
    struct sim_block *b = &sim_block;
    b->current = thread;
    unsigned index = (unsigned)thread;
    if (blockDim.y == 1 && blockDim.z == 1) {
        threadIdx.x = index;
        threadIdx.y = threadIdx.z = 0;
        return;
    }
    threadIdx.x = index % blockDim.x;
    threadIdx.y = index / blockDim.x % blockDim.y;
    threadIdx.z = index / blockDim.x / blockDim.y;
}

static void thread_body(void *unused);

static struct sim_fibre *fibre_for(int thread)
{
    if (sim_tsan())
        return sim_block.threads->fibres[thread];
    struct sim_fibre *fibre = free_fibres;
    if (!fibre)
        return sim_fibre_create(stack_bytes(), thread_body, NULL);
    free_fibres = fibre->next;
    return fibre;
}

static bool start_next(void)
{
    struct sim_block *b = &sim_block;
    if (b->started == b->thread_count)
        return false;
    set_current(b->order[b->started++]);
    return true;
}

static int pop_ready(void)
{
    struct sim_block *b = &sim_block;
    if (sim_settings.order == SIM_RANDOM) {
        unsigned pick = (b->ready_first + (unsigned)(sim_random() % b->ready_count)) % SIM_RING;
        short chosen = b->ready[pick];
        b->ready[pick] = b->ready[b->ready_first];
        b->ready[b->ready_first] = chosen;
    }
    int thread = b->ready[b->ready_first];
    b->ready_first = (b->ready_first + 1) % SIM_RING;
    b->ready_count--;
    return thread;
}

void sim_push_ready(int thread, bool front)
{
    struct sim_block *b = &sim_block;
    if (front) {
        b->ready_first = (b->ready_first + SIM_RING - 1) % SIM_RING;
        b->ready[b->ready_first] = (short)thread;
    } else {
        b->ready[(b->ready_first + b->ready_count) % SIM_RING] = (short)thread;
    }
    b->ready_count++;
}

/* Released threads go first: the stacks of few are in use at a time. */
static bool prefer_ready(void)
{
    struct sim_block *b = &sim_block;
    unsigned waiting = (unsigned)(b->thread_count - b->started);
    if (b->ready_count == 0 || waiting == 0 || sim_settings.order != SIM_RANDOM)
        return b->ready_count > 0;
    return sim_random() % (b->ready_count + waiting) < b->ready_count;
}

void sim_go_on(struct sim_fibre *here)
{
    struct sim_block *b = &sim_block;
    struct sim_fibre *to;
    if (prefer_ready()) {
        set_current(pop_ready());
        to = b->thread[b->current].fibre;
    } else if (start_next()) {
        to = fibre_for(b->current);
    } else if (b->live == 0) {
        to = &b->home;
    } else {
        sim_report_deadlock();
    }
    b->fibre = to;
    sim_fibre_switch(here, to);
}

static void run_thread(void)
{
    struct sim_block *b = &sim_block;
    int thread = b->current;
    b->thread[thread].fibre = b->fibre;
    b->thread[thread].state = SIM_THREAD_RUNS;
    if (b->threads)
        sim_acquire(&b->threads->begin);
    b->launch->call(b->arguments);
    if (b->threads)
        sim_release(&b->threads->end);
    b->thread[thread].state = SIM_THREAD_EXITED;
    b->live--;
    sim_thread_exited(thread);
}

static void thread_body(void *unused)
{
    (void)unused;
    for (;;) {
        struct sim_fibre *here = sim_block.fibre;
        run_thread();
        if (!sim_tsan()) {
            while (start_next())
                run_thread();
            here->next = free_fibres;
            free_fibres = here;
        }
        sim_go_on(here);
    }
}

static void order_threads(int count)
{
    struct sim_block *b = &sim_block;
    for (int i = 0; i < count; i++)
        b->order[i] = (short)(sim_settings.order == SIM_REVERSE ? count - 1 - i : i);
    if (sim_settings.order != SIM_RANDOM)
        return;
    for (int i = count - 1; i > 0; i--) {
        int j = (int)(sim_random() % (uint64_t)(i + 1));
        short moved = b->order[i];
        b->order[i] = b->order[j];
        b->order[j] = moved;
    }
}

void *cudasim_dynamic_shared(void)
{
    if (!shared_end || sim_block.thread_count == 0)
        sim_report("dynamic shared memory outside of a kernel");
    return shared_end - (sim_block.launch->shared_bytes + 15) / 16 * 16;
}

/* Ends at a page that must not be touched; what the block may not use is poisoned where a sanitizer
 * looks, what it may holds NaN. */
static void prepare_shared(size_t bytes)
{
    size_t rounded = (bytes + 15) / 16 * 16;
    if (!shared_end) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t size = (SIM_SHARED_OPTIN_BYTES + page - 1) / page * page;
        char *memory =
            mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory + size, page, PROT_NONE) != 0)
            sim_report("no memory for shared memory");
        shared_end = memory + size;
    }
    if (__asan_unpoison_memory_region) {
        __asan_poison_memory_region(shared_end - SIM_SHARED_OPTIN_BYTES, SIM_SHARED_OPTIN_BYTES);
        __asan_unpoison_memory_region(shared_end - rounded, bytes);
    }
    if (bytes > 0)
        memset(shared_end - rounded, 0xff, bytes);
}

static int poison_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    uintptr_t code = (uintptr_t)argument;
    const ElfW(Phdr) *local = NULL;
    bool found = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && code - (info->dlpi_addr + part->p_vaddr) < part->p_memsz)
            found = true;
        if (part->p_type == PT_TLS)
            local = part;
    }
    if (found && local && info->dlpi_tls_data)
        memset(info->dlpi_tls_data, 0xff, local->p_memsz);
    return found;
}

/* NaN in all thread-local variables of the program or library that the kernel belongs to. */
static void poison_shared(const struct sim_launch *launch)
{
    struct sim_host_thread mine = sim_host_thread;
    dl_iterate_phdr(poison_module, (void *)(uintptr_t)launch->call);
    sim_host_thread = mine;
}

static void run_block(void)
{
    struct sim_block *b = &sim_block;
    b->thread_count = (int)(blockDim.x * blockDim.y * blockDim.z);
    b->live = b->thread_count;
    b->started = 0;
    b->ready_first = b->ready_count = 0;
    for (int i = 0; i < b->thread_count; i++)
        b->thread[i].state = SIM_THREAD_NEW;
    order_threads(b->thread_count);
    sim_reset_sync();
    prepare_shared(b->launch->shared_bytes);
    if (b->launch->thread_local_shared)
        poison_shared(b->launch);
    if (b->threads)
        sim_release(&b->threads->begin);
    start_next();
    b->fibre = fibre_for(b->current);
    sim_fibre_switch(&b->home, b->fibre);
    if (b->threads)
        sim_acquire(&b->threads->end);
    b->thread_count = 0;
}

/* The order of blocks: one step of fixed length round the ring visits each. */
static uint64_t block_step(uint64_t count)
{
    if (sim_settings.order == SIM_FORWARD || count < 2)
        return 1;
    if (sim_settings.order == SIM_REVERSE)
        return count - 1;
    for (;;) {
        uint64_t step = 1 + sim_random() % (count - 1), a = step, b = count;
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

/* Made here and not where one is needed first: what makes a fibre comes before all that it does. */
static void prepare_threads(struct CUstream_st *stream)
{
    if (!sim_tsan())
        return;
    if (!stream->threads && !(stream->threads = calloc(1, sizeof *stream->threads)))
        sim_report("no memory for the threads of a stream");
    for (unsigned i = 0; i < blockDim.x * blockDim.y * blockDim.z; i++)
        if (!stream->threads->fibres[i])
            stream->threads->fibres[i] = sim_fibre_create(stack_bytes(), thread_body, NULL);
    /* Shared memory is one variable for all streams here: what another stream did to it is over. */
    static struct CUstream_st *last;
    if (last && last != stream)
        sim_forget_globals((const void *)(uintptr_t)sim_block.launch->call);
    last = stream;
}

void sim_run_kernel(const struct sim_launch *launch, void *arguments, struct CUstream_st *stream)
{
    struct sim_block *b = &sim_block;
    uint64_t x = launch->grid.x, y = launch->grid.y, count = x * y * launch->grid.z;
    uint64_t step = block_step(count), at = 0;
    if (sim_settings.order == SIM_REVERSE)
        at = count - 1;
    if (sim_settings.order == SIM_RANDOM)
        at = sim_random() % count;
    gridDim = launch->grid;
    blockDim = launch->block;
    b->launch = launch;
    b->arguments = arguments;
    prepare_threads(stream);
    b->threads = stream->threads;
    sim_fibre_adopt(&b->home);
    for (uint64_t i = 0; i < count; i++) {
        blockIdx.x = (unsigned)(at % x);
        blockIdx.y = (unsigned)(at / x % y);
        blockIdx.z = (unsigned)(at / x / y);
        run_block();
        at = (at + step) % count;
    }
    b->launch = NULL;
}

void sim_running_kernel(char *text, size_t size)
{
    if (!sim_block.launch)
        snprintf(text, size, "%s", "");
    else
        snprintf(text, size, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)",
                 sim_block.launch->name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
                 threadIdx.y, threadIdx.z);
}
