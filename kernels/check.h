/* SPDX-License-Identifier: MIT
 *
 * What the checks of arguments share. An operation's check is in its header, under the contract
 * that it checks: the CPU's and the GPU's side are two libraries, and both call it first. */
#ifndef DDP_KERNELS_CHECK_H
#define DDP_KERNELS_CHECK_H

#include "ddp.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/range.h"

#ifdef __cplusplus
extern "C" {
#endif

/* DDP_ERR_UNSUPPORTED for activations that the kernels of this library do not take: the CPU's take
 * float32, CUDA's also bf16. Each library has its own. */
enum ddp_status ddp_check_dtype(const char *operation, enum ddp_dtype dtype);

#ifdef __cplusplus
}
#endif

/* Flat arrays. `given`: whether they are there, which 0 elements do not need. */
static inline enum ddp_status ddp_check_elements(const char *operation, int64_t count, bool given,
                                                 enum ddp_dtype dtype)
{
    if (count < 0 || (count > 0 && !given))
        return ddp_fail(DDP_ERR_INVALID, "%s: bad arguments (%lld elements)", operation,
                        (long long)count);
    return ddp_check_dtype(operation, dtype);
}

/* The arrays of an optimizer's step, and the ranges without weight decay. */
static inline enum ddp_status ddp_check_update(const char *operation, int64_t count, int64_t first,
                                               const float *weight, const struct ddp_range *ranges,
                                               int range_count)
{
    bool bad = count < 0 || first < 0 || range_count < 0 || (range_count > 0 && !ranges) ||
               (count > 0 && !weight);
    for (int i = 0; !bad && i < range_count; i++)
        bad = ranges[i].begin >= ranges[i].end || (i > 0 && ranges[i].begin < ranges[i - 1].end);
    return bad ? ddp_fail(DDP_ERR_INVALID, "%s: bad arguments (%lld elements)", operation,
                          (long long)count)
               : DDP_OK;
}

#endif
