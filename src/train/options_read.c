/* SPDX-License-Identifier: MIT
 *
 * Reads the values of options that are more than a number or a word (see options_read.h); the
 * defaults of all of them. */
#include "config.h"

#include "train/options_read.h"

#include "core/parse.h"
#include "train/options.h"

#include <stdlib.h>
#include <string.h>

const char *ddp_train_read_model(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    static char message[128];
    const struct ddp_model *model = ddp_model_find(value);
    if (!model) {
        size_t used = (size_t)snprintf(message, sizeof message, "no such model; there are");
        for (int i = 0; ddp_model_at(i) && used < sizeof message; i++)
            used += (size_t)snprintf(message + used, sizeof message - used, " %s",
                                     ddp_model_at(i)->name);
        return message;
    }
    options->model = model->name;
    return NULL;
}

const char *ddp_train_read_dataset(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    static char message[128];
    size_t used = (size_t)snprintf(message, sizeof message, "no such source of data; there are");
    for (size_t i = 0; ddp_dataset_source_at(i); i++) {
        const char *name = ddp_dataset_source_at(i)->name;
        if (strcmp(name, value) == 0) {
            options->dataset = name;
            return NULL;
        }
        if (used < sizeof message)
            used += (size_t)snprintf(message + used, sizeof message - used, " %s", name);
    }
    return message;
}

/* "crop,flip" */
const char *ddp_train_read_augment(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[64];
    options->crop = options->flip = false;
    if (strcmp(value, "none") == 0)
        return NULL;
    snprintf(text, sizeof text, "%s", value);
    for (char *rest = text, *word; (word = strsep(&rest, ","));)
        if (strcmp(word, "crop") == 0)
            options->crop = true;
        else if (strcmp(word, "flip") == 0)
            options->flip = true;
        else
            return "must be crop, flip, both with a comma between, or none";
    return NULL;
}

/* "512,256": the widths of the hidden layers; "none": a linear classifier. */
const char *ddp_train_read_hidden(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[256];
    int count = 0;
    if (strcmp(value, "none") != 0) {
        if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
            return "too long";
        for (char *rest = text, *word; (word = strsep(&rest, ","));) {
            if (count == DDP_MODEL_LAYERS)
                return "at most 16 layers";
            if (!ddp_parse_int64(word, 1, 1 << 20, &options->hidden[count++]))
                return "must be widths from 1 to 1048576 with commas between, or none";
        }
    }
    options->hidden_count = count;
    options->hidden_given = true;
    return NULL;
}

/* "0,1": numbers of GPUs, which may repeat. */
const char *ddp_train_read_devices(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[512];
    int count = 0;
    int64_t index;
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return "too long";
    for (char *rest = text, *word; (word = strsep(&rest, ","));) {
        if (count == DDP_TRAIN_DEVICES)
            return "at most 64 devices";
        if (!ddp_parse_int64(word, 0, 1023, &index))
            return "must be numbers of GPUs, counted from 0, with commas between";
        options->devices[count++] = (int)index;
    }
    options->device_count = count;
    return NULL;
}

/* "30,60,80": rising numbers of epochs. */
const char *ddp_train_read_milestones(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[256];
    int count = 0;
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return "too long";
    for (char *rest = text, *word; (word = strsep(&rest, ","));) {
        const int64_t above = count ? options->milestones[count - 1] : 0;
        if (count == DDP_SCHEDULE_MILESTONES)
            return "at most 16 milestones";
        if (!ddp_parse_int64(word, above + 1, 1000000000, &options->milestones[count++]))
            return "must be rising numbers of epochs with commas between";
    }
    options->milestone_count = count;
    return NULL;
}

/* "20-40", or "20": the steps that a trace shows. */
const char *ddp_train_read_trace_steps(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[64];
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return "too long";
    char *last = strchr(text, '-');
    if (last)
        *last++ = '\0';
    if (!ddp_parse_int64(text, 1, DDP_COUNT_MAX, &options->report.trace_first) ||
        !ddp_parse_int64(last ? last : text, options->report.trace_first, DDP_COUNT_MAX,
                         &options->report.trace_last))
        return "must be the first and the last step, such as 20-40";
    options->trace_steps_given = true;
    return NULL;
}

bool ddp_train_options_accept_stop(const struct ddp_train_options *options)
{
    return options->checkpoint && !options->generate && !options->plan;
}

void ddp_train_options_default(struct ddp_train_options *options)
{
    *options = (struct ddp_train_options){
        .model = ddp_model_mlp.name,
        .data_size = 16,
        .seq_len = 256,
        .temperature = 0.8,
        .top_k = 200,
        .data_threads = 1,
        .shuffle = true,
        .hidden = {512, 512},
        .hidden_count = 2,
        .epochs = 5,
        .batch_size = 64,
        .acc_steps = 1,
        .lanes = 8,
        .device = "auto",
        .momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .gamma = 0.1,
        .step_size = 30,
        .bucket_mb = 25,
        .zero = 1,
        .shared_weights = true,
        .keep = 3,
        .evaluate = true,
        .report.trace_first = 1,
        .report.trace_last = 1000,
    };
}
