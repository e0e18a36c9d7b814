/* SPDX-License-Identifier: MIT
 *
 * Channels: what every communicator that has them must do. */
#include "config.h"

#include "comm/channel.h"
#include "core/clock.h"
#include "tests/comm/comm_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* --- random orders --- */

enum { CHANNELS = 8, EVENTS = 4 };

/* One queue as the script sees it: all ranks play the same script, each its own events of it. */
struct queue {
    int from, to, slots;
    size_t bytes;
    uint64_t done[EVENTS]; /* sender acquired, released, receiver acquired, released */
    ddp_channel *channel;
    void *held[2][DDP_CHANNEL_MAX_SLOTS];
};

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static void fill(void *memory, size_t bytes, int channel, uint64_t message)
{
    unsigned char *host = malloc(bytes + 4);
    uint32_t h = (uint32_t)channel * 977 + (uint32_t)message * 40503 + 1;
    for (size_t i = 0; i < bytes; i += 4) {
        h = h * 1664525 + 1013904223;
        memcpy(host + i, &h, 4);
    }
    if (bytes > 0)
        ranks_put(memory, host, bytes);
    free(host);
}

static bool holds(const void *memory, size_t bytes, int channel, uint64_t message)
{
    unsigned char *host = malloc(bytes + 4), *got = malloc(bytes + 4);
    uint32_t h = (uint32_t)channel * 977 + (uint32_t)message * 40503 + 1;
    for (size_t i = 0; i < bytes; i += 4) {
        h = h * 1664525 + 1013904223;
        memcpy(host + i, &h, 4);
    }
    if (bytes > 0)
        ranks_get(got, memory, bytes);
    const bool same = memcmp(host, got, bytes) == 0;
    free(host);
    free(got);
    return same;
}

/* Can the event be next, so that nobody waits for what comes later? */
static bool is_legal(const struct queue *q, int event)
{
    if (event == 0)
        return q->done[0] - q->done[3] < (uint64_t)q->slots;
    return q->done[event] < q->done[event - 1];
}

static void play(struct queue *q, int channel, int event, int rank)
{
    const uint64_t message = q->done[event]++;
    void **held = &q->held[event / 2][message % (uint64_t)q->slots];
    if (rank != (event < 2 ? q->from : q->to))
        return;
    switch (event) {
    case 0:
        NEED(ddp_channel_acquire(q->channel, held) == DDP_OK);
        NEED((uintptr_t)*held % 64 == 0);
        if (message >= (uint64_t)q->slots) /* what the sender wrote is there still */
            NEED(holds(*held, q->bytes, channel, message - (uint64_t)q->slots));
        break;
    case 1:
        fill(*held, q->bytes, channel, message);
        NEED(ddp_channel_release(q->channel) == DDP_OK);
        break;
    case 2:
        NEED(ddp_channel_acquire(q->channel, held) == DDP_OK);
        NEED(holds(*held, q->bytes, channel, message));
        break;
    default:
        NEED(holds(*held, q->bytes, channel, message));
        NEED(ddp_channel_release(q->channel) == DDP_OK);
    }
}

void row_channels(ddp_comm *comm, ddp_job *job)
{
    static const size_t sizes[] = {4, 0, 1, 66, 1001, 65543, 1 << 20, 300000};
    static struct queue queues[CHANNELS];
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    uint64_t state = 12345 + (uint64_t)size;
    (void)job;
    for (int c = 0; c < CHANNELS; c++) {
        struct queue *q = &queues[c];
        q->from = (int)(next_random(&state) % (uint32_t)size);
        q->to = (q->from + 1 + (int)(next_random(&state) % (uint32_t)(size - 1))) % size;
        q->slots = 1 + (int)(next_random(&state) % 5);
        q->bytes = sizes[c];
        NEED(ddp_channel_open(&q->channel, comm, q->from, q->to, q->bytes, q->slots) == DDP_OK);
        NEED((q->channel != NULL) == (rank == q->from || rank == q->to));
    }
    for (int i = 0; i < (ranks_device ? 400 : 1500); i++) {
        const int c = (int)(next_random(&state) % CHANNELS), event = (int)(next_random(&state) % 4);
        if (is_legal(&queues[c], event))
            play(&queues[c], c, event, rank);
        if (i % 500 == 499) /* collectives go on beside */
            NEED(ddp_comm_barrier(comm) == DDP_OK);
    }
    for (int c = 0; c < CHANNELS; c++) /* what is left */
        for (int event = 3; event >= 1; event--)
            while (is_legal(&queues[c], event))
                for (int later = event; later < EVENTS; later++)
                    if (is_legal(&queues[c], later))
                        play(&queues[c], c, later, rank);
}

