/* SPDX-License-Identifier: MIT
 *
 * Switching between machine stacks: a few instructions of assembly where the processor is known,
 * _setjmp and _longjmp elsewhere (with -DSIM_PORTABLE_FIBRES everywhere). */
#include "config.h"

/* Its longjmp takes a jump to another stack for an overrun. */
#undef _FORTIFY_SOURCE

#include "tests/cudasim/fibre.h"
#include "tests/cudasim/sim.h"

#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(SIM_PORTABLE_FIBRES) && !defined(__x86_64__) && !defined(__aarch64__)
#define SIM_PORTABLE_FIBRES 1
#endif
#ifdef SIM_PORTABLE_FIBRES
#include <setjmp.h>
#include <ucontext.h>
#endif

/* In the program when it was built with a sanitizer; this library never is. */
extern void *__tsan_get_current_fiber(void) __attribute__((weak));
extern void *__tsan_create_fiber(unsigned flags) __attribute__((weak));
extern void __tsan_destroy_fiber(void *fibre) __attribute__((weak));
extern void __tsan_switch_to_fiber(void *fibre, unsigned flags) __attribute__((weak));
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));
extern void __tsan_java_init(unsigned long start, unsigned long bytes) __attribute__((weak));
extern void __tsan_java_alloc(unsigned long start, unsigned long bytes) __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));

bool sim_tsan(void)
{
    return __tsan_create_fiber && __tsan_acquire;
}

void sim_acquire(void *address)
{
    if (sim_tsan())
        __tsan_acquire(address);
}

void sim_release(void *address)
{
    if (sim_tsan())
        __tsan_release(address);
}

struct search {
    uintptr_t code, start, bytes;
};

static int find_globals(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *search = argument;
    uintptr_t start = 0, end = 0;
    bool found = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        if (search->code - at < part->p_memsz)
            found = true;
        if (part->p_flags & PF_W) {
            start = (at + 7) & ~(uintptr_t)7;
            end = (at + part->p_memsz) & ~(uintptr_t)7;
        }
    }
    if (!found || end <= start)
        return 0;
    search->start = start;
    search->bytes = end - start;
    return 1;
}

/* The sanitizer has a call for this, for the heap of a Java machine; it takes one heap, so this
 * serves one program or library with kernels. */
void sim_forget_globals(const void *code)
{
    struct search search = {.code = (uintptr_t)code};
    static uintptr_t heap;
    if (!__tsan_java_init || !__tsan_java_alloc || !dl_iterate_phdr(find_globals, &search))
        return;
    if (heap == 0) {
        heap = search.start;
        __tsan_java_init(search.start, search.bytes);
    }
    if (search.start == heap)
        __tsan_java_alloc(search.start, search.bytes);
}

#ifdef SIM_PORTABLE_FIBRES

struct portable {
    bool started;
    jmp_buf jump;
    ucontext_t context;
};

static void start(unsigned high, unsigned low)
{
    struct sim_fibre *fibre = (struct sim_fibre *)(uintptr_t)(((uint64_t)high << 32) | low);
    fibre->body(fibre->argument);
    abort();
}

/* The first context lies at the far end of the fibre's own stack, the later ones in jump()'s frame.
 */
static void prepare(struct sim_fibre *fibre)
{
    struct portable *state = (struct portable *)fibre->stack;
    uint64_t address = (uintptr_t)fibre;
    if (getcontext(&state->context) != 0)
        sim_report("getcontext: %s", strerror(errno));
    state->context.uc_stack.ss_sp = fibre->stack;
    state->context.uc_stack.ss_size = fibre->stack_bytes;
    makecontext(&state->context, (void (*)(void))(void *)start, 2, (unsigned)(address >> 32),
                (unsigned)address);
    state->started = false;
    fibre->stack_pointer = state;
}

static void jump(struct sim_fibre *from, struct sim_fibre *to)
{
    struct portable here = {.started = true}, *next = to->stack_pointer;
    from->stack_pointer = &here;
    if (_setjmp(here.jump) != 0)
        return;
    if (next->started)
        _longjmp(next->jump, 1);
    setcontext(&next->context);
}

#else

/* Stores what a called function must preserve on the running stack, the stack pointer at *save, and
 * goes on where `target` was stored. */
