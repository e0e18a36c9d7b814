/* SPDX-License-Identifier: MIT
 *
 * The mark of a job: a random number that its workers carry, and so all that they start, also what
 * leaves its process group, its session and its parent. It stands in the environment and, because
 * that may be cleared or overwritten, in a resource limit: RLIMIT_RTTIME, the time that a real-time
 * process may compute without a pause. In microseconds the number is tens of thousands of years,
 * which limits nobody. The limit is inherited like the environment, nothing that is common sets it,
 * and only root can raise it again. By the mark the keepers find the job's processes when nobody is
 * left who knew their numbers. */
#ifndef DDP_LAUNCHER_MARK_H
#define DDP_LAUNCHER_MARK_H

#define MARK_VARIABLE "DDPRUN_JOB"
#define MARK_SIZE     20 /* decimal digits and a zero */

/* Makes a new one. */
void mark_make(char mark[MARK_SIZE]);

/* Puts the mark on the calling process, but for its environment. */
void mark_put(const char mark[MARK_SIZE]);

/* Takes the marks of all jobs off the calling process. */
void mark_take_off(void);

/* Kills all processes that carry the mark, and those they start meanwhile, for at most two seconds.
 * Makes only async-signal-safe calls; without /proc it does nothing. */
void mark_kill(const char mark[MARK_SIZE]);

#endif
