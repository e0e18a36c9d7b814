/* SPDX-License-Identifier: MIT
 *
 * What all ranks call, in a part of the job's heap that they map, and waiting for each other.
 *
 * Every call has a number. A rank announces it in its ring: an entry carries what is called, where
 * the buffer lies, and a small payload. Whoever waits for the others' entries compares. Where the
 * calls then go on in each other's memory, a rank counts up `done` and waits for the others' done.
 * A wait spins briefly and then sleeps on the word itself.
 *
 * Who does not wait may run far ahead of the others, and then overwrites what it called a while
 * ago: that is not compared any more. */
#ifndef DDP_COMM_LEDGER_H
#define DDP_COMM_LEDGER_H

#include "comm/comm.h"

#include <stdatomic.h>

#define DDP_LEDGER_RING    128
#define DDP_LEDGER_PAYLOAD 464
#define DDP_LEDGER_NOWHERE UINT64_MAX /* an offset: the buffer is not registered */
#define DDP_LEDGER_WORDS   (DDP_COMM_AGREED_BYTES / sizeof(uint64_t))

struct ddp_ledger_entry {
    _Alignas(64) _Atomic uint32_t sequence; /* number of the call + 1; while it is written, less */
    uint32_t spare;
    _Atomic uint64_t words[DDP_LEDGER_WORDS]; /* what all ranks must agree on */
    uint64_t offset;                          /* of the buffer in the heap */
    char payload[DDP_LEDGER_PAYLOAD];
};

/* One rank's part; only that rank writes it, but for `sleepers`. */
struct ddp_ledger_line {
    _Alignas(64) _Atomic uint32_t done; /* number of the last call whose slice is complete, + 1 */
    _Atomic uint32_t sleepers;          /* ranks that sleep on a word of this line */
    struct ddp_ledger_entry ring[DDP_LEDGER_RING];
};

struct ddp_ledger {
    const struct ddp_comm_place *place;
    struct ddp_ledger_line *lines; /* by rank; NULL: not open */
    void *rest;                    /* what was asked for beside it */
    size_t bytes;
    uint32_t next;     /* number of the next call */
    uint32_t compared; /* calls that ddp_ledger_compare() has found to be the same everywhere */
    int spins;         /* before a wait sleeps */
};

/* Rank 0 makes the ledger, and the others find it through the communicator's id slot, which also
 * hands over an id of the backend's own.
 *   rest_bytes  of memory for the backend: ledger->rest
 *   id          [in] on rank 0, [out] on the others; id_bytes may be 0 */
enum ddp_status ddp_ledger_open(struct ddp_ledger *ledger, const struct ddp_comm_place *place,
                                size_t rest_bytes, void *id, size_t id_bytes);
void ddp_ledger_close(struct ddp_ledger *ledger);

/* Announces a call and returns its number. */
uint32_t ddp_ledger_post(struct ddp_ledger *ledger, const struct ddp_comm_call *call,
                         uint64_t offset, const void *payload, size_t payload_bytes);

/* The entry of a rank; offset and payload are valid once all have come to that call. */
static inline struct ddp_ledger_entry *ddp_ledger_entry(const struct ddp_ledger *ledger, int rank,
                                                        uint32_t number)
{
    return &ledger->lines[rank].ring[number % DDP_LEDGER_RING];
}

/* Waits until all ranks have announced `number`, and checks that they call the same.
 * DDP_ERR_MISMATCH, DDP_ERR_ABORTED, DDP_ERR_TIMEOUT. */
enum ddp_status ddp_ledger_gather(struct ddp_ledger *ledger, uint32_t number);

/* The same without waiting, of those who are there: *all [out] tells whether everybody is. */
enum ddp_status ddp_ledger_look(const struct ddp_ledger *ledger, uint32_t number, bool *all);

/* ... of all that this rank has called. */
enum ddp_status ddp_ledger_compare(struct ddp_ledger *ledger);

/* ": rank 2 has not arrived", or nothing. */
void ddp_ledger_missing(const struct ddp_ledger *ledger, uint32_t number, char *text, size_t size);

/* This rank's part of `number` is complete; is everybody's, and a wait for that. */
void ddp_ledger_done(struct ddp_ledger *ledger, uint32_t number);
bool ddp_ledger_all_done(const struct ddp_ledger *ledger, uint32_t number);
enum ddp_status ddp_ledger_wait_done(struct ddp_ledger *ledger, uint32_t number);

/* A call in words. */
void ddp_comm_describe(const struct ddp_comm_call *call, char *text, size_t size);

#endif
