/* SPDX-License-Identifier: MIT
 *
 * See augment.h. */
#include "config.h"

#include "data/augment.h"

#include "core/memory.h"
#include "core/philox.h"

#include <stdlib.h>
#include <string.h>

#define STREAM 0x61756721u /* apart from the random numbers of anything else with the same seed */

bool ddp_augment_fits(const struct ddp_dataset_info *info)
{
    return info->x_dtype == DDP_F32 && info->dim_count == 3;
}

struct ddp_augment_draw ddp_augment_draw(const struct ddp_augment *augment, int64_t epoch,
                                         int64_t index)
{
    const uint32_t offsets = 2 * DDP_AUGMENT_PADDING + 1;
    const uint32_t key[2] = {(uint32_t)augment->seed, STREAM};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)((uint64_t)index >> 32),
                                 (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32)};
    uint32_t random[4];
    struct ddp_augment_draw draw = {.top = DDP_AUGMENT_PADDING, .left = DDP_AUGMENT_PADDING};
    ddp_philox(random, counter, key);
    if (augment->crop) {
        draw.top = (int)ddp_philox_below(random[0], offsets);
        draw.left = (int)ddp_philox_below(random[1], offsets);
    }
    draw.flip = augment->flip && ddp_philox_below(random[2], 2) == 1;
    return draw;
}

static void fill(float *x, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = value;
}

static void reverse(float *x, int64_t count)
{
    for (int64_t i = 0, j = count - 1; i < j; i++, j--) {
        const float kept = x[i];
        x[i] = x[j];
        x[j] = kept;
    }
}

/* A row of the padded image, from its column `left` on. */
static void cut_row(float *to, const float *from, int64_t width, int left, float black)
{
    const int64_t shift = left - DDP_AUGMENT_PADDING; /* to[i] = from[i + shift] */
    int64_t begin = shift < 0 ? -shift : 0, end = shift > 0 ? width - shift : width;
    if (begin > width)
        begin = width;
    if (end < begin)
        end = begin;
    fill(to, begin, black);
    if (end > begin)
        memcpy(to + begin, from + begin + shift, (size_t)(end - begin) * sizeof *to);
    fill(to + end, width - end, black);
}

void ddp_augment_image(const struct ddp_augment_draw *draw, const struct ddp_dataset_info *info,
                       float *x, float *scratch)
{
    const int64_t channels = info->dims[0], height = info->dims[1], width = info->dims[2];
    const bool moves = draw->top != DDP_AUGMENT_PADDING || draw->left != DDP_AUGMENT_PADDING;
    if (moves)
        memcpy(scratch, x, info->sample_bytes);
    for (int64_t c = 0; moves && c < channels; c++) {
        /* What a black pixel has become. */
        const int scale = info->channel_count == channels ? (int)c : 0;
        const float black = (float)((0 - info->mean[scale]) / info->std[scale]);
        for (int64_t y = 0; y < height; y++) {
            const int64_t from = y + draw->top - DDP_AUGMENT_PADDING;
            float *row = x + (c * height + y) * width;
            if (from < 0 || from >= height)
                fill(row, width, black);
            else
                cut_row(row, scratch + (c * height + from) * width, width, draw->left, black);
        }
    }
    for (int64_t row = 0; draw->flip && row < channels * height; row++)
        reverse(x + row * width, width);
}

enum ddp_status ddp_augment_batch(const struct ddp_augment *augment,
                                  const struct ddp_dataset_info *info, int64_t epoch,
                                  const int64_t *indices, size_t count, float *x)
{
    const bool moves = augment->crop || augment->flip;
    float *scratch = moves ? ddp_array_alloc(info->sample_values, sizeof *scratch) : NULL;
    if (moves && !scratch)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < count; i++, x += info->sample_values) {
        const struct ddp_augment_draw draw = ddp_augment_draw(augment, epoch, indices[i]);
        if (moves)
            ddp_augment_image(&draw, info, x, scratch);
        if (augment->jitter > 0) {
            const struct ddp_augment_jitter jitter = ddp_augment_jitter(augment, epoch, indices[i]);
            ddp_augment_colours(&jitter, info, x);
        }
    }
    free(scratch);
    return DDP_OK;
}

/* As torch does it: both products are rounded. */
enum ddp_status ddp_augment_mix(double share, const struct ddp_dataset_info *info, size_t count,
                                float *x)
{
    const size_t values = info->sample_values;
    const float own = (float)share, rest = (float)(1 - share);
    float *last = ddp_array_alloc(values, sizeof *last);
    if (!last)
        return DDP_ERR_MEMORY;
    memcpy(last, x + (count - 1) * values, info->sample_bytes);
    for (size_t row = count; row-- > 0;) {
        const float *before = row > 0 ? x + (row - 1) * values : last;
        float *to = x + row * values;
        for (size_t i = 0; i < values; i++)
            to[i] = own * to[i] + rest * before[i];
    }
    free(last);
    return DDP_OK;
}
