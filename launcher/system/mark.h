/* SPDX-License-Identifier: MIT
 *
 * The mark of a job: a random number that its workers and all their descendants inherit, also those
 * that leave their process group, session and parent. It is in the environment and, because that
 * may be cleared or overwritten, in a resource limit: RLIMIT_RTTIME, the time that a real-time
 * process may compute without a pause. In microseconds the number is tens of thousands of years, so
 * it limits nothing. The limit is inherited like the environment, is rarely set, and only root can
 * raise it again. By the mark the keepers find the job's processes after ddprun has died. */
#ifndef DDP_LAUNCHER_MARK_H
#define DDP_LAUNCHER_MARK_H

#define MARK_VARIABLE "DDPRUN_JOB"
#define MARK_SIZE     20 /* decimal digits and a zero */

/* Draws a new one. */
void mark_make(char mark[MARK_SIZE]);

/* Puts the mark on the calling process, except in its environment. */
void mark_put(const char mark[MARK_SIZE]);

/* Takes the marks of all jobs off the calling process. */
void mark_take_off(void);

/* Kills all processes that carry the mark, and those they start meanwhile, for at most two seconds.
 * Makes only async-signal-safe calls; without /proc it does nothing. */
void mark_kill(const char mark[MARK_SIZE]);

#endif
