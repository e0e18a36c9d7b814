/* SPDX-License-Identifier: MIT
 *
 * See compare.h. Everything runs under ddprun, so that all workers get their CPUs in the same way.
 * The last steps of each run are traced, and not timed.
 * With M the largest number of workers, the global batch is cut into M shards, and then into 2 M,
 * which M workers run two at a time. */
#include "config.h"

#include "reporter/compare.h"

#include "core/log.h"
#include "core/memory.h"
#include "reporter/child.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRACED      10 /* steps, or a quarter of all */
#define OWN_OPTIONS 24 /* words of a command line that are added, at most */
#define PATH_BYTES  4096
#define WIRE        "fp32,wire=bf16"

struct work {
    struct comparison *comparison;
    const struct settings *settings;
    char directory[PATH_BYTES]; /* for logs, traces and weights; removed at the end */
    char ddprun[PATH_BYTES];
    char log[PATH_BYTES + 24], trace[PATH_BYTES + 24], weights[PATH_BYTES + 24],
        baseline[PATH_BYTES + 24];
    int *exit_code;
};

/* --- the ways to train ------------------------------------------------------------------------ */

static void add_variant(struct variant *variants, int *count, const char *mode, int64_t units,
                        int64_t shards, int baseline)
{
    struct variant *variant = &variants[(*count)++];
    *variant = (struct variant){
        .mode = mode, .units = units, .shards = shards, .every = 1, .baseline = baseline};
    const char *name = strcmp(mode, "accum") == 0 ? "accumulation"
                       : strcmp(mode, "dp") == 0  ? "DataParallel"
                                                  : "DDP";
    snprintf(variant->name, sizeof variant->name, "%s %" PRId64 " x %" PRId64, name, units,
             shards / units);
}

/* The last variant has an option more, and its name says so. */
static void set_option(struct variant *variant, const char *name, const char *value,
                       const char *shown)
{
    const size_t used = strlen(variant->name);
    variant->option[0] = name;
    variant->option[1] = value;
    snprintf(variant->name + used, sizeof variant->name - used, ", %s", shown);
}

/* What --also asks for, of those who end in the weights of the baseline. */
static void add_also(struct variant *variants, int *count, const struct settings *settings,
                     int64_t workers)
{
    static const struct {
        int also;
        const char *value, *shown;
    } zeros[] = {{ALSO_ZERO_0, "0", "zero 0"}, {ALSO_ZERO_2, "2", "zero 2"}};
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++) {
        if (!settings->also[zeros[i].also])
            continue;
        add_variant(variants, count, "ddp", workers, workers, 0);
        set_option(&variants[*count - 1], "--zero", zeros[i].value, zeros[i].shown);
    }
    if (settings->also[ALSO_PIPELINE]) {
        add_variant(variants, count, "pipeline", workers, workers, 0);
        snprintf(variants[*count - 1].name, sizeof variants[0].name, "pipeline, %" PRId64 " stages",
                 workers);
    }
}

/* Rounded sums have other bits: they have a baseline of their own. */
static void add_wire(struct variant *variants, int *count, int64_t workers)
{
    const int baseline = *count;
    add_variant(variants, count, "accum", 1, workers, baseline);
    set_option(&variants[baseline], "--dtype", WIRE, "wire");
    add_variant(variants, count, "ddp", workers, workers, baseline);
    set_option(&variants[baseline + 1], "--dtype", WIRE, "wire");
}

/* DDP with local steps, a shard a worker. */
static bool add_local_variants(struct variant *variants, int *count,
                               const struct settings *settings, int64_t workers)
{
    for (int i = 0; i < settings->every_count; i++) {
        const int64_t every = settings->every[i];
        if (settings->steps % every != 0 || settings->steps < 2 * every) {
            const int64_t rounds = (settings->steps + every - 1) / every;
            ddp_fail(DDP_ERR_INVALID,
                     "--sync-every %" PRId64 ": %" PRId64
                     " steps are not two or more whole rounds of it: use --steps %" PRId64,
                     every, settings->steps, (rounds < 2 ? 2 : rounds) * every);
            return false;
        }
        add_variant(variants, count, "ddp", workers, workers, 0);
        struct variant *variant = &variants[*count - 1];
        const size_t used = strlen(variant->name);
        variant->every = every;
        snprintf(variant->name + used, sizeof variant->name - used, ", every %" PRId64, every);
    }
    return true;
}

