/* SPDX-License-Identifier: MIT
 *
 * See peft.h. The keys and names are those of PEFT 0.21. Configurations are read in peft_config.c.
 */
#include "config.h"

#include "weights/peft.h"

#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/staged_directory.h"
#include "core/write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG  "adapter_config.json"
#define WEIGHTS "adapter_model.safetensors"
#define PREFIX  "base_model.model."
#define BASE    "ddprun.base" /* in the metadata; PEFT warns of keys of others in a configuration */

bool ddp_peft_owns(const char *name)
{
    return strstr(name, ".lora_A.") || strstr(name, ".lora_B.");
}

/* A classifier, which PEFT has in modules_to_save. */
static bool is_head(const char *name)
{
    return strncmp(name, "classifier.", 11) == 0;
}

/* A tensor's name as values have it, without what PEFT and transformers put before it. NULL: it is
 * not so called. */
static const char *bare_name(const char *name)
{
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return NULL;
    name += sizeof PREFIX - 1;
    return strncmp(name, "bert.", 5) == 0 ? name + 5 : name;
}

/* --- adapter_model.safetensors ---------------------------------------------------------------- */

static enum ddp_status load_one(const ddp_safetensors *file, const char *path,
                                const struct ddp_hf_values *value)
{
    char name[160];
    const bool matrix = value->dim_count == 2;
    const int64_t columns = matrix ? value->dims[1] : 1;
    snprintf(name, sizeof name, PREFIX "bert.%s", value->name);
    const struct ddp_safetensor *tensor = ddp_safetensors_find(file, name);
    if (!tensor) {
        snprintf(name, sizeof name, PREFIX "%s", value->name);
        tensor = ddp_safetensors_find(file, name);
    }
    if (!tensor && is_head(value->name))
        return DDP_OK;
    if (!tensor)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is missing", path, name);
    if (tensor->dim_count != value->dim_count || tensor->dims[0] != value->dims[0] ||
        (matrix && tensor->dims[1] != columns))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor %s does not have the shape (%" PRId64 ",%" PRId64
                        "): are these adapters of another base?",
                        path, name, value->dims[0], columns);
    if (!ddp_hf_values_convert(value->memory, tensor->data, tensor->dtype,
                               (size_t)(value->dims[0] * columns)))
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is %s; F32, F16 and BF16 can be read", path,
                        name, tensor->dtype);
    for (int64_t i = 0; i < value->dims[0] * columns; i++)
        if (!isfinite(((const float *)value->memory)[i]))
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: tensor %s has a value that is not finite, at index %" PRId64, path,
                            name, i);
    return DDP_OK;
}

/* What matches nothing would be lost without a word. */
static enum ddp_status check_extra(const ddp_safetensors *file, const char *path,
                                   const struct ddp_hf_values *values, size_t count)
{
    for (size_t i = 0; i < ddp_safetensors_count(file); i++) {
        const char *name = ddp_safetensors_at(file, i)->name, *bare = bare_name(name);
        bool known = false;
        for (size_t v = 0; !known && bare && v < count; v++)
            known = (ddp_peft_owns(values[v].name) || is_head(values[v].name)) &&
                    strcmp(values[v].name, bare) == 0;
        if (!known)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: tensor %s belongs to no adapter that " CONFIG " describes", path,
                            name);
    }
    return DDP_OK;
}

enum ddp_status ddp_peft_outputs(const char *directory, int64_t *outputs)
{
    ddp_safetensors *file = NULL;
    char *path = ddp_path_in(directory, WEIGHTS);
    const enum ddp_status status = path ? ddp_safetensors_open(&file, path) : DDP_ERR_MEMORY;
    const struct ddp_safetensor *head =
        status == DDP_OK ? ddp_safetensors_find(file, PREFIX "classifier.weight") : NULL;
    *outputs = head && head->dim_count == 2 ? head->dims[0] : 0;
    ddp_safetensors_close(file);
    free(path);
    return status;
}

enum ddp_status ddp_peft_load(const char *directory, const struct ddp_hf_values *values,
                              size_t count)
{
    ddp_safetensors *file = NULL;
    char *path = ddp_path_in(directory, WEIGHTS);
    enum ddp_status status = path ? ddp_safetensors_open(&file, path) : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        if (ddp_peft_owns(values[i].name) || is_head(values[i].name))
            status = load_one(file, path, &values[i]);
    if (status == DDP_OK)
        status = check_extra(file, path, values, count);
    ddp_safetensors_close(file);
    free(path);
    return status;
}

void ddp_peft_check_base(const char *directory, const char *base)
{
    char hash[DDP_PEFT_BASE_HASH];
    ddp_safetensors *file = NULL;
    char *path = ddp_path_in(directory, WEIGHTS);
    if (path && access(path, R_OK) == 0 &&
        ddp_safetensors_open_header(&file, path, false) == DDP_OK) {
        const char *trained = ddp_safetensors_metadata(file, BASE);
        if (trained)
            ddp_peft_base_hash(hash, base);
        if (trained && hash[0] != '\0' && (trained[0] == 'g') == (hash[0] == 'g') &&
            strcmp(trained, hash) != 0)
            ddp_log(DDP_LOG_WARNING,
                    "%s: these adapters were trained on a base with other weights than %s",
                    directory, base);
    }
    ddp_safetensors_close(file);
    free(path);
}

