/* SPDX-License-Identifier: MIT
 *
 * Products by oneDNN, and what it needs before its first one. */
#ifndef DDP_KERNELS_CPU_ONEDNN_H
#define DDP_KERNELS_CPU_ONEDNN_H

#include "kernels/cpu/gemm.h"

/* Makes oneDNN generate its code while there is room for it: where a call of its code generator for
 * memory fails it reads through a null pointer, which nobody can catch, and the process ends. Later
 * products allocate as C does, and report errors.
 * Called before each product, from any thread; only the first call does it, in some ten
 * milliseconds.
 *   vector  a product with a vector: it generates little code itself; only the room is checked
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_onednn_prepare(bool vector);

/* The whole product on the calling thread, k >= 1, without the epilogue; only in builds with
 * oneDNN. Returns 0, or oneDNN's status: ddp_onednn_status() turns that into ours, with a message.
 * No signal handler may run meanwhile. */
int ddp_onednn_multiply(const struct ddp_gemm *gemm);
enum ddp_status ddp_onednn_status(int error, const char *operation);

/* Whether products of bf16 run on the processor's own instructions for them; else oneDNN's
 * emulation would be slower than float32, and plain C gives the same bits everywhere. */
bool ddp_gemm_bf16_native(void);

/* Keeps oneDNN on the calling thread: outside a parallel region of OpenMP each of its calls would
 * start a team of its own. */
void ddp_onednn_stay_single(void);

#endif
