/* SPDX-License-Identifier: MIT
 *
 * GPT-2 as Hugging Face's transformers stores it in safetensors: matrices of its Conv1D layers are
 * (in, out), names may begin with "transformer.", and attention masks may be among the tensors. */
#include "config.h"

#include "weights/interchange.h"

#include "core/log.h"
#include "core/memory.h"
#include "model/gpt2.h"
#include "weights/format.h"
#include "weights/hf_config.h"
#include "weights/hf_llama.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX     "transformer."
#define TURN_BLOCK 32 /* so many lines of a matrix stay in the cache */

struct source {
    const ddp_safetensors *file;
    const char *path;
    const char *prefix;
    bool turned; /* matrices are (in, out) */
    struct ddp_gpt2_shape shape;
};

static const struct ddp_safetensor *find(const ddp_safetensors *file, const char *prefix,
                                         const char *name)
{
    char full[DDP_GPT2_NAME + sizeof PREFIX];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return ddp_safetensors_find(file, full);
}

static const char *prefix_of(const ddp_safetensors *file)
{
    return find(file, PREFIX, "wte.weight") ? PREFIX : "";
}

bool ddp_hf_gpt2_is(const ddp_safetensors *file)
{
    const char *prefix = prefix_of(file);
    return find(file, prefix, "wte.weight") && find(file, prefix, "h.0.attn.c_attn.weight");
}

bool ddp_hf_gpt2_shape(struct ddp_gpt2_shape *shape, const ddp_safetensors *file)
{
    const char *prefix = prefix_of(file);
    const struct ddp_safetensor *wte = find(file, prefix, "wte.weight");
    const struct ddp_safetensor *wpe = find(file, prefix, "wpe.weight");
    char name[DDP_GPT2_NAME];
    if (!wte || !wpe || wte->dim_count != 2 || wpe->dim_count != 2)
        return false;
    *shape = (struct ddp_gpt2_shape){
        .channels = wte->dims[1], .vocabulary = wte->dims[0], .context = wpe->dims[0]};
    do
        snprintf(name, sizeof name, "h.%d.attn.c_attn.weight", (int)shape->layers);
    while (find(file, prefix, name) && ++shape->layers);
    return shape->layers > 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* out (rows, columns) from a tensor of that shape, or of (columns, rows) when it is turned. */
static void copy_values(float *out, const struct ddp_safetensor *tensor, int64_t rows,
                        int64_t columns, bool turned)
{
    const int64_t width = strcmp(tensor->dtype, "F32") == 0 ? 4 : 2;
    const char *data = tensor->data;
    float line[TURN_BLOCK];
    if (!turned)
        ddp_hf_values_convert(out, data, tensor->dtype, (size_t)(rows * columns));
    for (int64_t r0 = 0; turned && r0 < rows; r0 += TURN_BLOCK)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t some = rows - r0 < TURN_BLOCK ? rows - r0 : TURN_BLOCK;
            ddp_hf_values_convert(line, data + (c * rows + r0) * width, tensor->dtype,
                                  (size_t)some);
            for (int64_t r = 0; r < some; r++)
                out[(r0 + r) * columns + c] = line[r];
        }
}

static enum ddp_status take_tensor(const struct source *source, const char *name,
                                   const struct ddp_gpt2_tensor *kind, float *out)
{
    const struct ddp_safetensor *tensor = find(source->file, source->prefix, name);
    const bool turned = source->turned && kind->turned;
    int64_t dims[2];
    const int count = ddp_gpt2_tensor_dims(dims, kind, &source->shape);
    if (!tensor)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s%s is missing: is it another model's file?",
                        source->path, source->prefix, name);
    if (!ddp_hf_values_convert(out, tensor->data, tensor->dtype, 0))
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is %s; F32, F16 and BF16 can be read",
                        source->path, tensor->name, tensor->dtype);
    if (count == 1)
        dims[1] = 1;
    const int64_t first = turned ? dims[1] : dims[0], second = turned ? dims[0] : dims[1];
    if (tensor->dim_count != count || tensor->dims[0] != first ||
        (count == 2 && tensor->dims[1] != second)) {
        char have[64] = "", want[64];
        for (int d = 0, used = 0; d < tensor->dim_count && used < 40; d++)
            used += snprintf(have + used, sizeof have - (size_t)used, "%s%" PRId64, d ? "," : "",
                             tensor->dims[d]);
        snprintf(want, sizeof want, count == 1 ? "%" PRId64 : "%" PRId64 ",%" PRId64, first,
                 second);
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s has the shape (%s), the model's is (%s)",
                        source->path, tensor->name, have, want);
    }
    copy_values(out, tensor, dims[0], dims[1], turned);
    return DDP_OK;
}

