/* SPDX-License-Identifier: MIT
 *
 * Hooks of a program: hooks_client HOW OPTION...
 *   run       with ddp_train_run(); what is called is printed by rank 0, and by all ranks a sum
 *             that all steps have added to, which is the program's own state
 *   loop      the same with a loop of its own
 *   misuse    each hook makes calls that hooks cannot make, and counts those that are refused
 *   bad       structs that ddp_train_set_hooks() refuses
 *   old, new  the struct of an earlier and of a later ddp.h
 * FAIL_HOOK=NAME makes that hook fail, on rank FAIL_RANK (0) alone or on all ("all"), with
 * FAIL_STATUS (-3). STOP_AFTER=N asks for a stop after step N. HALVE_AFTER=N halves the learning
 * rate once, after step N. NO_STATE leaves the own state out. */
#include "config.h"

#include "ddp.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct own {
    double sum;
    int64_t restored; /* bytes */
    bool quiet, misuse;
    int refused, wrong; /* calls */
};

static int number_of(const char *variable, int other)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : other;
}

static bool shows(const struct own *own, const ddp_train *train)
{
    return !own->quiet && ddp_train_rank(train) == 0;
}

static enum ddp_status result(const char *hook, const ddp_train *train)
{
    const char *fails = getenv("FAIL_HOOK"), *rank = getenv("FAIL_RANK");
    const bool here = rank && strcmp(rank, "all") == 0
                          ? true
                          : ddp_train_rank(train) == number_of("FAIL_RANK", 0);
    return fails && here && strcmp(fails, hook) == 0
               ? (enum ddp_status)number_of("FAIL_STATUS", DDP_ERR_IO)
               : DDP_OK;
}

static void expect(struct own *own, enum ddp_status status, enum ddp_status wanted)
{
    own->refused += status == wanted;
    own->wrong += status != wanted;
}

/* What no hook can call. */
static void misuse(struct own *own, ddp_train *train)
{
    const struct ddp_step *step;
    const struct ddp_evaluation *evaluation;
    const struct ddp_hooks hooks = DDP_HOOKS_INIT;
    if (!own->misuse)
        return;
    expect(own, ddp_train_step(train, &step), DDP_ERR_INVALID);
    expect(own, ddp_train_evaluate(train, &evaluation), DDP_ERR_INVALID);
    expect(own, ddp_train_checkpoint(train), DDP_ERR_INVALID);
    expect(own, ddp_train_open(train, NULL), DDP_ERR_INVALID);
    expect(own, ddp_train_run(train, NULL), DDP_ERR_INVALID);
    expect(own, ddp_train_close(train, DDP_OK), DDP_ERR_INVALID);
    expect(own, ddp_train_set_hooks(train, &hooks), DDP_ERR_INVALID);
}

/* What every hook but save_state can call; that one can read weights, unless STAGED says that it
 * takes several workers. */
static void use(struct own *own, ddp_train *train, enum ddp_status wanted)
{
    const bool staged = getenv("STAGED");
    const struct ddp_train_tensor *tensor = ddp_train_tensor(train, 0);
    if (!own->misuse)
        return;
    float *values = malloc(tensor->count * sizeof *values);
    expect(own, ddp_train_get_weights(train, tensor->name, values, tensor->count),
           staged ? wanted : DDP_OK);
    expect(own, ddp_train_put_weights(train, tensor->name, values, tensor->count), wanted);
    free(values);
}

static enum ddp_status before_step(void *arg, ddp_train *train, int64_t number)
{
    struct own *own = arg;
    if (shows(own, train))
        printf("before %" PRId64 "\n", number);
    misuse(own, train);
    use(own, train, DDP_OK);
    return result("before_step", train);
}

static enum ddp_status after_step(void *arg, ddp_train *train, const struct ddp_step *step)
{
    struct own *own = arg;
    own->sum += step->loss * (double)step->number;
    if (shows(own, train))
        printf("after %" PRId64 ": norm %s\n", step->number,
               step->gradient_norm > 0 ? "known" : "unknown");
    if (step->number == number_of("HALVE_AFTER", 0))
        ddp_train_set_rate(train, step->rate / 2);
    if (step->number == number_of("STOP_AFTER", 0) && ddp_train_rank(train) == 0)
        raise(SIGTERM);
    misuse(own, train);
    use(own, train, DDP_OK);
    return result("after_step", train);
}

static enum ddp_status after_evaluation(void *arg, ddp_train *train,
                                        const struct ddp_evaluation *evaluation)
{
    struct own *own = arg;
    own->sum += evaluation->loss;
    if (shows(own, train))
        printf("evaluated %" PRId64 " samples\n", evaluation->samples);
    misuse(own, train);
    use(own, train, DDP_OK);
    return result("after_evaluation", train);
}

