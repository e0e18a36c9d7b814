/* SPDX-License-Identifier: MIT
 *
 * The calls of a loop in any order: loop_calls "CALL ..." OPTION..., on data and a model of its own
 *   open run step evaluate checkpoint destroy left
 *   all       steps while some are left, whatever they return
 *   close close:STATUS save save:FILE rate:X
 *   get:TENSOR gradients:TENSOR put:TENSOR=X
 *   exit:CODE raise:SIGNAL fork  (of a child that exits)
 *   use:N     those that follow are with run N of two
 *   rN:CALL   on rank N alone
 * Each call that returns a status prints "RANK: CALL STATUS". `close` gets what the call before it
 * returned, and so does the program's end. AFTER_STEP="CALL ..." is made by a hook after step 2.
 * READ_EXITS=N: rank 1 exits with 0 in the Nth call of its read function.
 * OTHER=samples|count|model|options: that of rank 1 differs. NO_OPERATION: NULL is given for it.
 * SCRATCH and SAVED are its bytes. NO_DESTROY: the program ends without ddp_train_destroy(). */
#include "config.h"

#include "ddp.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FEATURES 5
#define CLASSES  4

static ddp_train *trains[2];
static int used;
static enum ddp_status last;
static atomic_int reads;

static int rank(void)
{
    const char *text = getenv("RANK");
    return text ? atoi(text) : 0;
}

static bool other(const char *what)
{
    const char *text = getenv("OTHER");
    return text && strcmp(text, what) == 0 && rank() == 1;
}

static size_t bytes_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 0) : 0;
}

static enum ddp_status read_one(void *arg, int64_t index, void *sample, void *label)
{
    const char *exits = getenv("READ_EXITS");
    float *x = sample;
    (void)arg;
    if (exits && rank() == 1 && atomic_fetch_add(&reads, 1) + 1 == atoi(exits))
        exit(0);
    for (int i = 0; i < FEATURES; i++)
        x[i] = (float)((index * 7 + i * 3 + other("samples")) % 11) / 11;
    *(int32_t *)label = (int32_t)(index % CLASSES);
    return DDP_OK;
}

/* --- the model: an operation of its own between two layers ------------------------------------ */

static enum ddp_status twice(void *arg, const struct ddp_custom_pass *pass)
{
    const float *x = pass->inputs[0].values;
    (void)arg;
    for (int64_t i = 0; i < pass->output_count; i++)
        pass->output[i] = 2 * x[i];
    return DDP_OK;
}

static enum ddp_status twice_back(void *arg, const struct ddp_custom_pass *pass)
{
    (void)arg;
    for (int64_t i = 0; i < pass->output_count; i++)
        pass->inputs[0].gradients[i] += 2 * pass->output_gradients[i];
    return DDP_OK;
}

/* What the builder does wrong. */
static bool is_fault(const char *name)
{
    const char *fault = getenv("FAULT");
    return fault && strcmp(fault, name) == 0;
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_shape *shape, void *arg)
{
    const int64_t hidden = other("model") ? 7 : 8;
    struct ddp_custom_op op = DDP_CUSTOM_OP_INIT;
    (void)arg;
    const int64_t rows = is_fault("rows") ? 3 : shape->batch;
    ddp_tensor *x = ddp_graph_input(graph, is_fault("input") ? NULL : "x", DDP_F32, 2,
                                    (int64_t[]){rows, FEATURES});
    ddp_tensor *y = ddp_graph_input(graph, "y", DDP_I32, 1, (int64_t[]){shape->batch});
    op.name = "twice";
    op.input_count = 1;
    op.inputs[0] = ddp_graph_linear_layer(graph, is_fault("layer") ? NULL : "a", x, hidden, true,
                                          DDP_ACTIVATION_RELU);
    op.dim_count = is_fault("dims") ? 0 : 2;
    op.dims[0] = shape->batch;
    op.dims[1] = hidden;
    op.scratch_bytes = bytes_of("SCRATCH");
    op.saved_bytes = bytes_of("SAVED");
    op.forward = twice;
    op.backward = twice_back;
    x = ddp_graph_custom(graph, getenv("NO_OPERATION") ? NULL : &op);
    x = ddp_graph_linear_layer(graph, "b", x, CLASSES, true, DDP_ACTIVATION_NONE);
    if (is_fault("unfinished"))
        return DDP_OK;
    if (is_fault("unread"))
        return ddp_graph_finish(graph, x, ddp_graph_sum(graph, x));
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, y));
}

/* --- calls ------------------------------------------------------------------------------------ */

/* get, gradients, put */
static enum ddp_status tensor(ddp_train *train, const char *call, char *name)
{
    char *value = strchr(name, '=');
    const struct ddp_train_tensor *found;
    size_t count = 0;
    if (value)
        *value++ = '\0';
    for (int i = 0; (found = ddp_train_tensor(train, i)); i++)
        if (strcmp(found->name, name) == 0)
            count = found->count;
    float *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; value && i < count; i++)
        values[i] = strtof(value, NULL);
    const enum ddp_status status =
        strcmp(call, "put") == 0   ? ddp_train_put_weights(train, name, values, count)
        : strcmp(call, "get") == 0 ? ddp_train_get_weights(train, name, values, count)
                                   : ddp_train_get_gradients(train, name, values, count);
    if (status == DDP_OK && !value)
        printf("%d: %s[0] %a\n", rank(), name, (double)values[0]);
    free(values);
    return status;
}

