/* SPDX-License-Identifier: MIT
 *
 * See weights.h. Files of ours are read here; other programs' formats have files of their own. */
#include "config.h"

#include "weights/weights.h"

#include "core/blocks.h"
#include "core/log.h"
#include "core/memory.h"
#include "weights/format.h"
#include "weights/hf_llama.h"
#include "weights/interchange.h"
#include "weights/safetensors_index.h"
#include "weights/torch_resnet.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t ddp_train_weights_metadata(struct ddp_safetensors_pair pairs[2], const ddp_graph *graph)
{
    const char *data = ddp_graph_data(graph);
    pairs[0] = (struct ddp_safetensors_pair){DDP_WEIGHTS_MODEL_KEY, ddp_graph_description(graph)};
    pairs[1] = (struct ddp_safetensors_pair){DDP_WEIGHTS_DATA_KEY, data};
    return data ? 2 : 1;
}

enum ddp_status ddp_flat_source_put(const struct ddp_flat_source *source, int array, int64_t begin,
                                    int64_t count, ddp_safetensors_sink *sink, void *sink_arg)
{
    const int64_t piece = (int64_t)(DDP_FLAT_PIECE / sizeof(float));
    const int64_t most = count < piece ? count : piece;
    float *values = ddp_array_alloc((size_t)most, sizeof *values);
    enum ddp_status status = values ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t at = 0; status == DDP_OK && at < count; at += most) {
        const int64_t some = count - at < most ? count - at : most;
        status = source->fetch(source->arg, array, begin + at, some, values);
        if (status == DDP_OK)
            status = sink(sink_arg, values, (size_t)some * sizeof *values);
    }
    free(values);
    return status;
}

struct saving {
    const ddp_graph *graph;
    const struct ddp_flat_source *source;
};

static enum ddp_status put_parameter(void *arg, size_t tensor, ddp_safetensors_sink *sink,
                                     void *sink_arg)
{
    const struct saving *saving = arg;
    const struct ddp_parameter *parameter = ddp_graph_parameter_at(saving->graph, (int)tensor);
    return ddp_flat_source_put(saving->source, 0, parameter->offset, parameter->count, sink,
                               sink_arg);
}

enum ddp_status ddp_train_weights_save(const char *path, const ddp_graph *graph, const float *flat,
                                       const struct ddp_flat_source *source)
{
    struct saving saving = {graph, source};
    const size_t count = (size_t)ddp_graph_parameter_count(graph);
    struct ddp_safetensor *tensors = ddp_array_alloc(count, sizeof *tensors);
    if (!tensors)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, (int)i);
        tensors[i] = (struct ddp_safetensor){.name = parameter->name,
                                             .dtype = "F32",
                                             .dim_count = parameter->dim_count,
                                             .data = flat ? flat + parameter->offset : NULL,
                                             .bytes = (size_t)parameter->count * sizeof(float)};
        for (int d = 0; d < parameter->dim_count; d++)
            tensors[i].dims[d] = parameter->dims[d];
    }
    struct ddp_safetensors_pair pairs[2];
    const size_t pair_count = ddp_train_weights_metadata(pairs, graph);
    enum ddp_status status = ddp_safetensors_write(path, flat ? NULL : put_parameter, &saving,
                                                   tensors, count, pairs, pair_count);
    free(tensors);
    return status;
}

/* "512,784" */
static const char *shape_text(int dim_count, const int64_t *dims, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < dim_count && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, d ? "," : "", dims[d]);
    return text;
}

static enum ddp_status check_tensor(const char *path, const struct ddp_parameter *parameter,
                                    const struct ddp_safetensor *tensor)
{
    char have[128], want[128];
    if (!tensor)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is missing: is it another model's file?",
                        path, parameter->name);
    if (strcmp(tensor->dtype, "F32") != 0 &&
        !(parameter->frozen && strcmp(tensor->dtype, "BF16") == 0))
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is %s, not F32%s", path, parameter->name,
                        tensor->dtype, parameter->frozen ? " or BF16" : "");
    bool same = tensor->dim_count == parameter->dim_count;
    for (int d = 0; same && d < tensor->dim_count; d++)
        same = tensor->dims[d] == parameter->dims[d];
    if (!same)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s has the shape (%s), the model's is (%s)",
                        path, parameter->name,
                        shape_text(tensor->dim_count, tensor->dims, have, sizeof have),
                        shape_text(parameter->dim_count, parameter->dims, want, sizeof want));
    return DDP_OK;
}

