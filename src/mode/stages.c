/* SPDX-License-Identifier: MIT
 *
 * See stages.h. */
#include "config.h"

#include "mode/stages.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUNS           3    /* that an operation is timed; the shortest counts */
#define BYTES_A_SECOND 4e9  /* of a message, roughly: what decides between cuts of equal time */
#define FLOPS_A_SECOND 5e10 /* to estimate times; only their ratio to the former counts */
#define PARTS          (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

/* --- pieces ----------------------------------------------------------------------------------- */

static int stage_of(const int *cuts, int count, int operation)
{
    int stage = 0;
    while (stage < count - 1 && operation >= cuts[stage])
        stage++;
    return stage;
}

/* The stages that read a parameter, and the first operation that does. */
struct readers {
    int operation;   /* the first; -1: none */
    int first, last; /* stages */
    int stages;      /* how many */
    int in_first;    /* operations of the first stage that read it */
};

static struct readers readers_of(const ddp_graph *graph, int count, const int *cuts, int parameter)
{
    struct readers readers = {.operation = -1};
    for (int n = 0; n < ddp_graph_operation_count(graph); n++) {
        if (!ddp_graph_reads(graph, n, parameter))
            continue;
        const int stage = stage_of(cuts, count, n);
        if (readers.operation < 0) {
            readers.operation = n;
            readers.first = stage;
        }
        if (readers.stages == 0 || stage != readers.last)
            readers.stages++;
        readers.last = stage;
        readers.in_first += stage == readers.first;
    }
    return readers;
}

static enum ddp_status check_cuts(const ddp_graph *graph, int count, const int *cuts)
{
    const int end = ddp_graph_network_count(graph);
    if (count < 2 || count > DDP_STAGES_MAX)
        return ddp_fail(DDP_ERR_INVALID, "a pipeline has 2 to %d stages, not %d", DDP_STAGES_MAX,
                        count);
    if (count > end)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model has %d operations, too few for %d stages: use --stages %d", end,
                        count, end);
    for (int i = 0; i < count - 1; i++)
        if (cuts[i] <= (i ? cuts[i - 1] : 0) || cuts[i] >= end)
            return ddp_fail(DDP_ERR_INVALID, "stage %d of the pipeline would have no operation",
                            i + (cuts[i] > 0 && cuts[i] >= end));
    return DDP_OK;
}

/* The operations up to the first reader of a weight move to the stage that reads it too. Nothing
 * else of them may be needed in their old stage. */
static enum ddp_status share(struct ddp_stages *stages, const ddp_graph *graph, int parameter,
                             const struct readers *readers)
{
    const char *name = ddp_graph_parameter_at(graph, parameter)->name;
    const int end = readers->operation + 1;
    struct ddp_piece *first = &stages->pieces[0];
    if (stages->shared >= 0 || readers->stages != 2 || readers->first != 0 ||
        readers->in_first != 1)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "operations of %d stages read the parameter %s, and only that of the first "
                        "one's beginning may be a later one's too: cut elsewhere",
                        readers->stages, name);
    if (first->range.end <= end)
        return ddp_fail(DDP_ERR_INVALID,
                        "stage 0 of the pipeline would have no operation: %s, which reads %s, "
                        "runs where the weight is, in stage %d; cut behind it",
                        ddp_graph_operation_name(graph, readers->operation), name, readers->last);
    memmove(stages->pieces + 1, stages->pieces,
            (size_t)stages->piece_count * sizeof *stages->pieces);
    stages->piece_count++;
    stages->pieces[0] = (struct ddp_piece){{0, end}, readers->last};
    stages->pieces[1].range.first = end;
    stages->shared = parameter;
    return DDP_OK;
}

/* Parameters of the operations that have moved must not be read where these were. */
static enum ddp_status check_moved(const struct ddp_stages *stages, const ddp_graph *graph)
{
    const struct ddp_graph_range moved = stages->pieces[0].range;
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, i);
        bool here = false, elsewhere = false;
        for (int n = 0; n < ddp_graph_operation_count(graph); n++)
            if (ddp_graph_reads(graph, n, i))
                *(n < moved.end ? &here : &elsewhere) = true;
        if (here && (parameter->statistic || (elsewhere && i != stages->shared)))
            return ddp_fail(DDP_ERR_UNSUPPORTED,
                            "the operations before %s share %s with another stage, and %s with "
                            "the first: the model cannot be cut there",
                            ddp_graph_operation_name(graph, moved.end),
                            ddp_graph_parameter_at(graph, stages->shared)->name, parameter->name);
    }
    return DDP_OK;
}