static enum ddp_status evaluate(ddp_train *train)
{
    const struct ddp_evaluation *evaluation;
    const enum ddp_status status = ddp_train_evaluate(train, &evaluation);
    if (status == DDP_OK)
        printf("%d: %" PRId64 " samples, best %" PRId64 ", since %" PRId64 "\n", rank(),
               evaluation->samples, evaluation->best_number, evaluation->since_best);
    return status;
}

static enum ddp_status all(ddp_train *train)
{
    const struct ddp_step *step;
    enum ddp_status status = DDP_OK;
    int calls = 0;
    for (; ddp_train_steps_left(train) > 0 && calls < 100; calls++)
        status = ddp_train_step(train, &step);
    printf("%d: %d calls of ddp_train_step()\n", rank(), calls);
    return status;
}

static void child(void)
{
    const pid_t pid = fork();
    if (pid == 0)
        exit(0);
    waitpid(pid, NULL, 0);
}

/* Those without a status. */
static bool do_other(const char *call, char *value)
{
    ddp_train *train = trains[used];
    if (strcmp(call, "left") == 0)
        printf("%d: left %" PRId64 "\n", rank(), ddp_train_steps_left(train));
    else if (strcmp(call, "rate") == 0)
        ddp_train_set_rate(train, strtod(value, NULL));
    else if (strcmp(call, "use") == 0)
        used = atoi(value);
    else if (strcmp(call, "exit") == 0)
        exit(atoi(value));
    else if (strcmp(call, "fork") == 0)
        child();
    else if (strcmp(call, "raise") == 0)
        raise(atoi(value));
    else if (strcmp(call, "destroy") == 0) {
        ddp_train_destroy(train);
        trains[used] = NULL;
    } else {
        return false;
    }
    return true;
}

static void do_call(char *call)
{
    char whole[256];
    const struct ddp_step *step;
    ddp_train *train = trains[used];
    snprintf(whole, sizeof whole, "%s", call);
    if (call[0] == 'r' && call[1] >= '0' && call[1] <= '9') {
        if (rank() != call[1] - '0')
            return;
        call += strlen("r0:");
    }
    char *value = strchr(call, ':');
    if (value)
        *value++ = '\0';
    if (do_other(call, value))
        return;
    const char *is = call;
    last = strcmp(is, "open") == 0         ? ddp_train_open(train, NULL)
           : strcmp(is, "run") == 0        ? ddp_train_run(train, NULL)
           : strcmp(is, "step") == 0       ? ddp_train_step(train, &step)
           : strcmp(is, "all") == 0        ? all(train)
           : strcmp(is, "evaluate") == 0   ? evaluate(train)
           : strcmp(is, "checkpoint") == 0 ? ddp_train_checkpoint(train)
           : strcmp(is, "save") == 0       ? ddp_train_save(train, value)
           : strcmp(is, "close") == 0
               ? ddp_train_close(train, value ? (enum ddp_status)atoi(value) : last)
               : tensor(train, call, value);
    printf("%d: %s %d\n", rank(), whole, last);
}

static void do_calls(const char *calls)
{
    char *rest, *copy = strdup(calls);
    for (char *call = strtok_r(copy, " ", &rest); call; call = strtok_r(NULL, " ", &rest))
        do_call(call);
    free(copy);
}

static enum ddp_status after_step(void *arg, ddp_train *train, const struct ddp_step *step)
{
    const char *calls = getenv("AFTER_STEP");
    const enum ddp_status before = last;
    (void)arg;
    (void)train;
    if (calls && step->number == 2)
        do_calls(calls);
    last = before;
    return DDP_OK;
}

static enum ddp_status make(ddp_train **train, int argc, char **argv)
{
    struct ddp_hooks hooks = DDP_HOOKS_INIT;
    struct ddp_data data = DDP_DATA_INIT;
    data.count = other("count") ? 47 : 40;
    data.dim_count = 1;
    data.dims[0] = FEATURES;
    data.classes = CLASSES;
    data.label_count = 1;
    data.read = read_one;
    hooks.after_step = after_step;
    enum ddp_status status = ddp_train_create(train);
    if (status == DDP_OK)
        status = ddp_train_parse(*train, argc, argv);
    if (status == DDP_OK && other("options"))
        status = ddp_train_set(*train, "seed", "7");
    if (status == DDP_OK)
        status = ddp_train_set_data(*train, &data, &data);
    if (status == DDP_OK)
        ddp_train_set_model(*train, is_fault("name") ? "two words" : "twice", build, NULL);
    return status == DDP_OK ? ddp_train_set_hooks(*train, &hooks) : status;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < 2; i++)
        if (argc < 2 || make(&trains[i], argc - 1, argv + 1) != DDP_OK)
            return 2;
    do_calls(argv[1]);
    for (int i = 0; i < 2 && !getenv("NO_DESTROY"); i++)
        ddp_train_destroy(trains[i]);
    return ddp_status_exit_code(last);
}
