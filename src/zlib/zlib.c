/* SPDX-License-Identifier: MIT
 *
 * See zlib.h. */
#include "config.h"

#include "zlib/zlib.h"

#include <stdint.h>

#define POLYNOMIAL UINT32_C(0xedb88320) /* reflected */

int inflateInit2(z_stream *stream, int window_bits)
{
    (void)stream;
    (void)window_bits;
    return Z_VERSION_ERROR;
}

int inflateReset(z_stream *stream)
{
    (void)stream;
    return Z_VERSION_ERROR;
}

int inflate(z_stream *stream, int flush)
{
    (void)stream;
    (void)flush;
    return Z_VERSION_ERROR;
}

int inflateEnd(z_stream *stream)
{
    (void)stream;
    return Z_VERSION_ERROR;
}

/* Eight bytes at a time, since checkpoints are large: table[k] is for a byte with k bytes behind
 * it. */
static void fill(uint32_t table[8][256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1 ? POLYNOMIAL : 0) ^ (crc >> 1);
        table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            table[k][i] = table[0][table[k - 1][i] & 0xff] ^ (table[k - 1][i] >> 8);
}

uLong crc32_z(uLong crc, const Bytef *data, size_t bytes)
{
    uint32_t table[8][256], sum = ~(uint32_t)crc;
    fill(table);
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint32_t next = 0;
        for (int i = 0; i < 4; i++)
            sum ^= (uint32_t)data[i] << 8 * i;
        for (int i = 0; i < 4; i++)
            next ^= table[7 - i][sum >> 8 * i & 0xff] ^ table[3 - i][data[4 + i]];
        sum = next;
    }
    for (; bytes > 0; bytes--, data++)
        sum = table[0][(sum ^ *data) & 0xff] ^ (sum >> 8);
    return ~sum & UINT32_MAX;
}
