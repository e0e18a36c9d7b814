/* SPDX-License-Identifier: MIT
 *
 * Bytes from every rank to every other, for programs that match and cut messages themselves: see
 * ddp.h. On a machine a ring for each pair, and a word for each rank that counts what has changed
 * for it; to ranks of others nodes_mail.c. */
#include "config.h"

#include "comm/comm_state.h"
#include "comm/nodes.h"
#include "comm/wait.h"
#include "core/clock.h"
#include "core/futex.h"
#include "core/log.h"
#include "core/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ALL_BYTES ((size_t)512 << 10) /* of the rings to a rank, while each is within bounds */
#define MIN_BYTES ((size_t)8 << 10)
#define MAX_BYTES ((size_t)128 << 10)
#define SPINS     200
#define YIELDS    20

/* Bytes so far; the data lie behind it. */
struct ring {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) char data[];
};

struct bell {
    _Alignas(64) _Atomic uint32_t changes;
    _Atomic uint32_t sleepers;
};

struct ddp_mail {
    const struct ddp_comm_place *place;
    struct nodes_mail *wire; /* to ranks of other machines, or NULL */
    struct bell *bells;      /* (most); then the rings, (most,most) by receiver and sender */
    char *rings;
    size_t most;  /* ranks of a machine that has most */
    size_t bytes; /* of data in a ring */
};

/* Of a machine: all allocate the same. */
static size_t most_ranks(const struct ddp_comm_place *place)
{
    int most = 0;
    for (int n = 0; n < place->node_count; n++) {
        const int size = place->starts[n + 1] - place->starts[n];
        most = size > most ? size : most;
    }
    return (size_t)most;
}

enum ddp_status ddp_mail_open(ddp_mail **mail, ddp_comm *comm)
{
    const struct ddp_comm_place *place = &comm->place;
    const size_t most = most_ranks(place);
    const size_t share = ALL_BYTES / most / DDP_PAGE * DDP_PAGE;
    const size_t bytes = share < MIN_BYTES ? MIN_BYTES : share < MAX_BYTES ? share : MAX_BYTES;
    void *memory;
    if (!ddp_comm_has_shared(comm))
        return ddp_fail(DDP_ERR_UNSUPPORTED, "mail: the communicator has no shared memory");
    ddp_mail *m = ddp_array_alloc(1, sizeof *m);
    enum ddp_status status = ddp_comm_alloc_shared(
        comm, most * sizeof(struct bell) + most * most * (sizeof(struct ring) + bytes), &memory);
    if (status == DDP_OK && !m)
        status = DDP_ERR_MEMORY;
    if (status == DDP_OK)
        *m = (struct ddp_mail){.place = place,
                               .bells = memory,
                               .rings = (char *)memory + most * sizeof(struct bell),
                               .most = most,
                               .bytes = bytes};
    if (status == DDP_OK && place->node_count > 1)
        status = nodes_mail_open(&m->wire, comm->state);
    if (status != DDP_OK) {
        free(m);
        return status;
    }
    *mail = m;
    return DDP_OK;
}

void ddp_mail_close(ddp_mail *mail)
{
    if (mail && mail->wire)
        nodes_mail_close(mail->wire);
    free(mail);
}

static struct ring *ring_of(const ddp_mail *mail, int to, int from)
{
    const int first = mail->place->starts[mail->place->node];
    const size_t index = (size_t)(to - first) * mail->most + (size_t)(from - first);
    return (void *)(mail->rings + index * (sizeof(struct ring) + mail->bytes));
}

static bool is_rank(const ddp_mail *mail, int rank)
{
    return rank >= 0 && rank < mail->place->size;
}

static bool is_here(const ddp_mail *mail, int rank)
{
    return ddp_comm_node_of(mail->place, rank) == mail->place->node;
}

static struct bell *bell_of(const ddp_mail *mail, int rank)
{
    return &mail->bells[rank - mail->place->starts[mail->place->node]];
}

/* Both stores are sequentially consistent, as ddp_comm_publish() has them. */
static void ring_bell(ddp_mail *mail, int rank)
{
    struct bell *bell = bell_of(mail, rank);
    atomic_fetch_add(&bell->changes, 1);
    if (atomic_load(&bell->sleepers))
        ddp_futex_wake(&bell->changes);
}

size_t ddp_mail_write(ddp_mail *mail, int to, const void *data, size_t bytes)
{
    if (!is_rank(mail, to))
        return 0;
    if (!is_here(mail, to))
        return nodes_mail_write(mail->wire, to, data, bytes);
    struct ring *ring = ring_of(mail, to, mail->place->rank);
    const uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    const uint64_t used = written - atomic_load_explicit(&ring->read, memory_order_acquire);
    const size_t room = mail->bytes - (size_t)used, count = bytes < room ? bytes : room;
    const size_t at = (size_t)(written % mail->bytes);
    const size_t first = count < mail->bytes - at ? count : mail->bytes - at;
    if (count == 0)
        return 0;
    memcpy(ring->data + at, data, first);
    memcpy(ring->data, (const char *)data + first, count - first);
    atomic_store_explicit(&ring->written, written + count, memory_order_release);
    ring_bell(mail, to);
    return count;
}

size_t ddp_mail_read(ddp_mail *mail, int from, void *data, size_t bytes)
{
    if (!is_rank(mail, from))
        return 0;
    if (!is_here(mail, from))
        return nodes_mail_read(mail->wire, from, data, bytes);
    struct ring *ring = ring_of(mail, mail->place->rank, from);
    const uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    const size_t there =
        (size_t)(atomic_load_explicit(&ring->written, memory_order_acquire) - read);
    const size_t count = bytes < there ? bytes : there, at = (size_t)(read % mail->bytes);
    const size_t first = count < mail->bytes - at ? count : mail->bytes - at;
    if (count == 0)
        return 0;
    memcpy(data, ring->data + at, first);
    memcpy((char *)data + first, ring->data, count - first);
    atomic_store_explicit(&ring->read, read + count, memory_order_release);
    ring_bell(mail, from);
    return count;
}

uint32_t ddp_mail_changes(const ddp_mail *mail)
{
    return atomic_load(&bell_of(mail, mail->place->rank)->changes) +
           (mail->wire ? nodes_mail_changes(mail->wire) : 0);
}

/* Looks at both the bell and the wire. */
static enum ddp_status wait_for_wire(ddp_mail *mail, uint32_t changes, int timeout_ms)
{
    const int64_t deadline = ddp_deadline_ns(timeout_ms);
    int idle = 0;
    while (ddp_mail_changes(mail) == changes) {
        enum ddp_status status = nodes_mail_turn(mail->wire, &idle);
        if (status != DDP_OK)
            return status;
        if (ddp_deadline_passed(deadline))
            return DDP_ERR_TIMEOUT;
    }
    return DDP_OK;
}

enum ddp_status ddp_mail_wait(ddp_mail *mail, uint32_t changes, int timeout_ms)
{
    struct bell *bell = bell_of(mail, mail->place->rank);
    const struct ddp_comm_waiting waiting = {.stop = ddp_job_abort_word(mail->place->job),
                                             .spins = SPINS,
                                             .yields = YIELDS,
                                             .timeout_ms = timeout_ms};
    if (mail->wire)
        return wait_for_wire(mail, changes, timeout_ms);
    return ddp_comm_wait(&waiting, &bell->changes, changes + 1, &bell->sleepers);
}
