/* SPDX-License-Identifier: MIT
 *
 * The board: one sealed memfd in which the launcher and its workers meet. This header owns its
 * layout and what the launcher does with it; a worker's side is job.h. Everything is an atomic
 * word, so that a reader never sees more than old values; each worker writes only its own line. The
 * launcher trusts nothing that it reads here: the number of workers and the size come from its own
 * memory, text is copied, cut and cleaned. */
#ifndef DDP_JOB_BOARD_H
#define DDP_JOB_BOARD_H

#include "ddp.h"

#include "job/job.h"

#include <stdatomic.h>

#define DDP_BOARD_MAGIC     UINT64_C(0x31647262706464) /* "ddpbrd1" */
#define DDP_BOARD_VERSION   9u
#define DDP_BOARD_MAX_WORLD 4096
#define DDP_BOARD_FAULTS    16
#define DDP_BOARD_ERRORS    16
#define DDP_BOARD_WORDS     2 /* 64-bit words of a name: 15 bytes and a zero */
#define DDP_BOARD_NAME      (DDP_BOARD_WORDS * 8)

/* In accepts_stop of a line: no words that a stray pointer is likely to write. */
#define DDP_BOARD_ACCEPTS_STOP   UINT32_C(0x73746f70)
#define DDP_BOARD_ACCEPTS_CHANGE UINT32_C(0x6368616e)

#define DDP_BOARD_FD_VARIABLE "DDPRUN_BOARD_FD"
#define DDP_HEAP_FD_VARIABLE  "DDPRUN_HEAP_FD"
#define DDP_COPY_FD_VARIABLE  "DDPRUN_COPY_FD" /* a memfd, where the job may be restarted */
#define DDP_BELL_FD_VARIABLE  "DDPRUN_BELL_FD" /* an eventfd, where the job has several nodes */
#define DDP_ISLAND_VARIABLE   "DDPRUN_ISLAND"  /* ranks that NVLink joins; or unset */

/* Values of the abort word: 0, the rank that gave up plus one, or the launcher. */
#define DDP_ABORT_BY_LAUNCHER UINT32_MAX

/* Longest nap in a wait: how late an abort or a deadline can be noticed. */
#define DDP_WAIT_SLICE_NS 20000000

/* The barrier word: round << 16 | ranks of this machine that are here. Over several nodes the last
 * of them does not open the round: the launcher seals it, and nobody leaves a sealed round until
 * the launchers have opened it on all boards, or have taken the seal off because a rank asked. */
#define DDP_BARRIER_SEALED UINT32_C(0x8000)
#define DDP_BARRIER_ASKED  UINT32_C(0x4000)
#define DDP_BARRIER_COUNT  UINT32_C(0x3fff)

/* Of the hold word. */
enum ddp_board_hold {
    DDP_HOLD_NONE = 0,
    DDP_HOLD_SET = 1,     /* a rank that is about to begin a step waits */
    DDP_HOLD_DECIDED = 2, /* stop_step is there */
};

enum ddp_board_flag {
    DDP_BOARD_TIMES = 1,      /* workers time each collective, for the straggler report */
    DDP_BOARD_ONE_SPEAKS = 2, /* an error that several ranks find is logged by one of them */
};

enum ddp_fault_kind {
    DDP_FAULT_NONE = 0,
    DDP_FAULT_KILL = 1, /* SIGKILL to itself */
    DDP_FAULT_STOP = 2, /* SIGSTOP to itself */
    DDP_FAULT_EXIT = 3, /* _exit(value) */
    DDP_FAULT_SLOW = 4, /* sleeps value milliseconds at each step */
};

/* A fault that a worker acts out when it reports `step` (-1: any); written before any worker
 * starts. */
struct ddp_board_fault {
    uint32_t kind;
    int32_t rank; /* -1: all */
    int64_t step;
    int64_t value;
};

/* An error that a rank has logged, or is about to. */
struct ddp_board_error {
    _Atomic uint64_t key;     /* 0: empty */
    _Atomic int64_t said_ns;  /* 0: not yet */
    _Atomic uint32_t speaker; /* its rank plus one */
    uint32_t spare;
};

enum ddp_post_state {
    DDP_POST_EMPTY = 0,
    DDP_POST_WRITING = 1,
    DDP_POST_READY = 2,
    DDP_POST_STATES = 4, /* times the edition: the next process of a rank has another address */
};

/* What one rank writes and others wait for: an id, once, or where the rank can be reached from
 * other machines. The data lie behind it. */
struct ddp_board_post {
    _Atomic uint32_t state; /* futex: enum ddp_post_state, and the edition */
    _Atomic uint32_t bytes;
};

struct ddp_board_id {
    _Alignas(64) struct ddp_board_post post;
    unsigned char data[DDP_ID_MAX_BYTES];
};

/* With a hash of it before it: what damage makes of one may take a library of networks down. */
#define DDP_BOARD_ADDRESS_BYTES (sizeof(uint64_t) + DDP_ADDRESS_MAX_BYTES)