/* "h.N.attn.bias" and "h.N.attn.masked_bias" are the causal mask. */
static bool is_mask(const char *name)
{
    if (strncmp(name, "h.", 2) != 0)
        return false;
    name += 2 + strspn(name + 2, "0123456789");
    return strcmp(name, ".attn.bias") == 0 || strcmp(name, ".attn.masked_bias") == 0;
}

static bool is_weight(const struct source *source, const char *name)
{
    char known[DDP_GPT2_NAME];
    for (int i = 0; i < DDP_GPT2_TENSORS; i++)
        for (int64_t l = 0; l < (ddp_gpt2_tensors[i].of_layer ? source->shape.layers : 1); l++)
            if (strcmp(name, ddp_gpt2_tensor_name(known, &ddp_gpt2_tensors[i], l)) == 0)
                return true;
    return false;
}

/* What else is in the file must be of no consequence. */
static enum ddp_status check_extra(const struct source *source)
{
    const struct ddp_safetensor *wte = find(source->file, source->prefix, "wte.weight");
    const size_t length = strlen(source->prefix);
    for (size_t i = 0; i < ddp_safetensors_count(source->file); i++) {
        const struct ddp_safetensor *tensor = ddp_safetensors_at(source->file, i);
        const char *name = tensor->name;
        if (strcmp(name, "lm_head.weight") == 0) {
            if (tensor->bytes != wte->bytes || memcmp(tensor->data, wte->data, wte->bytes) != 0)
                return ddp_fail(DDP_ERR_FORMAT,
                                "%s: lm_head.weight differs from %swte.weight: only models that "
                                "share them (tie_word_embeddings) can be read",
                                source->path, source->prefix);
            continue;
        }
        if (strncmp(name, source->prefix, length) == 0 &&
            (is_mask(name + length) || is_weight(source, name + length)))
            continue;
        return ddp_fail(DDP_ERR_FORMAT, "%s: the model has no parameter for tensor %s",
                        source->path, name);
    }
    return DDP_OK;
}

enum ddp_status ddp_hf_gpt2_load(const ddp_safetensors *file, const char *path,
                                 const ddp_graph *graph, float *flat)
{
    struct source source = {.file = file, .path = path, .prefix = prefix_of(file)};
    if (!ddp_gpt2_shape_of(&source.shape, graph))
        return ddp_fail(DDP_ERR_FORMAT, "%s: it has the weights of a GPT-2, which the model is not",
                        path);
    const struct ddp_safetensor *qkv = find(file, source.prefix, "h.0.attn.c_attn.weight");
    source.turned = qkv && qkv->dim_count == 2 && qkv->dims[0] < qkv->dims[1];
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < DDP_GPT2_TENSORS; i++) {
        const struct ddp_gpt2_tensor *kind = &ddp_gpt2_tensors[i];
        for (int64_t l = 0; status == DDP_OK && l < (kind->of_layer ? source.shape.layers : 1);
             l++) {
            char name[DDP_GPT2_NAME];
            ddp_gpt2_tensor_name(name, kind, l);
            status =
                take_tensor(&source, name, kind, flat + ddp_gpt2_parameter(graph, name)->offset);
        }
    }
    return status == DDP_OK ? check_extra(&source) : status;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The tensors while they are put together; matrices are turned when they are written. */
struct target {
    struct ddp_safetensor *tensors;
    char (*names)[DDP_GPT2_NAME + sizeof PREFIX];
    bool *turned;
    size_t count;
};

static void add_tensor(struct target *target, const struct ddp_gpt2_tensor *kind,
                       const struct ddp_parameter *parameter, const float *values)
{
    struct ddp_safetensor *tensor = &target->tensors[target->count];
    char *name = target->names[target->count++];
    snprintf(name, sizeof target->names[0], "%s%s", PREFIX, parameter->name);
    *tensor = (struct ddp_safetensor){.name = name,
                                      .dtype = "F32",
                                      .dim_count = parameter->dim_count,
                                      .dims = {parameter->dims[0], parameter->dims[1]},
                                      .data = values,
                                      .bytes = (size_t)parameter->count * sizeof *values};
    if (!kind->turned)
        return;
    target->turned[target->count - 1] = true;
    tensor->dims[0] = parameter->dims[1];
    tensor->dims[1] = parameter->dims[0];
}

static enum ddp_status put_values(void *arg, size_t index, ddp_safetensors_sink *sink,
                                  void *sink_arg)
{
    const struct target *target = arg;
    const struct ddp_safetensor *tensor = &target->tensors[index];
    if (!target->turned[index])
        return sink(sink_arg, tensor->data, tensor->bytes);
    float *turned = ddp_pages_alloc(tensor->bytes);
    if (!turned)
        return DDP_ERR_MEMORY;
    copy_values(turned, tensor, tensor->dims[0], tensor->dims[1], true);
    enum ddp_status status = sink(sink_arg, turned, tensor->bytes);
    ddp_pages_free(turned, tensor->bytes);
    return status;
}

