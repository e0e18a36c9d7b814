/* SPDX-License-Identifier: MIT
 *
 * See normalize.h. The sums are made in one order, so that all workers find the same. */
#include "config.h"

#include "data/normalize.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEASURED_VALUES ((size_t)1 << 26)
#define READ_VALUES     ((size_t)1 << 18) /* at a time */

struct scale {
    size_t channels, inner; /* channels x inner numbers of a sample */
    double *mean, *std;     /* of each channel; std: before the end the sum of squares */
};

struct normalized {
    struct ddp_dataset base;
    ddp_dataset *source;
    struct scale scale;
};

bool ddp_dataset_is_scaled(const struct ddp_dataset_info *info)
{
    bool scaled = false;
    for (int c = 0; c < info->channel_count; c++)
        scaled = scaled || info->mean[c] != 0 || info->std[c] != 1;
    return scaled;
}

static enum ddp_status normalized_read(const ddp_dataset *dataset, const int64_t *indices,
                                       size_t count, void *x, int32_t *labels)
{
    const struct normalized *n = (const struct normalized *)dataset;
    enum ddp_status status = ddp_dataset_read(n->source, indices, count, x, labels);
    float *value = x;
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        for (size_t c = 0; c < n->scale.channels; c++) {
            const double mean = n->scale.mean[c], std = n->scale.std[c];
            for (size_t k = 0; k < n->scale.inner; k++, value++)
                *value = (float)(((double)*value - mean) / std);
        }
    return status;
}

static const char *normalized_sample_name(const ddp_dataset *dataset, int64_t index)
{
    return ddp_dataset_sample_name(((const struct normalized *)dataset)->source, index);
}

static void free_scale(struct scale *scale)
{
    free(scale->mean);
    free(scale->std);
}

static void normalized_close(ddp_dataset *dataset)
{
    struct normalized *n = (struct normalized *)dataset;
    free_scale(&n->scale);
    ddp_dataset_close(n->source);
}

static const struct ddp_dataset_ops ops = {
    .read = normalized_read, .sample_name = normalized_sample_name, .close = normalized_close};

/* --- mean and deviation ----------------------------------------------------------------------- */

/* The mean and the sum of squared distances from it, of one channel of one sample. */
static void measure_channel(const float *x, size_t count, double *mean, double *squares)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i];
    *mean = sum / (double)count;
    *squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double distance = (double)x[i] - *mean;
        *squares += distance * distance;
    }
}

/* Joins a sample to those before it, as Chan, Golub and LeVeque do: without the loss of digits
 * that a sum of squares would bring, and exactly 0 for equal values. */
static void add_sample(struct scale *scale, const float *x, size_t before)
{
    const double old_weight = (double)before / (double)(before + 1);
    const double new_weight = 1 / (double)(before + 1);
    for (size_t c = 0; c < scale->channels; c++, x += scale->inner) {
        double mean, squares;
        measure_channel(x, scale->inner, &mean, &squares);
        const double distance = mean - scale->mean[c];
        scale->mean[c] += distance * new_weight;
        scale->std[c] += squares + distance * distance * old_weight * (double)scale->inner;
    }
}

static enum ddp_status measure(struct scale *scale, const ddp_dataset *train)
{
    const struct ddp_dataset_info *info = &train->info;
    const size_t values = info->sample_values, samples = (size_t)info->sample_count;
    const size_t most = values < MEASURED_VALUES ? MEASURED_VALUES / values : 1;
    const size_t count = samples < most ? samples : most;
    const size_t batch = values < READ_VALUES ? READ_VALUES / values : 1;
    float *x = ddp_array_alloc(batch, info->sample_bytes);
    int64_t *at = ddp_array_alloc(batch, sizeof *at);
    enum ddp_status status = x && at ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t done = 0, n; status == DDP_OK && done < count; done += n) {
        n = count - done < batch ? count - done : batch;
        for (size_t i = 0; i < n; i++)
            at[i] = ddp_dataset_spread(info->sample_count, (int64_t)count, (int64_t)(done + i));
        status = ddp_dataset_read(train, at, n, x, NULL);
        for (size_t i = 0; status == DDP_OK && i < n; i++)
            add_sample(scale, x + i * values, done + i);
    }
    for (size_t c = 0; c < scale->channels; c++) {
        const double std = sqrt(scale->std[c] / ((double)count * (double)scale->inner));
        scale->std[c] = std > 0 ? std : 1;
    }
    free(at);
    free(x);
    return status;
}

/* --- the two sets ----------------------------------------------------------------------------- */

static enum ddp_status alloc_scale(struct scale *scale, const struct ddp_dataset_info *info)
{
    scale->channels = (size_t)info->dims[0];
    scale->inner = info->sample_values / scale->channels;
    scale->mean = ddp_array_alloc(scale->channels, sizeof *scale->mean);
    scale->std = ddp_array_alloc(scale->channels, sizeof *scale->std);
    return scale->mean && scale->std ? DDP_OK : DDP_ERR_MEMORY;
}

/* Takes the place of a set, with a copy of the scale. */
static enum ddp_status replace(ddp_dataset **set, const struct scale *scale)
{
    struct normalized *n = ddp_dataset_alloc(sizeof *n, &ops, (*set)->path);
    if (!n)
        return DDP_ERR_MEMORY;
    struct ddp_dataset_info *info = &n->base.info;
    *info = (*set)->info;
    info->path = n->base.path;
    info->normalized = true;
    enum ddp_status status = alloc_scale(&n->scale, info);
    if (status != DDP_OK) {
        ddp_dataset_close(&n->base);
        return status;
    }
    memcpy(n->scale.mean, scale->mean, scale->channels * sizeof *scale->mean);
    memcpy(n->scale.std, scale->std, scale->channels * sizeof *scale->std);
    info->memory_bytes += 2 * scale->channels * sizeof *scale->mean;
    for (int c = 0; (size_t)info->channel_count == scale->channels && c < info->channel_count;
         c++) {
        info->mean[c] = scale->mean[c];
        info->std[c] = scale->std[c];
    }
    n->source = *set;
    *set = &n->base;
    return DDP_OK;
}

enum ddp_status ddp_normalize(ddp_dataset **train, ddp_dataset **test)
{
    struct scale scale = {0};
    if ((*train)->info.normalized || ddp_dataset_is_scaled(&(*train)->info))
        return DDP_OK;
    enum ddp_status status = alloc_scale(&scale, &(*train)->info);
    if (status == DDP_OK)
        status = measure(&scale, *train);
    if (status == DDP_OK && *test)
        status = replace(test, &scale);
    if (status == DDP_OK)
        status = replace(train, &scale);
    free_scale(&scale);
    return status;
}
