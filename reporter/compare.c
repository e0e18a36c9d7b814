/* SPDX-License-Identifier: MIT
 *
 * See compare.h. Everything runs under ddprun, so that all workers get their CPUs in the same way.
 * The last steps of each run are traced, and not timed. */
#include "config.h"

#include "reporter/compare.h"

#include "core/log.h"
#include "core/memory.h"
#include "reporter/array.h"
#include "reporter/child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRACED      10 /* steps, or a quarter of all */
#define OWN_OPTIONS 24 /* words of a command line that are added, at most */
#define PATH_BYTES  4096

struct work {
    struct comparison *comparison;
    const struct settings *settings;
    char directory[PATH_BYTES]; /* for logs, traces and weights; removed at the end */
    char ddprun[PATH_BYTES];
    char log[PATH_BYTES + 24], trace[PATH_BYTES + 24], weights[PATH_BYTES + 24],
        baseline[PATH_BYTES + 24];
    int *exit_code;
};

/* --- the command line ------------------------------------------------------------------------- */

struct words {
    char **argv;
    int count;
    char own[OWN_OPTIONS][32]; /* numbers as texts */
    int own_count;
};

static void add(struct words *words, const char *word)
{
    words->argv[words->count++] = (char *)word;
    words->argv[words->count] = NULL;
}

static void add_option(struct words *words, const char *name, int64_t value)
{
    char *text = words->own[words->own_count++];
    snprintf(text, sizeof words->own[0], "%" PRId64, value);
    add(words, name);
    add(words, text);
}

/* Options that decide what is compared, which are ours to give. */
static enum ddp_status check_command(const struct settings *settings)
{
    static const char *const names[] = {"acc-steps", "checkpoint", "distributed", "epochs",
                                        "eval-only", "export",     "generate",    "log",
                                        "log-every", "mode",       "plan",        "plan-memory",
                                        "predict",   "replicas",   "resume",      "resume-from",
                                        "save",      "steps",      "trace",       "trace-steps"};
    static const struct {
        char letter;
        const char *name;
    } letters[] = {{'a', "acc-steps"}, {'e', "epochs"}, {'s', "steps"}};
    for (int i = 1; i < settings->command_count; i++) {
        const char *word = settings->command[i], *found = NULL;
        char name[64];
        snprintf(name, sizeof name, "%s", strncmp(word, "--", 2) == 0 ? word + 2 : "");
        name[strcspn(name, "=")] = '\0';
        for (char *at = name; (at = strchr(at, '_'));)
            *at = '-';
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if (strcmp(name, names[k]) == 0)
                found = names[k];
        for (size_t k = 0; k < sizeof letters / sizeof letters[0]; k++)
            if (word[0] == '-' && word[1] == letters[k].letter)
                found = letters[k].name;
        if (found)
            return ddp_fail(DDP_ERR_INVALID,
                            "compare: the trainer's --%s decides what is compared: leave it out%s",
                            found,
                            strcmp(found, "steps") == 0 || strcmp(found, "epochs") == 0
                                ? ", and give ddpreport compare --steps N"
                                : "");
    }
    return DDP_OK;
}

static bool has_option(const struct settings *settings, const char *name, char letter)
{
    const size_t length = strlen(name);
    for (int i = 1; i < settings->command_count; i++) {
        const char *word = settings->command[i];
        if (strncmp(word, "--", 2) == 0
                ? strncmp(word + 2, name, length) == 0 && strchr("=", word[2 + length])
                : letter && word[0] == '-' && word[1] == letter)
            return true;
    }
    return false;
}

