/* SPDX-License-Identifier: MIT
 *
 * The part of augment.h that is torchvision's RandomResizedCrop(), ColorJitter() and RandomMixup():
 * what is drawn, and the colours. Regions are scaled where images are decoded. */
#include "config.h"

#include "data/augment.h"

#include "core/parse.h"
#include "core/philox.h"
#include "core/portable_math.h"
#include "data/normalize.h"

#include <math.h>
#include <string.h>

#define BOX_STREAM    0x61756800u /* and the numbers of the attempts; apart from other streams */
#define MIX_STREAM    0x61756d00u /* likewise */
#define JITTER_STREAM 0x61756a00u
#define ATTEMPTS      10
#define MIX_ATTEMPTS  64 /* of two draws each, of which at least every other one is taken */
#define RATIO         (4.0 / 3)

/* --- the option ------------------------------------------------------------------------------- */

/* "NAME" or "NAME=NUMBER", with a number between 0 and 1. */
static bool read_part(const char *word, const char *name, double otherwise, double *value)
{
    const size_t length = strlen(name);
    if (strncmp(word, name, length) != 0 || (word[length] != '\0' && word[length] != '='))
        return false;
    *value = otherwise;
    return word[length] == '\0' || ddp_parse_double(word + length + 1, 0.001, 1, value);
}

const char *ddp_augment_parse(struct ddp_augment *augment, const char *text)
{
    char words[128];
    *augment = (struct ddp_augment){.crop = false};
    if (strcmp(text, "none") == 0)
        return NULL;
    snprintf(words, sizeof words, "%s", text);
    for (char *rest = words, *word; (word = strsep(&rest, ","));)
        if (strcmp(word, "crop") == 0)
            augment->crop = true;
        else if (strcmp(word, "flip") == 0)
            augment->flip = true;
        else if (!read_part(word, "resized", DDP_AUGMENT_LEAST, &augment->resized) &&
                 !read_part(word, "jitter", DDP_AUGMENT_JITTER, &augment->jitter) &&
                 !read_part(word, "mixup", DDP_AUGMENT_MIXUP, &augment->mixup) &&
                 !read_part(word, "smooth", DDP_AUGMENT_SMOOTH, &augment->smooth))
            return "must be some of crop, flip, resized[=AREA], jitter[=FACTOR], mixup[=ALPHA] and "
                   "smooth[=SHARE] with commas between, all numbers from 0.001 to 1; or none";
    return NULL;
}

/* --- what is drawn ---------------------------------------------------------------------------- */

static void draw(uint32_t random[4], const struct ddp_augment *augment, uint32_t stream,
                 int64_t epoch, int64_t index)
{
    const uint32_t key[2] = {(uint32_t)augment->seed, stream};
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)((uint64_t)index >> 32),
                                 (uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32)};
    ddp_philox(random, counter, key);
}

static double between(uint32_t random, double least, double most)
{
    return least + (most - least) * (random * 0x1p-32);
}

/* Where no attempt fits: the middle, as large as the ratios allow. */
static struct ddp_augment_box middle(int height, int width)
{
    struct ddp_augment_box box = {.height = height, .width = width};
    if ((double)width / height < 1 / RATIO)
        box.height = (int)nearbyint(width * RATIO);
    else if ((double)width / height > RATIO)
        box.width = (int)nearbyint(height * RATIO);
    box.top = (height - box.height) / 2;
    box.left = (width - box.width) / 2;
    return box;
}

struct ddp_augment_box ddp_augment_box(const struct ddp_augment *augment, int height, int width,
                                       int64_t epoch, int64_t index)
{
    const double log_ratio = ddp_math_log(RATIO);
    for (uint32_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint32_t random[4];
        draw(random, augment, BOX_STREAM + attempt, epoch, index);
        const double area = (double)height * width * between(random[0], augment->resized, 1);
        const double ratio = ddp_math_exp(between(random[1], -log_ratio, log_ratio));
        const double w = nearbyint(sqrt(area * ratio)), h = nearbyint(sqrt(area / ratio));
        if (w >= 1 && w <= width && h >= 1 && h <= height)
            return (struct ddp_augment_box){
                .top = (int)ddp_philox_below(random[2], (uint32_t)(height - (int)h + 1)),
                .left = (int)ddp_philox_below(random[3], (uint32_t)(width - (int)w + 1)),
                .height = (int)h,
                .width = (int)w};
    }
    return middle(height, width);
}

