/* SPDX-License-Identifier: MIT
 *
 * What the fast and the plain version of batch norm share: the arguments, checked, and what is done
 * once for each channel. Private to batch_norm*.c. */
#ifndef DDP_KERNELS_BATCH_NORM_CHECK_H
#define DDP_KERNELS_BATCH_NORM_CHECK_H

#include "kernels/batch_norm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ddp_status ddp_batch_norm_check_sums(const struct ddp_batch_norm_sums *args);
enum ddp_status ddp_batch_norm_check_forward(const struct ddp_batch_norm_forward *args);
enum ddp_status ddp_batch_norm_check_backward_sums(const struct ddp_batch_norm_backward_sums *args);
enum ddp_status ddp_batch_norm_check_backward(const struct ddp_batch_norm_backward *args);

/* On the CPU: saved, stat_mean and stat_var from the sums. */
void ddp_batch_norm_statistics(const struct ddp_batch_norm_forward *args);
/* dgamma and dbeta from the sums. */
void ddp_batch_norm_parameters(const struct ddp_batch_norm_backward *args);

#ifdef __cplusplus
}
#endif

#endif
