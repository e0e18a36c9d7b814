/* SPDX-License-Identifier: MIT
 *
 * Changes some keys of a JSON text and leaves every other byte of it alone: the order of keys, the
 * spaces, the form of numbers. */
#ifndef DDP_WEIGHTS_HF_EDIT_H
#define DDP_WEIGHTS_HF_EDIT_H

#include "core/json.h"

/* Sets the keys of `changes`, an object, in the text of an object: the value of one
 * that is there is replaced, others are added at the end.
 *   edited [out]  ends in 0; freed with free()
 * DDP_ERR_MEMORY; DDP_ERR_FORMAT: a key of `changes` is there in another spelling. */
enum ddp_status ddp_hf_edit(char **edited, const char *name, const char *text, size_t bytes,
                            const json_t *changes);

#endif
