/* SPDX-License-Identifier: MIT
 *
 * See hf_keys.h. */
#include "config.h"

#include "weights/hf_keys.h"

#include "core/input_file.h"
#include "core/log.h"

#include <inttypes.h>
#include <stdlib.h>

enum ddp_status ddp_hf_keys_open(struct ddp_hf_keys *in, const char *name, const char *what,
                                 const char *text, size_t bytes)
{
    char *read = NULL;
    enum ddp_status status = DDP_OK;
    *in = (struct ddp_hf_keys){name, "", NULL};
    if (!text)
        status = ddp_input_file_read_whole(name, what, DDP_HF_CONFIG_BYTES, &read, &bytes);
    if (status == DDP_OK)
        status = ddp_json_parse_object(&in->root, name, text ? text : read, bytes,
                                       JSON_REJECT_DUPLICATES);
    free(read);
    return status;
}

enum ddp_status ddp_hf_keys_count(const struct ddp_hf_keys *in, const char *key, int64_t most,
                                  int64_t *value)
{
    const json_t *member = json_object_get(in->root, key);
    if (!member)
        return DDP_OK;
    if (!json_is_integer(member) || json_integer_value(member) < 1 ||
        json_integer_value(member) > most)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s%s is not a whole number from 1 to %" PRId64,
                        in->name, in->prefix, key, most);
    *value = json_integer_value(member);
    return DDP_OK;
}

enum ddp_status ddp_hf_keys_real(const struct ddp_hf_keys *in, const char *key, double least,
                                 double below, double *value)
{
    const json_t *member = json_object_get(in->root, key);
    if (!member)
        return DDP_OK;
    const double number = json_number_value(member);
    if (!json_is_number(member) || number < least || number >= below)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s%s is not a number from %g to below %g", in->name,
                        in->prefix, key, least, below);
    *value = number;
    return DDP_OK;
}

enum ddp_status ddp_hf_keys_flag(const struct ddp_hf_keys *in, const char *key, bool *value)
{
    const json_t *member = json_object_get(in->root, key);
    if (!member)
        return DDP_OK;
    if (!json_is_boolean(member))
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s%s is neither true nor false", in->name, in->prefix,
                        key);
    *value = json_is_true(member);
    return DDP_OK;
}

enum ddp_status ddp_hf_keys_require(const struct ddp_hf_keys *in, const char *key, bool wanted)
{
    bool value = wanted;
    enum ddp_status status = ddp_hf_keys_flag(in, key, &value);
    if (status == DDP_OK && value != wanted)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s%s is %s, which is not supported; it must be %s",
                        in->name, in->prefix, key, value ? "true" : "false",
                        wanted ? "true" : "false");
    return status;
}

const json_t *ddp_hf_keys_get(const struct ddp_hf_keys *in, const char *key)
{
    const json_t *member = json_object_get(in->root, key);
    return json_is_null(member) ? NULL : member;
}

enum ddp_status ddp_hf_keys_text(const struct ddp_hf_keys *in, const char *key, const char **value)
{
    const json_t *member = ddp_hf_keys_get(in, key);
    if (!member)
        return DDP_OK;
    if (!json_is_string(member))
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s%s is not a string", in->name, in->prefix, key);
    *value = json_string_value(member);
    return DDP_OK;
}
