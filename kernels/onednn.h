/* SPDX-License-Identifier: MIT
 *
 * What oneDNN needs before its first product. */
#ifndef DDP_KERNELS_ONEDNN_H
#define DDP_KERNELS_ONEDNN_H

#include "ddp.h"

/* Lets oneDNN make its code while there surely is room for it: where it finds none, it throws what
 * nobody in C can catch, and the process ends. Later products allocate as C does, and tell. Before
 * the first product, from any thread; does it once, unless that failed. DDP_ERR_MEMORY. */
enum ddp_status ddp_onednn_prepare(void);

#endif