static enum ddp_status save(const char *path, const ddp_graph *graph, const float *flat)
{
    const struct ddp_safetensors_pair metadata = {"format", "pt"}; /* transformers asks for it */
    const size_t most = (size_t)ddp_graph_parameter_count(graph);
    struct ddp_gpt2_shape shape = {0};
    if (!ddp_gpt2_shape_of(&shape, graph))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: Hugging Face's format needs a GPT-2, which the model is not", path);
    struct target target = {.tensors = ddp_array_alloc(most, sizeof *target.tensors),
                            .names = ddp_array_alloc(most, sizeof *target.names),
                            .turned = ddp_array_alloc(most, sizeof *target.turned)};
    enum ddp_status status =
        target.tensors && target.names && target.turned ? DDP_OK : DDP_ERR_MEMORY;
    for (int i = 0; status == DDP_OK && i < DDP_GPT2_TENSORS; i++) {
        const struct ddp_gpt2_tensor *kind = &ddp_gpt2_tensors[i];
        for (int64_t l = 0; l < (kind->of_layer ? shape.layers : 1); l++) {
            char name[DDP_GPT2_NAME];
            const struct ddp_parameter *parameter =
                ddp_gpt2_parameter(graph, ddp_gpt2_tensor_name(name, kind, l));
            add_tensor(&target, kind, parameter, flat + parameter->offset);
        }
    }
    if (status == DDP_OK)
        status = ddp_safetensors_write(path, put_values, &target, target.tensors, target.count,
                                       &metadata, 1);
    free(target.turned);
    free(target.names);
    free(target.tensors);
    return status;
}

/* --- config.json beside them ------------------------------------------------------------------ */

/* What both name. */
static enum ddp_status check_config(const char *path, const struct ddp_gpt2_shape *file,
                                    const char *config_path, const struct ddp_gpt2_shape *config)
{
    const struct {
        const char *name;
        int64_t file, config;
    } rows[] = {
        {"layers", file->layers, config->layers},
        {"channels", file->channels, config->channels},
        {"tokens in its vocabulary", file->vocabulary, config->vocabulary},
        {"positions", file->context, config->context},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].file != rows[i].config)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s contradicts %s: it has %" PRId64 " %s, and the other says %" PRId64,
                            path, config_path, rows[i].file, rows[i].name, rows[i].config);
    return DDP_OK;
}

/* config.json beside a file, where there is one, has what tensors do not tell. */
static enum ddp_status take_config(const char *path, const struct ddp_gpt2_shape *shape,
                                   struct ddp_model_config *model)
{
    struct ddp_gpt2 *gpt2 = ddp_gpt2_of(&model->own);
    struct ddp_hf_config config;
    char *beside;
    const char *slash = strrchr(path, '/');
    if (asprintf(&beside, "%.*sconfig.json", slash ? (int)(slash - path) + 1 : 0, path) < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = DDP_OK;
    const bool there = access(beside, F_OK) == 0;
    if (there)
        status = ddp_hf_config_parse(&config, beside, NULL, 0);
    if (there && status == DDP_OK)
        status = check_config(path, shape, beside, &config.shape);
    if (there && status == DDP_OK) {
        gpt2->heads = config.shape.heads;
        gpt2->dropout = config.dropout;
        gpt2->exact_gelu = config.exact_gelu;
        gpt2->norm_eps = config.norm_eps;
        model->described = true;
    }
    free(beside);
    return status;
}

enum ddp_status ddp_hf_gpt2_describe(const struct ddp_gpt2_shape *shape, const char *path,
                                     const struct ddp_model **model,
                                     struct ddp_model_config *config)
{
    ddp_gpt2_describe(shape, model, config);
    return take_config(path, shape, config);
}

/* A file that is called model.safetensors makes its directory a model. */
static enum ddp_status write_model(const char *path, const ddp_graph *graph,
                                   const struct ddp_gpt2 *gpt2, const float *flat)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    struct ddp_hf_config config = {.shape = {.heads = gpt2->heads},
                                   .dropout = gpt2->dropout,
                                   .exact_gelu = gpt2->exact_gelu,
                                   .norm_eps = gpt2->norm_eps};
    char *beside = NULL;
    enum ddp_status status = save(path, graph, flat);
    if (status != DDP_OK || strcmp(base, "model.safetensors") != 0)
        return status;
    ddp_gpt2_shape_of(&config.shape, graph);
    if (asprintf(&beside, "%.*sconfig.json", (int)(base - path), path) < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    status = ddp_hf_config_write(beside, &config);
    free(beside);
    return status;
}

const struct ddp_weight_format ddp_format_hf_gpt2 = {
    .name = "hf",
    .suffix = ".safetensors",
    .value_bytes = sizeof(float),
    .write = write_model,
};
