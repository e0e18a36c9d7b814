/* SPDX-License-Identifier: MIT
 *
 * See settings.h. */
#include "config.h"

#include "reporter/settings.h"

#include "core/log.h"
#include "core/options.h"
#include "core/text.h"

#include <sched.h>
#include <string.h>

#define OPTION_STRUCT struct settings

static const char *const x_words[] = {
    [X_STEP] = "step", [X_TOKENS] = "tokens", [X_TIME] = "time", NULL};

static const char *read_workers(void *destination, const char *value)
{
    struct settings *settings = destination;
    if (!ddp_option_list(value, ",", SETTINGS_WORKERS, 1, 4096, true, settings->workers,
                         &settings->worker_count))
        return "must be rising numbers of workers from 1 to 4096, with commas between them: 1,2,4";
    return NULL;
}

static const char *read_every(void *destination, const char *value)
{
    struct settings *settings = destination;
    if (!ddp_option_list(value, ",", SETTINGS_WORKERS, 2, 500000, true, settings->every,
                         &settings->every_count))
        return "must be rising numbers of steps from 2 to 500000, with commas between them: 4,16";
    return NULL;
}

static const char *read_also(void *destination, const char *value)
{
    static const char *const words[WAYS_ALSO] = {"zero0", "zero2", "pipeline", "wire"};
    struct settings *settings = destination;
    for (const char *at = value, *end; at; at = *end ? end + 1 : NULL) {
        int found = 0;
        end = at + strcspn(at, ",");
        while (found < WAYS_ALSO && (strlen(words[found]) != (size_t)(end - at) ||
                                     strncmp(words[found], at, (size_t)(end - at)) != 0))
            found++;
        if (found == WAYS_ALSO)
            return "must be some of zero0, zero2, pipeline and wire, with commas between them";
        settings->also[found] = true;
    }
    return NULL;
}

static const char *read_nodes(void *destination, const char *value)
{
    struct settings *settings = destination;
    if (!ddp_option_list(value, ",", SETTINGS_WORKERS, 1, 1 << 20, true, settings->nodes,
                         &settings->node_count))
        return "must be rising numbers of machines, with commas between them: 1,4,16";
    return NULL;
}

const char *const scale_gpus[] = {"none", "a100", "h100", "h200", "b200", "l40s", "rtx4090", NULL};

static const struct ddp_option run_options[] = {
    {OPTION_SECTION("Pictures of runs"), OPTION_TEXT("output", output, "FILE"), .letter = 'o',
     .help = "write pictures to this file, whose name ends in .html, .svg or .png"},
    {OPTION_FLAG("terminal", terminal), .help = "draw in the terminal"},
    OPTION_GONE("follow", "use --terminal, as in watch ddpreport RUN.jsonl --terminal"),
    {OPTION_CHOICE("x", x, x_words, "AXIS"),
     .help = "what curves run over: step (the default), tokens (of models without tokens: samples) "
             "or time"},
    {OPTION_FLAG("log-scale", log_scale), .help = "draw the loss on a logarithmic axis"},
    OPTION_GONE("trace", "open the file in Perfetto or chrome://tracing"),
    {OPTION_FLAG("help", help), .letter = 'h', .help = "print this"},
    {OPTION_FLAG("version", version), .help = "print the version"},
    {0},
};

static const struct ddp_option export_options[] = {
    {OPTION_SECTION("Export"), OPTION_FLAG("csv", csv),
     .help = "write the steps of a log to standard output as comma-separated values"},
    {OPTION_FLAG("help", help), .letter = 'h', .help = "print this"},
    {OPTION_FLAG("version", version), .help = "print the version"},
    {0},
};

static const struct ddp_option compare_options[] = {
    {OPTION_SECTION("Comparison"), OPTION_CUSTOM("workers", read_workers, "LIST"),
     .help =
         "numbers of workers and of replicas, each a power of two times the one before (default: "
         "1,2 or up to the number of CPUs, at most 8)"},
    {OPTION_CUSTOM("sync-every", read_every, "LIST"),
     .help = "also train with local steps: workers synchronise every so many steps"},
    {OPTION_CUSTOM("also", read_also, "LIST"),
     .help = "further ways of the most workers: zero0 (DDP where each updates all), zero2 (each "
             "keeps its part of the gradients), pipeline (a stage each), wire (gradients summed "
             "in bf16)"},
    {OPTION_INT("steps", steps, 10, 1e6, "N"), .help = "steps of each training (default 60)"},
    {OPTION_INT("repeats", repeats, 1, 100, "N"),
     .help = "times that each training runs, in turns (default 3)"},
    {OPTION_TEXT("output", output, "FILE"), .letter = 'o',
     .help = "also write a page with bars to this file, whose name ends in .html"},
    {OPTION_FLAG("help", help), .letter = 'h', .help = "print this"},
    {OPTION_FLAG("version", version), .help = "print the version"},
    {0},
};

