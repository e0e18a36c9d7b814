/* SPDX-License-Identifier: MIT
 *
 * The arguments of batch norm, checked; see batch_norm_check.h. */
#include "config.h"

#include "kernels/batch_norm_check.h"

#include "core/log.h"
#include "core/memory.h"

static enum ddp_status check_shape(int64_t rows, int64_t channels, enum ddp_activation activation)
{
    size_t bytes;
    if (rows < 0 || channels < 1 || channels > INT32_MAX ||
        !ddp_size_multiply((size_t)rows, (size_t)channels * sizeof(float), &bytes) ||
        bytes > INT64_MAX)
        return ddp_fail(DDP_ERR_INVALID, "batch norm: %lld rows of %lld channels", (long long)rows,
                        (long long)channels);
    if (activation != DDP_ACTIVATION_NONE && activation != DDP_ACTIVATION_RELU)
        return ddp_fail(DDP_ERR_INVALID, "batch norm: activation %d is not fused", (int)activation);
    return DDP_OK;
}

static enum ddp_status missing(bool is)
{
    return is ? ddp_fail(DDP_ERR_INVALID, "batch norm: NULL where elements are needed") : DDP_OK;
}

enum ddp_status ddp_batch_norm_check_sums(const struct ddp_batch_norm_sums *a)
{
    enum ddp_status status = check_shape(a->rows, a->channels, DDP_ACTIVATION_NONE);
    return status ? status : missing(!a->sums || (a->rows > 0 && !a->x));
}

enum ddp_status ddp_batch_norm_check_forward(const struct ddp_batch_norm_forward *a)
{
    enum ddp_status status = check_shape(a->rows, a->channels, a->activation);
    if (status)
        return status;
    if (a->sums && !(a->count >= 2))
        return ddp_fail(DDP_ERR_INVALID,
                        "batch norm: training needs at least 2 values of each channel, not %g",
                        a->count);
    bool is = !a->gamma || !a->beta || (a->rows > 0 && (!a->x || !a->y));
    is |= a->sums ? !a->saved : !a->running_mean || !a->running_var;
    return missing(is);
}

enum ddp_status ddp_batch_norm_check_backward_sums(const struct ddp_batch_norm_backward_sums *a)
{
    enum ddp_status status = check_shape(a->rows, a->channels, a->activation);
    if (status)
        return status;
    bool is = !a->gamma || !a->beta || !a->saved || !a->sums;
    is |= a->rows > 0 && (!a->x || !a->dy);
    is |= a->rows > 0 && a->activation != DDP_ACTIVATION_NONE && a->has_residual && !a->y;
    return missing(is);
}

enum ddp_status ddp_batch_norm_check_backward(const struct ddp_batch_norm_backward *a)
{
    enum ddp_status status = check_shape(a->rows, a->channels, a->activation);
    if (status)
        return status;
    if (a->rows > 0 && !(a->count > 0))
        return ddp_fail(DDP_ERR_INVALID, "batch norm: sums of %g rows", a->count);
    bool is = !a->gamma || !a->beta || !a->saved || !a->sums;
    is |= (a->dgamma || a->dbeta) && !a->local_sums;
    is |= a->rows > 0 && (!a->x || !a->dy);
    is |= a->rows > 0 && a->activation != DDP_ACTIVATION_NONE && a->has_residual && !a->y;
    return missing(is);
}
