/* SPDX-License-Identifier: MIT
 *
 * Keys of a config.json, read one at a time. An error names the file, the key and what is wrong. */
#ifndef DDP_WEIGHTS_HF_KEYS_H
#define DDP_WEIGHTS_HF_KEYS_H

#include "core/json.h"

#define DDP_HF_CONFIG_BYTES 1000000 /* of a config.json, at most */

/* An object of a file. */
struct ddp_hf_keys {
    const char *name;   /* of the file */
    const char *prefix; /* of keys in messages: "", or "rope_scaling." */
    json_t *root;
};

/* Begins to read a text, or the file `name` where it is NULL.
 *   in [out]  its root is freed with json_decref(), also after a failure
 *   what      it is not, for messages
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_keys_open(struct ddp_hf_keys *in, const char *name, const char *what,
                                 const char *text, size_t bytes);

/* Each leaves *value alone where there is no such key. DDP_ERR_FORMAT: it is of another kind, or
 * out of range. ddp_hf_keys_real() takes from `least` to below `below`. */
enum ddp_status ddp_hf_keys_count(const struct ddp_hf_keys *in, const char *key, int64_t most,
                                  int64_t *value);
enum ddp_status ddp_hf_keys_real(const struct ddp_hf_keys *in, const char *key, double least,
                                 double below, double *value);
enum ddp_status ddp_hf_keys_flag(const struct ddp_hf_keys *in, const char *key, bool *value);

/* A flag that has only one value we can do. */
enum ddp_status ddp_hf_keys_require(const struct ddp_hf_keys *in, const char *key, bool wanted);

/* A text. A key that is null counts as absent.
 *   value [out]  borrowed from the file */
enum ddp_status ddp_hf_keys_text(const struct ddp_hf_keys *in, const char *key, const char **value);

/* The value of a key; NULL: it is not there, or null. */
const json_t *ddp_hf_keys_get(const struct ddp_hf_keys *in, const char *key);

#endif
