/* SPDX-License-Identifier: MIT
 *
 * The mark of a job: a random word in the environment of its workers, and so of all that they
 * start, also of what leaves its process group, its session and its parent. By it the keeper finds
 * the job's processes when nobody is left who knew their numbers. */
#ifndef DDP_LAUNCHER_MARK_H
#define DDP_LAUNCHER_MARK_H

#define MARK_VARIABLE "DDPRUN_JOB"
#define MARK_SIZE     17 /* hexadecimal digits and a zero */

/* Makes a new one. */
void mark_make(char mark[MARK_SIZE]);

/* Kills all processes whose environment holds the mark, and those they start meanwhile, for at most
 * two seconds. Makes only async-signal-safe calls; without /proc it does nothing. */
void mark_kill(const char mark[MARK_SIZE]);

#endif
