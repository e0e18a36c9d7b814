/* SPDX-License-Identifier: MIT
 *
 * Stands in for the library zlib where that is not installed: its checksum, and that nothing can be
 * unpacked. */
#ifndef DDP_ZLIB_ZLIB_H
#define DDP_ZLIB_ZLIB_H

#include <stddef.h>

#define Z_OK            0
#define Z_STREAM_END    1
#define Z_MEM_ERROR     (-4)
#define Z_BUF_ERROR     (-5)
#define Z_VERSION_ERROR (-6)
#define Z_NO_FLUSH      0

typedef unsigned char Bytef;
typedef unsigned int uInt;
typedef unsigned long uLong;

typedef struct {
    const Bytef *next_in;
    uInt avail_in;
    Bytef *next_out;
    uInt avail_out;
    const char *msg;
} z_stream;

/* Z_VERSION_ERROR, and so are the next three. */
int inflateInit2(z_stream *stream, int window_bits);
int inflateReset(z_stream *stream);
int inflate(z_stream *stream, int flush);
int inflateEnd(z_stream *stream);

uLong crc32_z(uLong crc, const Bytef *data, size_t bytes);

#endif
