/* SPDX-License-Identifier: MIT
 *
 * See settings.h. */
#include "config.h"

#include "launcher/settings.h"

#include "core/log.h"
#include "core/parse.h"
#include "job/board.h"
#include "launcher/place_text.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define RUN_ID_BYTES 200 /* leaves room for what else is in a file's name */

static const char *read_nproc(void *destination, const char *value)
{
    static const struct {
        const char *word;
        enum nproc_kind kind;
    } words[] = {{"auto", NPROC_AUTO}, {"gpu", NPROC_GPU}, {"cpu", NPROC_CPU}};
    static const char wrong[] = "must be a number of workers from 1 to 4096, or auto, gpu or cpu; "
                                "or MIN:MAX, as in 2:4 or 2:gpu";
    struct settings *settings = destination;
    const char *colon = strchr(value, ':'), *most = colon ? colon + 1 : value;
    char least[8] = "";
    int64_t count;
    settings->min_nproc = 0;
    if (colon) {
        snprintf(least, sizeof least, "%.*s", (int)(colon - value), value);
        if (!ddp_parse_int64(least, 1, DDP_BOARD_MAX_WORLD, &settings->min_nproc))
            return wrong;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(most, words[i].word) == 0) {
            settings->nproc_kind = words[i].kind;
            return NULL;
        }
    if (!ddp_parse_int64(most, 1, DDP_BOARD_MAX_WORLD, &count))
        return wrong;
    settings->nproc_kind = NPROC_COUNT;
    settings->nproc = (int)count;
    return NULL;
}

static const char *const bind_words[] = {
    [BIND_AUTO] = "auto",     [BIND_NONE] = "none", [BIND_CORE] = "core", [BIND_NUMA] = "numa",
    [BIND_SOCKET] = "socket", [BIND_L3] = "l3",     [BIND_GPU] = "gpu",   NULL};

/* torchrun's words for --bind. */
static const char *read_numa_binding(void *bind, const char *value)
{
    static const struct {
        const char *word;
        enum bind_kind kind;
    } words[] = {{"node", BIND_NUMA},
                 {"socket", BIND_SOCKET},
                 {"exclusive", BIND_CORE},
                 {"core-complex", BIND_L3}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(value, words[i].word) == 0) {
            *(int *)bind = words[i].kind;
            return NULL;
        }
    return "must be node, socket, exclusive or core-complex (as --bind numa, socket, core, l3)";
}

/* "SIGTERM,SIGUSR1", with or without SIG. */
static const char *read_signals(void *signals, const char *value)
{
    uint64_t set = 0;
    for (const char *at = value;; at++) {
        char name[16];
        const size_t skipped = strncmp(at, "SIG", 3) == 0 ? 3 : 0;
        const size_t n = strcspn(at, ",");
        int signal = 1;
        snprintf(name, sizeof name, "%.*s", n > skipped ? (int)(n - skipped) : 0, at + skipped);
        while (signal < NSIG && (!sigabbrev_np(signal) || strcmp(sigabbrev_np(signal), name) != 0))
            signal++;
        if (signal == NSIG || signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD ||
            signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU || signal == SIGCONT)
            return "must be signals that can end a job, with commas between them: SIGTERM,SIGUSR1";
        set |= UINT64_C(1) << signal;
        at += n;
        if (!*at)
            break;
    }
    *(uint64_t *)signals = set;
    return NULL;
}

static const char *read_event_handler(void *destination, const char *value)
{
    (void)destination;
    return strcmp(value, "null") == 0 ? NULL
                                      : "only null is possible: Python's handlers do not exist "
                                        "here; ddprun reports events "
                                        "on standard error";
}

static const char *read_logs_specs(void *destination, const char *value)
{
    (void)destination;
    return strcmp(value, "default") == 0
               ? NULL
               : "only default is possible: classes in Python do not exist here; --log-dir, "
                 "--redirects, --tee and --local-ranks-filter say where output goes";
}

