/* SPDX-License-Identifier: MIT
 *
 * What oneDNN needs before its first product. */
#ifndef DDP_KERNELS_CPU_ONEDNN_H
#define DDP_KERNELS_CPU_ONEDNN_H

#include "ddp.h"

/* Makes oneDNN generate its code while there is room for it: without room it throws an exception
 * that C cannot catch, and the process ends. Later products allocate as C does, and report errors.
 * Called before each product, from any thread; only the first call does it, in some ten
 * milliseconds.
 *   vector  a product with a vector: it generates little code itself; only the room is checked
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_onednn_prepare(bool vector);

#endif