int variants_make(struct variant variants[VARIANTS], const struct settings *settings,
                  int64_t global_batch)
{
    const int64_t most = settings->workers[settings->worker_count - 1];
    int count = 0, baseline = 0;
    if (most < 2) {
        ddp_fail(DDP_ERR_INVALID, "--workers: one worker alone has nothing to be compared with: "
                                  "use 1,2 or more");
        return 0;
    }
    if (global_batch % most != 0) {
        ddp_fail(DDP_ERR_INVALID,
                 "a global batch of %" PRId64 " samples cannot be cut into %" PRId64
                 " shards, one a worker: use --global-batch %" PRId64 " or other --workers",
                 global_batch, most, (global_batch / most + 1) * most);
        return 0;
    }
    add_variant(variants, &count, "accum", 1, most, baseline);
    for (int i = 0; i < settings->worker_count; i++) {
        const int64_t units = settings->workers[i];
        if (units == 1)
            continue;
        if (most % units != 0) {
            ddp_fail(DDP_ERR_INVALID,
                     "--workers: %" PRId64 " and %" PRId64 ": the largest must be a multiple of "
                     "each of the others, for as many shards on each worker",
                     units, most);
            return 0;
        }
        add_variant(variants, &count, "dp", units, most, baseline);
        add_variant(variants, &count, "ddp", units, most, baseline);
    }
    add_also(variants, &count, settings, most);
    if (!add_local_variants(variants, &count, settings, most))
        return 0;
    if (global_batch % (2 * most) == 0) {
        baseline = count;
        add_variant(variants, &count, "accum", 1, 2 * most, baseline);
        add_variant(variants, &count, "ddp", most, 2 * most, baseline);
    }
    if (settings->also[ALSO_WIRE])
        add_wire(variants, &count, most);
    return count;
}

/* --- the command line ------------------------------------------------------------------------- */

struct words {
    char **argv;
    int count;
    char numbers[OWN_OPTIONS][32];
    int number_count;
};

/* An option and its value; NULL: it has none. */
static void add(struct words *words, const char *name, const char *value)
{
    words->argv[words->count++] = (char *)name;
    if (value)
        words->argv[words->count++] = (char *)value;
}

static void add_number(struct words *words, const char *name, int64_t value)
{
    char *text = words->numbers[words->number_count++];
    snprintf(text, sizeof words->numbers[0], "%" PRId64, value);
    add(words, name, text);
}

/* The name of the option that a word gives, with '-' for '_': "--global_batch=8", "-g8"; or "". */
static const char *option_of(const char *word, char name[64])
{
    static const struct {
        char letter;
        const char *name;
    } letters[] = {{'a', "acc-steps"},
                   {'e', "epochs"},
                   {'g', "global-batch"},
                   {'s', "steps"},
                   {'t', "threads"}};
    name[0] = '\0';
    if (strncmp(word, "--", 2) == 0) {
        snprintf(name, 64, "%.*s", (int)strcspn(word + 2, "="), word + 2);
        for (char *at = name; (at = strchr(at, '_'));)
            *at = '-';
        return name;
    }
    for (size_t k = 0; k < sizeof letters / sizeof letters[0]; k++)
        if (word[0] == '-' && word[1] == letters[k].letter)
            return letters[k].name;
    return name;
}

static bool has_option(const struct settings *settings, const char *name)
{
    char text[64];
    for (int i = 1; i < settings->command_count; i++)
        if (strcmp(option_of(settings->command[i], text), name) == 0)
            return true;
    return false;
}