static const char *read_completion(void *destination, const char *value)
{
    (void)destination;
    (void)value;
    return "is not printed: the completion for bash is installed with ddprun, and works where "
           "bash-completion is installed; there is none for other shells";
}

static const char *read_nnodes(void *destination, const char *value)
{
    struct settings *settings = destination;
    const char *wrong = place_read_nodes(value, &settings->least_nnodes, &settings->nnodes);
    if (settings->least_nnodes == settings->nnodes)
        settings->least_nnodes = 0;
    return wrong;
}

static const char *read_node_rank(void *destination, const char *value)
{
    int64_t rank;
    if (!ddp_parse_int64(value, 0, DDP_BOARD_MAX_WORLD - 1, &rank))
        return "must be a number from 0, below --nnodes";
    *(int *)destination = (int)rank;
    return NULL;
}

/* Reads "RANK:" if there is one; -1: there is none. False when it is not a rank. */
static bool read_rank(const char **at, int64_t *rank)
{
    char digits[16];
    size_t n = strspn(*at, "0123456789");
    *rank = -1;
    if ((*at)[n] != ':')
        return true;
    snprintf(digits, sizeof digits, "%.*s", (int)n, *at);
    if (n >= sizeof digits || !ddp_parse_int64(digits, 0, DDP_BOARD_MAX_WORLD, rank))
        return false;
    *at += n + 1;
    return true;
}

/* Walks over "3" or "0:1,1:2". Returns what it says of `rank`, or -1 when it is wrong. */
static int walk_streams(const char *text, int rank)
{
    int streams = 0;
    for (const char *at = text;; at++) {
        int64_t of;
        if (!read_rank(&at, &of) || *at < '0' || *at > '3')
            return -1;
        if (of < 0 || of == rank)
            streams = *at - '0';
        at++;
        if (!*at)
            return streams;
        if (*at != ',' || of < 0)
            return -1;
    }
}

int settings_streams(const char *text, int rank)
{
    int streams = text ? walk_streams(text, rank) : 0;
    return streams < 0 ? 0 : streams;
}

static const char *read_streams(void *text, const char *value)
{
    *(const char **)text = value;
    return walk_streams(value, 0) < 0
               ? "must be 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or such a "
                 "number for each rank: 0:3,1:2"
               : NULL;
}

/* Is the rank in a list such as "0,2"? -1 when the list is wrong. */
static int in_list(const char *text, int rank)
{
    int found = 0;
    for (const char *at = text;; at++) {
        char digits[16];
        int64_t number;
        size_t n = strspn(at, "0123456789");
        snprintf(digits, sizeof digits, "%.*s", (int)n, at);
        if (n >= sizeof digits || !ddp_parse_int64(digits, 0, DDP_BOARD_MAX_WORLD, &number))
            return -1;
        found = found || number == rank;
        at += n;
        if (!*at)
            return found;
        if (*at != ',')
            return -1;
    }
}

static const char *read_filter(void *text, const char *value)
{
    *(const char **)text = value;
    return in_list(value, 0) < 0 ? "must be ranks with commas between them: 0,2" : NULL;
}

bool settings_shown(const struct settings *settings, int rank)
{
    return !settings->filter || in_list(settings->filter, rank) == 1;
}

static const char *read_rdzv_backend(void *destination, const char *value)
{
    (void)destination;
    return strcmp(value, "static") == 0 || strcmp(value, "c10d") == 0
               ? NULL
               : "ddprun needs no rendezvous server, even for several nodes: leave it out";
}

