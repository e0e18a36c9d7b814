/* SPDX-License-Identifier: MIT
 *
 * Model configs as text; see ddp_model_describe(). Words "name=value" in any order; lists have
 * commas. */
#include "config.h"

#include "model/model.h"

#include "core/log.h"
#include "core/parse.h"

#include <string.h>

static const struct ddp_model_field base[] = {
    {"dims", DDP_FIELD_LIST, offsetof(struct ddp_model_config, dims), 1, 1e9, 4,
     offsetof(struct ddp_model_config, dim_count)},
    {"classes", DDP_FIELD_INT, offsetof(struct ddp_model_config, classes), 0, 1e9, 0, 0},
    {0},
};

/* What version 0.1 wrote for all models. It still is written, so that their checkpoints match and
 * equal weights give equal files. */
#define OLD_FIELD " hidden=512,512"

static const struct ddp_model_field *find_field(const struct ddp_model_field *fields,
                                                const char *name)
{
    for (; fields && fields->name; fields++)
        if (strcmp(fields->name, name) == 0)
            return fields;
    return NULL;
}

/* --- writing ---------------------------------------------------------------------------------- */

static size_t append_list(const struct ddp_model_field *field, const void *from, char *text,
                          size_t size)
{
    const int64_t *numbers = (const void *)((const char *)from + field->offset);
    const int count = *(const int *)(const void *)((const char *)from + field->count_offset);
    size_t used = 0;
    for (int i = 0; i < count && used < size; i++)
        used += i ? (size_t)snprintf(text + used, size - used, ",%lld", (long long)numbers[i])
                  : (size_t)snprintf(text, size, " %s=%lld", field->name, (long long)numbers[i]);
    return used;
}

static size_t append_field(const struct ddp_model_field *field, const void *from, char *text,
                           size_t size)
{
    const void *at = (const char *)from + field->offset;
    switch (field->kind) {
    case DDP_FIELD_INT:
        if (*(const int64_t *)at)
            return (size_t)snprintf(text, size, " %s=%lld", field->name,
                                    (long long)*(const int64_t *)at);
        return 0;
    case DDP_FIELD_REAL:
        if (*(const double *)at > 0)
            return (size_t)snprintf(text, size, " %s=%.9g", field->name, *(const double *)at);
        return 0;
    case DDP_FIELD_BOOL:
        return *(const bool *)at ? (size_t)snprintf(text, size, " %s=1", field->name) : 0;
    case DDP_FIELD_LIST:
        return append_list(field, from, text, size);
    }
    return 0;
}

static void append_fields(const struct ddp_model_field *field, const void *from, char *text)
{
    for (size_t used = strlen(text); field && field->name && used < DDP_MODEL_TEXT; field++)
        used += append_field(field, from, text + used, DDP_MODEL_TEXT - used);
}

void ddp_model_describe(const struct ddp_model *model, const struct ddp_model_config *config,
                        char text[DDP_MODEL_TEXT])
{
    snprintf(text, DDP_MODEL_TEXT, "%s", model->name);
    append_fields(base, config, text);
    if (!find_field(model->fields, "hidden"))
        snprintf(text + strlen(text), DDP_MODEL_TEXT - strlen(text), OLD_FIELD);
    append_fields(model->fields, &config->own, text);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool read_field(const struct ddp_model_field *field, void *to, const char *value)
{
    void *at = (char *)to + field->offset;
    int64_t number;
    switch (field->kind) {
    case DDP_FIELD_INT:
        return ddp_parse_int64(value, (int64_t)field->min, (int64_t)field->max, at);
    case DDP_FIELD_REAL:
        return ddp_parse_double(value, field->min, field->max, at);
    case DDP_FIELD_BOOL:
        if (!ddp_parse_int64(value, 0, 1, &number))
            return false;
        *(bool *)at = number;
        return true;
    case DDP_FIELD_LIST:
        return ddp_option_list(value, ",", field->most, (int64_t)field->min, (int64_t)field->max,
                               false, at, (int *)(void *)((char *)to + field->count_offset));
    }
    return false;
}

static bool read_word(const struct ddp_model *model, struct ddp_model_config *config,
                      const char *key, const char *value)
{
    const struct ddp_model_field *field = find_field(base, key);
    if (field)
        return value && read_field(field, config, value);
    field = find_field(model ? model->fields : NULL, key);
    if (field)
        return value && read_field(field, &config->own, value);
    return !model || strcmp(key, "hidden") == 0; /* of a later version, or OLD_FIELD */
}

enum ddp_status ddp_model_read_description(const struct ddp_model **model,
                                           struct ddp_model_config *config, const char *text,
                                           const struct ddp_model *(*find)(const char *name),
                                           const char *path)
{
    char copy[DDP_MODEL_TEXT], *rest = copy;
    struct ddp_model_config result = {0};
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the model's description is too long", path);
    const struct ddp_model *found = find(strsep(&rest, " "));
    while (rest) {
        char *value = strsep(&rest, " ");
        const char *key = strsep(&value, "=");
        if (!read_word(found, &result, key, value))
            return ddp_fail(DDP_ERR_FORMAT, "%s: the model's description has a wrong %s", path,
                            key);
    }
    result.features = result.dim_count ? 1 : 0;
    for (int i = 0; i < result.dim_count; i++)
        if (__builtin_mul_overflow(result.features, result.dims[i], &result.features))
            return ddp_fail(DDP_ERR_FORMAT, "%s: the model's description has wrong dims", path);
    *model = found;
    *config = result;
    return DDP_OK;
}