/* --- writing ---------------------------------------------------------------------------------- */

static json_t *config_of(const struct ddp_peft_base *of, const struct ddp_lora *lora,
                         const char *base)
{
    json_t *targets = json_array(), *saved = of->classifier ? json_array() : json_null();
    int failed = of->classifier ? json_array_append_new(saved, json_string("classifier")) : 0;
    for (int i = 0; i < of->linear_count; i++)
        if (lora->targets >> i & 1)
            failed |= json_array_append_new(targets, json_string(strrchr(of->linears[i], '.') + 1));
    if (failed) {
        json_decref(targets);
        json_decref(saved);
        return NULL;
    }
    const bool whole = lora->alpha == (double)(int64_t)lora->alpha;
    json_t *name = base ? json_string(base) : NULL; /* a path need not be UTF-8 */
    return json_pack("{s:o, s:s, s:b, s:b, s:b, s:o, s:f, s:o, s:s, s:i, s:o, s:s, s:b, s:b}",
                     "base_model_name_or_path", name ? name : json_null(), "bias", "none",
                     "fan_in_fan_out", 0, "inference_mode", 1, "init_lora_weights", 1, "lora_alpha",
                     whole ? json_integer((json_int_t)lora->alpha) : json_real(lora->alpha),
                     "lora_dropout", lora->dropout, "modules_to_save", saved, "peft_type", "LORA",
                     "r", (int)lora->rank, "target_modules", targets, "task_type", of->task,
                     "use_dora", 0, "use_rslora", (int)lora->rslora);
}

static enum ddp_status write_config(const ddp_staged_directory *directory,
                                    const struct ddp_peft_base *of, const struct ddp_lora *lora,
                                    const char *base)
{
    json_t *config = config_of(of, lora, base);
    char *text = config ? ddp_json_text(config, JSON_INDENT(2)) : NULL;
    enum ddp_status status = text ? ddp_staged_directory_put(directory, CONFIG, text)
                                  : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    json_decref(config);
    free(text);
    return status;
}

static enum ddp_status write_weights(const ddp_staged_directory *directory,
                                     const struct ddp_peft_base *of, const char *base,
                                     const struct ddp_hf_values *values, size_t count)
{
    char hash[DDP_PEFT_BASE_HASH] = "";
    const struct ddp_safetensors_pair metadata[] = {{"format", "pt"}, {BASE, hash}};
    struct ddp_safetensor *tensors = ddp_array_alloc(count, sizeof *tensors);
    char(*names)[128] = ddp_array_alloc(count, sizeof *names);
    ddp_atomic_file *file = NULL;
    char *path = NULL;
    size_t used = 0;
    enum ddp_status status = tensors && names ? DDP_OK : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        const bool head = of->classifier && is_head(values[i].name);
        const bool matrix = values[i].dim_count == 2;
        if (!head && !ddp_peft_owns(values[i].name))
            continue;
        snprintf(names[used], sizeof names[used], PREFIX "%s%s", head ? "" : of->within,
                 values[i].name);
        tensors[used] = (struct ddp_safetensor){
            .name = names[used],
            .dtype = "F32",
            .dim_count = values[i].dim_count,
            .dims = {values[i].dims[0], matrix ? values[i].dims[1] : 0},
            .data = values[i].memory,
            .bytes =
                (size_t)(values[i].dims[0] * (matrix ? values[i].dims[1] : 1)) * sizeof(float)};
        used++;
    }
    if (status == DDP_OK)
        status = ddp_staged_directory_file(directory, WEIGHTS, &file, &path);
    if (base)
        ddp_peft_base_hash(hash, base);
    if (status == DDP_OK)
        status = ddp_safetensors_write_file(file, path, NULL, NULL, tensors, used, metadata,
                                            hash[0] == '\0' ? 1 : 2);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    free(tensors);
    free(names);
    free(path);
    return status;
}

/* Adapters of another config would be taken for those of this one. */
static bool is_weights(const char *name)
{
    return strcmp(name, WEIGHTS) == 0 || strcmp(name, "adapter_model.bin") == 0;
}

static enum ddp_status open_target(ddp_staged_directory **directory, const char *path, int wait_ms)
{
    return ddp_staged_directory_open_of(directory, path, wait_ms, CONFIG,
                                        "this directory holds something other than adapters: name "
                                        "another one for --export, or add ,merge to write the "
                                        "whole model");
}

enum ddp_status ddp_peft_save_check(const char *directory)
{
    ddp_staged_directory *made;
    enum ddp_status status = open_target(&made, directory, 0);
    if (status == DDP_OK)
        ddp_staged_directory_close(made);
    return status;
}

enum ddp_status ddp_peft_save(const char *directory, const struct ddp_peft_base *of,
                              const struct ddp_lora *lora, const char *base,
                              const struct ddp_hf_values *values, size_t count)
{
    ddp_staged_directory *made;
    enum ddp_status status = open_target(&made, directory, DDP_STAGED_WAIT_MS);
    if (status != DDP_OK)
        return status;
    status = write_config(made, of, lora, base);
    if (status == DDP_OK)
        status = write_weights(made, of, base, values, count);
    if (status == DDP_OK)
        status = ddp_staged_directory_commit(made, is_weights);
    ddp_staged_directory_close(made);
    return status;
}