/* Options that decide what is compared, which are ours to give. */
static enum ddp_status check_command(const struct settings *settings)
{
    static const char *const names[] = {
        "acc-steps", "checkpoint",  "distributed", "epochs", "eval-only",   "export",  "generate",
        "log",       "log-every",   "mode",        "plan",   "plan-memory", "predict", "replicas",
        "resume",    "resume-from", "save",        "steps",  "sync-every",  "trace"};
    char text[64];
    if (settings->also[ALSO_WIRE] && has_option(settings, "dtype"))
        return ddp_fail(DDP_ERR_INVALID, "--also wire compares sums in bf16 with those of fp32: "
                                         "leave the trainer's --dtype out");
    for (int i = 1; i < settings->command_count; i++) {
        const char *name = option_of(settings->command[i], text);
        const char *ours = strcmp(name, "sync-every") == 0 ? "--sync-every LIST"
                           : strcmp(name, "steps") == 0 || strcmp(name, "epochs") == 0 ? "--steps N"
                                                                                       : NULL;
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if (strcmp(name, names[k]) == 0)
                return ddp_fail(DDP_ERR_INVALID,
                                "compare: the trainer's --%s decides what is compared: leave it "
                                "out%s%s",
                                name, ours ? ", and give ddpreport compare " : "",
                                ours ? ours : "");
    }
    return DDP_OK;
}

/* ddprun -n UNITS trainer OPTIONS, as far as all have it in common. */
static enum ddp_status begin_words(struct words *words, const struct work *work, int64_t workers)
{
    const struct settings *settings = work->settings;
    *words = (struct words){.count = 0};
    words->argv =
        ddp_array_alloc((size_t)settings->command_count + 2 * OWN_OPTIONS, sizeof *words->argv);
    if (!words->argv)
        return DDP_ERR_MEMORY;
    add(words, work->ddprun, NULL);
    add_number(words, "-n", workers);
    for (int i = 0; i < settings->command_count; i++)
        add(words, settings->command[i], NULL);
    add(words, "--no-eval", "--quiet");
    add(words, "--log", work->log);
    if (work->comparison->threads > 0)
        add_number(words, "--threads", work->comparison->threads);
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
    if (status == DDP_OK && code == CHILD_MISSING)
        status = ddp_fail(DDP_ERR_IO, "%s cannot be started", work->ddprun);
    if (status == DDP_OK && code != 0) {
        fputs(said, stderr);
        *work->exit_code = code;
        status = ddp_fail(DDP_ERR_ABORTED, "compare: %s: the training ended with exit status %d%s",
                          name, code, said && *said ? ", for the reason above" : "");
    }
    if (status == DDP_OK && access(work->log, R_OK) < 0)
        status = ddp_fail(DDP_ERR_INVALID,
                          "compare: %s has written no --log: give trainer, or a program that takes "
                          "its options",
                          work->settings->command[0]);
    free(said);
    free(words->argv);
    return status;
}

/* How many steps at the end of so many are traced: whole rounds of local steps. */
static int64_t traced_of(int64_t steps, const struct variant *variant)
{
    const int64_t traced = steps / 4 < TRACED ? steps / 4 : TRACED;
    const int64_t whole = traced - traced % variant->every;
    return whole > 0 ? whole : variant->every;
}

