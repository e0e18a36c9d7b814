/* SPDX-License-Identifier: MIT
 *
 * What the files of the cluster share: joining.c has the link, verdict.c decides how an attempt
 * ends and when the next begins, members.c which nodes it has, cluster.c hears the others and
 * carries what is on the boards. */
#ifndef DDP_LAUNCHER_CLUSTER_STATE_H
#define DDP_LAUNCHER_CLUSTER_STATE_H

#include "job/mirror.h"
#include "launcher/cluster.h"
#include "launcher/exchange.h"
#include "launcher/link/link.h"

#include <limits.h>
#include <string.h>

#define COMMAND_BYTES 4096

/* Of link_text.flags. */
enum end_flag {
    END_RESTARTABLE = 1,
    END_DISK_FULL = 2,
    END_REFUSED = 4,  /* workers have said why themselves */
    END_SHOW = 8,     /* each node shows where its ranks are */
    END_AGAIN = 16,   /* another attempt follows */
    END_MEMBERS = 32, /* ... with other nodes */
};

/* A node, as node 0 sees it in this attempt. */
struct node_state {
    bool lost;    /* for good */
    bool done;    /* its workers have ended */
    bool ready;   /* for the next attempt */
    bool arrived; /* at the barrier */
    bool held;    /* has told its last step */
    bool leaves;  /* was asked to */
    bool left;    /* in order */
    uint32_t exit_code;
    int64_t alike; /* the wait status of all its workers, or -1 */
    struct board_times times;
};

/* What is meant by a signal to one ddprun: step of LINK_SIGNAL. */
enum signal_means {
    SIGNAL_PASSES,
    SIGNAL_KILLS,
    SIGNAL_LEAVES, /* that node alone leaves an elastic job */
};

enum hold {
    HOLD_NONE,
    HOLD_ASKED, /* node 0 waits for the last steps of all nodes */
    HOLD_NAMED, /* the step is named */
};

/* What a job whose nodes come and go needs besides. */
struct elastic {
    bool on;
    int least, most;  /* nodes */
    int most_workers; /* that the program has a use for, as it has said; 0: any number */
    bool spare_told;  /* node 0: that a node waits, which would bring more */
    /* Of node 0's door. */
    struct proof proof;
    char job[128], host[HOST_NAME_MAX + 1], command[COMMAND_BYTES];

    bool changing;       /* node 0: workers were asked to stop, because nodes wait */
    bool orphan;         /* elsewhere: node 0 is lost */
    bool leaving;        /* elsewhere: this node was asked to leave */
    int64_t leave_ns;    /* node 0: when nodes are let go that were asked to leave; 0: none was */
    int64_t wait_end_ns; /* node 0: until when it waits for more nodes; 0: there are enough */
    int64_t hold_ns;     /* node 0: for so long nodes wait, unless the job needs them */
    int64_t ended_ns;    /* node 0: when a node's connection ended without a word; 0: none has */
    int losses_in_a_row; /* node 0: of nodes soon after the members had changed */
    int64_t since_ns;    /* the members are these */
    /* Node 0: whether other nodes may go on without it (takeover.c). */
    int voters; /* the last members that all knew of each other, but for those that have ended */
    int silent; /* nodes lost since then that may live */
    int silent_new;    /* ... of which so many are no voters */
    int old;           /* so many members, the first, are voters */
    bool tie_is_lost;  /* a node 0 before this one may live */
    bool confirmed;    /* the members know of each other */
    int expected;      /* of a new node 0: members that come back */
    int64_t return_ns; /* ... until when; 0: they are there */
    int members;       /* of the last attempt */
    int stayed;        /* node 0: of these, the first, so many were members before */

    int64_t pause_ns; /* node 0: since when no workers run */
    /* Node 0, for the end. */
    int came, lost, left;
    int64_t paused_ns; /* in all, without workers */
    int changes;
    char history[512]; /* "3 nodes for 12 s, 2 nodes for 4 s" */
};

struct cluster {
    struct exchange exchange; /* closed last: see exchange.h */
    struct link *link;
    int node, count;
    int bell_fd;
    struct elastic elastic;
    bool open; /* there is a board */
    struct ddp_mirror mirror;
    struct node_state *nodes; /* (count), on node 0 */

