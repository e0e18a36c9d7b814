/* SPDX-License-Identifier: MIT
 *
 * See crc32c.h. Sixteen entries, a nibble at a time: records are small. */
#include "config.h"

#include "core/crc32c.h"

#define POLYNOMIAL UINT32_C(0x82f63b78) /* reflected */

uint32_t ddp_crc32c(const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    uint32_t table[16], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int bit = 0; bit < 4; bit++)
            table[i] = (table[i] & 1 ? POLYNOMIAL : 0) ^ (table[i] >> 1);
    }
    for (size_t i = 0; i < bytes; i++) {
        crc ^= byte[i];
        crc = table[crc & 15] ^ (crc >> 4);
        crc = table[crc & 15] ^ (crc >> 4);
    }
    return ~crc;
}
