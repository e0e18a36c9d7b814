/* SPDX-License-Identifier: MIT
 *
 * See hf_llama_rope.h. */
#include "config.h"

#include "weights/hf_llama_rope.h"

#include "core/log.h"
#include "core/portable_math.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LARGEST    1e12
#define LONGEST    ((int64_t)1 << 30)
#define SMALLEST   1e-9
#define BETA_FAST  32
#define BETA_SLOW  1
#define YARN_SCALE 0.1 /* of the factor's logarithm, in the factor on cos and sin */

static const char *const kinds[] = {"default", "linear", "llama3", "yarn"};

static double default_theta(int64_t family)
{
    return family == DDP_LLAMA_SMOLLM3 ? 2e6 : 1e4;
}

/* An object under a key; NULL: there is none, or it is empty. */
static enum ddp_status find_object(const struct ddp_hf_keys *in, const char *key,
                                   const json_t **object)
{
    *object = ddp_hf_keys_get(in, key);
    if (*object && !json_is_object(*object))
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s is not a JSON object", in->name, key);
    if (*object && json_object_size(*object) == 0)
        *object = NULL;
    return DDP_OK;
}

static bool set_default(json_t *rope, const char *key, const json_t *value)
{
    if (json_object_get(rope, key))
        return true;
    json_t *copy = json_deep_copy(value);
    return copy && json_object_set_new(rope, key, copy) == 0;
}

/* Lacking ones of a copy. */
static bool set_defaults(const struct ddp_hf_keys *in, int64_t family, json_t *rope)
{
    json_t *theta = json_real(default_theta(family));
    json_t *standard = json_string(kinds[DDP_ROPE_DEFAULT]);
    json_t *whole = json_real(1);
    const json_t *given_theta = ddp_hf_keys_get(in, "rope_theta");
    const json_t *partial = ddp_hf_keys_get(in, "partial_rotary_factor");
    const json_t *type = json_object_get(rope, "type");
    bool done = theta && standard && whole &&
                set_default(rope, "rope_theta", given_theta ? given_theta : theta) &&
                set_default(rope, "rope_type", type ? type : standard);
    if (done && (partial || family == DDP_LLAMA_PHI3))
        done = set_default(rope, "partial_rotary_factor", partial ? partial : whole);
    json_decref(theta);
    json_decref(standard);
    json_decref(whole);
    return done;
}

enum ddp_status ddp_hf_llama_rope_keys(const struct ddp_hf_keys *in, int64_t family, json_t **rope)
{
    const json_t *parameters, *scaling, *value;
    const char *key;
    enum ddp_status status = find_object(in, "rope_parameters", &parameters);
    if (status == DDP_OK)
        status = find_object(in, "rope_scaling", &scaling);
    if (status != DDP_OK)
        return status;
    const json_t *from = scaling ? scaling : parameters;
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        if (json_is_object(value))
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: %s.%s: positions that differ between layers are not supported",
                            in->name, scaling ? "rope_scaling" : "rope_parameters", key);
    }
    *rope = from ? json_deep_copy(from) : json_object();
    if (*rope && set_defaults(in, family, *rope))
        return DDP_OK;
    json_decref(*rope);
    return ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* --- reading ---------------------------------------------------------------------------------- */

static enum ddp_status read_kind(const struct ddp_hf_keys *rope, int64_t family, int64_t *kind)
{
    const char *name = NULL;
    enum ddp_status status = ddp_hf_keys_text(rope, "rope_type", &name);
    if (status != DDP_OK)
        return status;
    if (!name)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %srope_type is not a string", rope->name,
                        rope->prefix);
    const bool phi3 = family == DDP_LLAMA_PHI3;
    if (strcmp(name, "longrope") == 0 ||
        (phi3 && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0)))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: rope_type \"%s\" is not supported: it is longrope, whose frequencies "
                        "change with the length of a text",
                        rope->name, name);
    if (strcmp(name, "dynamic") == 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: rope_type \"dynamic\" is not supported: its frequencies change with "
                        "the length of a text",
                        rope->name);
    for (*kind = 0; *kind < (int64_t)(sizeof kinds / sizeof kinds[0]); ++*kind)
        if (strcmp(name, kinds[*kind]) == 0 && (!phi3 || *kind == DDP_ROPE_DEFAULT))
            return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT, "%s: rope_type \"%s\" is not supported: %s", rope->name, name,
                    phi3 ? "phi3 has default" : "default, linear, llama3 or yarn");
}