struct ddp_board_address {
    _Alignas(64) struct ddp_board_post post;
    unsigned char data[DDP_BOARD_ADDRESS_BYTES];
};

/* A board is one machine's, which runs `workers` of the job's `size`, from rank `first` on. */
struct ddp_board_shape {
    int workers;
    int node, nodes; /* of the machines */
    int first, size;
};

/* One worker's line. Progress and collective have cache lines of their own; `sequence` is odd
 * while the words after it change. */
struct ddp_board_line {
    _Alignas(64) _Atomic uint32_t sequence;
    _Atomic int32_t pid; /* 0: has not joined */
    _Atomic int64_t step;
    _Atomic int64_t changed_ns;
    _Atomic uint64_t phase[DDP_BOARD_WORDS];
    _Atomic uint32_t closed;

    _Alignas(64) _Atomic uint32_t collective_sequence;
    _Atomic uint32_t inside;  /* 1 between enter and leave */
    _Atomic uint64_t entered; /* collectives entered so far */
    _Atomic uint64_t number;
    _Atomic uint64_t bytes;
    _Atomic int64_t enter_ns;
    _Atomic uint64_t name[DDP_BOARD_WORDS];
    _Atomic uint64_t group; /* struct ddp_job_group, 16 bits each; 0: all ranks */

    _Alignas(64) _Atomic int64_t leave_ns; /* with DDP_BOARD_TIMES only, as are those below */
    _Atomic int64_t wait_ns;               /* in all collectives together */
    _Atomic uint64_t timed;
    _Atomic int32_t started;       /* by the launcher: the process that it made; 0: none yet */
    _Atomic uint32_t accepts_stop; /* DDP_BOARD_ACCEPTS_STOP: a request on the board is heard;
                                    * _CHANGE: if the workers are started again then */
    _Atomic uint32_t disk_full;    /* 1: it failed because a disk is full */
    _Atomic uint32_t told;         /* 1: it has logged an error, or another rank did for it */
    _Atomic int64_t passed;        /* several nodes: the last step that it may begin */
    _Atomic uint64_t finished;     /* steps: each was reported as one more than that before */
    _Atomic uint64_t slots;        /* id slots that its communicators have taken */
    _Atomic uint64_t arrived[DDP_ID_SLOTS]; /* by slot of the group: collectives entered so far */
};

#define DDP_BOARD_HOST_WORDS 8 /* of the name of a host: 63 bytes and a zero */

/* What node 0 knows of a node, for "ddprun status". */
struct ddp_board_node {
    _Alignas(64) _Atomic int64_t heard_ns;
    _Atomic int64_t lowest, highest; /* steps of its ranks; -1: none */
    _Atomic uint32_t running;        /* workers */
    uint32_t first;                  /* rank of its workers; all machines know that */
    _Atomic uint64_t phase[DDP_BOARD_WORDS];
    _Atomic uint64_t host[DDP_BOARD_HOST_WORDS];
};

/* Of a job whose nodes come and go; most: 0: it is no such job. */
struct ddp_board_members {
    uint32_t least, most; /* nodes */
    /* On node 0, for "ddprun status": */
    uint32_t came, left, lost;
    uint32_t spare;
    int64_t paused_ns; /* without workers */
};

/* fstat's st_dev and st_ino; both 0: there is none. */
struct ddp_board_file {
    uint64_t device, inode;
};

struct ddp_board_memory {
    uint64_t magic;
    uint32_t version;
    uint32_t workers; /* as in struct ddp_board_shape */
    uint32_t node, nodes;
    uint32_t first, size;
    uint64_t bytes;
    int64_t start_ns;
    _Atomic uint32_t most_workers; /* of the job that the program has a use for; 0: any number */
    uint32_t restart;              /* 0, then one more for each restart of the job */
    uint32_t first_size;           /* workers of the job in its first attempt; 0: not known */
    uint32_t flags;                /* enum ddp_board_flag */
    uint32_t fault_count;
    /* Which files the heap and the copy are. */
    struct ddp_board_file heap, copy;
    struct ddp_board_members members;
    _Atomic uint64_t begun_before; /* the run that had begun in an attempt before; 0: none */
    _Atomic uint64_t begun;        /* ... that has begun in this one */

    _Alignas(64) _Atomic uint32_t abort_word;
    _Alignas(64) _Atomic uint64_t heap_next;
    _Alignas(64) _Atomic uint32_t barrier;      /* futex: round << 16 | ranks that are here */
    _Alignas(64) _Atomic uint32_t sole_output;  /* only rank 0 writes to standard output */
    _Alignas(64) _Atomic uint32_t stop_request; /* the job is asked to end after a step */
    _Atomic uint32_t bar_columns;               /* of the progress bar that rank 0 shows; 0: none */
    _Atomic int64_t stop_step;                  /* the step that no rank starts; INT64_MAX: none */
    _Atomic uint32_t hold;                      /* futex: enum ddp_board_hold; several nodes */

