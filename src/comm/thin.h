/* SPDX-License-Identifier: MIT
 *
 * Registered memory that comes and goes: addresses of a large array, of which only parts are wanted
 * at a time. What is written to is provided first, and goes when a sum of it is complete
 * (ddp_comm_reduce_roots_start()) or when it is punched. It reads as zeros when it comes back. */
#ifndef DDP_COMM_THIN_H
#define DDP_COMM_THIN_H

#include "comm/comm.h"

/* As ddp_comm_alloc(), with no memory behind it; where the communicator has shared memory. */
enum ddp_status ddp_comm_alloc_thin(ddp_comm *comm, size_t bytes, void **memory);

/* As ddp_comm_alloc_shared(), likewise. */
enum ddp_status ddp_comm_alloc_thin_shared(ddp_comm *comm, size_t bytes, void **memory);

/* Makes sure that there is memory behind this part of it; what is there stays as it is. Local.
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_comm_provide(ddp_comm *comm, void *memory, size_t bytes);

/* Gives back what lies behind it, but for pages that other memory has a part of. Local. */
void ddp_comm_punch(ddp_comm *comm, void *memory, size_t bytes);

/* Waits until at most so many of the calls that this rank has started are incomplete. All ranks
 * call it in the same places. */
enum ddp_status ddp_comm_settle(ddp_comm *comm, int most);

#endif