static const struct ddp_option scale_options[] = {
    {OPTION_SECTION("Forecast"), OPTION_CUSTOM("nodes", read_nodes, "LIST"),
     .help = "numbers of machines (default 1,2,4,8,16,64,256,1024)"},
    {OPTION_INT("node-workers", node_workers, 1, 4096, "N"),
     .help = "workers on each of them (default: those of the run on one machine)"},
    {OPTION_REAL("rate", rate, 1e-3, 1e6, "GBIT"),
     .help = "Gbit/s of the link of a machine, each way (default 10)"},
    {OPTION_REAL("latency", latency, 0, 1e6, "US"),
     .help = "microseconds that a message costs (default 30)"},
    {OPTION_REAL("memory", memory, 1e-3, 1e6, "GB"),
     .help = "memory of a machine, or of each of its GPUs"},
    {OPTION_CHOICE("gpu", gpu, scale_gpus, "NAME"),
     .help =
         "workers compute on this GPU instead: a100, h100, h200, b200, l40s or rtx4090, at 40 % "
         "of its peak in bf16"},
    {OPTION_INT("sync-every", sync_every, 2, 500000, "N"),
     .help = "steps between synchronisations of local steps (default 16)"},
    {OPTION_INT("stages", stages, 2, 4096, "N"), .help = "stages of a pipeline (default 4)"},
    {OPTION_TEXT("output", output, "FILE"), .letter = 'o',
     .help = "draw the efficiency into this file, whose name ends in .svg or .png"},
    {OPTION_FLAG("help", help), .letter = 'h', .help = "print this"},
    {OPTION_FLAG("version", version), .help = "print the version"},
    {0},
};

void settings_help(FILE *out)
{
    fputs("usage: ddpreport [options] RUN.jsonl ...\n"
          "       ddpreport export --csv RUN.jsonl\n"
          "       ddpreport compare [options] -- trainer OPTIONS\n"
          "       ddpreport scale [options] RUN.jsonl ...\n"
          "\n"
          "The first draws the logs of trainer --log, the second converts one, the third measures\n"
          "what accumulation, DataParallel and DDP cost a training, the fourth predicts what they\n"
          "would cost on more machines.\n\n",
          out);
    ddp_options_help(run_options, out);
    fputc('\n', out);
    ddp_options_help(export_options, out);
    fputc('\n', out);
    ddp_options_help(compare_options, out);
    fputc('\n', out);
    ddp_options_help(scale_options, out);
}

static enum ddp_status check_output(const struct settings *settings)
{
    const char *name = settings->output;
    if (!name || (ddp_text_ends_with(name, ".html") && !settings->scale))
        return DDP_OK;
    if (settings->compare)
        return ddp_fail(DDP_ERR_INVALID, "--output %s: a comparison is written as .html", name);
    if (ddp_text_ends_with(name, ".svg") || ddp_text_ends_with(name, ".png"))
        return DDP_OK;
    return ddp_fail(DDP_ERR_INVALID, "--output %s: the name must end in %s.svg or .png", name,
                    settings->scale ? "" : ".html, ");
}

/* Files may stand before and between the options; they move to the front of argv. */
static enum ddp_status read_files(struct settings *settings, const struct ddp_option *options,
                                  int argc, char **argv)
{
    struct ddp_options_given given = {.rows = {0}};
    int at = 0, rest = 0;
    bool options_ended = false;
    settings->files = argv + 1;
    while (at < argc) {
        if (options_ended) {
            rest = 1;
        } else {
            enum ddp_status status =
                ddp_options_parse(options, settings, &given, argc - at, argv + at, true, &rest);
            if (status != DDP_OK || settings->help || settings->version)
                return status;
            options_ended = rest > 1 && strcmp(argv[at + rest - 1], "--") == 0;
        }
        at += rest;
        if (at < argc)
            settings->files[settings->file_count++] = argv[at];
    }
    if (settings->file_count == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "no log is named: ddpreport RUN.jsonl, which trainer --log "
                        "RUN.jsonl wrote (see --help)");
    return check_output(settings);
}

static enum ddp_status read_export(struct settings *settings, int argc, char **argv)
{
    settings->exports = true;
    enum ddp_status status = read_files(settings, export_options, argc, argv);
    if (status != DDP_OK || settings->help || settings->version)
        return status;
    if (!settings->csv)
        return ddp_fail(DDP_ERR_INVALID, "export: the format is not named: ddpreport export --csv "
                                         "RUN.jsonl");
    if (settings->file_count > 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "export: %d logs are named, and one is converted at a "
                        "time: their columns may differ",
                        settings->file_count);
    return DDP_OK;
}

static enum ddp_status read_scale(struct settings *settings, int argc, char **argv)
{
    static const int64_t nodes[] = {1, 2, 4, 8, 16, 64, 256, 1024};
    settings->scale = true;
    memcpy(settings->nodes, nodes, sizeof nodes);
    settings->node_count = sizeof nodes / sizeof nodes[0];
    settings->stages = 4;
    settings->sync_every = 16;
    settings->rate = 10;
    settings->latency = 30;
    return read_files(settings, scale_options, argc, argv);
}

static void set_default_workers(struct settings *settings)
{
    cpu_set_t cpus;
    const int count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 2;
    for (int64_t n = 1; n <= 2 || (n <= count && n <= 8); n *= 2)
        settings->workers[settings->worker_count++] = n;
}

static enum ddp_status read_compare(struct settings *settings, int argc, char **argv)
{
    struct ddp_options_given given = {.rows = {0}};
    int rest = argc;
    settings->compare = true;
    set_default_workers(settings);
    enum ddp_status status =
        ddp_options_parse(compare_options, settings, &given, argc, argv, true, &rest);
    if (status != DDP_OK || settings->help || settings->version)
        return status;
    if (rest >= argc)
        return ddp_fail(DDP_ERR_INVALID, "compare: no program is named: ddpreport compare -- "
                                         "trainer OPTIONS");
    settings->command = argv + rest;
    settings->command_count = argc - rest;
    return check_output(settings);
}

enum ddp_status settings_read(struct settings *settings, int argc, char **argv)
{
    *settings = (struct settings){.steps = 60, .repeats = 3};
    if (argc > 1 && strcmp(argv[1], "compare") == 0)
        return read_compare(settings, argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "export") == 0)
        return read_export(settings, argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "scale") == 0)
        return read_scale(settings, argc - 1, argv + 1);
    return read_files(settings, run_options, argc, argv);
}
