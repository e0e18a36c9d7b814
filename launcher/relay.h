/* SPDX-License-Identifier: MIT
 *
 * Copies the workers' lines to where they are shown and to their log files, in a thread of its own,
 * so that a stopped terminal does not stop the supervision of the workers. Lines are whole:
 * no other line begins inside one. Memory is bounded, a buffer a stream: a worker that writes
 * faster than its reader reads has to wait. */
#ifndef DDP_LAUNCHER_RELAY_H
#define DDP_LAUNCHER_RELAY_H

#include "ddp.h"
#include "launcher/matching.h"

#include <stdatomic.h>
#include <stdint.h>

struct relay;

#define RELAY_PREFIX 64   /* bytes of a line's prefix, with the zero */
#define RELAY_TAIL   2048 /* bytes kept of the end of each stream */

struct relay_stream {
    int rank;
    int source;                   /* read end of the worker's pipe; the relay's from now on */
    int shown_on;                 /* STDOUT_FILENO, STDERR_FILENO, or -1: not shown */
    int file;                     /* log file, or -1; the relay's from now on */
    char *file_path;              /* of it, for messages; the relay's from now on */
    struct matching matching;     /* lines that go into one more file */
    char prefix[RELAY_PREFIX];    /* "" leaves the bytes as they are */
    const _Atomic uint32_t *bare; /* while not 0, lines have no prefix; or NULL */
};

/* `capacity`: the most streams there will be at a time. */
enum ddp_status relay_start(struct relay **relay, int capacity);

/* Rank 0 writes standard error to a terminal itself: when another rank's stream has ended with an
 * error text, the relay waits a moment for relay_failed_alike() before it shows that. */
void relay_lacks_rank_0(struct relay *relay);

/* All workers have failed in the same way: what rank 0 has written stands for the others. */
void relay_failed_alike(struct relay *relay);

/* Adds a stream; *slot [out] is its number. */
enum ddp_status relay_add(struct relay *relay, const struct relay_stream *stream, int *slot);

/* Waits until the stream has ended, for at most timeout_ms; copies the last bytes of it, whole
 * lines where possible. *in_sight [out]: they were shown just now. */
void relay_tail(struct relay *relay, int slot, int timeout_ms, char text[RELAY_TAIL + 1],
                bool *in_sight);

/* Bytes that all streams have brought so far. */
uint64_t relay_bytes(const struct relay *relay);

/* Asks for the end once everything is written; the descriptor becomes readable then. */
int relay_end(struct relay *relay);

/* Whether anything has been lost, in this process, because standard output, standard error (2) or a
 * log file could not be written. Each was logged once. A closed reader does not count. */
bool relay_has_lost(void);

/* Notes, and logs once, that a log file cannot be written; errno has the reason. */
void relay_lose_file(const char *path);

/* Joins the thread, after its end, and frees all. */
void relay_close(struct relay *relay);

#endif
