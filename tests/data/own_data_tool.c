/* SPDX-License-Identifier: MIT
 *
 * A program with data of its own: own_data_tool KIND OPTION...; the kinds are in the table below.
 * "npy" writes the same samples as ./x.npy and ./y.npy and trains nothing. */
#include "config.h"

#include "ddp.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES  300
#define FEATURES 6
#define CLASSES  4
#define BAD      123 /* the sample with which something is wrong */

static float samples[SAMPLES][FEATURES];
static int32_t labels[SAMPLES];
static float targets[SAMPLES][2];
static int32_t tokens[SAMPLES][FEATURES], next_tokens[SAMPLES][FEATURES];

static void make_samples(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < FEATURES; k++)
            samples[i][k] = (float)((i * 7919 + k * 104729 + i * i * 13) % 2003) / 1001 - 1;
        for (int k = 0; k < FEATURES; k++) {
            tokens[i][k] = (i + k * k) % 20;
            next_tokens[i][k] = (i + (k + 1) * (k + 1)) % 20;
        }
        labels[i] = (samples[i][0] > 0) + 2 * (samples[i][1] > samples[i][2]);
        targets[i][0] = samples[i][0] * samples[i][1];
        targets[i][1] = 10 * samples[i][2] - samples[i][3];
    }
}

/* --- functions that read -------------------------------------------------------------------- */

static enum ddp_status read_class(void *arg, int64_t index, void *sample, void *label)
{
    (void)arg;
    memcpy(sample, samples[index], sizeof samples[index]);
    memcpy(label, &labels[index], sizeof labels[index]);
    return DDP_OK;
}

static enum ddp_status read_numbers(void *arg, int64_t index, void *sample, void *label)
{
    (void)arg;
    memcpy(sample, samples[index], sizeof samples[index]);
    memcpy(label, targets[index], sizeof targets[index]);
    return DDP_OK;
}

/* arg: the status; -3 comes with a message */
static enum ddp_status read_fails(void *arg, int64_t index, void *sample, void *label)
{
    const enum ddp_status status = *(const enum ddp_status *)arg;
    if (index != BAD)
        return read_class(arg, index, sample, label);
    return status == DDP_ERR_IO ? ddp_fail(status, "the sensor %d is gone", 7) : status;
}

/* SIGTERM to itself while a run is under way. */
static enum ddp_status read_stops(void *arg, int64_t index, void *sample, void *label)
{
    static atomic_int reads;
    if (atomic_fetch_add(&reads, 1) == 4000)
        kill(getpid(), SIGTERM);
    return read_numbers(arg, index, sample, label);
}

/* --- kinds of data ---------------------------------------------------------------------------- */

static enum ddp_status given_status; /* that read_fails() gives */

struct kind {
    const char *name;
    bool numbers, reads, test, other_model; /* of the first three kinds */
    bool head;                              /* a model whose loss has its head in it */
    enum ddp_status status;                 /* of read_fails(); 0: it does not fail */
    void (*spoil)(struct ddp_data *data, struct ddp_data *test);
};

static void spoil_label(struct ddp_data *data, struct ddp_data *test)
{
    (void)data, (void)test;
    labels[BAD] = CLASSES;
}

static void spoil_negative(struct ddp_data *data, struct ddp_data *test)
{
    (void)data, (void)test;
    labels[BAD] = -1;
}

static void spoil_sample(struct ddp_data *data, struct ddp_data *test)
{
    (void)data, (void)test;
    samples[BAD][2] = NAN;
}

static void spoil_target(struct ddp_data *data, struct ddp_data *test)
{
    (void)data, (void)test;
    targets[BAD][1] = INFINITY;
}

static void spoil_count(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->count = 0;
}

static void spoil_dims(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->dims[0] = 0;
}

static void spoil_dtype(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->dtype = DDP_F64;
}

static void spoil_samples(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->samples = NULL;
}

static void spoil_labels(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->labels = NULL;
}

static void spoil_label_count(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->label_count = 0;
}

static void spoil_bytes(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->struct_bytes = 0;
}

static void spoil_test(struct ddp_data *data, struct ddp_data *test)
{
    (void)data;
    test->dims[0] = FEATURES - 1;
}

