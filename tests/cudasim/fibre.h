/* SPDX-License-Identifier: MIT
 *
 * Fibres: machine stacks that take turns on one thread. Under ThreadSanitizer each is a thread of
 * its own to the sanitizer, switched to without synchronisation, so that it sees two fibres touch
 * the same memory with nothing between them that orders the accesses. */
#ifndef DDP_TESTS_CUDASIM_FIBRE_H
#define DDP_TESTS_CUDASIM_FIBRE_H

#include <stdbool.h>
#include <stddef.h>

struct sim_fibre {
    struct sim_fibre *next; /* the owner's: a list of free ones */
    void *stack_pointer;    /* while it does not run */
    void *sanitizer;        /* its thread in ThreadSanitizer's eyes */
    void (*body)(void *);
    void *argument;
    char *stack; /* NULL: the stack of the thread itself */
    size_t stack_bytes;
};

/* A fibre that runs body(argument), which never returns, when it is first switched to. There is a
 * guard page below its stack. Dies (nothing can go on) without memory. */
struct sim_fibre *sim_fibre_create(size_t stack_bytes, void (*body)(void *), void *argument);
void sim_fibre_destroy(struct sim_fibre *fibre); /* not the running one */

/* Makes `here` stand for what runs now; for a first switch away from a thread's own stack. */
void sim_fibre_adopt(struct sim_fibre *here);

void sim_fibre_switch(struct sim_fibre *from, struct sim_fibre *to);

/* Whether the program runs under ThreadSanitizer, and what tells it of an order of events: all that
 * was released at an address happened before what follows an acquire of it. */
bool sim_tsan(void);
void sim_acquire(void *address);
void sim_release(void *address);

/* Makes ThreadSanitizer forget who touched the global variables of the program or library that some
 * code belongs to. */
void sim_forget_globals(const void *code);

#endif
