/* SPDX-License-Identifier: MIT
 *
 * See data_notes.h. */
#include "config.h"

#include "train/data_notes.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/describe.h"
#include "data/normalize.h"
#include "generate/texts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_AT  64 /* samples */
#define FAR_BEYOND 4  /* the root mean square of numbers that are not scaled; scaled ones have 1 */

struct range {
    float least, largest;
    double squares; /* the sum */
};

static void add_sample(struct range *range, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        range->least = fminf(range->least, x[i]);
        range->largest = fmaxf(range->largest, x[i]);
        range->squares += (double)x[i] * (double)x[i];
    }
}

/* Looks at samples spread over the whole set. */
static enum ddp_status note_scale(const ddp_dataset *data, const char *where, bool trains)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(data);
    const int64_t count = info->sample_count < LOOKED_AT ? info->sample_count : LOOKED_AT;
    struct range range = {INFINITY, -INFINITY, 0};
    float *x = ddp_array_alloc(info->sample_values, sizeof *x);
    enum ddp_status status = x ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        const int64_t at = ddp_dataset_spread(info->sample_count, count, i);
        status = ddp_dataset_read(data, &at, 1, x, NULL);
        if (status == DDP_OK)
            add_sample(&range, x, info->sample_values);
    }
    free(x);
    if (status == DDP_OK &&
        range.squares > FAR_BEYOND * FAR_BEYOND * (double)count * (double)info->sample_values)
        ddp_log(DDP_LOG_WARNING, "%s: %s far beyond 1, such as %g and %g: give --normalize %s",
                where, trains ? "models learn badly from numbers" : "it has numbers",
                (double)range.least, (double)range.largest,
                trains ? "to scale them to mean 0 and deviation 1"
                       : "if the model was trained with it");
    return status;
}

static bool takes_val(const char *source)
{
    const struct ddp_dataset_source *row = NULL;
    for (size_t i = 0; (row = ddp_dataset_source_at(i)) && strcmp(row->name, source) != 0;)
        i++;
    return row && row->takes_val;
}

/* What the source has to say; of a test set that was cut off the training data it is the same. */
static void tell_notices(const ddp_dataset *data, const ddp_dataset *test)
{
    const char *of_data = ddp_dataset_info(data)->notice;
    const char *of_test = test ? ddp_dataset_info(test)->notice : NULL;
    if (of_data)
        ddp_log(DDP_LOG_INFO, "note: %s", of_data);
    if (of_test && of_test != of_data)
        ddp_log(DDP_LOG_INFO, "note: %s", of_test);
}

/* Images of another size than those that the model learned from. */
static void note_size(const struct ddp_dataset_info *info, const char *description)
{
    int64_t height, width;
    if (info->dim_count == 3 && ddp_dataset_image_size(description, &height, &width) &&
        (info->dims[1] != height || info->dims[2] != width))
        ddp_log(DDP_LOG_WARNING,
                "the model learned from images of %" PRId64 " x %" PRId64 ", and those of %s are "
                "%" PRId64 " x %" PRId64 ": its predictions may be worse",
                height, width, ddp_dataset_where(info), info->dims[1], info->dims[2]);
}

enum ddp_status ddp_train_data_notes(const struct ddp_train_options *options,
                                     const ddp_dataset *data, const ddp_dataset *test,
                                     const char *description)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(data);
    const char *where = ddp_dataset_where(info);
    const bool trains = !ddp_train_evaluates_only(options);
    if (trains && options->evaluate && !test && info->label_count > 0 && !options->quiet)
        ddp_log(DDP_LOG_INFO,
                "note: %s has no test part, so nothing is evaluated: %sset some data aside with "
                "--val-split 0.1, or give --no-eval",
                where, takes_val(info->source) ? "name one with --val PATH, " : "");
    if (options->evaluate && test && ddp_dataset_info(test)->label_count == 0 && !options->quiet)
        ddp_log(DDP_LOG_INFO, "note: %s has no labels, so nothing is evaluated",
                ddp_dataset_where(ddp_dataset_info(test)));
    if (!options->quiet)
        tell_notices(data, test);
    if (!trains)
        note_size(info, description);
    ddp_train_note_tokenizer(info->tokenizer, description);
    if (info->normalized || info->x_dtype != DDP_F32)
        return DDP_OK;
    if (!ddp_dataset_is_scaled(info))
        return note_scale(data, where, trains);
    if (options->normalize)
        ddp_log(DDP_LOG_WARNING,
                "--normalize has no effect: the pixels of %s are scaled to mean 0 and deviation 1 "
                "anyway",
                where);
    return DDP_OK;
}
