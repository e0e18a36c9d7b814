/* SPDX-License-Identifier: MIT
 *
 * A 64-bit hash of memory, to detect copies that differ: any changed bit changes it. It does not
 * withstand attacks, and is the same only on little-endian machines. */
#ifndef DDP_CORE_HASH_H
#define DDP_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ddp_hash(const void *data, size_t bytes);

#endif