/* ddprun -q -n UNITS trainer OPTIONS, as far as all have it in common. */
static enum ddp_status begin_words(struct words *words, const struct work *work, int64_t workers)
{
    const struct settings *settings = work->settings;
    *words = (struct words){.count = 0};
    words->argv =
        ddp_array_alloc((size_t)settings->command_count + 2 * OWN_OPTIONS, sizeof *words->argv);
    if (!words->argv)
        return DDP_ERR_MEMORY;
    add(words, work->ddprun);
    add_option(words, "-n", workers);
    for (int i = 0; i < settings->command_count; i++)
        add(words, settings->command[i]);
    add(words, "--no-eval");
    add(words, "--quiet");
    add(words, "--log");
    add(words, work->log);
    if (work->comparison->threads > 0)
        add_option(words, "--threads", work->comparison->threads);
    return DDP_OK;
}

/* --- one run ---------------------------------------------------------------------------------- */

/* What the program said goes to our standard error. */
static enum ddp_status run_words(struct work *work, struct words *words, const char *name)
{
    const struct child child = {.argv = words->argv, .in = -1, .out = -1};
    int code = 0;
    char *said = NULL;
    unlink(work->log);
    enum ddp_status status = child_run(&child, &code, &said);
    if (status == DDP_OK && code == 127 && (!said || !*said))
        status = ddp_fail(DDP_ERR_IO, "%s cannot be started", work->ddprun);
    if (status == DDP_OK && code != 0) {
        fputs(said, stderr);
        *work->exit_code = code;
        status = ddp_fail(DDP_ERR_ABORTED, "compare: %s: the training ended with exit status %d%s",
                          name, code, said && *said ? ", for the reason above" : "");
    }
    free(said);
    free(words->argv);
    return status;
}

static enum ddp_status train(struct work *work, const struct variant *variant, bool is_baseline)
{
    struct words words;
    const struct comparison *comparison = work->comparison;
    const bool ddp = strcmp(variant->mode, "ddp") == 0;
    char traced[64];
    enum ddp_status status = begin_words(&words, work, ddp ? variant->units : 1);
    if (status != DDP_OK)
        return status;
    const int64_t window = comparison->steps / 4 < TRACED ? comparison->steps / 4 : TRACED;
    add(&words, "--mode");
    add(&words, variant->mode);
    if (strcmp(variant->mode, "dp") == 0)
        add_option(&words, "--replicas", variant->units);
    add_option(&words, "--global-batch", comparison->global_batch);
    add_option(&words, "--batch-size", comparison->global_batch / variant->shards);
    add_option(&words, "--steps", comparison->steps);
    if (variant->shards > 8) /* each worker has whole lanes: see trainer(1) */
        add_option(&words, "--lanes", variant->shards);
    snprintf(traced, sizeof traced, "%" PRId64 "-%" PRId64, comparison->steps - window + 1,
             comparison->steps);
    add(&words, "--trace");
    add(&words, work->trace);
    add(&words, "--trace-steps");
    add(&words, traced);
    add(&words, "--save");
    add(&words, is_baseline ? work->baseline : work->weights);
    return run_words(work, &words, variant->name);
}

/* Are the two files the same? */
static enum ddp_status compare_files(const char *one, const char *other, bool *same)
{
    char first[65536], second[65536];
    FILE *a = fopen(one, "re"), *b = fopen(other, "re");
    size_t bytes = 0;
    *same = a && b;
    while (*same && (bytes = fread(first, 1, sizeof first, a)) > 0)
        *same = fread(second, 1, bytes, b) == bytes && memcmp(first, second, bytes) == 0;
    *same = *same && fread(second, 1, 1, b) == 0;
    const bool failed = !a || !b || ferror(a) || ferror(b);
    if (a)
        fclose(a);
    if (b)
        fclose(b);
    return failed ? ddp_fail(DDP_ERR_IO, "compare: saved weights cannot be read: %s: %s", one,
                             strerror(errno))
                  : DDP_OK;
}

