/* SPDX-License-Identifier: MIT
 *
 * ddprun's command line: what the user asked for, before anything is known about the machine. */
#ifndef DDP_LAUNCHER_SETTINGS_H
#define DDP_LAUNCHER_SETTINGS_H

#include "core/options.h"
#include "job/board.h"

/* Exit codes of ddprun's own failures; all others are a worker's. As in env(1), nohup(1) and
 * timeout(1). */
enum {
    EXIT_LEFT = 1, /* a rank has ended with 0 while others need it, or without closing the job */
    EXIT_USAGE = 2,
    EXIT_HANG = 124,
    EXIT_LAUNCHER = 125,
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
};

enum nproc_kind {
    NPROC_AUTO, /* a worker for each visible GPU; without one, for each core up to NPROC_AUTO_CORES
                 */
    NPROC_COUNT,
    NPROC_GPU,
    NPROC_CPU,
};

#define NPROC_AUTO_CORES 8

enum bind_kind {
    BIND_AUTO, /* BIND_NUMA where that puts the workers of GPUs near these, else BIND_NONE */
    BIND_NONE,
    BIND_CORE,   /* cores of its own for each worker */
    BIND_NUMA,   /* a NUMA node for each worker, which others may share */
    BIND_SOCKET, /* a whole socket for each worker, which others may share */
    BIND_L3,     /* the cores of one L3 cache for each worker, its own where there are enough */
    BIND_GPU,    /* as BIND_CORE, and an error when it is not known which are near its GPU */
};

struct settings {
    bool help;
    bool version;
    bool use_env;     /* accepted, without effect */
    bool standalone;  /* one machine, whoever started us */
    int nnodes;       /* 0: not given */
    int least_nnodes; /* fewer, when nodes come and go; 0: they do not */
    int node_rank;    /* -1: not given */
    bool virtual_local_rank;
    bool oversubscribe;
    enum nproc_kind nproc_kind;
    int nproc;
    int64_t min_nproc; /* 0: never fewer than at the start */
    int bind;          /* enum bind_kind */
    bool report_bindings;
    double grace_seconds;
    double timeout_seconds;       /* 0: no limit */
    double setup_timeout_seconds; /* the limit until a step is finished, if it is longer */
    bool straggler_report;
    int64_t max_restarts;
    const char *master_addr;     /* of node 0; NULL: not given */
    const char *local_addr;      /* on node 0: what it listens on; NULL: not given */
    const char *rdzv_endpoint;   /* HOST:PORT, where --master-addr is not given */
    int64_t master_port;         /* of node 0; 0: not given */
    double node_timeout_seconds; /* until all nodes have joined */
    const char *key_file;
    bool insecure_link;
    bool explain_launch;
    bool no_python;
    bool module;
    bool run_path; /* the program is a Python script, whatever its name */
    bool dry_run;
    double monitor_seconds; /* as for torchrun; nothing is polled */
    const char *run_id;
    const char *ignored; /* what torchrun takes and ddprun does not need */
    struct ddp_board_fault faults[DDP_BOARD_FAULTS];
    const char *fault_texts[DDP_BOARD_FAULTS]; /* as the user wrote them, in fault_text */
    char fault_text[1024];
    int fault_count;
    const char *log_dir;
    const char *redirects; /* checked: see settings_streams() */
    const char *tee;
    const char *prefix_template; /* NULL: that of the environment, or the default */
    const char *stdout_filters;  /* lines with one of these texts go into one more file */
    const char *stderr_filters;
    const char *filter; /* checked: see settings_shown() */
    const char *role;
    uint64_t ending_signals; /* besides the usual ones: bit N for signal N */
    char *const *command;    /* NULL-terminated: the program and its arguments */
};

extern const struct ddp_option settings_table[];

/* Reads the command line. DDP_ERR_INVALID (logged) on any mistake. */
enum ddp_status settings_read(struct settings *settings, int argc, char *const *argv);

/* Which streams of a rank a value of --redirects or --tee names: 0 none, 1 standard output, 2
 * error, 3 both. NULL names none. */
int settings_streams(const char *text, int rank);

/* Whether --local-ranks-filter shows the rank. */
bool settings_shown(const struct settings *settings, int rank);

void settings_help(FILE *out);

#endif
