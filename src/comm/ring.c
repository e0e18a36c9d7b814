/* SPDX-License-Identifier: MIT
 *
 * See ring.h. */
#include "config.h"

#include "comm/ring.h"

#include "core/memory.h"

#define ALIGNMENT 64

/* Messages so far; written by one end, awaited by the other. */
struct word {
    _Alignas(64) _Atomic uint32_t count;
    _Atomic uint32_t sleepers;
};

/* Slots begin a page behind it. */
struct ring {
    struct word sent, released;
};

bool ddp_ring_bytes(size_t bytes, uint32_t slots, size_t *total)
{
    return bytes <= SIZE_MAX - ALIGNMENT &&
           ddp_size_multiply(ddp_align_up(bytes, ALIGNMENT), slots, total) &&
           ddp_size_add(*total, DDP_PAGE, total);
}

void ddp_ring_attach(struct ddp_channel_end *end, void *memory, size_t bytes, uint32_t slots)
{
    end->link = memory;
    end->memory = (char *)memory + DDP_PAGE;
    end->bytes = bytes;
    end->stride = ddp_align_up(bytes, ALIGNMENT);
    end->slots = slots;
}

/* The sender's slot is free when the receiver is done with what was in it `slots` messages ago. */
enum ddp_status ddp_ring_await(const struct ddp_channel_end *end, uint64_t message,
                               const struct ddp_comm_waiting *waiting)
{
    struct ring *ring = end->link;
    struct word *word = end->sends ? &ring->released : &ring->sent;
    return ddp_comm_wait(waiting, &word->count,
                         (uint32_t)message + 1 - (end->sends ? end->slots : 0), &word->sleepers);
}

void ddp_ring_pass(const struct ddp_channel_end *end, uint64_t message)
{
    struct ring *ring = end->link;
    struct word *word = end->sends ? &ring->sent : &ring->released;
    ddp_comm_publish(&word->count, (uint32_t)message + 1, &word->sleepers);
}