static enum ddp_status save_state(void *arg, ddp_train *train, const void **bytes, size_t *count)
{
    struct own *own = arg;
    if (shows(own, train) || ddp_train_rank(train) != 0)
        printf("save\n");
    misuse(own, train);
    use(own, train, DDP_ERR_INVALID);
    *bytes = &own->sum;
    *count = sizeof own->sum;
    return result("save_state", train);
}

static enum ddp_status restore_state(void *arg, ddp_train *train, const void *bytes, size_t count)
{
    struct own *own = arg;
    if (count != sizeof own->sum)
        return DDP_ERR_FORMAT;
    memcpy(&own->sum, bytes, count);
    if (own->sum == 0) /* on any rank */
        return DDP_ERR_FORMAT;
    if (shows(own, train))
        printf("restored %zu bytes\n", count);
    misuse(own, train);
    use(own, train, DDP_OK);
    return result("restore_state", train);
}

static struct ddp_hooks hooks_of(struct own *own)
{
    struct ddp_hooks hooks = DDP_HOOKS_INIT;
    hooks.arg = own;
    hooks.before_step = before_step;
    hooks.after_step = after_step;
    hooks.after_evaluation = after_evaluation;
    if (getenv("NO_STATE"))
        return hooks;
    hooks.state_name = "hooks_client.1";
    hooks.save_state = save_state;
    hooks.restore_state = restore_state;
    return hooks;
}

/* --- other versions of the struct ------------------------------------------------------------- */

struct old_hooks { /* of a ddp.h that had no more */
    size_t struct_bytes;
    void *arg;
    enum ddp_status (*before_step)(void *arg, ddp_train *train, int64_t number);
};

struct new_hooks { /* of a ddp.h that has more */
    struct ddp_hooks known;
    void *later;
};

/* On the heap, where a sanitizer sees what is read behind the end. */
static enum ddp_status set_old(ddp_train *train, struct own *own)
{
    struct old_hooks *hooks = malloc(sizeof *hooks);
    if (!hooks)
        return DDP_ERR_MEMORY;
    *hooks = (struct old_hooks){sizeof *hooks, own, before_step};
    enum ddp_status status =
        ddp_train_set_hooks(train, (const struct ddp_hooks *)(const void *)hooks);
    free(hooks);
    return status;
}

static enum ddp_status set_new(ddp_train *train, struct own *own)
{
    struct new_hooks hooks = {.known = hooks_of(own), .later = own};
    hooks.known.struct_bytes = sizeof hooks;
    printf("later member used: %d\n", ddp_train_set_hooks(train, &hooks.known));
    hooks.later = NULL;
    return ddp_train_set_hooks(train, &hooks.known);
}

static enum ddp_status set_bad(ddp_train *train, struct own *own)
{
    static const char *const names[] = {"", "a/b", "a b", "abcdefghijklmnopqrstuvwxyz0123456"};
    struct ddp_hooks hooks = hooks_of(own), sizeless = hooks, nameless = hooks;
    sizeless.struct_bytes = 0;
    nameless.state_name = NULL;
    printf("sizeless: %d\n", ddp_train_set_hooks(train, &sizeless));
    printf("nameless: %d\n", ddp_train_set_hooks(train, &nameless));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hooks.state_name = names[i];
        printf("name %zu: %d\n", i, ddp_train_set_hooks(train, &hooks));
    }
    return ddp_train_set_hooks(train, NULL);
}

/* --- the run ---------------------------------------------------------------------------------- */

static enum ddp_status loop(ddp_train *train)
{
    const struct ddp_step *step;
    const struct ddp_evaluation *evaluation;
    enum ddp_status status = ddp_train_open(train, NULL);
    while (status == DDP_OK && ddp_train_steps_left(train) > 0) {
        status = ddp_train_step(train, &step);
        if (status == DDP_OK && step->evaluate)
            status = ddp_train_evaluate(train, &evaluation);
    }
    return ddp_train_close(train, status);
}

int main(int argc, char **argv)
{
    ddp_train *train = NULL;
    const char *how = argc > 1 ? argv[1] : "";
    struct own own = {.misuse = strcmp(how, "misuse") == 0};
    const struct ddp_hooks hooks = hooks_of(&own);
    enum ddp_status status = ddp_train_create(&train);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (status == DDP_OK)
        status = argc > 1 ? ddp_train_parse(train, argc - 1, argv + 1) : DDP_ERR_INVALID;
    if (status == DDP_OK)
        status = strcmp(how, "old") == 0   ? set_old(train, &own)
                 : strcmp(how, "new") == 0 ? set_new(train, &own)
                 : strcmp(how, "bad") == 0 ? set_bad(train, &own)
                                           : ddp_train_set_hooks(train, &hooks);
    if (status == DDP_OK)
        status = strcmp(how, "loop") == 0 ? loop(train) : ddp_train_run(train, NULL);
    printf("sum %a, %d calls as they should be, %d not\n", own.sum, own.refused, own.wrong);
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
