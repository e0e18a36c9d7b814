/* SPDX-License-Identifier: MIT
 *
 * See mixture.h. */
#include "config.h"

#include "data/mixture.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "data/data_names.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_WEIGHT 1e-6
#define MOST_WEIGHT  1e6

struct mixture {
    struct ddp_dataset base;
    ddp_dataset *parts[DDP_MIXTURE_PARTS];
    int64_t begins[DDP_MIXTURE_PARTS + 1]; /* of their samples in an epoch */
    int count;
    char *notice;
};

/* --- the option ------------------------------------------------------------------------------- */

/* Cuts ":2" off a word; false: it has no weight. A weight that is not a number, or too small or
 * large, becomes 0, which is refused later. */
static bool take_weight(char *word, double *weight)
{
    char *colon = strrchr(word, ':');
    *weight = 1;
    if (!colon || !colon[1] || colon[1 + strspn(colon + 1, "0123456789.eE+-")])
        return false;
    *colon = '\0';
    if (!ddp_parse_double(colon + 1, LEAST_WEIGHT, MOST_WEIGHT, weight))
        *weight = 0;
    return true;
}

bool ddp_mixture_read(struct ddp_mixture *mixture, const char *path)
{
    bool weighted = false;
    *mixture = (struct ddp_mixture){.count = 0};
    if (snprintf(mixture->text, sizeof mixture->text, "%s", path) >= PATH_MAX ||
        ddp_data_file_exists(path) || ddp_data_directory_exists(path))
        return false;
    for (char *rest = mixture->text, *word; (word = strsep(&rest, ","));) {
        if (mixture->count == DDP_MIXTURE_PARTS)
            return false;
        weighted = take_weight(word, &mixture->weights[mixture->count]) || weighted;
        mixture->paths[mixture->count++] = word;
    }
    return weighted;
}

/* --- the dataset ------------------------------------------------------------------------------ */

static enum ddp_status mixture_read(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *x, int32_t *labels)
{
    const struct mixture *m = (const struct mixture *)dataset;
    const struct ddp_dataset_info *info = &dataset->info;
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        int part = 0;
        while (indices[i] >= m->begins[part + 1])
            part++;
        const int64_t own =
            (indices[i] - m->begins[part]) % ddp_dataset_info(m->parts[part])->sample_count;
        status = ddp_dataset_read(m->parts[part], &own, 1, (char *)x + i * info->sample_bytes,
                                  labels ? labels + i * (size_t)info->label_count : NULL);
    }
    return status;
}

static void mixture_close(ddp_dataset *dataset)
{
    struct mixture *m = (struct mixture *)dataset;
    for (int i = 0; i < m->count; i++)
        ddp_dataset_close(m->parts[i]);
    free(m->notice);
}

static const struct ddp_dataset_ops ops = {.read = mixture_read, .close = mixture_close};

/* --- making it -------------------------------------------------------------------------------- */

static enum ddp_status check_part(const struct ddp_dataset_info *part,
                                  const struct ddp_dataset_info *first)
{
    if (part->x_dtype != DDP_I32)
        return ddp_fail(DDP_ERR_INVALID,
                        "--data: weights belong to texts and tokens, and %s is data of the kind %s",
                        part->path, part->source);
    if (part->dim_count != first->dim_count || part->dims[0] != first->dims[0] ||
        part->class_count != first->class_count || part->bytes != first->bytes)
        return ddp_fail(DDP_ERR_INVALID,
                        "--data: %s and %s are of different kinds: mix texts with texts, examples "
                        "with examples, in tokens of one vocabulary",
                        first->path, part->path);
    return DDP_OK;
}

/* Appends to a text that is freed with free(). */
__attribute__((format(printf, 2, 3))) static enum ddp_status append(char **text, const char *format,
                                                                    ...)
{
    char *more = NULL, *both = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int printed = vasprintf(&more, format, arguments);
    va_end(arguments);
    if (printed >= 0 && asprintf(&both, "%s%s%s", *text ? *text : "", *text ? "; " : "", more) < 0)
        both = NULL;
    if (printed >= 0)
        free(more);
    free(*text);
    *text = both;
    return both ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "--data: out of memory");
}

/* Says how often the samples of a part come, and what it has to say itself. */
static enum ddp_status add_notice(struct mixture *m, int part)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(m->parts[part]);
    const int64_t count = m->begins[part + 1] - m->begins[part];
    enum ddp_status status = DDP_OK;
    if (info->notice)
        status = append(&m->notice, "%s", info->notice);
    return status == DDP_OK ? append(&m->notice,
                                     "%s gives %" PRId64 " of the %" PRId64
                                     " samples of an epoch, %.3g times the %" PRId64 " it has",
                                     info->path, count, m->begins[m->count],
                                     (double)count / (double)info->sample_count, info->sample_count)
                            : status;
}

/*   weights  NULL: each sample once */
static enum ddp_status set_counts(struct mixture *m, const double *weights)
{
    double most = 0;
    for (int i = 0; weights && i < m->count; i++)
        most = fmax(most, (double)ddp_dataset_info(m->parts[i])->sample_count / weights[i]);
    for (int i = 0; i < m->count; i++) {
        const int64_t own = ddp_dataset_info(m->parts[i])->sample_count;
        const double count = weights ? floor(weights[i] * most + 0.5) : (double)own;
        if (count > UINT32_MAX || (double)m->begins[i] + count > UINT32_MAX)
            return ddp_fail(DDP_ERR_INVALID,
                            "--data: by these weights an epoch has more than %u samples: give "
                            "weights that differ less",
                            UINT32_MAX);
        m->begins[i + 1] = m->begins[i] + (count < 1 ? 1 : (int64_t)count);
    }
    return DDP_OK;
}

enum ddp_status ddp_mixture_join(ddp_dataset **result, ddp_dataset *const *parts, int count,
                                 const char *path, const double *weights)
{
    struct mixture *m = ddp_dataset_alloc(sizeof *m, &ops, path);
    if (!m) {
        for (int i = 0; i < count; i++)
            ddp_dataset_close(parts[i]);
        return DDP_ERR_MEMORY;
    }
    *result = &m->base;
    struct ddp_dataset_info *info = &m->base.info;
    const char *name = info->path;
    double bytes = 0;
    enum ddp_status status = DDP_OK;
    for (int i = 0; i < count; i++)
        m->parts[m->count++] = parts[i];
    for (int i = 0; status == DDP_OK && i < count; i++)
        status = check_part(ddp_dataset_info(parts[i]), ddp_dataset_info(parts[0]));
    if (status == DDP_OK)
        status = set_counts(m, weights);
    if (status != DDP_OK)
        return status;
    *info = *ddp_dataset_info(parts[0]);
    info->path = name;
    info->memory_bytes = 0;
    info->sample_count = m->begins[count];
    for (int i = 0; status == DDP_OK && i < count; i++) {
        const struct ddp_dataset_info *part = ddp_dataset_info(parts[i]);
        info->memory_bytes += part->memory_bytes;
        bytes += part->token_bytes * (double)(m->begins[i + 1] - m->begins[i]);
        status = weights ? add_notice(m, i) : DDP_OK;
    }
    info->token_bytes = bytes / (double)info->sample_count;
    info->notice = m->notice;
    return status;
}