static enum ddp_status read_needed(const struct ddp_hf_keys *rope, const char *key, double *value)
{
    if (!ddp_hf_keys_get(rope, key))
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s%s is missing", rope->name, rope->prefix, key);
    return ddp_hf_keys_real(rope, key, SMALLEST, LARGEST, value);
}

/* A key that may be left out or null. */
static enum ddp_status read_optional(const struct ddp_hf_keys *rope, const char *key, double *value)
{
    return ddp_hf_keys_get(rope, key) ? ddp_hf_keys_real(rope, key, SMALLEST, LARGEST, value)
                                      : DDP_OK;
}

static double yarn_scale(double factor, double scale)
{
    return factor <= 1 ? 1 : YARN_SCALE * scale * ddp_math_log(factor) + 1;
}

static enum ddp_status read_yarn(const struct ddp_hf_keys *in, struct ddp_llama *shape)
{
    struct ddp_rope *rope = &shape->rope;
    double scale = 0, scale_all = 0;
    bool truncate = true;
    rope->factor = (double)shape->context / (double)rope->original;
    rope->beta_fast = BETA_FAST;
    rope->beta_slow = BETA_SLOW;
    rope->attention_factor = 0;
    enum ddp_status status = read_optional(in, "factor", &rope->factor);
    if (status == DDP_OK)
        status = read_optional(in, "beta_fast", &rope->beta_fast);
    if (status == DDP_OK)
        status = read_optional(in, "beta_slow", &rope->beta_slow);
    if (status == DDP_OK)
        status = read_optional(in, "attention_factor", &rope->attention_factor);
    if (status == DDP_OK && ddp_hf_keys_get(in, "mscale"))
        status = ddp_hf_keys_real(in, "mscale", 0, LARGEST, &scale);
    if (status == DDP_OK && ddp_hf_keys_get(in, "mscale_all_dim"))
        status = ddp_hf_keys_real(in, "mscale_all_dim", 0, LARGEST, &scale_all);
    if (status == DDP_OK)
        status = ddp_hf_keys_flag(in, "truncate", &truncate);
    if (status != DDP_OK)
        return status;
    rope->untruncated = !truncate;
    if (rope->attention_factor == 0)
        rope->attention_factor =
            scale > 0 && scale_all > 0
                ? yarn_scale(rope->factor, scale) / yarn_scale(rope->factor, scale_all)
                : yarn_scale(rope->factor, 1);
    return DDP_OK;
}

static enum ddp_status read_llama3(const struct ddp_hf_keys *in, struct ddp_rope *rope)
{
    enum ddp_status status = read_needed(in, "factor", &rope->factor);
    if (status == DDP_OK)
        status = read_needed(in, "low_freq_factor", &rope->low_factor);
    if (status == DDP_OK)
        status = read_needed(in, "high_freq_factor", &rope->high_factor);
    if (status == DDP_OK && rope->high_factor <= rope->low_factor)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: %shigh_freq_factor %g is not more than low_freq_factor %g", in->name,
                          in->prefix, rope->high_factor, rope->low_factor);
    return status;
}

/* Features of a head that turn. */
static enum ddp_status read_size(const struct ddp_hf_keys *in, struct ddp_llama *shape)
{
    double part = 1;
    enum ddp_status status = ddp_hf_keys_real(in, "partial_rotary_factor", SMALLEST, 1.01, &part);
    if (status != DDP_OK)
        return status;
    if (part > 1 || (part < 1 && shape->family != DDP_LLAMA_PHI3))
        return ddp_fail(DDP_ERR_FORMAT, "%s: %spartial_rotary_factor %g is not supported", in->name,
                        in->prefix, part);
    shape->rope.size = (int64_t)((double)shape->head_size * part);
    if (shape->rope.size < 2 || shape->rope.size % 2 != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %" PRId64 " features of each head would turn with their position, "
                        "which is not an even number from 2: see head_dim%s",
                        in->name, shape->rope.size, part < 1 ? " and partial_rotary_factor" : "");
    return DDP_OK;
}

static enum ddp_status read_original(const struct ddp_hf_keys *in, const struct ddp_hf_keys *rope,
                                     struct ddp_llama *shape)
{
    const char *key = "original_max_position_embeddings";
    shape->rope.original = shape->context;
    return ddp_hf_keys_get(in, key) ? ddp_hf_keys_count(in, key, LONGEST, &shape->rope.original)
           : ddp_hf_keys_get(rope, key)
               ? ddp_hf_keys_count(rope, key, LONGEST, &shape->rope.original)
               : DDP_OK;
}