enum ddp_status ddp_stages_make(struct ddp_stages *stages, const ddp_graph *graph, int count,
                                const int *cuts)
{
    enum ddp_status status = check_cuts(graph, count, cuts);
    if (status != DDP_OK)
        return status;
    *stages = (struct ddp_stages){.count = count, .piece_count = count, .shared = -1};
    for (int s = 0; s < count; s++)
        stages->pieces[s] = (struct ddp_piece){
            {s ? cuts[s - 1] : 0, s < count - 1 ? cuts[s] : ddp_graph_operation_count(graph)}, s};
    for (int i = 0; status == DDP_OK && i < ddp_graph_parameter_count(graph); i++) {
        const struct readers readers = readers_of(graph, count, cuts, i);
        if (readers.stages > 1)
            status = share(stages, graph, i, &readers);
    }
    return status == DDP_OK && stages->shared >= 0 ? check_moved(stages, graph) : status;
}

enum ddp_status ddp_stages_parse(const ddp_graph *graph, const char *list, int count, int *cuts)
{
    char name[256];
    int found = 0;
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof name || found == count - 1)
            return ddp_fail(DDP_ERR_INVALID,
                            "--cut %s: %d stages begin at %d names of layers, separated by commas",
                            list, count, count - 1);
        memcpy(name, at, length);
        name[length] = '\0';
        cuts[found] = ddp_graph_find_operation(graph, name);
        if (cuts[found] < 0)
            return ddp_fail(DDP_ERR_INVALID,
                            "--cut %s: no operation reads a parameter of a layer %s", list, name);
        if (cuts[found] <= (found ? cuts[found - 1] : 0))
            return ddp_fail(DDP_ERR_INVALID,
                            "--cut %s: %s is not behind the beginning of the stage before", list,
                            name);
        found++;
        at += length;
        if (!*at)
            break;
    }
    if (found < count - 1)
        return ddp_fail(DDP_ERR_INVALID, "--cut %s: %d names for %d stages; it takes %d", list,
                        found, count, count - 1);
    return DDP_OK;
}

/* --- where to cut ----------------------------------------------------------------------------- */

/* Times of the operations up to the output; the last has those of the loss with it. */
struct costs {
    int count;
    double *time;  /* seconds of forward and backward */
    int shared_at; /* the operation at the beginning that runs in the last stage; -1: none */
};

/* Seconds of a message there and back. */
static double passing(const ddp_graph *graph, int cut)
{
    return (double)(ddp_graph_cut_values(graph, cut) + ddp_graph_cut_gradients(graph, cut)) /
           BYTES_A_SECOND;
}

/* Fills best[s][n]: the longest stage when the operations before n are cut into s + 1 stages as
 * well as they can be, and from[s][n], where the last of them begins. */
static void cut_evenly(const ddp_graph *graph, const struct costs *costs, int count, double *best,
                       int *from)
{
    const int n_count = costs->count + 1, first = costs->shared_at + 1;
    for (int s = 0; s < count; s++)
        for (int n = 0; n < n_count; n++) {
            double own = s == count - 1 ? 0 : n < costs->count && n > 0 ? passing(graph, n) : 0;
            best[s * n_count + n] = HUGE_VAL;
            for (int m = 0; s == count - 1 && m < first; m++)
                own += costs->time[m]; /* what moves to the last stage */
            for (int begin = n - 1; begin >= first; begin--) {
                own += costs->time[begin];
                const double before =
                    s == 0 ? (begin == first ? 0 : HUGE_VAL) : best[(s - 1) * n_count + begin];
                const double longest = before > own ? before : own;
                if (longest < best[s * n_count + n]) {
                    best[s * n_count + n] = longest;
                    from[s * n_count + n] = begin;
                }
            }
        }
}

static enum ddp_status choose_cuts(const ddp_graph *graph, const struct costs *costs, int count,
                                   int *cuts)
{
    const int n_count = costs->count + 1;
    const size_t cells = (size_t)count * (size_t)n_count;
    double *best = ddp_array_alloc(cells, sizeof *best);
    int *from = ddp_array_alloc(cells, sizeof *from);
    const int usable = costs->count - (costs->shared_at + 1);
    enum ddp_status status = best && from ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK && usable < count)
        status = ddp_fail(DDP_ERR_INVALID,
                          "the model has %d operations, too few for %d stages: use --stages %d",
                          usable, count, usable);
    if (status == DDP_OK) {
        cut_evenly(graph, costs, count, best, from);
        for (int s = count - 1, n = costs->count; s > 0; s--)
            n = cuts[s - 1] = from[s * n_count + n];
    }
    free(best);
    free(from);
    return status;
}