/* Tensors that the model does not have: most likely the wrong file. */
static enum ddp_status check_extra(const char *path, const ddp_graph *graph,
                                   const ddp_safetensors *file, bool foreign)
{
    for (size_t i = 0; i < ddp_safetensors_count(file); i++) {
        const char *name = ddp_safetensors_at(file, i)->name;
        bool known = foreign && ddp_torch_resnet_ignores(name);
        for (int p = 0; p < ddp_graph_parameter_count(graph); p++)
            known = known || strcmp(ddp_graph_parameter_at(graph, p)->name, name) == 0;
        for (int p = 0; p < ddp_graph_frozen_count(graph); p++)
            known = known || strcmp(ddp_graph_frozen_at(graph, p)->name, name) == 0;
        if (!known)
            return ddp_fail(DDP_ERR_FORMAT, "%s: the model has no parameter for tensor %s", path,
                            name);
    }
    return DDP_OK;
}

void ddp_weights_take(const struct ddp_parameter_place *place, const struct ddp_safetensor *tensor)
{
    const struct ddp_parameter *parameter = place->parameter;
    const size_t count = (size_t)parameter->count;
    const size_t width = strcmp(tensor->dtype, "BF16") == 0 ? sizeof(uint16_t) : sizeof(float);
    float values[DDP_BLOCK_MOST];
    if (parameter->dtype == DDP_F32)
        ddp_hf_values_convert(place->memory, tensor->data, tensor->dtype, count);
    for (size_t i = 0; parameter->dtype != DDP_F32 && i < count; i += DDP_BLOCK_MOST) {
        const size_t some = count - i < DDP_BLOCK_MOST ? count - i : DDP_BLOCK_MOST;
        ddp_hf_values_convert(values, (const char *)tensor->data + i * width, tensor->dtype, some);
        ddp_values_pack(parameter->dtype, values, (int64_t)some,
                        (char *)place->memory + ddp_values_bytes(parameter->dtype, (int64_t)i));
    }
}

static bool has_frozen(const ddp_safetensors *file, const ddp_graph *graph)
{
    for (int i = 0; i < ddp_graph_frozen_count(graph); i++)
        if (ddp_safetensors_find(file, ddp_graph_frozen_at(graph, i)->name))
            return true;
    return false;
}

/* Whether the file has the values of a parameter; otherwise they stay as they are. */
static bool reads(const ddp_safetensors *file, const struct ddp_parameter *parameter, bool all,
                  bool foreign)
{
    return (all || !parameter->frozen) && !(foreign && ddp_torch_resnet_replaces(file, parameter));
}

/* A file of ours, or one with its names. */
static enum ddp_status load_own(const ddp_safetensors *file, const char *path,
                                const ddp_graph *graph, float *flat, void *frozen)
{
    const bool all = has_frozen(file, graph), foreign = ddp_torch_resnet_is(file);
    const int count = ddp_graph_place_count(graph);
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < count; i++) {
        const struct ddp_parameter_place place = ddp_graph_place_at(graph, i, flat, frozen);
        if (reads(file, place.parameter, all, foreign))
            status = check_tensor(path, place.parameter,
                                  ddp_safetensors_find(file, place.parameter->name));
    }
    if (status == DDP_OK)
        status = check_extra(path, graph, file, foreign);
    for (int i = 0; status == DDP_OK && i < count; i++) {
        const struct ddp_parameter_place place = ddp_graph_place_at(graph, i, flat, frozen);
        if (reads(file, place.parameter, all, foreign))
            ddp_weights_take(&place, ddp_safetensors_find(file, place.parameter->name));
    }
    return status;
}