static void spoil_test_classes(struct ddp_data *data, struct ddp_data *test)
{
    (void)data;
    test->classes = CLASSES + 1;
}

static void make_images(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->dim_count = 3;
    data->dims[0] = 1;
    data->dims[1] = 2;
    data->dims[2] = 3;
}

static void make_tokens(struct ddp_data *data, struct ddp_data *test)
{
    (void)test;
    data->dtype = DDP_I32;
    data->classes = 20;
    data->label_count = FEATURES;
    data->samples = tokens;
    data->labels = next_tokens;
}

static void spoil_token(struct ddp_data *data, struct ddp_data *test)
{
    make_tokens(data, test);
    tokens[BAD][2] = 20;
}

static void spoil_next(struct ddp_data *data, struct ddp_data *test)
{
    make_tokens(data, test);
    next_tokens[BAD][2] = 20;
}

/* Few of the first places count, more or less of the others, and of some samples none. */
static void mask(struct ddp_data *data, struct ddp_data *test)
{
    make_tokens(data, test);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < FEATURES; k++)
            if (k < i % 8 || (i + k) % 7 == 0)
                next_tokens[i][k] = DDP_DATA_NO_LABEL;
}

static void mask_most(struct ddp_data *data, struct ddp_data *test)
{
    make_tokens(data, test);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < FEATURES; k++)
            if (i % 40 || k != 3)
                next_tokens[i][k] = DDP_DATA_NO_LABEL;
}

static void mask_all(struct ddp_data *data, struct ddp_data *test)
{
    make_tokens(data, test);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < FEATURES; k++)
            next_tokens[i][k] = DDP_DATA_NO_LABEL;
}

static const struct kind kinds[] = {
    {.name = "arrays"},
    {.name = "read", .reads = true},
    {.name = "numbers", .reads = true, .numbers = true},
    {.name = "number-arrays", .numbers = true},
    {.name = "number-test", .numbers = true, .test = true},
    {.name = "test", .test = true},
    {.name = "images", .spoil = make_images},
    {.name = "tokens", .spoil = make_tokens},
    {.name = "masked", .spoil = mask},
    {.name = "masked-head", .head = true, .spoil = mask},
    {.name = "mostly-masked", .spoil = mask_most},
    {.name = "all-masked", .head = true, .spoil = mask_all},
    {.name = "token", .spoil = spoil_token},
    {.name = "next-token", .spoil = spoil_next},
    {.name = "fails", .reads = true, .status = DDP_ERR_IO},
    {.name = "fails-silently", .reads = true, .status = DDP_ERR_FORMAT},
    {.name = "fails-preempted", .reads = true, .status = DDP_ERR_PREEMPTED},
    {.name = "fails-aborted", .reads = true, .status = DDP_ERR_ABORTED},
    {.name = "fails-7", .reads = true, .status = (enum ddp_status)7},
    {.name = "label", .reads = true, .spoil = spoil_label},
    {.name = "label-array", .spoil = spoil_negative},
    {.name = "nan", .spoil = spoil_sample},
    {.name = "target", .numbers = true, .spoil = spoil_target},
    {.name = "count", .spoil = spoil_count},
    {.name = "dims", .spoil = spoil_dims},
    {.name = "dtype", .spoil = spoil_dtype},
    {.name = "samples", .spoil = spoil_samples},
    {.name = "labels", .spoil = spoil_labels},
    {.name = "label-count", .spoil = spoil_label_count},
    {.name = "bytes", .spoil = spoil_bytes},
    {.name = "test-dims", .test = true, .spoil = spoil_test},
    {.name = "test-classes", .test = true, .spoil = spoil_test_classes},
    {.name = "other-model", .numbers = true, .other_model = true},
    {.name = "stops", .reads = true, .numbers = true},
    {0},
};

/* --- training --------------------------------------------------------------------------------- */

