/* SPDX-License-Identifier: MIT
 *
 * See weights.h. */
#include "config.h"

#include "train/weights.h"

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "train/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum ddp_status ddp_train_weights_check_path(const char *path)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status == DDP_OK)
        ddp_atomic_file_close(file);
    return status;
}

enum ddp_status ddp_train_weights_save(const char *path, const ddp_graph *graph, const float *flat)
{
    const size_t count = (size_t)ddp_graph_parameter_count(graph);
    struct ddp_safetensor *tensors = ddp_array_alloc(count, sizeof *tensors);
    if (!tensors)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, (int)i);
        tensors[i] = (struct ddp_safetensor){.name = parameter->name,
                                             .dtype = "F32",
                                             .dim_count = parameter->dim_count,
                                             .data = flat + parameter->offset,
                                             .bytes = (size_t)parameter->count * sizeof(float)};
        for (int d = 0; d < parameter->dim_count; d++)
            tensors[i].dims[d] = parameter->dims[d];
    }
    enum ddp_status status = ddp_safetensors_write(path, tensors, count, NULL, 0);
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
    if (strcmp(tensor->dtype, "F32") != 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is %s, not F32", path, parameter->name,
                        tensor->dtype);
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
                                   const ddp_safetensors *file)
{
    for (size_t i = 0; i < ddp_safetensors_count(file); i++) {
        const char *name = ddp_safetensors_at(file, i)->name;
        bool known = false;
        for (int p = 0; p < ddp_graph_parameter_count(graph); p++)
            known = known || strcmp(ddp_graph_parameter_at(graph, p)->name, name) == 0;
        if (!known)
            return ddp_fail(DDP_ERR_FORMAT, "%s: the model has no parameter for tensor %s", path,
                            name);
    }
    return DDP_OK;
}

enum ddp_status ddp_train_weights_load(const char *path, const ddp_graph *graph, float *flat)
{
    ddp_safetensors *file;
    enum ddp_status status = ddp_safetensors_open(&file, path);
    if (status != DDP_OK)
        return status;
    for (int i = 0; status == DDP_OK && i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, i);
        status = check_tensor(path, parameter, ddp_safetensors_find(file, parameter->name));
    }
    if (status == DDP_OK)
        status = check_extra(path, graph, file);
    for (int i = 0; status == DDP_OK && i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, i);
        const struct ddp_safetensor *tensor = ddp_safetensors_find(file, parameter->name);
        memcpy(flat + parameter->offset, tensor->data, tensor->bytes);
    }
    ddp_safetensors_close(file);
    return status;
}