static enum ddp_status read_file(const char *path, const ddp_graph *graph, int64_t heads,
                                 float *flat, void *frozen)
{
    ddp_safetensors *file;
    struct ddp_gpt2_shape shape = {0};
    (void)heads;
    enum ddp_status status = ddp_safetensors_open_model(&file, path);
    if (status != DDP_OK)
        return status;
    if (ddp_gpt2_shape_of(&shape, graph) && ddp_hf_gpt2_is(file))
        status = ddp_hf_gpt2_load(file, path, graph, flat);
    else
        status = load_own(file, path, graph, flat, frozen);
    ddp_safetensors_close(file);
    return status;
}

static enum ddp_status describe(const char *path, const struct ddp_model **model,
                                struct ddp_model_config *config)
{
    struct ddp_gpt2_shape shape;
    ddp_safetensors *file;
    enum ddp_status status = ddp_safetensors_open_model(&file, path);
    if (status != DDP_OK)
        return status;
    const char *text = ddp_safetensors_metadata(file, DDP_WEIGHTS_MODEL_KEY);
    if (text && *text) {
        status = ddp_model_read_description(model, config, text, ddp_model_find, path);
        config->described = status == DDP_OK;
    } else if (ddp_hf_gpt2_shape(&shape, file)) {
        status = ddp_hf_gpt2_describe(&shape, path, model, config);
    } else if (ddp_torch_resnet_is(file)) {
        status = ddp_torch_resnet_describe(file, path, model, config);
    }
    ddp_safetensors_close(file);
    return status;
}

static bool is_any(const char *path)
{
    return path != NULL; /* what is wrong with another file is said when it is read */
}

const struct ddp_weight_format ddp_format_safetensors = {
    .is = is_any,
    .describe = describe,
    .read = read_file,
};

/* --- any file --------------------------------------------------------------------------------- */

static enum ddp_status check_finite(const char *path, const ddp_graph *graph, float *flat,
                                    void *frozen)
{
    const int count = ddp_graph_place_count(graph);
    float values[DDP_BLOCK_MOST];
    for (int i = 0; i < count; i++) {
        const struct ddp_parameter_place place = ddp_graph_place_at(graph, i, flat, frozen);
        const struct ddp_parameter *parameter = place.parameter;
        for (int64_t k = 0; k < parameter->count; k++) {
            if (k % DDP_BLOCK_MOST == 0)
                ddp_values_unpack(parameter->dtype, place.memory, k,
                                  parameter->count - k < DDP_BLOCK_MOST ? parameter->count - k
                                                                        : DDP_BLOCK_MOST,
                                  values);
            if (!isfinite(values[k % DDP_BLOCK_MOST]))
                return ddp_fail(DDP_ERR_FORMAT,
                                "%s: tensor %s has a value that is not finite, at index %" PRId64,
                                path, parameter->name, k);
        }
    }
    return DDP_OK;
}

enum ddp_status ddp_train_weights_model(const char *path, const struct ddp_model **model,
                                        struct ddp_model_config *config)
{
    *model = NULL;
    return ddp_weight_format_of(path)->describe(path, model, config);
}

enum ddp_status ddp_train_weights_data(const char *path, char **text)
{
    ddp_safetensors *file;
    *text = NULL;
    if (ddp_weight_format_of(path) != &ddp_format_safetensors)
        return DDP_OK;
    enum ddp_status status = ddp_safetensors_open_model(&file, path);
    if (status != DDP_OK)
        return status;
    const char *data = ddp_torch_resnet_is(file)
                           ? DDP_TORCH_RESNET_DATA
                           : ddp_safetensors_metadata(file, DDP_WEIGHTS_DATA_KEY);
    if (data && !(*text = strdup(data)))
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    ddp_safetensors_close(file);
    return status;
}

enum ddp_status ddp_train_weights_load(const char *path, const ddp_graph *graph, int64_t heads,
                                       float *flat, void *frozen)
{
    enum ddp_status status = ddp_weight_format_of(path)->read(path, graph, heads, flat, frozen);
    return status == DDP_OK ? check_finite(path, graph, flat, frozen) : status;
}
