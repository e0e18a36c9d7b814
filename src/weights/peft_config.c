/* SPDX-License-Identifier: MIT
 *
 * adapter_config.json of PEFT: what is read, and what is refused by name. See peft.h. */
#include "config.h"

#include "core/log.h"
#include "core/text.h"
#include "core/write.h"
#include "weights/hf_keys.h"
#include "weights/peft.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG "adapter_config.json"

bool ddp_peft_is(const char *directory)
{
    return ddp_path_is_in(directory, CONFIG);
}

void ddp_peft_free(struct ddp_peft *peft)
{
    free(peft->base);
    *peft = (struct ddp_peft){.base = NULL};
}

/* Is the module of that name a target, as PEFT matches them: by its whole name or its end? */
static bool matches(const char *target, const char *module)
{
    const size_t short_by = strlen(module) - strlen(target);
    if (strlen(target) > strlen(module))
        return false;
    return strcmp(module + short_by, target) == 0 && (short_by == 0 || module[short_by - 1] == '.');
}

/* Marks the linear layers that one target names, in all layers or in one. */
static enum ddp_status read_target(const struct ddp_hf_keys *in, const json_t *item, int64_t layers,
                                   const struct ddp_peft_base *of, uint8_t *marks)
{
    const char *target = json_string_value(item);
    char module[96];
    bool found = false;
    if (!target)
        return ddp_fail(DDP_ERR_FORMAT, "%s: target_modules must be texts", in->name);
    for (int i = 0; i < of->linear_count; i++) {
        const char *linear = of->linears[i];
        const bool all = matches(target, linear);
        const bool one = !all && ddp_text_ends_with(target, linear);
        for (int64_t l = 0; l < layers && (all || one); l++) {
            snprintf(module, sizeof module, "%s%" PRId64 ".%s", of->layers, l, linear);
            const bool is = all || matches(target, module);
            marks[l] |= (uint8_t)(is << i);
            found = found || is;
        }
    }
    if (!found)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: target_modules has %s, and no linear layer of the base's blocks is "
                        "called so",
                        in->name, target);
    return DDP_OK;
}

static enum ddp_status read_targets(const struct ddp_hf_keys *in, int64_t layers,
                                    const struct ddp_peft_base *of, int64_t *targets)
{
    const json_t *list = ddp_hf_keys_get(in, "target_modules");
    uint8_t marks[DDP_LLAMA_LAYERS] = {0}; /* bits of the linear layers of each layer */
    enum ddp_status status = DDP_OK;
    if (layers > DDP_LLAMA_LAYERS)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the base has more than %d layers", in->name,
                        DDP_LLAMA_LAYERS);
    if (json_is_string(list) && strcmp(json_string_value(list), "all-linear") == 0) {
        *targets = (1 << DDP_LLAMA_LINEARS) - 1;
        return DDP_OK;
    }
    if (!json_is_array(list))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: target_modules must be a list of names: patterns are not supported",
                        in->name);
    for (size_t i = 0; status == DDP_OK && i < json_array_size(list); i++)
        status = read_target(in, json_array_get(list, i), layers, of, marks);
    *targets = marks[0];
    for (int64_t l = 1; status == DDP_OK && l < layers; l++)
        if (marks[l] != marks[0])
            status = ddp_fail(DDP_ERR_FORMAT,
                              "%s: target_modules names other modules of layer %" PRId64
                              " than of layer 0: they must be the same in all layers",
                              in->name, l);
    if (status == DDP_OK && *targets == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: target_modules is empty", in->name);
    return status;
}

/* Is the key absent, or a value that means nothing: null, false, {} or []? */
static enum ddp_status refuse(const struct ddp_hf_keys *in, const char *key)
{
    const json_t *value = ddp_hf_keys_get(in, key);
    const bool nothing = !value || json_is_false(value) ||
                         (json_is_object(value) && json_object_size(value) == 0) ||
                         (json_is_array(value) && json_array_size(value) == 0);
    return nothing
               ? DDP_OK
               : ddp_fail(DDP_ERR_FORMAT, "%s: adapters with %s are not supported", in->name, key);
}

/* Other ways to compute, of this PEFT and later ones, have a switch "use_...". */
static enum ddp_status refuse_uses(const struct ddp_hf_keys *in)
{
    const char *key;
    json_t *value;
    enum ddp_status status = DDP_OK;
    json_object_foreach(in->root, key, value)
    {
        if (status == DDP_OK && strncmp(key, "use_", 4) == 0 && strcmp(key, "use_rslora") != 0)
            status = refuse(in, key);
    }
    return status;
}

static enum ddp_status read_text(const struct ddp_hf_keys *in, const char *key, const char *wanted)
{
    const char *value = wanted;
    enum ddp_status status = ddp_hf_keys_text(in, key, &value);
    if (status == DDP_OK && strcmp(value, wanted) != 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %s is \"%s\", and only \"%s\" is supported",
                          in->name, key, value, wanted);
    return status;
}