/* --- a message that is large --- */

void row_channel_large(ddp_comm *comm, ddp_job *job)
{
    const size_t bytes = ((size_t)64 << 20) + 3;
    const int rank = ddp_comm_rank(comm);
    ddp_channel *channel;
    void *slot;
    (void)job;
    NEED(ddp_channel_open(&channel, comm, 1, 0, bytes, 1) == DDP_OK);
    for (uint64_t message = 0; message < 2 && rank < 2; message++) {
        NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
        if (rank == 1)
            fill(slot, bytes, 3, message);
        else
            NEED(holds(slot, bytes, 3, message));
        NEED(ddp_channel_release(channel) == DDP_OK);
    }
}

/* --- arguments --- */

void row_channel_arguments(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    ddp_channel *channel;
    void *slot;
    (void)job;
    NEED(ddp_channel_open(&channel, comm, 0, 0, 4, 1) == DDP_ERR_INVALID);
    NEED(ddp_channel_open(&channel, comm, 0, size, 4, 1) == DDP_ERR_INVALID);
    NEED(ddp_channel_open(&channel, comm, -1, 0, 4, 1) == DDP_ERR_INVALID);
    if (size == 1)
        return;
    NEED(ddp_channel_open(&channel, comm, 0, 1, 4, 0) == DDP_ERR_INVALID);
    NEED(ddp_channel_open(&channel, comm, 0, 1, 4, DDP_CHANNEL_MAX_SLOTS + 1) == DDP_ERR_INVALID);
    NEED(ddp_channel_open(&channel, comm, 0, 1, SIZE_MAX, 1) == DDP_ERR_INVALID);
    NEED(ddp_channel_open(&channel, comm, 0, 1, (size_t)1 << 46, 2) == DDP_ERR_MEMORY);
    NEED(ddp_channel_open(&channel, comm, 0, 1, 4, 2) == DDP_OK);
    if (rank > 1)
        return;
    NEED(ddp_channel_release(channel) == DDP_ERR_INVALID);
    NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
    NEED(rank == 1 || ddp_channel_acquire(channel, &slot) == DDP_OK);
    if (rank == 0)
        NEED(ddp_channel_acquire(channel, &slot) == DDP_ERR_INVALID);
    NEED(ddp_channel_release(channel) == DDP_OK);
    NEED(rank == 1 || ddp_channel_release(channel) == DDP_OK);
    NEED(ddp_channel_release(channel) == DDP_ERR_INVALID);
}

/* --- beside collectives --- */