/* Does an operation of the beginning read what the output's reads too? */
static int find_shared(const ddp_graph *graph)
{
    const int last = ddp_graph_network_count(graph) - 1;
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++)
        for (int n = 0; ddp_graph_reads(graph, last, i) && n < last; n++)
            if (ddp_graph_reads(graph, n, i))
                return n;
    return -1;
}

static struct ddp_graph_range range_of(const ddp_graph *graph, int operation)
{
    const bool last = operation == ddp_graph_network_count(graph) - 1;
    return (struct ddp_graph_range){operation,
                                    last ? ddp_graph_operation_count(graph) : operation + 1};
}

/* --- times ------------------------------------------------------------------------------------ */

/* One operation with memory, all of it zero. */
struct trial {
    ddp_device *device;
    ddp_graph *graph;
    ddp_exec *exec;
    float *weights, *gradients;
    uint16_t *bf16;
    struct ddp_frozen frozen;
    void *inputs[2];
    struct ddp_exec_messages messages;
    size_t flat, values[2], passed[2]; /* bytes: before and behind the operation */
};

static void close_trial(struct trial *t)
{
    ddp_exec_destroy(t->exec);
    ddp_frozen_close(&t->frozen);
    for (int i = 0; i < 2; i++)
        ddp_device_free(t->device, t->inputs[i],
                        t->graph ? ddp_exec_graph_input_bytes(t->graph, i) : 0);
    ddp_device_free(t->device, (void *)t->messages.values_in, t->values[0]);
    ddp_device_free(t->device, t->messages.values_out, t->values[1]);
    ddp_device_free(t->device, (void *)t->messages.gradients_in, t->passed[1]);
    ddp_device_free(t->device, t->messages.gradients_out, t->passed[0]);
    ddp_device_free(t->device, t->bf16, t->flat / 2);
    ddp_device_free(t->device, t->gradients, t->flat);
    ddp_device_free(t->device, t->weights, t->flat);
    ddp_graph_destroy(t->graph);
}

static enum ddp_status alloc_some(ddp_device *device, size_t bytes, void **memory)
{
    return bytes ? ddp_device_alloc(device, bytes, memory) : DDP_OK;
}

static enum ddp_status alloc_messages(struct trial *t, const ddp_graph *graph,
                                      const struct ddp_graph_range *range)
{
    void *values_in = NULL, *gradients_in = NULL;
    for (int side = 0; side < 2; side++) {
        const int cut = side ? range->end : range->first;
        const bool inside = cut > 0 && cut < ddp_graph_network_count(graph);
        t->values[side] = inside ? ddp_graph_cut_values(graph, cut) : 0;
        t->passed[side] = inside ? ddp_graph_cut_gradients(graph, cut) : 0;
    }
    enum ddp_status status = alloc_some(t->device, t->values[0], &values_in);
    if (status == DDP_OK)
        status = alloc_some(t->device, t->values[1], &t->messages.values_out);
    if (status == DDP_OK)
        status = alloc_some(t->device, t->passed[1], &gradients_in);
    if (status == DDP_OK)
        status = alloc_some(t->device, t->passed[0], &t->messages.gradients_out);
    t->messages.values_in = values_in;
    t->messages.gradients_in = gradients_in;
    return status;
}

static enum ddp_status open_trial(struct trial *t, const ddp_graph *graph, int operation)
{
    const struct ddp_graph_range range = range_of(graph, operation);
    enum ddp_status status = ddp_graph_make_stages(graph, &range, 1, &t->graph);
    if (status != DDP_OK)
        return status;
    t->flat = (size_t)ddp_graph_flat_count(t->graph) * sizeof(float);
    status = ddp_device_alloc(t->device, t->flat, (void **)&t->weights);
    if (status == DDP_OK)
        status = ddp_device_alloc(t->device, t->flat, (void **)&t->gradients);
    if (status == DDP_OK)
        status = ddp_device_alloc(t->device, t->flat / 2, (void **)&t->bf16);
    if (status == DDP_OK)
        status = ddp_frozen_open(&t->frozen, t->device, NULL, t->graph, NULL,
                                 ddp_graph_compute(t->graph));
    if (status == DDP_OK)
        status = alloc_messages(t, graph, &range);
    for (int i = 0; status == DDP_OK && i < 2; i++)
        status = alloc_some(t->device, ddp_exec_graph_input_bytes(t->graph, i), &t->inputs[i]);
    if (status == DDP_OK)
        status = ddp_exec_create(&t->exec, t->graph, t->device, PARTS, t->weights);
    if (status != DDP_OK)
        return status;
    for (int i = 0; i < 2; i++)
        if (t->inputs[i])
            ddp_exec_bind_input(t->exec, i, t->inputs[i]);
    ddp_exec_set_weights_bf16(t->exec, t->bf16);
    ddp_exec_set_frozen(t->exec, t->frozen.values, t->frozen.rounded);
    ddp_exec_set_gradients(t->exec, t->gradients);
    ddp_exec_set_messages(t->exec, &t->messages);
    return DDP_OK;
}