/* Some ways to begin change the base too, when adapters are made and again when they are loaded. */
static enum ddp_status check_init(const struct ddp_hf_keys *in)
{
    static const char *const alone[] = {"gaussian", "eva", "orthogonal"};
    const json_t *value = ddp_hf_keys_get(in, "init_lora_weights");
    bool is = !value || json_is_boolean(value);
    for (size_t i = 0; !is && json_is_string(value) && i < sizeof alone / sizeof *alone; i++)
        is = strcmp(json_string_value(value), alone[i]) == 0;
    if (is)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: init_lora_weights is %s, which changes the base too: convert the adapters "
                    "to plain LoRA with PEFT",
                    in->name, json_is_string(value) ? json_string_value(value) : "not a text");
}

/* Modules that are trained as a whole: PEFT lists both names that a classifier may have. */
static enum ddp_status check_saved(const struct ddp_hf_keys *in, const struct ddp_peft_base *of)
{
    const json_t *list = ddp_hf_keys_get(in, "modules_to_save");
    for (size_t i = 0; of->classifier && i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || (strcmp(name, "classifier") != 0 && strcmp(name, "score") != 0))
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: modules_to_save has %s, and only a classifier can be trained "
                            "beside adapters",
                            in->name, name ? name : "no name");
    }
    return of->classifier && json_is_array(list) ? DDP_OK : refuse(in, "modules_to_save");
}

static enum ddp_status read_config(struct ddp_peft *peft, const struct ddp_hf_keys *in,
                                   int64_t layers, const struct ddp_peft_base *of)
{
    static const char *const refused[] = {
        "lora_bias",
        "rank_pattern",
        "alpha_pattern",
        "fan_in_fan_out",
        "layers_to_transform",
        "layers_pattern",
        "target_parameters",
        "exclude_modules",
        "layer_replication",
        "trainable_token_indices",
        "alora_invocation_tokens",
        "arrow_config",
        "kasa_config",
        "monteclora_config",
        "velora_config",
    };
    struct ddp_lora *lora = &peft->lora;
    *lora = (struct ddp_lora){.rank = 8, .alpha = 8};
    enum ddp_status status = read_text(in, "peft_type", "LORA");
    if (status == DDP_OK)
        status = read_text(in, "bias", "none");
    for (size_t i = 0; status == DDP_OK && i < sizeof refused / sizeof refused[0]; i++)
        status = refuse(in, refused[i]);
    if (status == DDP_OK)
        status = check_saved(in, of);
    if (status == DDP_OK)
        status = check_init(in);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "r", 4096, &lora->rank);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(in, "lora_alpha", 1e-6, 1e6, &lora->alpha);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(in, "lora_dropout", 0, 1, &lora->dropout);
    if (status == DDP_OK)
        status = ddp_hf_keys_flag(in, "use_rslora", &lora->rslora);
    if (status == DDP_OK)
        status = read_targets(in, layers, of, &lora->targets);
    return status;
}

static enum ddp_status read_base(struct ddp_peft *peft, const struct ddp_hf_keys *in)
{
    const char *base = NULL;
    enum ddp_status status = ddp_hf_keys_text(in, "base_model_name_or_path", &base);
    if (status == DDP_OK && base && !(peft->base = strdup(base)))
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    return status;
}

enum ddp_status ddp_peft_parse(struct ddp_peft *peft, const char *name, const char *text,
                               size_t bytes, int64_t layers, const struct ddp_peft_base *of)
{
    static const struct ddp_peft_base llama = {.linears = ddp_llama_linear_names,
                                               .linear_count = DDP_LLAMA_LINEARS,
                                               .layers = "model.layers."};
    struct ddp_hf_keys in;
    *peft = (struct ddp_peft){.base = NULL};
    enum ddp_status status =
        ddp_hf_keys_open(&in, name, "a configuration of adapters", text, bytes);
    if (status == DDP_OK)
        status = read_base(peft, &in);
    if (status == DDP_OK && layers > 0)
        status = read_config(peft, &in, layers, of ? of : &llama);
    if (status == DDP_OK && layers > 0)
        status = refuse_uses(&in);
    json_decref(in.root);
    return status;
}

enum ddp_status ddp_peft_read(struct ddp_peft *peft, const char *directory, int64_t layers,
                              const struct ddp_peft_base *of)
{
    char *path = ddp_path_in(directory, CONFIG);
    *peft = (struct ddp_peft){.base = NULL};
    enum ddp_status status =
        path ? ddp_peft_parse(peft, path, NULL, 0, layers, of) : DDP_ERR_MEMORY;
    free(path);
    return status;
}
