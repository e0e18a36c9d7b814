/* SPDX-License-Identifier: MIT
 *
 * Positions in a config.json, in both forms: rope_parameters of transformers 5, and rope_theta with
 * rope_scaling of version 4, whose oldest files say `type` for rope_type. */
#ifndef DDP_WEIGHTS_HF_LLAMA_ROPE_H
#define DDP_WEIGHTS_HF_LLAMA_ROPE_H

#include "model/llama.h"
#include "weights/hf_keys.h"

/* The keys that hold, as transformers 5 reads them: rope_scaling wins over rope_parameters; theta,
 * rope_type and phi3's partial_rotary_factor are always there.
 *   rope [out]  freed with json_decref()
 * DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_llama_rope_keys(const struct ddp_hf_keys *in, int64_t family, json_t **rope);

/* Reads them; head_size, context and family are there already. DDP_ERR_FORMAT. */
enum ddp_status ddp_hf_llama_rope_read(const struct ddp_hf_keys *in, struct ddp_llama *shape);

/* The reverse: an object for rope_parameters. NULL without memory. */
json_t *ddp_hf_llama_rope_object(const struct ddp_llama *shape);

#endif
