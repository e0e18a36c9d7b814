/* SPDX-License-Identifier: MIT
 *
 * A thread for each replica of DataParallel, always the same one, which waits for the master's next
 * phase. */
#ifndef DDP_MODE_TEAM_H
#define DDP_MODE_TEAM_H

#include "ddp.h"

typedef struct ddp_team ddp_team;
typedef enum ddp_status ddp_team_work(void *arg, int member);

/* Starts `size` threads. DDP_ERR_SYSTEM, DDP_ERR_MEMORY. */
enum ddp_status ddp_team_create(ddp_team **created, int size);
void ddp_team_destroy(ddp_team *team);

/* Every member calls work(arg, member); returns when all have, with the status of the first member
 * that failed. */
enum ddp_status ddp_team_run(ddp_team *team, ddp_team_work *work, void *arg);

#endif
