/* SPDX-License-Identifier: MIT
 *
 * Channels between ranks of one machine: rings in shared memory; see shm.h. */
#include "config.h"

#include "comm/shm.h"

#include "comm/ring.h"
#include "core/log.h"

enum ddp_status shm_channel_open(void *state, const struct ddp_comm_call *call,
                                 struct ddp_channel_end *end)
{
    struct shm *shm = state;
    size_t total;
    void *memory;
    if (!ddp_ring_bytes(call->count, call->slots, &total))
        return ddp_fail(DDP_ERR_INVALID, "a channel of %u slots of %zu bytes is too large",
                        call->slots, (size_t)call->count);
    enum ddp_status status = shm_alloc_for(shm, call, total, true, &memory);
    if (status == DDP_OK && end)
        ddp_ring_attach(end, memory, call->count, call->slots);
    if (end)
        end->comm = shm;
    return status;
}

enum ddp_status shm_channel_await(struct ddp_channel_end *end, uint64_t message, int timeout_ms)
{
    const struct shm *shm = end->comm;
    const struct ddp_comm_waiting waiting = {.stop = ddp_job_abort_word(shm->place->job),
                                             .spins = timeout_ms == 0 ? 0 : shm->ledger.spins,
                                             .timeout_ms = timeout_ms};
    return ddp_ring_await(end, message, &waiting);
}

enum ddp_status shm_channel_pass(struct ddp_channel_end *end, uint64_t message)
{
    ddp_ring_pass(end, message);
    return DDP_OK;
}