struct ddp_augment_jitter ddp_augment_jitter(const struct ddp_augment *augment, int64_t epoch,
                                             int64_t index)
{
    struct ddp_augment_jitter jitter = {.order = {DDP_BRIGHTNESS, DDP_CONTRAST, DDP_SATURATION}};
    uint32_t random[4];
    draw(random, augment, JITTER_STREAM, epoch, index);
    for (int i = 0; i < DDP_AUGMENT_COLOURS; i++)
        jitter.factors[i] = (float)between(random[i], 1 - augment->jitter, 1 + augment->jitter);
    for (uint32_t i = 2, rest = ddp_philox_below(random[3], 6); i > 0; rest /= i + 1, i--) {
        const uint32_t with = rest % (i + 1);
        const enum ddp_augment_colour kept = jitter.order[i];
        jitter.order[i] = jitter.order[with];
        jitter.order[with] = kept;
    }
    return jitter;
}

static double open_unit(uint32_t random)
{
    return (random + 0.5) * 0x1p-32;
}

/* Jöhnk's way to the Beta distribution, by logarithms: powers of small numbers vanish. */
double ddp_augment_share(const struct ddp_augment *augment, int64_t epoch, int64_t first)
{
    for (uint32_t attempt = 0; attempt < MIX_ATTEMPTS; attempt++) {
        uint32_t random[4];
        draw(random, augment, MIX_STREAM + attempt, epoch, first);
        for (int i = 0; i < 4; i += 2) {
            const double own = ddp_math_log(open_unit(random[i])) / augment->mixup;
            const double other = ddp_math_log(open_unit(random[i + 1])) / augment->mixup;
            if (ddp_math_exp(own) + ddp_math_exp(other) <= 1)
                return 1 / (1 + ddp_math_exp(other - own));
        }
    }
    return 1;
}

/* --- colours ---------------------------------------------------------------------------------- */

bool ddp_augment_colours_fit(const struct ddp_dataset_info *info)
{
    return (info->dims[0] == 1 || info->dims[0] == 3) && ddp_dataset_is_scaled(info) &&
           !info->normalized;
}

/* What a pixel between 0 and 1 becomes. */
static float scale_to(const struct ddp_dataset_info *info, int channel, double pixel)
{
    return (float)((pixel - info->mean[channel]) / info->std[channel]);
}

/* The grey of a pixel, between 0 and 1. */
static double grey_of(const struct ddp_dataset_info *info, const float *x, size_t plane, size_t i)
{
    static const double weights[] = {0.2989, 0.587, 0.114};
    const int channels = (int)info->dims[0];
    double sum = 0;
    for (int c = 0; c < channels; c++) {
        const int scale = info->channel_count == channels ? c : 0;
        const double pixel = x[(size_t)c * plane + i] * info->std[scale] + info->mean[scale];
        sum += channels == 3 ? weights[c] * pixel : pixel;
    }
    return sum;
}

/* Each value is mixed with black, the image's grey or the pixel's, and cut off at black and white.
 */
static void change(enum ddp_augment_colour what, float factor, const struct ddp_dataset_info *info,
                   float *x)
{
    const int channels = (int)info->dims[0];
    const size_t plane = (size_t)(info->dims[1] * info->dims[2]);
    double grey = 0;
    for (size_t i = 0; what == DDP_CONTRAST && i < plane; i++)
        grey += grey_of(info, x, plane, i) / (double)plane;
    for (size_t i = 0; i < plane; i++) {
        if (what == DDP_SATURATION)
            grey = grey_of(info, x, plane, i);
        for (int c = 0; c < channels; c++) {
            const int scale = info->channel_count == channels ? c : 0;
            const float black = scale_to(info, scale, 0), white = scale_to(info, scale, 1);
            float *value = &x[(size_t)c * plane + i];
            const float mixed = factor * *value + (1 - factor) * scale_to(info, scale, grey);
            *value = mixed < black ? black : mixed > white ? white : mixed;
        }
    }
}

void ddp_augment_colours(const struct ddp_augment_jitter *jitter,
                         const struct ddp_dataset_info *info, float *x)
{
    for (int i = 0; i < DDP_AUGMENT_COLOURS; i++) {
        const enum ddp_augment_colour what = jitter->order[i];
        if (what != DDP_SATURATION || info->dims[0] == 3)
            change(what, jitter->factors[what], info, x);
    }
}