static enum ddp_status read_rope(const struct ddp_hf_keys *in, const struct ddp_hf_keys *keys,
                                 struct ddp_llama *shape)
{
    struct ddp_rope *rope = &shape->rope;
    *rope = (struct ddp_rope){.attention_factor = 1};
    enum ddp_status status = read_kind(keys, shape->family, &rope->kind);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(keys, "rope_theta", SMALLEST, LARGEST, &rope->theta);
    if (status == DDP_OK && rope->theta <= 1)
        status =
            ddp_fail(DDP_ERR_FORMAT, "%s: rope_theta %g is not more than 1", in->name, rope->theta);
    if (status == DDP_OK)
        status = read_size(keys, shape);
    if (status == DDP_OK && (rope->kind == DDP_ROPE_LLAMA3 || rope->kind == DDP_ROPE_YARN))
        status = read_original(in, keys, shape);
    if (status != DDP_OK)
        return status;
    switch (rope->kind) {
    case DDP_ROPE_LINEAR:
        return read_needed(keys, "factor", &rope->factor);
    case DDP_ROPE_LLAMA3:
        return read_llama3(keys, rope);
    case DDP_ROPE_YARN:
        return read_yarn(keys, shape);
    default:
        return DDP_OK;
    }
}

enum ddp_status ddp_hf_llama_rope_read(const struct ddp_hf_keys *in, struct ddp_llama *shape)
{
    json_t *rope;
    double ignored;
    enum ddp_status status = read_optional(in, "rope_theta", &ignored);
    if (status == DDP_OK)
        status = read_optional(in, "partial_rotary_factor", &ignored);
    if (status == DDP_OK)
        status = ddp_hf_llama_rope_keys(in, shape->family, &rope);
    if (status != DDP_OK)
        return status;
    const bool old = json_is_object(ddp_hf_keys_get(in, "rope_scaling")) ||
                     !ddp_hf_keys_get(in, "rope_parameters");
    const struct ddp_hf_keys keys = {in->name, old ? "rope_scaling." : "rope_parameters.", rope};
    status = read_rope(in, &keys, shape);
    json_decref(rope);
    return status;
}

/* --- writing ---------------------------------------------------------------------------------- */

static int set_yarn(json_t *object, const struct ddp_rope *rope)
{
    int failed = json_object_set_new(object, "beta_fast", json_real(rope->beta_fast));
    failed |= json_object_set_new(object, "beta_slow", json_real(rope->beta_slow));
    failed |= json_object_set_new(object, "attention_factor", json_real(rope->attention_factor));
    if (rope->untruncated)
        failed |= json_object_set_new(object, "truncate", json_false());
    return failed;
}

/* A reader multiplies and truncates: where that would lose one, the quotient is a little larger. */
static double part_of(const struct ddp_llama *shape)
{
    const double part = (double)shape->rope.size / (double)shape->head_size;
    return (int64_t)(part * (double)shape->head_size) == shape->rope.size ? part
                                                                          : nextafter(part, 2);
}

json_t *ddp_hf_llama_rope_object(const struct ddp_llama *shape)
{
    const struct ddp_rope *rope = &shape->rope;
    json_t *object = json_object();
    int failed = !object;
    failed |= json_object_set_new(object, "rope_theta", json_real(rope->theta));
    failed |= json_object_set_new(object, "rope_type", json_string(kinds[rope->kind]));
    if (rope->kind != DDP_ROPE_DEFAULT)
        failed |= json_object_set_new(object, "factor", json_real(rope->factor));
    if (rope->kind == DDP_ROPE_LLAMA3) {
        failed |= json_object_set_new(object, "low_freq_factor", json_real(rope->low_factor));
        failed |= json_object_set_new(object, "high_freq_factor", json_real(rope->high_factor));
    }
    if (rope->kind == DDP_ROPE_YARN)
        failed |= set_yarn(object, rope);
    if (rope->kind == DDP_ROPE_LLAMA3 || rope->kind == DDP_ROPE_YARN)
        failed |= json_object_set_new(object, "original_max_position_embeddings",
                                      json_integer(rope->original));
    if (shape->family == DDP_LLAMA_PHI3)
        failed |= json_object_set_new(object, "partial_rotary_factor", json_real(part_of(shape)));
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}
