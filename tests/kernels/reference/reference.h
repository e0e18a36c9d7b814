/* SPDX-License-Identifier: MIT
 *
 * The operations in plain C, as their formulas say them, most of them in double precision: what the
 * tests of kernels compare with. They take the arguments of the fast versions, and check them too;
 * scratch memory and the stream are not used. */
#ifndef DDP_TESTS_REFERENCE_H
#define DDP_TESTS_REFERENCE_H

#include "kernels/adamw.h"
#include "kernels/add.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cached.h"
#include "kernels/batch_norm.h"
#include "kernels/bf16.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/cpu/gemm.h"
#include "kernels/dropout.h"
#include "kernels/ema.h"
#include "kernels/embedding.h"
#include "kernels/kernels.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/merge.h"
#include "kernels/mse.h"
#include "kernels/norm.h"
#include "kernels/pool2d.h"
#include "kernels/reduce.h"
#include "kernels/relu.h"
#include "kernels/rotary.h"
#include "kernels/sgd.h"
#include "kernels/softmax_cross_entropy.h"
#include "kernels/sum.h"
#include "kernels/swiglu.h"
#include "kernels/transpose.h"

extern const struct ddp_kernels ddp_kernels_reference;

/* Calls the epilogue once for the whole of C. */
enum ddp_status ddp_gemm_reference(const struct ddp_gemm *gemm, void *stream);
/* The order and the roundings of gemm.h: these bits, on any processor. */
enum ddp_status ddp_gemm_defined(const struct ddp_gemm *gemm);

#define DECLARE(name)                                                                              \
    enum ddp_status ddp_##name##_reference(const struct ddp_##name *args, void *stream);
DDP_KERNELS(DECLARE)
#undef DECLARE
enum ddp_status ddp_reduce_reference(const struct ddp_reduce *args);

#endif