/* Rank 1 sends when the sum is complete, which takes the part of rank 0, who waits already. */
void row_channel_overlap(ddp_comm *comm, ddp_job *job)
{
    enum { COUNT = 100000 };
    const int rank = ddp_comm_rank(comm);
    ddp_channel *channel;
    void *slot, *memory;
    (void)job;
    ddp_comm_set_timeout(comm, 20000);
    NEED(ddp_channel_open(&channel, comm, 1, 0, 4, 1) == DDP_OK);
    NEED(ddp_comm_alloc(comm, COUNT * sizeof(float), &memory) == DDP_OK);
    char *sum = ranks_expect(ddp_comm_size(comm), COUNT, DDP_F32, DDP_SUM);
    for (uint64_t message = 0; message < 3; message++) {
        ranks_fill(memory, COUNT, DDP_F32, rank);
        if (rank == 1)
            usleep(20000);
        NEED(ddp_comm_allreduce_start(comm, memory, COUNT, DDP_F32, DDP_SUM) == DDP_OK);
        if (rank != 0)
            NEED(ddp_comm_finish(comm) == DDP_OK);
        if (rank < 2) {
            NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
            if (rank == 1)
                fill(slot, 4, 1, message);
            else
                NEED(holds(slot, 4, 1, message));
            NEED(ddp_channel_release(channel) == DDP_OK);
        }
        NEED(ddp_comm_finish(comm) == DDP_OK);
        NEED(ranks_same(memory, sum, COUNT * sizeof(float)));
    }
    free(sum);
}

static void pass_one(ddp_channel *channel, bool sends, size_t bytes, int number)
{
    void *slot;
    NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
    if (sends)
        fill(slot, bytes, number, 0);
    else
        NEED(holds(slot, bytes, number, 0));
    NEED(ddp_channel_release(channel) == DDP_OK);
}

/* Rank 0 waits in a barrier while what it has sent is on its way; rank 1 comes to the barrier when
 * rank 2 has that. */
static void cross(ddp_comm *channels, ddp_comm *meets)
{
    const size_t bytes = ranks_device ? 1000000 : 32000000;
    const int rank = ddp_comm_rank(channels);
    ddp_channel *first, *second;
    ddp_comm_set_timeout(channels, 20000);
    ddp_comm_set_timeout(meets, 20000);
    NEED(ddp_channel_open(&first, channels, 0, 2, bytes, 1) == DDP_OK);
    NEED(ddp_channel_open(&second, channels, 2, 1, 4, 1) == DDP_OK);
    if (rank == 0 || rank == 2)
        pass_one(first, rank == 0, bytes, 1);
    if (rank == 1 || rank == 2)
        pass_one(second, rank == 2, 4, 2);
    NEED(ddp_comm_barrier(meets) == DDP_OK);
}

void row_channel_crossing(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    cross(comm, comm);
}

/* The barrier is another communicator's. */
void row_channel_beside(ddp_comm *comm, ddp_job *job)
{
    ddp_comm *other;
    NEED(ranks_join_group(&other, job, 0, 1, ddp_comm_size(comm)) == DDP_OK);
    cross(other, comm);
    ddp_comm_destroy(other);
}

/* A sender may be gone before its messages are received. */
void row_channel_leaves(ddp_comm *comm, ddp_job *job)
{
    const size_t bytes = 100000;
    ddp_channel *channel;
    void *slot;
    (void)job;
    NEED(ddp_channel_open(&channel, comm, 0, 1, bytes, 3) == DDP_OK);
    if (ddp_comm_rank(comm) == 1)
        usleep(100000);
    for (uint64_t message = 0; message < 3 && ddp_comm_rank(comm) < 2; message++) {
        NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
        if (ddp_comm_rank(comm) == 0)
            fill(slot, bytes, 9, message);
        else
            NEED(holds(slot, bytes, 9, message));
        NEED(ddp_channel_release(channel) == DDP_OK);
    }
}

/* --- failures --- */

/* Of the host's memory, the acquire waits; of a device's, what it put on the stream does. */
static enum ddp_status acquire_there(ddp_channel *channel, void **slot)
{
    enum ddp_status status = ddp_channel_acquire(channel, slot);
    return status == DDP_OK && ranks_device ? ddp_device_synchronize(ranks_device) : status;
}

/* All have joined, and none is still in here when another one fails. */
static void meet(ddp_comm *comm)
{
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    if (ranks_device)
        usleep(100000);
}

static void need_mismatch(ddp_comm *comm, size_t bytes, int to, int slots)
{
    ddp_channel *channel;
    meet(comm);
    NEED(ddp_channel_open(&channel, comm, 0, to, bytes, slots) == DDP_ERR_MISMATCH);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_MISMATCH);
}

