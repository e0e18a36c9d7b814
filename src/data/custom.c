/* SPDX-License-Identifier: MIT
 *
 * The data of a program that uses the library: ddp_train_set_data(). They are read by a function of
 * the program's, which gives its own message, or from its arrays. */
#include "config.h"

#include "core/label.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/versioned.h"
#include "data/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 1024
#define MAX_VALUES    INT32_MAX /* of a sample */

struct custom {
    struct ddp_dataset base;
    struct ddp_data data;
    const char *what; /* for messages: "own data" */
};

/* --- what a program gives --------------------------------------------------------------------- */

static enum ddp_status check_shape(const struct ddp_data *data, const char *what)
{
    int64_t values = 1;
    if (data->count < 1)
        return ddp_fail(DDP_ERR_INVALID, "%s: count is %" PRId64 ": at least one sample is needed",
                        what, data->count);
    if (data->dtype != DDP_F32 && data->dtype != DDP_I32)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: dtype is %d: samples are DDP_F32 or, of tokens, DDP_I32", what,
                        (int)data->dtype);
    if (data->dim_count < 1 || data->dim_count > DDP_TENSOR_DIMS)
        return ddp_fail(DDP_ERR_INVALID, "%s: dim_count is %d: 1 to %d are possible", what,
                        data->dim_count, DDP_TENSOR_DIMS);
    for (int i = 0; i < data->dim_count; i++)
        if (data->dims[i] < 1 || __builtin_mul_overflow(values, data->dims[i], &values) ||
            values > MAX_VALUES)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: dims[%d] is %" PRId64 ": a sample has 1 to %d numbers", what, i,
                            data->dims[i], MAX_VALUES);
    return DDP_OK;
}

static enum ddp_status check_labels(const struct ddp_data *data, const char *what)
{
    if (data->classes < 0 || data->classes > INT32_MAX)
        return ddp_fail(DDP_ERR_INVALID, "%s: classes is %" PRId64 ": 0 to %d are possible", what,
                        data->classes, INT32_MAX);
    if (data->label_count < 0 || data->label_count > MAX_VALUES)
        return ddp_fail(DDP_ERR_INVALID, "%s: label_count is %" PRId64 ": 0 to %d are possible",
                        what, data->label_count, MAX_VALUES);
    if (!data->read && !data->samples)
        return ddp_fail(DDP_ERR_INVALID, "%s: neither read nor samples is set", what);
    if (!data->read && data->label_count > 0 && !data->labels)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: label_count is %" PRId64 ", and neither read nor labels is set", what,
                        data->label_count);
    return DDP_OK;
}

enum ddp_status ddp_dataset_take_own(struct ddp_data *data, const struct ddp_data *given,
                                     const char *what)
{
    enum ddp_status status = ddp_versioned_take(data, sizeof *data, given, what);
    if (status == DDP_OK)
        status = check_shape(data, what);
    return status == DDP_OK ? check_labels(data, what) : status;
}

/* --- samples ---------------------------------------------------------------------------------- */

/* What a read function may return. The others have a meaning for the whole job. */
static bool may_return(enum ddp_status status)
{
    return status < DDP_OK && status >= DDP_ERR_UNSUPPORTED && status != DDP_ERR_ABORTED &&
           status != DDP_ERR_MISMATCH;
}

static enum ddp_status call_read(const struct custom *c, int64_t index, void *sample, void *label)
{
    char said[MESSAGE_BYTES] = "";
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    const enum ddp_status status = c->data.read(c->data.arg, index, sample, label);
    ddp_log_exchange(before);
    if (status == DDP_OK)
        return DDP_OK;
    if (!may_return(status))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: the read function returned %d for sample %" PRId64
                        ", which is not a status of its own: return one, such as DDP_ERR_IO",
                        c->what, (int)status, index);
    if (*said)
        return ddp_fail(status, "%s: sample %" PRId64 ": %s", c->what, index, said);
    return ddp_fail(status, "%s: the read function failed for sample %" PRId64 ": %s", c->what,
                    index, ddp_status_string(status));
}

/* Labels that are classes, or none. */
static enum ddp_status check_classes(const struct custom *c, int64_t index, const void *labels)
{
    const int64_t count = c->data.label_count;
    for (int64_t i = 0; c->data.classes > 0 && i < count; i++) {
        int32_t label;
        memcpy(&label, (const char *)labels + (size_t)i * sizeof label, sizeof label);
        if ((label >= 0 && label < c->data.classes) || label == DDP_DATA_NO_LABEL)
            continue;
        char place[48] = "";
        if (count > 1)
            snprintf(place, sizeof place, " at place %" PRId64, i);
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: sample %" PRId64 " has the label %d%s: there are %" PRId64
                        " classes, from 0, in int32 (classes 0: labels are float32 numbers)",
                        c->what, index, (int)label, place, c->data.classes);
    }
    return DDP_OK;
}

static void mark_no_labels(const struct custom *c, void *labels)
{
    for (int64_t i = 0; c->data.classes > 0 && i < c->data.label_count; i++) {
        int32_t *label = (int32_t *)labels + i;
        *label = *label == DDP_DATA_NO_LABEL ? DDP_LABEL_NONE : *label;
    }
}

