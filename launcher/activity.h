/* SPDX-License-Identifier: MIT
 *
 * Whether workers that do not use libddp do anything. They do if they, or processes that they have
 * started, use more than a hundredth of a CPU, if one of these begins or ends, if they write
 * output, or if a debugger holds one of them. A worker that waits by spinning uses its CPU: it
 * cannot be told from one that computes. */
#ifndef DDP_LAUNCHER_ACTIVITY_H
#define DDP_LAUNCHER_ACTIVITY_H

#include "launcher/job.h"

enum activity_kind {
    ACTIVITY_NONE,
    ACTIVITY_COMPUTES, /* but writes nothing */
    ACTIVITY_WRITES,   /* or is being debugged */
};

/* What has happened since the last call of this attempt. Reads /proc: a few microseconds for each
 * process of the machine. */
enum activity_kind activity_since(struct job *job);

/* Whether there is a /proc to look at. */
bool activity_visible(void);

void activity_free(struct activity *activity);

#endif