/* Reads ",name=number" pairs after the kind of a fault. */
static const char *read_fault_parts(struct ddp_board_fault *fault, char *parts)
{
    enum { RANK = 1, STEP = 2, VALUE = 4 };
    unsigned seen = 0, part_is;
    char *save = NULL;
    for (char *part = strtok_r(parts, ",", &save); part; part = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(part, '=');
        int64_t number;
        if (!equals || !ddp_parse_int64(equals + 1, 0, 1000000000, &number))
            return "must be like kill:rank=1,step=7";
        *equals = 0;
        if (strcmp(part, "rank") == 0) {
            fault->rank = (int32_t)number; /* launch_plan.c checks that there is such a rank */
            part_is = RANK;
        } else if (strcmp(part, "step") == 0) {
            if (number == 0)
                return "counts steps from 1";
            fault->step = number - 1;
            part_is = STEP;
        } else if ((strcmp(part, "code") == 0 && fault->kind == DDP_FAULT_EXIT && number < 256) ||
                   (strcmp(part, "ms") == 0 && fault->kind == DDP_FAULT_SLOW)) {
            fault->value = number;
            part_is = VALUE;
        } else {
            return "knows rank= and step=, code= (0 to 255) for exit, ms= for slow";
        }
        if (seen & part_is)
            return "has one part twice; for several ranks or steps write several faults";
        seen |= part_is;
    }
    return NULL;
}

/* "kill:rank=1,step=7" */
static const char *read_fault(struct settings *settings, const char *value)
{
    static const char *const kinds[] = {
        [DDP_FAULT_KILL] = "kill",
        [DDP_FAULT_STOP] = "stop",
        [DDP_FAULT_EXIT] = "exit",
        [DDP_FAULT_SLOW] = "slow",
    };
    struct ddp_board_fault fault = {.rank = -1, .step = -1};
    char copy[128];
    if (settings->fault_count == DDP_BOARD_FAULTS)
        return "too many faults: 16 at most";
    if (snprintf(copy, sizeof copy, "%s", value) >= (int)sizeof copy)
        return "is too long";
    char *parts = copy + strcspn(copy, ":");
    if (*parts)
        *parts++ = 0;
    for (uint32_t kind = DDP_FAULT_KILL; kind <= DDP_FAULT_SLOW; kind++)
        if (strcmp(copy, kinds[kind]) == 0)
            fault.kind = kind;
    if (fault.kind == DDP_FAULT_NONE)
        return "must begin with kill:, stop:, exit: or slow:";
    fault.value = fault.kind == DDP_FAULT_EXIT ? 1 : fault.kind == DDP_FAULT_SLOW ? 100 : 0;
    const char *wrong = read_fault_parts(&fault, parts);
    if (!wrong) {
        settings->fault_texts[settings->fault_count] = value;
        settings->faults[settings->fault_count++] = fault;
    }
    return wrong;
}

/* A part of the log directory's name: it must stay one, and fit there. */
static const char *read_run_id(void *text, const char *value)
{
    const unsigned char *byte = (const unsigned char *)value;
    if (!*value)
        return "must not be empty";
    if (strlen(value) > RUN_ID_BYTES)
        return "must have at most 200 bytes, because the log directory is named after it";
    if (strcmp(value, ".") == 0 || strcmp(value, "..") == 0)
        return "must not be . or .., because the log directory is named after it";
    for (; *byte; byte++)
        if (*byte == '/' || *byte < 0x20 || *byte == 0x7f ||
            (*byte == 0xc2 && byte[1] >= 0x80 && byte[1] < 0xa0)) /* C1, in UTF-8 */
            return "must have no / and no control characters, because the log directory is named "
                   "after it";
    *(const char **)text = value;
    return NULL;
}

#define OPTION_STRUCT struct settings