    /* Of this attempt. */
    enum hold hold;
    int64_t last_step;  /* node 0, while asked: the highest that any rank has passed */
    bool barrier_asked; /* a rank wants to leave the round: node 0 knows */
    bool told_done;     /* our workers have ended */
    bool told_ready;    /* for the next attempt */
    bool refused;       /* one of ours has said why it failed */
    int reported;       /* enum suspicion of what we have reported, or -1 */
    size_t shown;       /* of that text */
    bool ended, again;  /* the end is known; the job is started again */
    bool suspected;     /* node 0: there is a suspect */
    int64_t verdict_ns; /* node 0: when it is named, if nothing worse comes */
    int64_t status_ns;  /* when our status was set last */
    int asked_signal;   /* that a request of another node has come as, and when */
    int64_t asked_ns;
    int passed_signal; /* the last that another node has passed on, and when */
    int64_t passed_ns;
    uint32_t restart_port;    /* that RESTART has brought; 0: it has not come */
    struct link_text suspect; /* node 0: what most probably failed first */
};

/* To all other nodes on node 0, elsewhere to node 0. */
void cluster_tell(const struct job *job, enum link_kind kind, uint32_t number, int64_t step);

/* Our status, and that of the others on node 0's board. */
void cluster_refresh(struct job *job);

/* --- verdict.c --- */

/* As far as its text goes. */
static inline size_t cluster_text_bytes(const struct link_text *text)
{
    return offsetof(struct link_text, text) + strlen(text->text) + 1;
}

/* Node 0: what a node reports, itself included. */
void verdict_consider(struct job *job, const struct link_text *failure);

/* Node 0: the workers of a node have ended. */
void verdict_node_done(struct job *job, int node, const struct link_step *done);

/* A node is lost, or takes this one for lost (cut). */
void verdict_lost(struct job *job, int node, const char *why, bool cut);

/* Node 0's decision: all hear it. */
void verdict_decide(struct job *job, struct link_text *end);

/* Node 0 has decided. */
void verdict_end(struct job *job, const struct link_text *end);

/* Node 0: the time for worse suspects is over. */
void verdict_tick(struct job *job);

/* Node 0: ends the attempt, because nodes wait. */
void verdict_change(struct job *job);

/* --- joining.c --- */

/* A member that has lost node 0, between two attempts: becomes the next one, or joins it. False:
 * this node is out, with job->exit_code. */
bool cluster_succeed(struct job *job);

/* --- takeover.c --- */

/* Node 0 is lost to this node, which may go on without it. False: the job ends here. */
bool takeover_begin(struct job *job, const char *why, struct link_text *end);

/* Until when members come back to a new node 0: they see the loss of the last one, and end their
 * workers, at different times. */
double takeover_seconds(const struct job *job);

/* This node is node 0 from now on. */
void takeover_take(struct job *job, const struct link_succession *succession);

/* Node 0: all members know of each other now, or a node is lost or has left. */
void takeover_note_members(struct job *job);
void takeover_note_loss(struct job *job, int node);

/* Node 0: so many nodes are the next members. */
void takeover_form(struct job *job, int nodes);

/* The new node 0: whether members may still come back. */
bool takeover_waits(struct job *job);

/* Node 0: whether most may go on without it, so that it must not; with *end [out]. */
bool takeover_forbids(const struct job *job, struct link_text *end);

/* --- members.c --- */

/* The members have been formed: our part among them. */
void members_take_part(struct job *job);

/* Node 0, of an elastic job: a node is lost. True: that ends the attempt, with *end [out]. */
bool members_lost(struct job *job, int node, const char *why, struct link_text *end);

/* Node 0: a node was asked to leave. False: too few would be left. */
bool members_leave(struct job *job, int node);

/* Node 0: nodes wait that can be let in, or want to leave, and it is time to ask the workers to
 * end. */
bool members_wait(struct job *job);

/* Node 0: do all of an attempt end because nodes come or leave? */
bool members_end(const struct job *job, const struct link_text *end);

/* Node 0: does the job go on without the node whose worker has failed before any step was done,
 * because it has just come? It is told that this is its end. */
bool members_refuse(struct job *job, const struct link_text *end);

/* Node 0, between two attempts: forms the members when all nodes are ready and enough. False: they
 * are not yet; an exit code in *end [out]: they will not be. */
bool members_form(struct job *job, struct link_text *end);

/* Node 0: a node has been silent for so long that it may be lost. */
bool members_doubtful(const struct job *job);

/* No workers run from now on. */
void members_pause(struct job *job);

/* The end: how it went. */
void members_report(const struct job *job);

#endif
