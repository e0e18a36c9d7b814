/* SPDX-License-Identifier: MIT
 *
 * The frequencies of rotary positions, as transformers computes them: plain, and those that were
 * changed for a longer context. */
#ifndef DDP_MODEL_ROPE_H
#define DDP_MODEL_ROPE_H

#include "model/llama.h"

/* Fills in size/2 frequencies in radians for each position, what ddp_graph_rope_table() takes. The
 * attention factor is not in them.
 * DDP_ERR_INVALID: an unknown kind, or numbers that are out of range, named in the message */
enum ddp_status ddp_rope_frequencies(const struct ddp_rope *rope, float *frequencies);

#endif
