/* SPDX-License-Identifier: MIT
 *
 * What will be started: the program's path, how many workers, which device each gets, the
 * environment of each. Made once, before the first fork; no process is touched here. */
#ifndef DDP_LAUNCHER_LAUNCH_PLAN_H
#define DDP_LAUNCHER_LAUNCH_PLAN_H

#include "job/board.h"
#include "launcher/bind.h"
#include "launcher/devices.h"
#include "launcher/system/mark.h"
#include "launcher/place.h"
#include "launcher/python.h"
#include "launcher/settings.h"

#include <net/if.h>

struct launch_plan {
    const struct settings *settings;
    char *program;      /* the file to execute */
    char *const *argv;  /* its arguments; after the Python interpreter if one is needed */
    char **python_argv; /* the same, when it is ours */
    int nproc;          /* workers of this machine */
    int cores;
    int quota;              /* of CPU time, in cores; 0: none */
    struct devices devices; /* looked for only when something depends on them */
    bool devices_found;     /* they have been looked for */
    bool own_device;        /* each worker sees only its own device */
    bool oversubscribed;    /* there are more workers than devices, assigned in turn */
    bool own_list;          /* workers are told of them: some are lost, or others come first */
    int island;             /* ranks on end that only NVLink joins; 0: none */
    struct bindings bindings;

    /* Its part in a job on several machines. Before they have met: as if each had `nproc`. */
    int node, node_count;                 /* 0 and 1 where there is one */
    int starts[DDP_BOARD_MAX_WORLD + 1];  /* (node_count + 1): first ranks, and all workers */
    int first_rank;                       /* of this machine's workers */
    int job_size;                         /* workers of all */
    char master_addr[PLACE_ADDRESS_SIZE]; /* of several nodes: as the link finds it */
    int master_port;                      /* 0: not known before the nodes have met */
    char interface[IF_NAMESIZE];          /* of the link; "": none, or not known yet */
    const struct place *place;            /* the caller's */
    int bell_fd;                          /* for the workers; -1: one node, or a mere plan */
    int copy_fd;                          /* likewise; -1: no restarts, or a mere plan */

    bool runs_python;     /* the program is the interpreter */
    struct python python; /* what is arranged for it; nothing in a mere plan */
    char mark[MARK_SIZE]; /* of the job; "" in a mere plan */
    int restart;          /* how often the job has been restarted */
    int first_size;       /* workers of all nodes in the first attempt; 0: this is it */
    uint64_t begun;       /* the run that workers have begun, as they name it; 0: none */
    int failures;         /* ... because something failed, not because its nodes have changed */
};

/* Makes the plan. What only the link can tell is added when the nodes have met: master_addr,
 * master_port and interface. *exit_code [out], on failure: what ddprun returns. */
enum ddp_status launch_plan_make(struct launch_plan *plan, const struct settings *settings,
                                 const struct place *place, int *exit_code);
/* Prepares for another start of the job, with plan->nproc workers: on one machine a free port
 * again, if it was our choice, and new bindings if `changed`, the number of workers or what they
 * run on. */
enum ddp_status launch_plan_next(struct launch_plan *plan, bool changed);

/* Which node of how many this machine is, in the next attempt; plan->starts says where each begins.
 */
void launch_plan_take_part(struct launch_plan *plan, int node, int node_count);

/* A fault of a rank that there is not would never come: DDP_ERR_INVALID. */
enum ddp_status launch_plan_check_faults(const struct launch_plan *plan, int *exit_code);

void launch_plan_free(struct launch_plan *plan);

/* A port that nothing listens on now. */
int launch_plan_free_port(void);

/* Logs which CPUs each worker gets. */
void launch_plan_report_bindings(const struct launch_plan *plan);

/* Prints what would be started. */
void launch_plan_print(const struct launch_plan *plan, FILE *out);

/* The environment of a worker: ours without what it replaces. One block, freed with free(); the
 * strings that are not ours point into environ. NULL (logged) without memory.
 * `error_file`: where the worker may leave a reason for its failure, or NULL. */
char **launch_plan_environment(const struct launch_plan *plan, int rank, int board_fd, int heap_fd,
                               const char *error_file);

#endif
