/* SPDX-License-Identifier: MIT
 *
 * See settings.h. */
#include "config.h"

#include "launcher/settings.h"

#include "core/log.h"
#include "core/parse.h"
#include "job/board.h"

#include <stddef.h>
#include <string.h>

static const char *read_nproc(void *destination, const char *value)
{
    static const struct {
        const char *word;
        enum nproc_kind kind;
    } words[] = {{"auto", NPROC_AUTO}, {"gpu", NPROC_GPU}, {"cpu", NPROC_CPU}};
    struct settings *settings = destination;
    int64_t count;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(value, words[i].word) == 0) {
            settings->nproc_kind = words[i].kind;
            return NULL;
        }
    if (!ddp_parse_int64(value, 1, DDP_BOARD_MAX_WORLD, &count))
        return "must be a number of workers from 1 to 4096, or auto, gpu or cpu";
    settings->nproc_kind = NPROC_COUNT;
    settings->nproc = (int)count;
    return NULL;
}

static const char *read_nnodes(void *destination, const char *value)
{
    (void)destination;
    if (strcmp(value, "1") != 0 && strcmp(value, "1:1") != 0)
        return "ddprun runs on one machine; for several use mpirun, srun or torchrun";
    return NULL;
}

/* Reads "RANK:" if there is one; -1: there is none. False when it is no rank. */
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

static const char *check_streams(const char **member, const char *value)
{
    *member = value;
    return walk_streams(value, 0) < 0
               ? "must be 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or such a "
                 "number for each rank: 0:3,1:2"
               : NULL;
}

static const char *read_redirects(void *destination, const char *value)
{
    return check_streams(&((struct settings *)destination)->redirects, value);
}

static const char *read_tee(void *destination, const char *value)
{
    return check_streams(&((struct settings *)destination)->tee, value);
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

static const char *read_filter(void *destination, const char *value)
{
    ((struct settings *)destination)->filter = value;
    return in_list(value, 0) < 0 ? "must be ranks with commas between them: 0,2" : NULL;
}

bool settings_shown(const struct settings *settings, int rank)
{
    return !settings->filter || in_list(settings->filter, rank) == 1;
}

#define MEMBER(name) offsetof(struct settings, name)

const struct ddp_option settings_table[] = {
    {.section = "Workers",
     .name = "nproc",
     .letter = 'n',
     .type = DDP_OPTION_CUSTOM,
     .read = read_nproc,
     .argument = "N|auto|gpu|cpu",
     .help =
         "number of workers; auto (the default): one for each visible GPU, without a GPU one for "
         "each usable core up to 8; gpu: one for each GPU; cpu: one for each core"},
    {.name = "nproc-per-node", .alias_of = "nproc"},
    {.name = "virtual-local-rank",
     .type = DDP_OPTION_FLAG,
     .offset = MEMBER(virtual_local_rank),
     .help = "show each worker only its own GPU, with LOCAL_RANK 0 in all of them"},
    {.name = "standalone",
     .type = DDP_OPTION_FLAG,
     .offset = MEMBER(standalone),
     .help = "as for torchrun; always so: a job runs on this machine"},
    {.name = "nnodes",
     .type = DDP_OPTION_CUSTOM,
     .read = read_nnodes,
     .argument = "1",
     .help = "as for torchrun; only 1 is possible"},
    {.section = "Meeting point of programs that bring their own network",
     .name = "master-addr",
     .type = DDP_OPTION_TEXT,
     .offset = MEMBER(master_addr),
     .argument = "ADDRESS",
     .help = "MASTER_ADDR of the workers (default 127.0.0.1)"},
    {.name = "master-port",
     .type = DDP_OPTION_INT,
     .offset = MEMBER(master_port),
     .min = 0,
     .max = 65535,
     .argument = "PORT",
     .help = "MASTER_PORT of the workers (default 0: a free one)"},
    {.section = "Output",
     .name = "log-dir",
     .type = DDP_OPTION_TEXT,
     .offset = MEMBER(log_dir),
     .argument = "DIR",
     .help = "keep what workers write in files under DIR; alone it means --tee 3"},
    {.name = "redirects",
     .letter = 'r',
     .type = DDP_OPTION_CUSTOM,
     .read = read_redirects,
     .argument = "STREAMS",
     .help =
         "write these to files instead of showing them: 1 standard output, 2 error, 3 both; or for "
         "some ranks: 0:1,1:3"},
    {.name = "tee",
     .letter = 't',
     .type = DDP_OPTION_CUSTOM,
     .read = read_tee,
     .argument = "STREAMS",
     .help = "write these to files and show them"},
    {.name = "local-ranks-filter",
     .type = DDP_OPTION_CUSTOM,
     .read = read_filter,
     .argument = "RANKS",
     .help = "show the output of these ranks only: 0,2"},
    {.name = "role",
     .type = DDP_OPTION_TEXT,
     .offset = MEMBER(role),
     .argument = "NAME",
     .help = "name of the workers' role, for programs that ask for it (default: default)"},
    {.section = "Ending",
     .name = "grace",
     .type = DDP_OPTION_REAL,
     .offset = MEMBER(grace_seconds),
     .min = 0,
     .max = 86400,
     .argument = "SECONDS",
     .help =
         "time between SIGTERM and SIGKILL for the workers when the job is taken down (default 5)"},
    {.name = "timeout",
     .type = DDP_OPTION_REAL,
     .offset = MEMBER(timeout_seconds),
     .min = 0,
     .max = 1e7,
     .argument = "SECONDS",
     .help = "end the job, and show where each rank is, when no rank of a program that uses libddp "
             "has got "
             "on for so long (default 0: never)"},
    {.name = "straggler-report",
     .type = DDP_OPTION_FLAG,
     .offset = MEMBER(straggler_report),
     .help = "say at the end which rank kept the others waiting"},
    {.section = "Information",
     .name = "help",
     .letter = 'h',
     .type = DDP_OPTION_FLAG,
     .offset = MEMBER(help),
     .help = "print this text"},
    {.name = "version",
     .letter = 'V',
     .type = DDP_OPTION_FLAG,
     .offset = MEMBER(version),
     .help = "print the version"},
    {.name = NULL},
};

enum ddp_status settings_read(struct settings *settings, int argc, char *const *argv)
{
    int rest = 0;
    *settings = (struct settings){.nproc_kind = NPROC_AUTO,
                                  .grace_seconds = 5,
                                  .master_addr = "127.0.0.1",
                                  .role = "default"};
    enum ddp_status status = ddp_options_parse(settings_table, settings, argc, argv, true, &rest);
    if (status != DDP_OK || settings->help || settings->version)
        return status;
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
          "       ddprun status [PID]...\n"
          "Starts a program several times on this machine as the workers of one job.\n\n",
          out);
    ddp_options_help(settings_table, out);
    fputs("\nThe exit code is that of the first worker that fails (128 + N for signal N); 2, 124,\n"
          "125, 126 and 127 are ddprun's own. See man ddprun.\n",
          out);
}