void sim_switch_stacks(void **save, void *target);
void sim_first_step(void);

#ifdef __x86_64__
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden sim_switch_stacks\n"
        ".globl sim_switch_stacks\n"
        ".type sim_switch_stacks, @function\n"
        "sim_switch_stacks:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size sim_switch_stacks, .-sim_switch_stacks\n"
        /* r12: body, r13: its argument */
        ".p2align 4\n"
        ".hidden sim_first_step\n"
        ".globl sim_first_step\n"
        ".type sim_first_step, @function\n"
        "sim_first_step:\n"
        "    movq %r13, %rdi\n"
        "    call *%r12\n"
        "    ud2\n"
        ".size sim_first_step, .-sim_first_step\n");

static void prepare(struct sim_fibre *fibre)
{
    uintptr_t top = ((uintptr_t)fibre->stack + fibre->stack_bytes) & ~(uintptr_t)15;
    void **slots = (void **)top - 9;
    memset(slots, 0, 9 * sizeof *slots);
    slots[2] = fibre->argument; /* r15, r14, r13, r12, rbx, rbp, then where to go */
    slots[3] = (void *)(uintptr_t)fibre->body;
    slots[6] = (void *)(uintptr_t)sim_first_step;
    fibre->stack_pointer = slots;
}
#else
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden sim_switch_stacks\n"
        ".globl sim_switch_stacks\n"
        ".type sim_switch_stacks, %function\n"
        "sim_switch_stacks:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size sim_switch_stacks, .-sim_switch_stacks\n"
        /* x19: body, x20: its argument */
        ".p2align 4\n"
        ".hidden sim_first_step\n"
        ".globl sim_first_step\n"
        ".type sim_first_step, %function\n"
        "sim_first_step:\n"
        "    mov x0, x20\n"
        "    blr x19\n"
        "    brk #1\n"
        ".size sim_first_step, .-sim_first_step\n");

static void prepare(struct sim_fibre *fibre)
{
    uintptr_t top = ((uintptr_t)fibre->stack + fibre->stack_bytes) & ~(uintptr_t)15;
    void **slots = (void **)top - 20;
    memset(slots, 0, 20 * sizeof *slots);
    slots[0] = (void *)(uintptr_t)fibre->body; /* x19, x20; x30 is where to go */
    slots[1] = fibre->argument;
    slots[11] = (void *)(uintptr_t)sim_first_step;
    fibre->stack_pointer = slots;
}
#endif

static void jump(struct sim_fibre *from, struct sim_fibre *to)
{
    sim_switch_stacks(&from->stack_pointer, to->stack_pointer);
}
#endif

struct sim_fibre *sim_fibre_create(size_t stack_bytes, void (*body)(void *), void *argument)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = (stack_bytes + page - 1) / page * page;
    struct sim_fibre *fibre = calloc(1, sizeof *fibre);
    char *memory = mmap(NULL, page + bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!fibre || memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        sim_report("no memory for the stack of a fibre: %s", strerror(errno));
    fibre->stack = memory + page;
    /* Stacks that end at the same place in a page would share a few lines of a cache. */
    static atomic_uint made;
    fibre->stack_bytes = bytes - (size_t)(atomic_fetch_add(&made, 1) * 11 % 32 * 128);
    fibre->body = body;
    fibre->argument = argument;
    if (sim_tsan())
        fibre->sanitizer = __tsan_create_fiber(0);
    prepare(fibre);
    return fibre;
}

void sim_fibre_destroy(struct sim_fibre *fibre)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!fibre)
        return;
    if (fibre->sanitizer)
        __tsan_destroy_fiber(fibre->sanitizer);
    /* Frames that never returned leave red zones behind in AddressSanitizer's shadow. */
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(fibre->stack, fibre->stack_bytes);
    munmap(fibre->stack - page, page + fibre->stack_bytes);
    free(fibre);
}

void sim_fibre_adopt(struct sim_fibre *here)
{
    memset(here, 0, sizeof *here);
    if (sim_tsan())
        here->sanitizer = __tsan_get_current_fiber();
}

void sim_fibre_switch(struct sim_fibre *from, struct sim_fibre *to)
{
    if (to->sanitizer)
        __tsan_switch_to_fiber(to->sanitizer, 1);
    jump(from, to);
}
