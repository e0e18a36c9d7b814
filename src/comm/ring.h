/* SPDX-License-Identifier: MIT
 *
 * The slots of a channel in memory that both ends map, and the two words by which they hand them to
 * each other. */
#ifndef DDP_COMM_RING_H
#define DDP_COMM_RING_H

#include "comm/comm.h"
#include "comm/wait.h"

/* The bytes of memory for a ring, zeroed at first, page-aligned. False: the size overflows. */
bool ddp_ring_bytes(size_t bytes, uint32_t slots, size_t *total);

/* Sets an end's memory and slots, and the ring as its link. */
void ddp_ring_attach(struct ddp_channel_end *end, void *memory, size_t bytes, uint32_t slots);

/* As in struct ddp_comm_ops. */
enum ddp_status ddp_ring_await(const struct ddp_channel_end *end, uint64_t message,
                               const struct ddp_comm_waiting *waiting);
void ddp_ring_pass(const struct ddp_channel_end *end, uint64_t message);

#endif