    struct ddp_board_error errors[DDP_BOARD_ERRORS];
    struct ddp_board_fault faults[DDP_BOARD_FAULTS];
    struct ddp_board_id ids[DDP_ID_SLOTS];      /* the job's, the same on all boards */
    struct ddp_board_id node_ids[DDP_ID_SLOTS]; /* this machine's */
    struct ddp_board_line lines[];              /* (workers) */
    /* Then, where nodes > 1: struct ddp_board_address (size), by rank, and
     * struct ddp_board_node (nodes). */
};

/* A mapped board. */
struct ddp_board {
    struct ddp_board_memory *memory;
    size_t bytes;
    struct ddp_board_shape shape;
};

/* Of the first worker on this machine. */
static inline int ddp_board_first_rank(const struct ddp_board *board)
{
    return board->shape.first;
}

static inline int ddp_board_job_size(const struct ddp_board *board)
{
    return board->shape.size;
}

/* Of the job, that the program has a use for; 0: any number. */
static inline int ddp_board_most_workers(const struct ddp_board *board)
{
    const uint32_t most = atomic_load(&board->memory->most_workers);
    return most < DDP_BOARD_MAX_WORLD ? (int)most : 0;
}

/* Of a rank of the job; nodes > 1. */
static inline struct ddp_board_post *ddp_board_address(const struct ddp_board *board, int rank)
{
    return &((struct ddp_board_address *)&board->memory->lines[board->shape.workers])[rank].post;
}

/* Whether the state is of data that are there; of which edition. */
static inline bool ddp_post_ready(uint32_t state)
{
    return state % DDP_POST_STATES == DDP_POST_READY;
}

static inline uint32_t ddp_post_edition(uint32_t state)
{
    return state / DDP_POST_STATES;
}

static inline unsigned char *ddp_board_data(struct ddp_board_post *post)
{
    return (unsigned char *)(post + 1);
}

/* Of a node; nodes > 1. */
static inline struct ddp_board_node *ddp_board_node(const struct ddp_board *board, int node)
{
    return (struct ddp_board_node *)ddp_board_address(board, ddp_board_job_size(board)) + node;
}

/* A copy of one line, safe to print. */
struct ddp_board_view {
    int pid;     /* of the process that joined, or 0 */
    int started; /* of the process that was started; the same unless it started the program */
    bool closed;
    bool disk_full;
    bool told; /* an error of its own is on standard error */
    int64_t step;
    uint64_t finished; /* steps */
    int64_t changed_ns;
    char phase[DDP_BOARD_NAME];
    bool inside;
    uint64_t entered;
    uint64_t number;
    uint64_t bytes;
    int64_t enter_ns;
    char name[DDP_BOARD_NAME];
    struct ddp_job_group group; /* of size 0: all ranks */
    int64_t wait_ns;
    uint64_t timed;
};

/* --- the launcher's side --------------------------------------------------------------------- */

/* Makes the board of a machine and maps it. *fd [out] is close-on-exec until a child clears that.
 *   starts  (nodes + 1): the first rank of each machine, and the number of all */
enum ddp_status ddp_board_create(struct ddp_board *board, int *fd, const int *starts, int node,
                                 int nodes);

/* Makes the empty memfd for the heap, close-on-exec. */
enum ddp_status ddp_board_create_heap(struct ddp_board *board, int *fd);

/* Makes the empty memfd in which workers may leave what those of the next attempt begin with,
 * close-on-exec. It outlives boards: each is told of it. */
enum ddp_status ddp_board_create_copy(int *fd);
void ddp_board_know_copy(struct ddp_board *board, int fd);

/* Whether the descriptor is that file, and not another. */
bool ddp_board_is_file(const struct ddp_board_file *file, int fd);

/* Maps the board behind an inherited descriptor after checking that it is one. DDP_ERR_INVALID says
 * what is wrong with it, in terms of `source`, such as "DDPRUN_BOARD_FD=5". */
enum ddp_status ddp_board_attach(struct ddp_board *board, int fd, const char *source);

void ddp_board_unmap(struct ddp_board *board);

/* The first rank of each machine, and the number of all. False: the board is damaged.
 *   starts [out]  (nodes + 1) */
bool ddp_board_starts(const struct ddp_board *board, int *starts);

/* Takes the job down: sets the abort word (the first caller's value stays) and wakes all that sleep
 * on the board. */
void ddp_board_abort(struct ddp_board *board, uint32_t by);

/* Copies the line of a worker in [0, workers): not a rank of the job. */
void ddp_board_read(const struct ddp_board *board, int rank, struct ddp_board_view *view);

/* How many collectives of a view's group that worker has arrived at. */
uint64_t ddp_board_arrived(const struct ddp_board *board, int rank,
                           const struct ddp_job_group *group);

/* --- for both sides -------------------------------------------------------------------------- */

/* Writes what is posted, which fits, and wakes who waits. False: this edition has been written. */
bool ddp_board_put(struct ddp_board_post *post, uint32_t edition, const void *data, size_t bytes);

/* Stores a text in so many words, cut to fit; loads one, cut and with anything unprintable
 * replaced. */
void ddp_board_store_text(_Atomic uint64_t *words, int count, const char *text);
void ddp_board_load_text(const _Atomic uint64_t *words, int count, char *text);

#endif