static enum ddp_status train(struct work *work, const struct variant *variant, bool is_first)
{
    struct words words;
    const struct comparison *comparison = work->comparison;
    const bool launched =
        strcmp(variant->mode, "ddp") == 0 || strcmp(variant->mode, "pipeline") == 0;
    char traced[PATH_BYTES + 96];
    enum ddp_status status = begin_words(&words, work, launched ? variant->units : 1);
    if (status != DDP_OK)
        return status;
    const int64_t window = traced_of(comparison->steps, variant);
    add(&words, "--mode", variant->mode);
    if (variant->option[0])
        add(&words, variant->option[0], variant->option[1]);
    if (variant->every > 1)
        add_number(&words, "--sync-every", variant->every);
    if (strcmp(variant->mode, "dp") == 0)
        add_number(&words, "--replicas", variant->units);
    add_number(&words, "--global-batch", comparison->global_batch);
    add_number(&words, "--batch-size", comparison->global_batch / variant->shards);
    add_number(&words, "--steps", comparison->steps);
    if (variant->shards > 8) /* a lane for each: see trainer(1) */
        add_number(&words, "--lanes", variant->shards);
    snprintf(traced, sizeof traced, "%s,steps=%" PRId64 "-%" PRId64, work->trace,
             comparison->steps - window + 1, comparison->steps);
    add(&words, "--trace", traced);
    add(&words, "--save", is_first ? work->baseline : work->weights);
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
                                 int64_t steps, int64_t window)
{
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < run->step_count; i++)
        if (run->steps[i].step > steps / 10 + 1 && run->steps[i].step <= steps - window)
            status = ddp_array_append(&measured->steps, &measured->step_count, &run->steps[i],
                                      sizeof run->steps[i]);
    return status;
}

/* The mean over the last tenth of a run's steps. */
static double last_loss(const struct log_run *run)
{
    const size_t count = run->step_count < 10 ? 1 : run->step_count / 10;
    double sum = 0;
    for (size_t i = 1; i <= count && i <= run->step_count; i++)
        sum += run->steps[run->step_count - i].loss;
    return run->step_count > 0 ? sum / (double)count : NAN;
}

/* What the run's log and trace say. */
static enum ddp_status take(const struct work *work, const struct variant *variant,
                            struct measured *measured)
{
    struct run_log log = {.count = 0};
    struct trace trace = {.span_count = 0};
    enum ddp_status status = run_log_read(&log, work->log, true);
    if (status == DDP_OK)
        status = add_steps(measured, &log.runs[0], work->comparison->steps,
                           traced_of(work->comparison->steps, variant));
    if (status == DDP_OK)
        status = trace_read(&trace, work->trace);
    if (status == DDP_OK) {
        const struct log_run *run = &log.runs[0];
        trace_exposed(&trace, &measured->exposed);
        memcpy(measured->memory, run->memory, sizeof run->memory);
        measured->exchange = run->exchange;
        measured->loss = last_loss(run);
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
    const bool is_local = variant->every > 1;
    const bool is_first = is_local ? repeat == 0 : variant->baseline == i;
    bool same = true;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[Krun %" PRId64 " of %" PRId64 ": %s",
                repeat * comparison->count + i + 1, comparison->repeats * comparison->count,
                variant->name);
    snprintf(work->baseline, sizeof work->baseline, "%s/baseline%d", work->directory,
             is_local ? i : variant->baseline);
    enum ddp_status status = train(work, variant, is_first);
    if (status == DDP_OK)
        status = take(work, variant, &comparison->measured[i]);
    if (status == DDP_OK && !is_first)
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
    struct run_log log = {.count = 0};
    enum ddp_status status = begin_words(&words, work, 1);
    if (status != DDP_OK)
        return status;
    add_number(&words, "--steps", 1);
    add(&words, "--mode", "accum");
    status = run_words(work, &words, "one step to begin with");
    if (status != DDP_OK)
        return status;
    status = run_log_read(&log, work->log, true);
    if (status == DDP_OK) {
        const struct log_run *run = &log.runs[0];
        const int64_t most = settings->workers[settings->worker_count - 1];
        comparison->global_batch = run->global_batch;
        if (!has_option(settings, "global-batch"))
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
            enum ddp_status status = run_variant(work, i, repeat);
            if (status != DDP_OK)
                return status;
        }
    for (int i = 0; i < comparison->count; i++) {
        struct measured *measured = &comparison->measured[i];
        enum ddp_status status = step_times_of_rounds(
            &measured->times, measured->steps, measured->step_count, comparison->variants[i].every);
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
    if (!has_option(settings, "threads") && sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
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