const struct ddp_option settings_table[] = {
    {OPTION_SECTION("Workers"), OPTION_CUSTOM("nproc", read_nproc, "[MIN:]N|auto|gpu|cpu"),
     .letter = 'n', .environment = "PET_NPROC_PER_NODE",
     .help = "number of workers; auto (the default): one for each visible GPU, without a GPU one "
             "for each usable core up to 8; gpu: one for each GPU; cpu: one for each core; MIN:N: "
             "with --max-restarts, go on with fewer, at least MIN, when a GPU is lost or the same "
             "rank fails twice in a row"},
    {.name = "nproc-per-node", .alias_of = "nproc"},
    {OPTION_FLAG("virtual-local-rank", virtual_local_rank), .environment = "PET_VIRTUAL_LOCAL_RANK",
     .help = "show each worker only its own GPU, with LOCAL_RANK 0 in all of them"},
    {OPTION_FLAG("oversubscribe", oversubscribe),
     .help = "allow more workers than GPUs, for tests: several workers share a GPU"},
    {OPTION_CHOICE("bind", bind, bind_words, "auto|none|core|numa|socket|l3|gpu"),
     .help = "bind each worker to CPUs, near its GPU if it has one: to cores of its own (core; "
             "gpu: an error without GPUs), a NUMA node (numa), a socket, or the cores of one L3 "
             "cache (l3); auto (the default): numa if each worker has a GPU and there are several "
             "nodes, else none"},
    {OPTION_FLAG("report-bindings", report_bindings), .help = "print which CPUs each worker gets"},
    {OPTION_FLAG("standalone", standalone), .environment = "PET_STANDALONE",
     .help = "a job on this machine, whatever srun or mpirun says; the same as --nnodes 1"},
    {OPTION_FLAG("module", module), .letter = 'm', .environment = "PET_MODULE",
     .help = "PROGRAM is a Python module: python3 -m PROGRAM"},
    {OPTION_FLAG("no-python", no_python), .environment = "PET_NO_PYTHON",
     .help = "execute a PROGRAM that ends in .py itself, instead of giving it to python3"},
    {OPTION_FLAG("run-path", run_path), .environment = "PET_RUN_PATH",
     .help = "give PROGRAM to python3 whatever its name is, also with --no-python"},
    {OPTION_FLAG("dry-run", dry_run), .help = "print what would be started, and start nothing"},
    {OPTION_SECTION("Several nodes"), OPTION_CUSTOM("nnodes", read_nnodes, "N|MIN:MAX"),
     .environment = "PET_NNODES",
     .help = "number of nodes, with one ddprun on each (default: the tasks of srun or mpirun that "
             "started this ddprun, one a node; else 1); MIN:MAX: nodes may be lost and come while "
             "the job runs"},
    {OPTION_CUSTOM_AT("node-rank", node_rank, read_node_rank, "R"), .environment = "PET_NODE_RANK",
     .help = "rank of this node, from 0 (default: as srun or mpirun says)"},
    {OPTION_TEXT("master-addr", master_addr, "ADDRESS"), .environment = "PET_MASTER_ADDR",
     .help = "name or address of node 0, where the other nodes find it; on one machine MASTER_ADDR "
             "of the workers (default 127.0.0.1)"},
    {OPTION_INT("master-port", master_port, 0, 65535, "PORT"), .environment = "PET_MASTER_PORT",
     .help = "port of node 0 for the ddpruns of the other nodes (default 29500; with srun one that "
             "follows from the job); on one machine MASTER_PORT of the workers (default 0: a free "
             "one)"},
    {OPTION_TEXT("rdzv-endpoint", rdzv_endpoint, "HOST:PORT"), .environment = "PET_RDZV_ENDPOINT",
     .help = "with several nodes: --master-addr and --master-port where these are not given"},
    {OPTION_TEXT("local-addr", local_addr, "ADDRESS"), .environment = "PET_LOCAL_ADDR",
     .help = "with several nodes: the address of node 0 to listen on, where it is not that of "
             "--master-addr; on one machine MASTER_ADDR where --master-addr is not given"},
    {OPTION_REAL("node-timeout", node_timeout_seconds, 0.1, 86400, "SECONDS"),
     .help = "end with an error that names the missing nodes when not all have joined after this "
             "time (default 30)"},
    {OPTION_TEXT("key-file", key_file, "FILE"),
     .help =
         "a file with the secret that the ddpruns of a job prove to each other, readable by its "
         "owner only; also DDPRUN_KEY"},
    {OPTION_FLAG("insecure-link", insecure_link),
     .help = "let the ddpruns link up without a secret: anyone who reaches the port can join"},
    {OPTION_FLAG("explain-launch", explain_launch),
     .help = "print which launcher was found, from which variables, and how the nodes would link "
             "up; start nothing"},
    {OPTION_SECTION("Output"), OPTION_TEXT("log-dir", log_dir, "DIR"), .environment = "PET_LOG_DIR",
     .help = "write the output of workers to files under DIR; alone it means --tee 3"},
    {OPTION_CUSTOM_AT("redirects", redirects, read_streams, "STREAMS"), .letter = 'r',
     .environment = "PET_REDIRECTS",
     .help = "write these to files instead of showing them: 1 standard output, 2 error, 3 both; or "
             "for some ranks: 0:1,1:3"},
    {OPTION_CUSTOM_AT("tee", tee, read_streams, "STREAMS"), .letter = 't', .environment = "PET_TEE",
     .help = "write these to files and show them"},
    {OPTION_CUSTOM_AT("local-ranks-filter", filter, read_filter, "RANKS"),
     .environment = "PET_LOCAL_RANKS_FILTER", .help = "show the output of these ranks only: 0,2"},
    {OPTION_TEXT("log-line-prefix-template", prefix_template, "TEXT"),
     .environment = "PET_LOG_LINE_PREFIX_TEMPLATE",
     .help = "prefix of lines, with ${role_name}, ${hostname}, ${local_rank} and ${rank} (default "
             "'[${rank}]: ')"},
    {OPTION_CUSTOM_AT("rdzv-id", run_id, read_run_id, "ID"), .environment = "PET_RDZV_ID",
     .help = "TORCHELASTIC_RUN_ID of the workers, and part of the log directory's name (default "
             "none)"},
    {OPTION_TEXT("role", role, "NAME"), .environment = "PET_ROLE",
     .help = "name of the workers' role, for programs that ask for it (default: default)"},
    {OPTION_SECTION("Ending"), OPTION_REAL("grace", grace_seconds, 0, 86400, "SECONDS"),
     .environment = "PET_SHUTDOWN_TIMEOUT",
     .help = "time between SIGTERM and SIGKILL for the workers when the job is taken down (default "
             "5)"},
    {.name = "shutdown-timeout", .alias_of = "grace"},
    {OPTION_CUSTOM_AT("signals-to-handle", ending_signals, read_signals, "SIGNALS"),
     .environment = "PET_SIGNALS_TO_HANDLE",
     .help = "signals that end the job, besides SIGINT, SIGTERM and SIGHUP: SIGQUIT,SIGUSR1"},
    {OPTION_INT("max-restarts", max_restarts, 0, 1000000, "N"), .environment = "PET_MAX_RESTARTS",
     .help = "restart all workers when one fails, at most N times (default 0)"},
    {OPTION_REAL("timeout", timeout_seconds, 0, 1e7, "SECONDS"),
     .help = "end the job and show where each rank is, when for this time no rank has begun a step "
             "or collective (libddp), or used CPU time or written anything (other programs) "
             "(default 0: never)"},
    {OPTION_REAL("setup-timeout", setup_timeout_seconds, 0, 1e7, "SECONDS"),
     .help = "the time limit of --timeout, if it is longer, for a program that uses libddp until a "
             "rank has finished a step (default 600)"},
    {OPTION_FLAG("straggler-report", straggler_report),
     .help = "report at the end which rank the others waited for"},
    OPTION_GONE("min-nproc", "use --nproc MIN:N, as in --nproc 2:4 or --nproc 2:gpu"),
    OPTION_GONE("inject", "set DDP_FAULTS, as in DDP_FAULTS=kill:rank=1,step=7 ddprun ..."),
    /* Accepted because torchrun has them; not in --help. */
    {OPTION_TEXT("duplicate-stderr-filters", stderr_filters, "TEXT,..."),
     .environment = "PET_DUPLICATE_STDERR_FILTERS"},
    {OPTION_TEXT("duplicate-stdout-filters", stdout_filters, "TEXT,..."),
     .environment = "PET_DUPLICATE_STDOUT_FILTERS"},
    {OPTION_CUSTOM("rdzv-backend", read_rdzv_backend, "static|c10d")},
    {OPTION_TEXT("rdzv-conf", ignored, "K=V,...")},
    {OPTION_REAL("monitor-interval", monitor_seconds, 0, 1e7, "SECONDS")},
    {OPTION_CUSTOM_AT("numa-binding", bind, read_numa_binding,
                      "node|socket|exclusive|core-complex"),
     .environment = "PET_NUMA_BINDING"},
    {OPTION_CUSTOM("event-log-handler", read_event_handler, "null")},
    {OPTION_CUSTOM("logs-specs", read_logs_specs, "default")},
    {OPTION_CUSTOM("print-completion", read_completion, "SHELL")},
    {OPTION_FLAG("use-env", use_env)},
    {OPTION_TEXT("start-method", ignored, "WORD")},
    {OPTION_SECTION("Information"), OPTION_FLAG("help", help), .letter = 'h',
     .help = "print this text"},
    {OPTION_FLAG("version", version), .letter = 'V', .help = "print the version"},
    {0},
};

