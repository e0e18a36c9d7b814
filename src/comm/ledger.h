/* SPDX-License-Identifier: MIT
 *
 * A record of what all ranks of a machine call, in a part of its heap that they map, and waiting
 * for each other. A rank is named here by its number on the machine, place->node_rank.
 *
 * Every call has a number. A rank announces it in its ring: an entry has the call, the place of the
 * buffer, and a small payload. A rank that waits for the others' entries compares them. If a call
 * then works in other ranks' memory, each rank counts up `done` and waits for the others' done.
 * A wait spins briefly and then sleeps on the word itself.
 *
 * A rank that does not wait may run far ahead of the others and overwrite its oldest entries; these
 * are no longer compared. */
#ifndef DDP_COMM_LEDGER_H
#define DDP_COMM_LEDGER_H

#include "comm/comm.h"

#include <stdatomic.h>

#define DDP_LEDGER_PAYLOAD    480
#define DDP_LEDGER_DIFFERENCE 240
#define DDP_LEDGER_NOWHERE    UINT64_MAX /* an offset: the buffer is not registered */

struct ddp_ledger_entry {
    _Alignas(64) _Atomic uint32_t sequence; /* number of the call + 1; while it is written, less */
    uint32_t spare;
    _Atomic uint64_t words[2]; /* what all ranks must agree on */
    uint64_t offset;           /* of the buffer in the heap */
    char payload[DDP_LEDGER_PAYLOAD];
};

/* One rank's part; only that rank writes it, except `sleepers`. */
struct ddp_ledger_line {
    _Alignas(64) _Atomic uint32_t done; /* number of the last call whose slice is complete, + 1 */
    _Atomic uint32_t sleepers;          /* ranks that sleep on a word of this line */
    struct ddp_ledger_entry ring[];
};

struct ddp_ledger {
    const struct ddp_comm_place *place;
    char *lines; /* by rank; NULL: not open */
    size_t line_bytes;
    uint32_t ring; /* entries, a power of two: how many calls back can be seen */
    void *rest;    /* the backend's own memory */
    size_t bytes;
    uint32_t next;     /* number of the next call */
    uint64_t calls;    /* a hash of all so far, which other machines' must equal */
    uint32_t compared; /* calls that ddp_ledger_compare() has found to be the same everywhere */
    int spins;         /* before a wait yields */
    int yields;        /* ... and before it sleeps */
    char difference[DDP_LEDGER_DIFFERENCE]; /* what was said about calls that differ */
};

/* Rank 0 makes the ledger, and the others find it through the communicator's slot of the machine's
 * ids.
 *   ring        see struct ddp_ledger
 *   rest_bytes  of memory for the backend: ledger->rest */
enum ddp_status ddp_ledger_open(struct ddp_ledger *ledger, const struct ddp_comm_place *place,
                                uint32_t ring, size_t rest_bytes);
void ddp_ledger_close(struct ddp_ledger *ledger);

/* Announces a call and returns its number. */
uint32_t ddp_ledger_post(struct ddp_ledger *ledger, const struct ddp_comm_call *call,
                         uint64_t offset, const void *payload, size_t payload_bytes);

static inline struct ddp_ledger_line *ddp_ledger_line(const struct ddp_ledger *ledger, int rank)
{
    return (void *)(ledger->lines + (size_t)rank * ledger->line_bytes);
}

/* The entry of a rank; offset and payload are valid once all have made that call. */
static inline struct ddp_ledger_entry *ddp_ledger_entry(const struct ddp_ledger *ledger, int rank,
                                                        uint32_t number)
{
    return &ddp_ledger_line(ledger, rank)->ring[number & (ledger->ring - 1)];
}

/* Waits until all ranks have announced `number`, and checks that they agree with `call`.
 * DDP_ERR_MISMATCH, DDP_ERR_ABORTED, DDP_ERR_TIMEOUT. */
enum ddp_status ddp_ledger_gather(struct ddp_ledger *ledger, uint32_t number,
                                  const struct ddp_comm_call *call);

/* Announces a call and waits until all others have. *number [out] */
enum ddp_status ddp_ledger_meet(struct ddp_ledger *ledger, const struct ddp_comm_call *call,
                                uint64_t offset, const void *payload, size_t payload_bytes,
                                uint32_t *number);

/* Tells all ranks whether this rank succeeded in a call that all have made: *status [in, out]
 * becomes the first failure of any. Returns what ddp_ledger_gather() does. */
enum ddp_status ddp_ledger_vote(struct ddp_ledger *ledger, const struct ddp_comm_call *call,
                                enum ddp_status *status);

/* The same without waiting, for the ranks that have called; *all [out]: all have. */
enum ddp_status ddp_ledger_look(struct ddp_ledger *ledger, uint32_t number, bool *all);

/* ... of all that this rank has called. */
enum ddp_status ddp_ledger_compare(struct ddp_ledger *ledger);

/* ": rank 2 has not arrived", or nothing. */
void ddp_ledger_missing(const struct ddp_ledger *ledger, uint32_t number, char *text, size_t size);

/* Notes that this rank's part of `number` is complete; says whether all ranks' are; waits until
 * they are. */
void ddp_ledger_done(struct ddp_ledger *ledger, uint32_t number);
bool ddp_ledger_all_done(const struct ddp_ledger *ledger, uint32_t number);
enum ddp_status ddp_ledger_wait_done(struct ddp_ledger *ledger, uint32_t number);

/* A call in words. */
void ddp_comm_describe(const struct ddp_comm_place *place, const struct ddp_comm_call *call,
                       char *text, size_t size);

/* What all ranks must agree on, and the message about this rank and another that do not:
 * DDP_ERR_MISMATCH. */
void ddp_comm_pack(const struct ddp_comm_call *call, uint64_t words[2]);
enum ddp_status ddp_comm_differ(const struct ddp_comm_place *place, uint32_t number,
                                const uint64_t own[2], int other, const uint64_t theirs[2]);

#endif
