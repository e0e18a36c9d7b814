/* SPDX-License-Identifier: MIT
 *
 * The arguments of attention, checked: for all devices. Private to attention*. */
#ifndef DDP_KERNELS_ATTENTION_CHECK_H
#define DDP_KERNELS_ATTENTION_CHECK_H

#include "kernels/attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ddp_status ddp_attention_check_forward(const struct ddp_attention_forward *args);
enum ddp_status ddp_attention_check_backward(const struct ddp_attention_backward *args);

static inline bool ddp_attention_is_empty(int64_t batch, int64_t length, int64_t heads,
                                          int64_t head_size)
{
    return batch == 0 || length == 0 || heads == 0 || head_size == 0;
}

#ifdef __cplusplus
}
#endif

#endif
