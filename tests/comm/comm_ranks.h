/* SPDX-License-Identifier: MIT
 *
 * What the tests of communicators share: real processes that meet on a board as ddprun makes it,
 * with a communicator for the host's memory or for that of a device, and the rows that every
 * backend must pass (comm_rows.c). */
#ifndef DDP_TESTS_COMM_RANKS_H
#define DDP_TESTS_COMM_RANKS_H

#include "comm/comm.h"
#include "device/device.h"

#include <stdio.h>
#include <unistd.h>

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %s: %s\n", __FILE__, __LINE__, getenv("RANK"),            \
                    #condition);                                                                   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

typedef void ranks_body(ddp_comm *comm, ddp_job *job);

/* Before run_ranks(), for all that follow: the kind of device ("cuda"), and the communicator for
 * its memory. By default it is the host's memory. */
void ranks_use(const char *kind, const char *backend);

/* Called first of all in each process of those that follow: for the environment of one rank. */
extern void (*ranks_prepare)(int rank);

/* The device of this process, NULL: the host. Memory of it is read and written by the functions
 * below only. */
extern ddp_device *ranks_device;

/* Runs the body in `size` processes; a rank in `dies` may be killed (-1: none). The parent stands
 * in for the launcher: a death sets the abort word. */
void run_ranks(int size, ranks_body *body, int dies);

/* The same on several machines, as far as the ranks can tell: each has a board of its own, and the
 * parent also stands in for the connections of the launchers. A death, and an abort on one board,
 * set all abort words, unless the ranks are untold. */
extern bool ranks_untold;
void run_nodes(int nodes, int per_node, ranks_body *body, int dies);
/* The job has ended, or does within a minute: a rank may see that another one is gone before its
 * launcher says so. */
void ranks_need_end(ddp_job *job, int64_t start_ns);

/* `last` comes back when all other ranks of the group (NULL: of the job) have called this as often,
 * and moves nothing on meanwhile. All ranks call it, in groups of one shape. */
void ranks_come_last(const ddp_job *job, const struct ddp_comm_group *group, int last);

/* starts: (nodes + 1) the first rank of each machine, and the number of all. */
void run_starts(int nodes, const int *starts, ranks_body *body, int dies);

/* The same without a communicator: comm is NULL, and may be made by ranks_join(). */
void run_ranks_alone(int size, ranks_body *body, int dies);
void run_nodes_alone(int nodes, int per_node, ranks_body *body, int dies);
void run_starts_alone(int nodes, const int *starts, ranks_body *body, int dies);
enum ddp_status ranks_join(ddp_comm **comm, ddp_job *job);
enum ddp_status ranks_join_group(ddp_comm **comm, ddp_job *job, int first, int stride, int size);

void *ranks_alloc(size_t bytes); /* that is not registered */
void ranks_free(void *memory, size_t bytes);
void ranks_put(void *memory, const void *host, size_t bytes);
void ranks_get(void *host, const void *memory, size_t bytes); /* all that goes on is done then */
bool ranks_same(const void *memory, const void *expected, size_t bytes);

/* The values of a rank, of so many bits that sums round, and only the right order gives them. */
void ranks_values(void *host, size_t count, enum ddp_dtype dtype, int rank);
void ranks_fill(void *memory, size_t count, enum ddp_dtype dtype, int rank); /* ... there */

/* What an all-reduce over `size` ranks must give, on the host; for free(). */
void *ranks_expect(int size, size_t count, enum ddp_dtype dtype, enum ddp_redop op);
void *ranks_expect_of(const struct ddp_comm_group *group, size_t count, enum ddp_dtype dtype,
                      enum ddp_redop op); /* ... over ranks of the job */

/* --- comm_rows.c --- */

ranks_body row_collectives, row_overlap, row_slices, row_roots, row_returns, row_bf16, row_memory;
ranks_body row_only_read; /* on 2 ranks or more, which compute in the host's memory */

/* --- comm_channels.c, for communicators that have channels --- */

ranks_body row_channels;          /* on 2 ranks or more */
ranks_body row_channel_large;     /* on 2 ranks or more */
ranks_body row_channel_arguments; /* on any number */
ranks_body row_channel_overlap, row_channel_leaves;
ranks_body row_channel_crossing, row_channel_beside; /* on 3 ranks or more */
ranks_body row_channel_aborted;                      /* on 3 ranks */
enum { CHANNEL_MISMATCH_ROWS = 3 };
extern ranks_body *const channel_mismatch_rows[CHANNEL_MISMATCH_ROWS]; /* on 3 ranks */
extern ranks_body *const channel_timeout_rows[2];                      /* on 2 ranks */
extern ranks_body *const channel_killed_rows[2]; /* on 2 ranks or more, of which 1 dies */

/* --- comm_mail.c --- */

ranks_body row_mail; /* on any number */

/* --- comm_groups.c: stages of replicas; arguments and differ have no comm --- */

extern int groups_stages; /* the ranks are replicas of so many */
ranks_body row_groups;
ranks_body row_groups_beside;    /* on 2 replicas of 2 stages */
ranks_body row_groups_named;     /* on 2 replicas of 2 stages or more */
ranks_body row_groups_arguments; /* on 4 ranks of one machine */
ranks_body row_groups_killed;    /* rank 1 of 4 or more dies */
/* Machines, and replicas that lie in them, over them, and over several of them whole. */
extern const struct groups_grid {
    int nodes, per_node, stages;
} groups_grids[];
enum { GROUPS_GRIDS = 7 };
enum { GROUPS_DIFFER_ROWS = 5 };
extern ranks_body *const groups_differ_rows[GROUPS_DIFFER_ROWS]; /* on 4 ranks or more */

/* --- comm_mismatch.c --- */

/* On 3 ranks, and on 2 or more; every rank finds out. */
enum { MISMATCH_ROWS = 6 };
extern ranks_body *const mismatch_rows[MISMATCH_ROWS];

/* The message about two calls of two ranks: the pairs begin with this call. */
enum { WORDS_CALLS = 11 };
extern int words_first_call;
ranks_body row_words;

#endif
