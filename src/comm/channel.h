/* SPDX-License-Identifier: MIT
 *
 * Channels: messages from one rank of a communicator to another, for modes that pass tensors from
 * stage to stage. Not part of the public interface.
 *
 * A channel is a queue of a fixed number of slots for messages of one size. Both are agreed when it
 * is opened, so a difference is found before anything moves, and no later call can differ; and
 * because the slots are known, an operation can compute its output right into one, which the
 * receiver reads in place. Free sends and receives would need a match and a copy for each message.
 *
 * Either end acquires the slot of its next message, uses it, and releases it to the other end:
 *
 *     sender    acquire: the next free slot;    fill it; release: the message is on its way
 *     receiver  acquire: the next message;      read it; release: its slot is free again
 *
 * Messages arrive in the order in which they were sent. An end may hold several slots and releases
 * them in the order in which it acquired them: a receiver may keep an activation in its slot until
 * the backward pass has read it. The sender, too, may read a slot that it released until it
 * acquires it again, `slots` messages later. The receiver must not write.
 *
 * Only acquire waits: the sender's while the other end holds all slots, the receiver's until there
 * is a message. Release never waits, so a sender computes on; between machines messages move in
 * calls of the communicator only, such as ddp_comm_progress() between computations. Channels do not
 * wait for each other, nor for collectives of their communicator, which may be started and pending
 * meanwhile.
 *
 * Slots are memory of the communicator's device. There neither call waits: what is put on the
 * device's stream after an acquire finds the slot, and what was put there before a release is in
 * the message; failures show in ddp_device_synchronize(). */
#ifndef DDP_COMM_CHANNEL_H
#define DDP_COMM_CHANNEL_H

#include "ddp.h"

#include <stdatomic.h>

#define DDP_CHANNEL_MAX_SLOTS 255

typedef struct ddp_channel ddp_channel;

/* Opens a channel. Each rank frees it with the communicator, when it is done: messages that were
 * released before are still received. Collective over all ranks of the communicator, not while
 * collectives are started and not finished.
 *   channel  [out] this rank's end; NULL on ranks that are neither `from` nor `to`
 *   bytes    of a message; 0: a signal, slots are addresses that nobody reads
 *   slots    messages that are sent and not released by the receiver, 1 .. DDP_CHANNEL_MAX_SLOTS
 * DDP_ERR_INVALID, DDP_ERR_UNSUPPORTED, DDP_ERR_MEMORY, and as any collective DDP_ERR_MISMATCH,
 * DDP_ERR_ABORTED, DDP_ERR_TIMEOUT. */
enum ddp_status ddp_channel_open(ddp_channel **channel, ddp_comm *comm, int from, int to,
                                 size_t bytes, int slots);

/* Acquires the slot of this end's next message; waits for it, no longer than the communicator's
 * timeout. *slot [out] is 64-byte aligned. DDP_ERR_INVALID: this end holds all slots.
 * DDP_ERR_ABORTED, DDP_ERR_TIMEOUT: as after a collective, the communicator is dead then. */
enum ddp_status ddp_channel_acquire(ddp_channel *channel, void **slot);

/* Releases the slot that this end has held longest. DDP_ERR_INVALID: it holds none. */
enum ddp_status ddp_channel_release(ddp_channel *channel);

/* The same queue between two threads of one process, on the host's memory; each end belongs to one
 * thread at a time. Waits have no timeout: *stop, which the caller sets to non-zero when a thread
 * fails, ends them with DDP_ERR_ABORTED; it outlives the channel.
 *   ends  [out] the sender's, the receiver's
 * DDP_ERR_INVALID, DDP_ERR_MEMORY. */
enum ddp_status ddp_channel_open_threads(ddp_channel *ends[2], size_t bytes, int slots,
                                         const _Atomic uint32_t *stop);
void ddp_channel_close_threads(ddp_channel *ends[2]); /* no thread uses them; also NULL */

#endif
