/* SPDX-License-Identifier: MIT
 *
 * Python workers are made to write their stacks on request: a sitecustomize module, first on
 * PYTHONPATH, registers faulthandler for a signal, takes itself away and loads the one that it
 * hides. The module is in a zip archive in a memfd, each worker's stack in another: no file is
 * needed. */
#ifndef DDP_LAUNCHER_PYTHON_H
#define DDP_LAUNCHER_PYTHON_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/* A worker may execute another program between being looked at and being sent the signal. The
 * handler is gone then, so it must be a signal that is ignored by default. Neither Python nor
 * PyTorch uses this one. */
#define PYTHON_STACK_SIGNAL SIGURG

/* Names of the memfds, as /proc shows them: of rank 3 "ddprun-stack-3". */
#define PYTHON_STACK_FILE "ddprun-stack-"

/* Whether this command starts the Python interpreter. */
bool python_is(const char *program);

struct python {
    int count;   /* of workers */
    int module;  /* the archive, or -1: nothing is arranged */
    int *stacks; /* of each worker, or NULL */
};

/* Without memory or descriptors nothing is arranged: stacks are not worth a failure. */
void python_open(struct python *python, int workers);
void python_close(struct python *python);

/* The values of PYTHONPATH and PYTHON_STACK_VARIABLE for a worker; false: there are none. */
#define PYTHON_STACK_VARIABLE "DDPRUN_STACK"
bool python_path(const struct python *python, char *path, size_t size);
int python_stack_fd(const struct python *python, int rank); /* or -1 */
bool python_stack(const struct python *python, int rank, char *value, size_t size);

/* Lets the worker inherit what it needs; called between fork and exec. */
void python_inherit(const struct python *python, int rank);

#endif
