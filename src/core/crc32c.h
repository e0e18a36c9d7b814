/* SPDX-License-Identifier: MIT
 *
 * CRC-32C (Castagnoli), as iSCSI, ext4 and TensorFlow's record files use it. */
#ifndef DDP_CORE_CRC32C_H
#define DDP_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ddp_crc32c(const void *data, size_t bytes);

#endif