static void mismatch_bytes(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    need_mismatch(comm, ddp_comm_rank(comm) == 1 ? 8 : 4, 1, 2);
}

static void mismatch_slots(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    need_mismatch(comm, 4, 1, ddp_comm_rank(comm) == 1 ? 3 : 2);
}

static void mismatch_end(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    need_mismatch(comm, 4, ddp_comm_rank(comm) == 1 ? 1 : 2, 2);
}

ranks_body *const channel_mismatch_rows[CHANNEL_MISMATCH_ROWS] = {mismatch_bytes, mismatch_slots,
                                                                  mismatch_end};

/* The message never comes, or the slot is never free. */
static void time_out(ddp_comm *comm, const ddp_job *job, int waits, bool full)
{
    ddp_channel *channel;
    void *slot;
    NEED(ddp_channel_open(&channel, comm, full ? waits : 1 - waits, full ? 1 - waits : waits, 64,
                          1) == DDP_OK);
    if (ddp_comm_rank(comm) != waits) {
        ranks_come_last(job, NULL, 1 - waits);
        return;
    }
    ddp_comm_set_timeout(comm, 150);
    if (full) {
        NEED(ddp_channel_acquire(channel, &slot) == DDP_OK);
        NEED(ddp_channel_release(channel) == DDP_OK);
    }
    const int64_t start = ddp_clock_ns();
    NEED(acquire_there(channel, &slot) == DDP_ERR_TIMEOUT);
    NEED(ddp_clock_ns() - start >= 145000000);
    NEED(ranks_device || ddp_channel_acquire(channel, &slot) == DDP_ERR_TIMEOUT);
    ranks_come_last(job, NULL, 1 - waits);
}

static void timeout_receiver(ddp_comm *comm, ddp_job *job)
{
    time_out(comm, job, 0, false);
}

static void timeout_sender(ddp_comm *comm, ddp_job *job)
{
    time_out(comm, job, 1, true);
}

/* Rank 1 dies, as the test says, between two messages. */
static void killed(ddp_comm *comm, bool sends)
{
    const int rank = ddp_comm_rank(comm);
    enum ddp_status status = DDP_OK;
    ddp_channel *channel;
    void *slot;
    NEED(ddp_channel_open(&channel, comm, sends ? 1 : 0, sends ? 0 : 1, 5000, 2) == DDP_OK);
    for (int i = 0; rank < 2 && status == DDP_OK; i++) {
        if (rank == 1 && i == 50)
            raise(SIGKILL);
        status = acquire_there(channel, &slot);
        if (status == DDP_OK)
            status = ddp_channel_release(channel);
    }
    NEED(rank > 1 || status == DDP_ERR_ABORTED);
}

static void killed_sender(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    killed(comm, true);
}

static void killed_receiver(ddp_comm *comm, ddp_job *job)
{
    (void)job;
    killed(comm, false);
}

/* Another rank fails, which no channel leads to. */
void row_channel_aborted(ddp_comm *comm, ddp_job *job)
{
    ddp_channel *channel;
    void *slot;
    NEED(ddp_channel_open(&channel, comm, 0, 1, 64, 1) == DDP_OK);
    if (ddp_comm_rank(comm) == 2) {
        usleep(100000);
        ddp_job_abort(job);
    }
    if (ddp_comm_rank(comm) == 1) {
        const int64_t start = ddp_clock_ns();
        NEED(acquire_there(channel, &slot) == DDP_ERR_ABORTED);
        NEED((ddp_clock_ns() - start) / 1000000 < 30000);
        NEED(ranks_device || ddp_channel_acquire(channel, &slot) == DDP_ERR_ABORTED);
    }
}

ranks_body *const channel_timeout_rows[2] = {timeout_receiver, timeout_sender};
ranks_body *const channel_killed_rows[2] = {killed_sender, killed_receiver};