/* The steps after the first tenth, which warms up, and before the traced ones. */
static enum ddp_status add_steps(struct measured *measured, const struct log_run *run,
                                 int64_t steps)
{
    const int64_t window = steps / 4 < TRACED ? steps / 4 : TRACED;
    for (size_t i = 0; i < run->step_count; i++) {
        if (run->steps[i].step <= steps / 10 + 1 || run->steps[i].step > steps - window)
            continue;
        struct log_step *larger =
            array_grown(measured->steps, measured->step_count, sizeof *larger);
        if (!larger)
            return DDP_ERR_MEMORY;
        measured->steps = larger;
        larger[measured->step_count++] = run->steps[i];
    }
    return DDP_OK;
}

/* What the run's log and trace say. */
static enum ddp_status take(const struct work *work, struct measured *measured)
{
    struct run_log log;
    struct trace trace = {.span_count = 0};
    enum ddp_status status = run_log_read(&log, work->log, true);
    if (status == DDP_OK)
        status = add_steps(measured, &log.runs[0], work->comparison->steps);
    if (status == DDP_OK)
        status = trace_read(&trace, work->trace);
    if (status == DDP_OK) {
        const struct log_run *run = &log.runs[0];
        trace_exposed(&trace, &measured->exposed);
        measured->weights = run->weights;
        measured->gradients = run->gradients;
        measured->optimizer = run->optimizer;
        measured->activations = run->activations;
        measured->exchange = run->exchange;
        measured->memory_peak = fmax(measured->memory_peak, run->memory_peak);
        work->comparison->items = run->step_count > 0 ? run->steps[0].items : 0;
        work->comparison->tokens = run->tokens;
    }
    trace_free(&trace);
    run_log_free(&log);
    unlink(work->trace);
    return status;
}

static enum ddp_status run_variant(struct work *work, int i, int64_t repeat)
{
    struct comparison *comparison = work->comparison;
    const struct variant *variant = &comparison->variants[i];
    const bool is_baseline = variant->baseline == i;
    bool same = true;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[Krun %" PRId64 " of %" PRId64 ": %s",
                repeat * comparison->count + i + 1, comparison->repeats * comparison->count,
                variant->name);
    enum ddp_status status = train(work, variant, is_baseline);
    if (status == DDP_OK)
        status = take(work, &comparison->measured[i]);
    if (status == DDP_OK && !is_baseline)
        status = compare_files(work->weights, work->baseline, &same);
    if (!same) {
        comparison->measured[i].differs = true;
        comparison->all_equal = false;
    }
    return status;
}

/* --- all of them ------------------------------------------------------------------------------ */

/* What one worker does with these options: model, data and batch. It also reads the data once, so
 * that the first run finds them in memory. */
static enum ddp_status probe(struct work *work)
{
    struct comparison *comparison = work->comparison;
    const struct settings *settings = work->settings;
    struct words words;
    struct run_log log;
    enum ddp_status status = begin_words(&words, work, 1);
    if (status != DDP_OK)
        return status;
    add_option(&words, "--steps", 1);
    add(&words, "--mode");
    add(&words, "accum");
    status = run_words(work, &words, "one step to begin with");
    if (status != DDP_OK)
        return status;
    status = run_log_read(&log, work->log, true);
    if (status == DDP_OK) {
        const struct log_run *run = &log.runs[0];
        const int64_t most = settings->workers[settings->worker_count - 1];
        comparison->global_batch = run->global_batch;
        if (!has_option(settings, "global-batch", 'g'))
            comparison->global_batch = run->batch_size * most;
        comparison->parameters = run->parameters;
        memcpy(comparison->model, run->model, sizeof run->model);
        memcpy(comparison->data, run->data, sizeof run->data);
        memcpy(comparison->device, run->device, sizeof run->device);
    }
    run_log_free(&log);
    return status;
}

