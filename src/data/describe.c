/* SPDX-License-Identifier: MIT
 *
 * See describe.h. */
#include "config.h"

#include "data/describe.h"

#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "data/normalize.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- writing ---------------------------------------------------------------------------------- */

static json_t *reals(const double *values, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_real(values[i]));
    return array;
}

static void add_pixels(json_t *root, const struct ddp_dataset_info *info)
{
    json_object_set_new(root, "mean", reals(info->mean, info->channel_count));
    json_object_set_new(root, "std", reals(info->std, info->channel_count));
    json_object_set_new(root, "size",
                        json_pack("[I, I]", (json_int_t)info->dims[1], (json_int_t)info->dims[2]));
}

static void add_classes(json_t *root, const struct ddp_dataset_info *info)
{
    json_t *classes = json_array();
    for (int64_t i = 0; i < info->class_count; i++) /* NULL, which names no class, if not UTF-8 */
        json_array_append_new(classes, json_string(info->class_names[i]));
    json_object_set_new(root, "classes", classes);
}

enum ddp_status ddp_dataset_describe(const struct ddp_dataset_info *info, char **text)
{
    const bool pixels = info->dim_count == 3 && !info->normalized && ddp_dataset_is_scaled(info);
    *text = NULL;
    if (!info->description && !pixels && info->label_std == 0 && info->tokenizer == 0)
        return DDP_OK;
    if (info->description) {
        *text = strdup(info->description);
        return *text ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    json_t *root = json_pack("{s:s}", "kind", info->source);
    if (pixels)
        add_pixels(root, info);
    if (info->class_names)
        add_classes(root, info);
    if (info->label_std > 0)
        json_object_set_new(
            root, "target",
            json_pack("{s:f, s:f}", "mean", info->label_mean, "std", info->label_std));
    if (info->tokenizer) {
        char hash[17];
        snprintf(hash, sizeof hash, "%016" PRIx64, info->tokenizer);
        json_object_set_new(root, "tokenizer", json_string(hash));
    }
    *text = root ? ddp_json_text(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return *text ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Freed with json_decref(); NULL: there is none. */
static json_t *parse(const char *text)
{
    json_t *root = NULL;
    json_error_t error;
    return text && ddp_json_parse(&root, text, strlen(text), &error) == DDP_OK ? root : NULL;
}

bool ddp_dataset_label_scale(const char *text, double *mean, double *std)
{
    json_t *root = parse(text);
    const json_t *target = json_object_get(root, "target");
    *mean = json_number_value(json_object_get(target, "mean"));
    *std = json_number_value(json_object_get(target, "std"));
    json_decref(root);
    return *std > 0;
}

bool ddp_dataset_pixel_scale(const char *text, struct ddp_dataset_info *info)
{
    json_t *root = parse(text);
    const json_t *mean = json_object_get(root, "mean"), *std = json_object_get(root, "std");
    const size_t channels = (size_t)info->channel_count;
    bool known = json_array_size(mean) == channels && json_array_size(std) == channels;
    for (size_t c = 0; c < channels; c++)
        known = known && json_number_value(json_array_get(std, c)) > 0;
    for (size_t c = 0; known && c < channels; c++) {
        info->mean[c] = json_number_value(json_array_get(mean, c));
        info->std[c] = json_number_value(json_array_get(std, c));
    }
    json_decref(root);
    return known;
}

bool ddp_dataset_image_size(const char *text, int64_t *height, int64_t *width)
{
    json_t *root = parse(text);
    const json_t *size = json_object_get(root, "size");
    *height = json_integer_value(json_array_get(size, 0));
    *width = json_integer_value(json_array_get(size, 1));
    json_decref(root);
    return *height > 0 && *width > 0;
}

uint64_t ddp_dataset_tokenizer(const char *text)
{
    json_t *root = parse(text);
    const char *hash = json_string_value(json_object_get(root, "tokenizer"));
    const uint64_t value = hash ? strtoull(hash, NULL, 16) : 0;
    json_decref(root);
    return value;
}

enum ddp_status ddp_dataset_class_names(const char *text, int64_t count, char ***names)
{
    json_t *root = parse(text);
    const json_t *classes = json_object_get(root, "classes"), *name;
    size_t bytes = 0, i;
    bool known = count > 0 && json_array_size(classes) == (size_t)count;
    *names = NULL;
    json_array_foreach(classes, i, name)
    {
        known = known && json_is_string(name);
        bytes += json_string_length(name) + 1;
    }
    char **list = known ? ddp_array_alloc(1, (size_t)count * sizeof *list + bytes) : NULL;
    char *at = list ? (char *)(list + count) : NULL;
    json_array_foreach(classes, i, name) if (list)
    {
        list[i] = at;
        at = stpcpy(at, json_string_value(name)) + 1;
    }
    json_decref(root);
    *names = list;
    return known && !list ? DDP_ERR_MEMORY : DDP_OK;
}
