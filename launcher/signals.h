/* SPDX-License-Identifier: MIT
 *
 * Signals to ddprun itself: which are watched, and what each does to the job. */
#ifndef DDP_LAUNCHER_SIGNALS_H
#define DDP_LAUNCHER_SIGNALS_H

#include "launcher/job.h"

/* Blocks all signals, as they must be around fork, and opens job->signal_fd, from which they are
 * read. */
enum ddp_status signals_open(struct job *job);

/* Acts on one that was read. */
void signals_handle(struct job *job, int signal);

/* Acts on a request to stop that had to wait until workers can take it, if they can. */
void signals_handle_held(struct job *job);

/* A descriptor from which signals that end the job, or ask it to stop, can be read. -1: none. */
int signals_joining_fd(const struct job *job);

/* Another node has passed on a signal that was sent to its ddprun. `kills`: for the second time. */
void signals_from_node(struct job *job, const char *node, int signal, bool kills);

/* Ends all workers of this node because of a signal, or kills them. */
void signals_end_workers(struct job *job, int signal, bool kills);

/* Whether it ends the job. */
bool signals_end_job(const struct job *job, int signal);

#endif