/* The ddprun beside this program, else that of PATH. */
static void find_ddprun(struct work *work)
{
    const ssize_t length = readlink("/proc/self/exe", work->ddprun, sizeof work->ddprun - 8);
    char *slash = NULL;
    if (length > 0) {
        work->ddprun[length] = '\0';
        slash = strrchr(work->ddprun, '/');
    }
    if (slash) {
        strcpy(slash, "/ddprun");
        if (access(work->ddprun, X_OK) == 0)
            return;
        /* In a build with libtool's scripts the program is one directory below. */
    }
    strcpy(work->ddprun, "ddprun");
}

static enum ddp_status make_directory(struct work *work)
{
    const char *base = getenv("TMPDIR");
    const int used = snprintf(work->directory, sizeof work->directory, "%s/ddpreport-XXXXXX",
                              base && *base ? base : "/tmp");
    if (used >= PATH_BYTES - 16 || !mkdtemp(work->directory)) {
        ddp_fail(DDP_ERR_IO, "%s: cannot make a directory: %s", work->directory, strerror(errno));
        work->directory[0] = '\0';
        return DDP_ERR_IO;
    }
    snprintf(work->log, sizeof work->log, "%s/log", work->directory);
    snprintf(work->trace, sizeof work->trace, "%s/trace", work->directory);
    snprintf(work->weights, sizeof work->weights, "%s/weights", work->directory);
    return DDP_OK;
}

static void remove_directory(struct work *work)
{
    if (!work->directory[0])
        return;
    unlink(work->log);
    unlink(work->trace);
    unlink(work->weights);
    for (int i = 0; i < work->comparison->count; i++) {
        snprintf(work->baseline, sizeof work->baseline, "%s/baseline%d", work->directory, i);
        unlink(work->baseline);
    }
    rmdir(work->directory);
}

static enum ddp_status run_all(struct work *work)
{
    struct comparison *comparison = work->comparison;
    for (int64_t repeat = 0; repeat < comparison->repeats; repeat++)
        for (int i = 0; i < comparison->count; i++) {
            snprintf(work->baseline, sizeof work->baseline, "%s/baseline%d", work->directory,
                     comparison->variants[i].baseline);
            enum ddp_status status = run_variant(work, i, repeat);
            if (status != DDP_OK)
                return status;
        }
    for (int i = 0; i < comparison->count; i++) {
        struct measured *measured = &comparison->measured[i];
        enum ddp_status status =
            step_times_of(&measured->times, measured->steps, measured->step_count);
        if (status != DDP_OK)
            return status;
        const double part = measured->times.median / measured->exposed.steps;
        measured->communication = part * measured->exposed.communication;
        measured->waiting = part * measured->exposed.waiting;
    }
    return DDP_OK;
}

enum ddp_status compare_run(struct comparison *comparison, const struct settings *settings,
                            int *exit_code)
{
    struct work *work = ddp_array_alloc(1, sizeof *work);
    cpu_set_t cpus;
    *comparison = (struct comparison){
        .repeats = settings->repeats, .steps = settings->steps, .all_equal = true};
    if (!work)
        return DDP_ERR_MEMORY;
    work->comparison = comparison;
    work->settings = settings;
    work->exit_code = exit_code;
    if (!has_option(settings, "threads", 't') && sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
        const int64_t each = CPU_COUNT(&cpus) / settings->workers[settings->worker_count - 1];
        comparison->threads = each > 0 ? each : 1;
    }
    child_watch_signals();
    find_ddprun(work);
    enum ddp_status status = check_command(settings);
    if (status == DDP_OK)
        status = make_directory(work);
    if (status == DDP_OK)
        status = probe(work);
    if (status == DDP_OK) {
        comparison->count = variants_make(comparison->variants, settings, comparison->global_batch);
        status = comparison->count > 0 ? run_all(work) : DDP_ERR_INVALID;
    }
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    remove_directory(work);
    free(work);
    child_end_by_signal();
    return status;
}

void comparison_free(struct comparison *comparison)
{
    for (int i = 0; i < comparison->count; i++)
        free(comparison->measured[i].steps);
    comparison->count = 0;
}
