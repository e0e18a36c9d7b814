/* SPDX-License-Identifier: MIT
 *
 * See split.h. Each part is a dataset that knows which samples of the whole are its own. */
#include "config.h"

#include "data/split.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/rng.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define READ_AT_ONCE 256 /* samples */

/* The dataset that two parts share; the last one closes it. */
struct whole {
    ddp_dataset *dataset;
    int parts;
};

struct part {
    struct ddp_dataset base;
    struct whole *whole;
    uint32_t *samples; /* base.info.sample_count numbers of the whole, rising */
};

/*   augment  NULL: as they are */
static enum ddp_status read_own(const ddp_dataset *dataset, const struct ddp_augment *augment,
                                int64_t epoch, const int64_t *indices, size_t count, void *x,
                                int32_t *labels)
{
    const struct part *part = (const struct part *)dataset;
    const struct ddp_dataset_info *info = &dataset->info;
    const ddp_dataset *whole = part->whole->dataset;
    enum ddp_status status = DDP_OK;
    int64_t own[READ_AT_ONCE];
    for (size_t done = 0, n; status == DDP_OK && done < count; done += n) {
        void *to = (char *)x + done * info->sample_bytes;
        int32_t *to_labels = labels ? labels + done * (size_t)info->label_count : NULL;
        n = count - done < READ_AT_ONCE ? count - done : READ_AT_ONCE;
        for (size_t i = 0; i < n; i++)
            own[i] = part->samples[indices[done + i]];
        status = augment ? ddp_dataset_read_resized(whole, augment, epoch, own, n, to, to_labels)
                         : ddp_dataset_read(whole, own, n, to, to_labels);
    }
    return status;
}

static enum ddp_status part_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                 void *x, int32_t *labels)
{
    return read_own(dataset, NULL, 0, indices, count, x, labels);
}

static const char *part_sample_name(const ddp_dataset *dataset, int64_t index)
{
    const struct part *part = (const struct part *)dataset;
    return ddp_dataset_sample_name(part->whole->dataset, part->samples[index]);
}

static float *part_references(const ddp_dataset *dataset, int64_t sample, int64_t *count)
{
    const struct part *part = (const struct part *)dataset;
    return ddp_dataset_references(part->whole->dataset, sample < 0 ? sample : part->samples[sample],
                                  count);
}

static void part_close(ddp_dataset *dataset)
{
    struct part *part = (struct part *)dataset;
    free(part->samples);
    if (part->whole && --part->whole->parts == 0) {
        ddp_dataset_close(part->whole->dataset);
        free(part->whole);
    }
}

static const struct ddp_dataset_ops ops = {
    .read = part_read,
    .read_resized = read_own,
    .sample_name = part_sample_name,
    .references = part_references,
    .close = part_close,
};

const uint32_t *ddp_split_samples(const ddp_dataset *part)
{
    return ((const struct part *)part)->samples;
}

/* A share such as 0.07 of 100 is 7, although 0.07 * 100 is a little more in binary. */
int64_t ddp_split_count(double amount, int64_t total)
{
    if (amount >= 1)
        return (int64_t)amount;
    return (int64_t)ceil(amount * (double)total * (1 - 4 * DBL_EPSILON));
}

static int rising(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* A part of the whole, of these samples, which are sorted here. */
static struct part *make_part(const ddp_dataset *dataset, const uint32_t *samples, int64_t count)
{
    struct part *part = ddp_dataset_alloc(sizeof *part, &ops, dataset->path);
    if (!part)
        return NULL;
    part->base.info = dataset->info;
    part->base.info.path = part->base.path;
    part->base.info.sample_count = count;
    part->base.info.memory_bytes += (size_t)count * sizeof *part->samples;
    part->samples = ddp_array_alloc((size_t)count, sizeof *part->samples);
    if (!part->samples) {
        ddp_dataset_close(&part->base);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++)
        part->samples[i] = samples[i];
    qsort(part->samples, (size_t)count, sizeof *part->samples, rising);
    return part;
}

/* Gives the whole to both parts. */
static enum ddp_status join(ddp_dataset *dataset, struct part *train, struct part *test)
{
    struct whole *whole = train && test ? ddp_array_alloc(1, sizeof *whole) : NULL;
    if (!whole) {
        if (train)
            ddp_dataset_close(&train->base);
        if (test)
            ddp_dataset_close(&test->base);
        return DDP_ERR_MEMORY;
    }
    *whole = (struct whole){dataset, 2};
    train->whole = test->whole = whole;
    return DDP_OK;
}

enum ddp_status ddp_split(ddp_dataset **train, ddp_dataset **test, double amount)
{
    struct ddp_rng rng;
    const int64_t total = (*train)->info.sample_count, cut = ddp_split_count(amount, total);
    if (cut >= total)
        return ddp_fail(DDP_ERR_INVALID,
                        "--val-split %g: %s has %" PRId64
                        " samples, and at least one must be left for training",
                        amount, ddp_dataset_where(&(*train)->info), total);
    if (total > UINT32_MAX)
        return ddp_fail(DDP_ERR_INVALID, "--val-split: %" PRId64 " samples: up to %u can be split",
                        total, UINT32_MAX);
    uint32_t *order = ddp_array_alloc((size_t)total, sizeof *order);
    if (!order)
        return DDP_ERR_MEMORY;
    ddp_rng_seed(&rng, 0);
    enum ddp_status status = ddp_rng_permutation(&rng, total, order);
    struct part *first = NULL, *second = NULL;
    if (status == DDP_OK) {
        first = make_part(*train, order, total - cut);
        second = make_part(*train, order + (total - cut), cut);
        status = join(*train, first, second);
    }
    free(order);
    if (status == DDP_OK) {
        *train = &first->base;
        *test = &second->base;
    }
    return status;
}
