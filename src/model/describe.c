/* SPDX-License-Identifier: MIT
 *
 * Model configs as text; see ddp_model_describe(). Words "name=value" in any order; lists have
 * commas. */
#include "config.h"

#include "model/model.h"

#include "core/log.h"
#include "core/parse.h"

#include <string.h>

enum kind { INTEGER, REAL, BOOLEAN, DIMS, HIDDEN };

static const struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    double min, max;
} fields[] = {
#define FIELD(text, kind, member, min, max)                                                        \
    {                                                                                              \
        text, kind, offsetof(struct ddp_model_config, member), min, max                            \
    }
    FIELD("dims", DIMS, dims, 1, 1e9),
    FIELD("classes", INTEGER, classes, 0, 1e9),
    FIELD("hidden", HIDDEN, hidden, 1, 1 << 20),
    FIELD("layers", INTEGER, layers, 0, 1000),
    FIELD("heads", INTEGER, heads, 0, 1000),
    FIELD("channels", INTEGER, channels, 0, 65536),
    FIELD("context", INTEGER, context, 0, 1 << 20),
    FIELD("norm_eps", REAL, norm_eps, 0, 1),
    FIELD("exact_gelu", BOOLEAN, exact_gelu, 0, 1),
#undef FIELD
};

static int64_t *numbers_of(struct ddp_model_config *config, enum kind kind, int **count, int *room)
{
    *count = kind == DIMS ? &config->dim_count : &config->hidden_count;
    *room = kind == DIMS ? (int)(sizeof config->dims / sizeof config->dims[0]) : DDP_MODEL_LAYERS;
    return kind == DIMS ? config->dims : config->hidden;
}

void ddp_model_describe(const char *name, const struct ddp_model_config *config,
                        char text[DDP_MODEL_TEXT])
{
    struct ddp_model_config copy = *config;
    size_t used = (size_t)snprintf(text, DDP_MODEL_TEXT, "%s", name);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const struct field *field = &fields[i];
        const void *at = (const char *)&copy + field->offset;
        char value[256] = "";
        size_t length = 0;
        int *count, room;
        switch (field->kind) {
        case INTEGER:
            if (*(const int64_t *)at)
                snprintf(value, sizeof value, "%lld", (long long)*(const int64_t *)at);
            break;
        case REAL:
            if (*(const double *)at > 0)
                snprintf(value, sizeof value, "%.9g", *(const double *)at);
            break;
        case BOOLEAN:
            if (*(const bool *)at)
                snprintf(value, sizeof value, "1");
            break;
        case DIMS:
        case HIDDEN: {
            const int64_t *numbers = numbers_of(&copy, field->kind, &count, &room);
            for (int k = 0; k < *count; k++)
                length += (size_t)snprintf(value + length, sizeof value - length, "%s%lld",
                                           k ? "," : "", (long long)numbers[k]);
            break;
        }
        }
        if (*value && used < DDP_MODEL_TEXT)
            used +=
                (size_t)snprintf(text + used, DDP_MODEL_TEXT - used, " %s=%s", field->name, value);
    }
}

static bool read_list(struct ddp_model_config *config, const struct field *field, char *value)
{
    int *count, room;
    int64_t *numbers = numbers_of(config, field->kind, &count, &room);
    for (*count = 0; value && *count < room; (*count)++) {
        const char *word = strsep(&value, ",");
        if (!ddp_parse_int64(word, (int64_t)field->min, (int64_t)field->max, &numbers[*count]))
            return false;
    }
    return !value;
}

static bool read_field(struct ddp_model_config *config, const struct field *field, char *value)
{
    void *at = (char *)config + field->offset;
    int64_t number;
    switch (field->kind) {
    case INTEGER:
        return ddp_parse_int64(value, (int64_t)field->min, (int64_t)field->max, at);
    case REAL:
        return ddp_parse_double(value, field->min, field->max, at);
    case BOOLEAN:
        if (!ddp_parse_int64(value, 0, 1, &number))
            return false;
        *(bool *)at = number;
        return true;
    case DIMS:
    case HIDDEN:
        return read_list(config, field, value);
    }
    return false;
}

enum ddp_status ddp_model_read_description(char name[DDP_MODEL_TEXT],
                                           struct ddp_model_config *config, const char *text,
                                           const char *path)
{
    char copy[DDP_MODEL_TEXT], *rest = copy;
    struct ddp_model_config result = {0};
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the model's description is too long", path);
    const char *first = strsep(&rest, " ");
    while (rest) {
        char *value = strsep(&rest, " ");
        const char *key = strsep(&value, "=");
        const struct field *field = NULL;
        for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
            if (strcmp(fields[i].name, key) == 0)
                field = &fields[i];
        if (!field || !value || !read_field(&result, field, value))
            return ddp_fail(DDP_ERR_FORMAT, "%s: the model's description has a wrong %s", path,
                            key);
    }
    result.features = result.dim_count ? 1 : 0;
    for (int i = 0; i < result.dim_count; i++)
        if (__builtin_mul_overflow(result.features, result.dims[i], &result.features))
            return ddp_fail(DDP_ERR_FORMAT, "%s: the model's description has wrong dims", path);
    snprintf(name, DDP_MODEL_TEXT, "%s", first);
    *config = result;
    return DDP_OK;
}