static enum ddp_status run_trial(struct trial *t, bool last)
{
    enum ddp_status status = ddp_exec_forward(t->exec);
    if (status == DDP_OK && last)
        status = ddp_exec_loss(t->exec);
    if (status == DDP_OK && last)
        status = ddp_exec_loss_backward(t->exec);
    if (status == DDP_OK)
        status = ddp_exec_backward(t->exec, NULL, NULL);
    return status == DDP_OK ? ddp_device_synchronize(t->device) : status;
}

static enum ddp_status time_operation(const ddp_graph *graph, ddp_device *device, int operation,
                                      double *seconds)
{
    const bool last = operation == ddp_graph_network_count(graph) - 1;
    struct trial trial = {.device = device};
    enum ddp_status status = open_trial(&trial, graph, operation);
    *seconds = HUGE_VAL;
    for (int i = 0; status == DDP_OK && i < RUNS; i++) {
        const int64_t begin = ddp_clock_ns();
        status = run_trial(&trial, last);
        const double time = (double)(ddp_clock_ns() - begin) * 1e-9;
        *seconds = time < *seconds ? time : *seconds;
    }
    close_trial(&trial);
    return status;
}

/* Elements of the parameters that an operation reads. */
static int64_t elements_of(const ddp_graph *graph, int operation)
{
    int64_t elements = 0;
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++)
        if (ddp_graph_reads(graph, operation, i))
            elements += ddp_graph_parameter_at(graph, i)->count;
    return elements;
}

/* Operations of one kind, and of the same size, take as long. */
static bool alike(const ddp_graph *graph, int a, int b)
{
    return strcmp(ddp_graph_operation_name(graph, a), ddp_graph_operation_name(graph, b)) == 0 &&
           ddp_graph_operation_flops(graph, a) == ddp_graph_operation_flops(graph, b) &&
           ddp_graph_cut_values(graph, a) == ddp_graph_cut_values(graph, b) &&
           ddp_graph_cut_values(graph, a + 1) == ddp_graph_cut_values(graph, b + 1) &&
           elements_of(graph, a) == elements_of(graph, b);
}

static double estimate(const ddp_graph *graph, int operation)
{
    const struct ddp_graph_range range = range_of(graph, operation);
    double seconds = 0;
    for (int n = range.first; n < range.end; n++)
        seconds += ddp_graph_operation_flops(graph, n) / FLOPS_A_SECOND;
    return seconds + passing(graph, operation);
}

/*   device  NULL: times are estimated */
static enum ddp_status balance(const ddp_graph *graph, ddp_device *device, int count, int *cuts)
{
    struct costs costs = {.count = ddp_graph_network_count(graph), .shared_at = find_shared(graph)};
    enum ddp_status status = DDP_OK;
    costs.time = ddp_array_alloc((size_t)costs.count, sizeof *costs.time);
    if (!costs.time)
        return DDP_ERR_MEMORY;
    for (int n = 0; status == DDP_OK && n < costs.count; n++) {
        int same = 0;
        while (same < n && (n == costs.count - 1 || !alike(graph, same, n)))
            same++;
        if (!device)
            costs.time[n] = estimate(graph, n);
        else if (same < n)
            costs.time[n] = costs.time[same];
        else
            status = time_operation(graph, device, n, &costs.time[n]);
    }
    if (status == DDP_OK)
        status = choose_cuts(graph, &costs, count, cuts);
    free(costs.time);
    return status;
}

enum ddp_status ddp_stages_balance(const ddp_graph *graph, ddp_device *device, int count, int *cuts)
{
    return balance(graph, device, count, cuts);
}

enum ddp_status ddp_stages_estimate(const ddp_graph *graph, int count, int *cuts)
{
    return balance(graph, NULL, count, cuts);
}
