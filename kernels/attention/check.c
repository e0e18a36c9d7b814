/* SPDX-License-Identifier: MIT
 *
 * See attention_check.h. */
#include "config.h"

#include "kernels/attention/check.h"

#include "core/log.h"

static enum ddp_status check_shape(const char *name, int64_t batch, int64_t length, int64_t heads,
                                   int64_t head_size, enum ddp_dtype dtype)
{
    if (batch < 0 || length < 0 || heads < 0 || head_size < 0)
        return ddp_fail(
            DDP_ERR_INVALID, "%s: negative size (%lld x %lld tokens, %lld heads of %lld)", name,
            (long long)batch, (long long)length, (long long)heads, (long long)head_size);
    if (dtype != DDP_F32 && dtype != DDP_BF16)
        return ddp_fail(DDP_ERR_INVALID, "%s: cannot take dtype %d", name, (int)dtype);
    return DDP_OK;
}

enum ddp_status ddp_attention_check_forward(const struct ddp_attention_forward *args)
{
    enum ddp_status status = check_shape("attention", args->batch, args->length, args->heads,
                                         args->head_size, args->dtype);
    if (status)
        return status;
    if (!ddp_attention_is_empty(args->batch, args->length, args->heads, args->head_size) &&
        (!args->qkv || !args->y))
        return ddp_fail(DDP_ERR_INVALID, "attention: qkv or y is NULL");
    return DDP_OK;
}

enum ddp_status ddp_attention_check_backward(const struct ddp_attention_backward *args)
{
    enum ddp_status status = check_shape("attention backward", args->batch, args->length,
                                         args->heads, args->head_size, args->dtype);
    if (status)
        return status;
    if (!ddp_attention_is_empty(args->batch, args->length, args->heads, args->head_size) &&
        (!args->qkv || !args->y || !args->lse || !args->dy || !args->dqkv))
        return ddp_fail(DDP_ERR_INVALID, "attention backward: qkv, y, lse, dy or dqkv is NULL");
    return DDP_OK;
}
