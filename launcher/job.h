/* SPDX-License-Identifier: MIT
 *
 * A running job: the state of its workers, and what can be done to all of them. Shared by
 * supervise.c (the attempts), watch.c (the loop), signals.c and first_failure.c. */
#ifndef DDP_LAUNCHER_JOB_H
#define DDP_LAUNCHER_JOB_H

#include "job/board.h"
#include "launcher/children.h"
#include "launcher/shrink.h"
#include "launcher/keeper.h"
#include "launcher/output.h"
#include "launcher/launch_plan.h"
#include "launcher/spawn.h"
#include "launcher/terminal.h"

enum state {
    RUNNING,
    DOUBTING, /* a victim has exited, or one of many that fail alike: others may follow at once */
    ENDING,   /* SIGTERM is sent; SIGKILL follows at the deadline */
    KILLED,   /* SIGKILL is sent */
};

struct worker {
    pid_t pid; /* 0: not started */
    bool running;
    bool suspect; /* has failed, and whether it failed first is not judged yet */
    int64_t start_ns;
    int wait_status;
    long peak_kib; /* of its memory */
};

struct process {
    int pid;
    int parent;
    int owner;
    char state;    /* as in proc(5) */
    int64_t ticks; /* of CPU time */
};

/* What activity.c has seen of programs that do not use libddp. */
struct activity {
    struct process *list; /* of the machine, by number */
    int count;
    int capacity;
    int64_t *ticks; /* of each worker and of what ddprun has adopted; then how many processes */
    uint64_t written;
    int64_t looked_ns;
};

struct cluster;

struct job {
    struct launch_plan *plan;
    struct cluster *cluster; /* NULL: one node */
    struct ddp_board board;
    int board_fd;
    int heap_fd;
    struct children children;
    struct cgroup cgroup;
    struct keeper keeper;
    struct spawner spawner;
    struct terminal terminal;
    pid_t refused; /* the worker that could not have it, or 0 */
    struct output output;
    struct worker *workers;
    int running;
    int signal_fd;
    enum state state;
    int64_t start_ns; /* of this attempt */
    int64_t deadline_ns;
    uint64_t progress; /* of the board, as last seen */
    int64_t progress_ns;
    bool stepped;      /* a rank, of any node, has finished a step */
    int64_t watch_ns;  /* when it is looked at next */
    int64_t output_ns; /* when a program that does not use libddp wrote last; 0: not known */
    int64_t absent_ns; /* when to look for a rank that will not join; 0: none, INT64_MAX: told */
    struct activity activity;
    bool interrupted; /* by a signal to ddprun */
    int stop_request; /* the signal that asked the job to stop after a step, in this attempt or an
                         earlier one; 0: none */
    bool without_signal; /* ... which workers were told through the board alone */
    int held_signal;     /* a request to stop that waits until workers can take it; 0: none */
    int late_signal;  /* one that ends the job came when another attempt was to follow; 0: none */
    bool decided;     /* exit_code is */
    bool restartable; /* it failed in a way that may not come again */
    bool disk_full;   /* it failed for that, and would again */
    bool members_change; /* the next attempt has other nodes: nothing has failed */
    int exit_code;
    int failed_rank; /* the one that was named, or -1: on this machine; of the job over nodes */
    int exited_rank; /* the one that exited first, while others may do the same; or -1 */
    struct failures failures;
    long long kills_at_start; /* by the out-of-memory killer */
};

/* The job's exit code, unless there is one already. */
void job_decide(struct job *job, int exit_code);

/* Sends a signal to all workers that run, and to what they have started in their groups. */
void job_signal(const struct job *job, int signal);

/* What workers stop after a step for when the board asks for it; then they need no signal. */
enum job_accepts { JOB_ACCEPTS_STOP = 1, JOB_ACCEPTS_CHANGE = 2 /* to be started again */ };
uint32_t job_accepts(const struct job *job);
bool job_accepts_stop(const struct job *job);

/* Asks for that, in this attempt and in later ones. */
void job_request_stop(struct job *job, int signal);

/* Asks all workers to end; those that do not within the grace period are killed. */
void job_end(struct job *job, int signal);
void job_kill(struct job *job);

/* Logs where each worker is: the board, and their stacks. */
void job_show(const struct job *job);

/* Ctrl-Z: all stop, and continue together. Over several nodes none does. */
void job_pause(struct job *job);

void job_set_deadline(struct job *job, double seconds);

/* How long poll() may sleep until `deadline_ns`. */
int job_milliseconds(int64_t deadline_ns);

#endif
