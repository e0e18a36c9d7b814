/* SPDX-License-Identifier: MIT
 *
 * Where each worker is: its Python stacks, or where the kernel lets it wait. */
#ifndef DDP_LAUNCHER_STACKS_H
#define DDP_LAUNCHER_STACKS_H

#include <stdio.h>
#include <sys/types.h>

struct stack_source {
    int rank;
    pid_t pid; /* 0: there is no process */
    int fd;    /* where its Python writes its stacks (launcher/python.h); -1: nowhere */
};

/* Asks all workers and writes what they answer, rank after rank. Takes a second if one does not
 * answer, longer with py-spy. */
void stacks_write(const struct stack_source *sources, int count, FILE *out);

#endif
