/* SPDX-License-Identifier: MIT
 *
 * What oneDNN needs before its first product. */
#ifndef DDP_KERNELS_CPU_ONEDNN_H
#define DDP_KERNELS_CPU_ONEDNN_H

#include "ddp.h"

/* Lets oneDNN make its code while there surely is room for it: where it finds none, it throws what
 * nobody in C can catch, and the process ends. Later products allocate as C does, and tell. Before
 * each product, from any thread; only the first does it, and takes some ten milliseconds.
 *   vector  a product with a vector: little code of its own, which is made at once; only the room
 *           for it is looked for
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_onednn_prepare(bool vector);

#endif
