/* SPDX-License-Identifier: MIT
 *
 * A job over several nodes, as one ddprun of it sees it: what it tells the others, what it hears,
 * and on node 0 what follows for all. Every function does nothing where the job has one node. The
 * protocol is described in cluster.c. */
#ifndef DDP_LAUNCHER_CLUSTER_H
#define DDP_LAUNCHER_CLUSTER_H

#include "launcher/board_table.h"
#include "launcher/job.h"

#include <poll.h>

/* How sure it is that a worker failed first. */
enum suspicion {
    VICTIM,    /* gave up because another rank had failed */
    PREEMPTED, /* stopped on request, as the others will */
    EXITED,
    SIGNALED,
    ABORTED, /* took the job down itself */
    CERTAIN, /* no worker at all, but ddprun, or a node */
};

#define CLUSTER_FDS 2

/* Joins the other nodes; waits for them. DDP_ERR_ABORTED: a signal came that ends the job,
 * or the job has ended while this node waited for a place. */
enum ddp_status cluster_open(struct job *job);

/* Leaves them. They have been told how the job ended. */
void cluster_close(struct job *job);

/* An attempt begins. And when there is a board, but no worker yet; and when the board goes. */
void cluster_begin(struct job *job);
void cluster_start(struct job *job);
void cluster_pause(struct job *job);

/* What poll() waits for, besides; and when it must return. */
void cluster_watch(const struct job *job, struct pollfd fds[CLUSTER_FDS]);
int64_t cluster_deadline_ns(const struct job *job);

/* Does what is due: takes what workers have posted and what other nodes have sent. The board is
 * mapped. */
void cluster_work(struct job *job);

/* Whether the end of this attempt is not known yet, though this node's workers may have ended. */
bool cluster_waits(const struct job *job);

/* The workers of this node have ended; job->exit_code is what they ended with. */
void cluster_done(struct job *job);

/* Node 0: the first rank of a node whose workers have all ended well, without joining; else
 * `absent`. *waits becomes true where ranks of another node have joined. */
int cluster_find_absent(const struct job *job, int absent, bool *waits);

/* Something failed on this node. What is to be done comes as END.
 *   local  the worker, or -1
 *   text   what every ddprun shows; its first line may be replaced */
struct cluster_failure {
    enum suspicion how;
    int local;
    int exit_code;
    bool restartable, disk_full;
    bool refused;     /* the worker has said why, and other nodes' workers may have too */
    const char *text; /* lines; "" : nothing */
    size_t shown;     /* so much of it is to be shown here: the rest is in sight */
};

/* True: the job has several nodes, and the failure was reported to them; or a worse one was before.
 */
bool cluster_fail(struct job *job, const struct cluster_failure *failure);

/* The same of what certainly came first, here: `what` follows the name of the node. */
bool cluster_fail_here(struct job *job, int local, int exit_code, const char *what);

/* Whether this, or something surer, has been reported in this attempt. */
bool cluster_has_reported(const struct job *job, enum suspicion how);

/* A request to stop after a step, which came as this signal. */
void cluster_request_stop(struct job *job, int signal);

/* Has another node, just now, asked for that because of the same signal? Whoever sent it sends it
 * to every ddprun; the next one is another. */
bool cluster_has_asked(struct job *job, int signal);

/* A signal to ddprun that ends the job, or kills its workers, or is passed on to them. True: it is
 * for all nodes; those that end the job come back through signals_from_node(), or as a request to
 * stop where workers of any node accept that. */
bool cluster_signal(struct job *job, int signal, bool kills);

/* Of an elastic job, on a node other than node 0: a signal that asks this node alone to leave.
 * False: it means all. */
bool cluster_leave(struct job *job, int signal);

/* Whether this node was asked to leave, and is not to be in the next attempt. */
bool cluster_leaves(const struct job *job);

/* When any node made progress last, as far as it is known on node 0; elsewhere, this node. */
int64_t cluster_moved_ns(const struct job *job);

/* Node 0: whether a rank of another node has finished a step in this attempt. */
bool cluster_stepped(const struct job *job);

/* Tells the board of an elastic job that it is one, and on node 0 how many nodes have come. */
void cluster_note_members(const struct job *job);

/* Node 0 ends the job because nothing moves. */
void cluster_hangs(struct job *job, const char *text);

/* "node 1 (host)"; "" where there is one node. Valid until the next call. */
const char *cluster_node_name(const struct job *job, int node);

/* Between two attempts: this node is ready for the next. True: all are, and it begins now. */
bool cluster_ready(struct job *job);

/* Between two attempts: whether the job has ended meanwhile, with job->exit_code. */
bool cluster_over(const struct job *job);

/* MASTER_PORT of the next attempt; 0: one node. */
int cluster_restart_port(const struct job *job);

/* A signal ends the job between two attempts. True: node 0 was told, and will end it. */
bool cluster_end(struct job *job, int signal);

/* Node 0, --straggler-report: adds what the workers of other nodes have waited, as far as it is
 * known. */
void cluster_add_times(const struct job *job, struct board_times *times);

#endif