static const void *row(const void *array, int64_t index, size_t bytes)
{
    return (const char *)array + (size_t)index * bytes;
}

/* label: room for it; NULL without labels */
static enum ddp_status read_one(const struct custom *c, int64_t index, void *sample, void *label)
{
    const size_t label_bytes = (size_t)c->data.label_count * sizeof(int32_t);
    enum ddp_status status = DDP_OK;
    if (c->data.read)
        status = call_read(c, index, sample, label);
    else
        memcpy(sample, row(c->data.samples, index, c->base.info.sample_bytes),
               c->base.info.sample_bytes);
    if (status == DDP_OK && !c->data.read && label)
        memcpy(label, row(c->data.labels, index, label_bytes), label_bytes);
    if (status == DDP_OK && label)
        status = check_classes(c, index, label);
    if (status == DDP_OK && label)
        mark_no_labels(c, label);
    return status;
}

static enum ddp_status custom_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                   void *x, int32_t *labels)
{
    const struct custom *c = (const struct custom *)dataset;
    const size_t label_count = (size_t)c->data.label_count;
    int32_t *unwanted = NULL;
    enum ddp_status status = DDP_OK;
    if (!labels && label_count > 0 && !(unwanted = ddp_array_alloc(label_count, sizeof *unwanted)))
        return DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        void *label = unwanted ? unwanted : labels + i * label_count;
        status = read_one(c, indices[i], (char *)x + i * dataset->info.sample_bytes,
                          label_count > 0 ? label : NULL);
    }
    free(unwanted);
    return status;
}

static void custom_close(ddp_dataset *dataset)
{
    (void)dataset;
}

static const struct ddp_dataset_ops ops = {.read = custom_read, .close = custom_close};

/* --- opening ---------------------------------------------------------------------------------- */

/* Those in an array can be seen before training begins. */
static enum ddp_status check_array(const struct custom *c)
{
    const size_t bytes = (size_t)c->data.label_count * sizeof(int32_t);
    enum ddp_status status = DDP_OK;
    for (int64_t i = 0; status == DDP_OK && !c->data.read && bytes > 0 && i < c->data.count; i++)
        status = check_classes(c, i, row(c->data.labels, i, bytes));
    return status;
}

static enum ddp_status open_set(ddp_dataset **result, const struct ddp_data *data, const char *what,
                                int64_t class_count)
{
    struct custom *c = ddp_dataset_alloc(sizeof *c, &ops, "");
    if (!c)
        return DDP_ERR_MEMORY;
    *result = &c->base;
    c->data = *data;
    c->what = what;
    struct ddp_dataset_info *info = &c->base.info;
    info->source = DDP_DATASET_OWN;
    info->sample_count = data->count;
    info->class_count = data->classes;
    info->label_count = data->label_count;
    info->float_labels = data->label_count > 0 && data->classes == 0;
    info->x_dtype = data->dtype;
    info->dim_count = data->dim_count;
    info->sample_values = 1;
    for (int i = 0; i < data->dim_count; i++) {
        info->dims[i] = data->dims[i];
        info->sample_values *= (size_t)data->dims[i];
    }
    info->sample_bytes = info->sample_values * ddp_dtype_bytes(data->dtype);
    info->shuffled = true;
    const bool colours = info->dim_count == 3 && info->dims[0] <= DDP_DATASET_MAX_CHANNELS;
    info->channel_count = colours ? (int)info->dims[0] : 1;
    for (int i = 0; i < DDP_DATASET_MAX_CHANNELS; i++)
        info->std[i] = 1;
    if (data->classes > 0 && class_count > 0) { /* those of weights that are loaded */
        if (data->classes > class_count)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s has %" PRId64 " classes, and the model that is loaded %" PRId64,
                            what, data->classes, class_count);
        info->class_count = class_count;
    }
    return check_array(c);
}

static enum ddp_status check_test(const struct ddp_data *train, const struct ddp_data *test,
                                  bool unlabelled)
{
    if (test->dtype != train->dtype || test->dim_count != train->dim_count ||
        memcmp(test->dims, train->dims, (size_t)train->dim_count * sizeof *train->dims) != 0)
        return ddp_fail(DDP_ERR_INVALID, "own test data: dtype and dims are not those of the "
                                         "training data");
    if (test->label_count == 0 && unlabelled)
        return DDP_OK;
    if (test->label_count != train->label_count || test->classes != train->classes)
        return ddp_fail(DDP_ERR_INVALID,
                        "own test data: %" PRId64 " classes and label_count %" PRId64
                        ", but the training data has %" PRId64 " and %" PRId64,
                        test->classes, test->label_count, train->classes, train->label_count);
    return DDP_OK;
}

static enum ddp_status custom_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                   ddp_dataset **test)
{
    const struct ddp_data *own = options->own, *own_test = options->own_test;
    enum ddp_status status = open_set(train, own, DDP_DATASET_OWN, options->class_count);
    if (status != DDP_OK || !test || !own_test)
        return status;
    status = check_test(own, own_test, options->unlabelled);
    return status == DDP_OK ? open_set(test, own_test, DDP_DATASET_OWN_TEST, options->class_count)
                            : status;
}

const struct ddp_dataset_source ddp_dataset_custom = {
    .name = DDP_DATASET_OWN,
    .help = "a program's own data",
    .open = custom_open,
};