/* Faults that a test asks for, with spaces between. */
static enum ddp_status read_faults(struct settings *settings)
{
    const char *value = getenv("DDP_FAULTS");
    char *save = NULL;
    if (value && snprintf(settings->fault_text, sizeof settings->fault_text, "%s", value) >=
                     (int)sizeof settings->fault_text)
        return ddp_fail(DDP_ERR_INVALID, "DDP_FAULTS: is too long: at most %zu bytes",
                        sizeof settings->fault_text - 1);
    for (char *fault = strtok_r(settings->fault_text, " ", &save); fault;
         fault = strtok_r(NULL, " ", &save)) {
        const char *wrong = read_fault(settings, fault);
        if (wrong)
            return ddp_fail(DDP_ERR_INVALID, "DDP_FAULTS: %s: %s", fault, wrong);
    }
    return DDP_OK;
}

enum ddp_status settings_read(struct settings *settings, int argc, char *const *argv)
{
    struct ddp_options_given given = {0};
    int rest = 0;
    *settings = (struct settings){.nproc_kind = NPROC_AUTO,
                                  .node_rank = -1,
                                  .node_timeout_seconds = 30,
                                  .grace_seconds = 5,
                                  .setup_timeout_seconds = 600,
                                  .role = "default",
                                  .run_id = "none"};
    enum ddp_status status =
        ddp_options_parse(settings_table, settings, &given, argc, argv, true, &rest);
    if (status != DDP_OK || settings->help || settings->version)
        return status;
    if (read_faults(settings) != DDP_OK)
        return DDP_ERR_INVALID;
    if ((settings->stdout_filters || settings->stderr_filters) && !settings->tee &&
        !settings->log_dir)
        return ddp_fail(DDP_ERR_INVALID,
                        "--duplicate-std%s-filters needs --tee or --log-dir: it "
                        "reads lines that also go to log files",
                        settings->stdout_filters ? "out" : "err");
    if (settings->min_nproc && !settings->max_restarts)
        return ddp_fail(DDP_ERR_INVALID,
                        "--nproc %d:... needs --max-restarts: without it the job "
                        "ends after a failure",
                        (int)settings->min_nproc);
    if (rest >= argc && settings->explain_launch)
        return DDP_OK;
    if (rest >= argc)
        return ddp_fail(DDP_ERR_INVALID, "no program given; try: ddprun --nproc 2 trainer");
    if (!*argv[rest])
        return ddp_fail(DDP_ERR_INVALID, "the name of the program is empty");
    settings->command = argv + rest;
    return DDP_OK;
}

void settings_help(FILE *out)
{
    fputs("Usage: ddprun [OPTION]... PROGRAM [ARGUMENT]...\n"
          "       ddprun status [--stack] [PID]...\n"
          "Starts a program several times on this machine as the workers of one job.\n"
          "One ddprun on each of several nodes makes one job: srun -N 4 --ntasks-per-node=1 ddprun "
          "...\n\n",
          out);
    ddp_options_help(settings_table, out);
    fputs("\nThe exit code is that of the first worker that fails (128 + N for signal N);\n"
          "2, 124, 125, 126 and 127 are ddprun's own. See man ddprun.\n",
          out);
}