/* arg: not NULL: the input of targets is too small */
static enum ddp_status build(ddp_graph *graph, const struct ddp_model_shape *shape, void *arg)
{
    const int64_t rows = shape->batch;
    ddp_tensor *x = ddp_graph_input(graph, "x", shape->dtype, 2, (int64_t[]){rows, shape->dims[0]});
    ddp_tensor *y = ddp_graph_input(graph, "y", shape->label_dtype, 2,
                                    (int64_t[]){rows, arg ? 1 : shape->label_count});
    x = ddp_graph_linear_layer(graph, "hidden", x, 16, true, DDP_ACTIVATION_GELU);
    x = ddp_graph_linear_layer(graph, "out", x, arg ? 1 : shape->label_count, true,
                               DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_mse(graph, x, y));
}

/* Tokens to the next ones, with one table for both. */
static enum ddp_status build_head(ddp_graph *graph, const struct ddp_model_shape *shape, void *arg)
{
    const int64_t dims[] = {shape->batch, shape->dims[0]};
    const struct ddp_init init = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *x = ddp_graph_input(graph, "tokens", DDP_I32, 2, dims);
    ddp_tensor *y = ddp_graph_input(graph, "y", DDP_I32, 2, dims);
    ddp_tensor *table =
        ddp_graph_parameter(graph, "table", 2, (int64_t[]){shape->classes, 8}, init);
    x = ddp_graph_embedding(graph, x, table, NULL);
    (void)arg;
    x = ddp_graph_linear_layer(graph, "hidden", x, 16, true, DDP_ACTIVATION_GELU);
    x = ddp_graph_linear_layer(graph, "out", x, 8, true, DDP_ACTIVATION_NONE);
    ddp_tensor *loss = ddp_graph_head_cross_entropy(graph, x, table, y);
    return ddp_graph_finish(graph, loss, loss);
}

static enum ddp_status set_data(ddp_train *train, const struct kind *kind)
{
    const void *of_labels = kind->numbers ? (const void *)targets : labels;
    const int64_t classes = kind->numbers ? 0 : CLASSES, count = kind->numbers ? 2 : 1;
    const int64_t cut = kind->test ? 60 : 0;
    struct ddp_data data =
        ddp_data_arrays(SAMPLES - cut, FEATURES, samples[0], classes, count, of_labels);
    struct ddp_data test = ddp_data_arrays(cut, FEATURES, samples[SAMPLES - cut], classes, count,
                                           kind->numbers ? (const void *)targets[SAMPLES - cut]
                                                         : &labels[SAMPLES - cut]);
    if (kind->reads) {
        data.samples = data.labels = NULL;
        data.read = kind->numbers ? read_numbers : read_class;
    }
    if (strcmp(kind->name, "stops") == 0)
        data.read = read_stops;
    if (kind->status != DDP_OK) {
        given_status = kind->status;
        data.read = read_fails;
        data.arg = &given_status;
    }
    if (kind->spoil)
        kind->spoil(&data, &test);
    return ddp_train_set_data(train, &data, kind->test ? &test : NULL);
}

static void write_array(const char *path, const char *type, const char *shape, const void *values,
                        size_t bytes)
{
    FILE *file = fopen(path, "w");
    char header[118];
    if (!file)
        exit(99);
    memset(header, ' ', sizeof header);
    const int n = snprintf(header, sizeof header,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    header[n] = ' ';
    header[sizeof header - 1] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, sizeof header, file);
    fwrite(values, 1, bytes, file);
    fclose(file);
}

int main(int argc, char **argv)
{
    const struct kind *kind = kinds;
    ddp_train *train = NULL;
    make_samples();
    if (argc > 1 && strcmp(argv[1], "npy") == 0) {
        write_array("x.npy", "<f4", "300, 6", samples, sizeof samples);
        write_array("y.npy", "<i4", "300,", labels, sizeof labels);
        return 0;
    }
    while (kind->name && (argc < 2 || strcmp(kind->name, argv[1]) != 0))
        kind++;
    if (!kind->name)
        return 99;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK && kind->numbers)
        ddp_train_set_model(train, "numbers", build, kind->other_model ? &labels : NULL);
    if (status == DDP_OK && kind->head)
        ddp_train_set_model(train, "head", build_head, NULL);
    if (status == DDP_OK)
        status = set_data(train, kind);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc - 1, argv + 1);
    if (status == DDP_OK)
        status = ddp_train_run(train, stdout);
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
