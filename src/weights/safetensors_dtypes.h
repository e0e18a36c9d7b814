/* SPDX-License-Identifier: MIT
 *
 * What the reader and the writer of safetensors files share. */
#ifndef DDP_WEIGHTS_SAFETENSORS_DTYPES_H
#define DDP_WEIGHTS_SAFETENSORS_DTYPES_H

/* Place of a dtype in the order by which the format's own library sorts; -1: unknown. */
int ddp_safetensors_dtype_order(const char *dtype);

#endif
