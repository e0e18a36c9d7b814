/* SPDX-License-Identifier: MIT
 *
 * Bytes that grow at their end. */
#ifndef DDP_DATA_TEXT_BUFFER_H
#define DDP_DATA_TEXT_BUFFER_H

#include "core/log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* {0} is empty; free(at) frees it. */
struct ddp_buffer {
    char *at;
    size_t bytes, room;
};

/* Makes room for so many more bytes, and a 0. DDP_ERR_MEMORY. */
static inline enum ddp_status ddp_buffer_reserve(struct ddp_buffer *buffer, size_t bytes)
{
    if (bytes < buffer->room - buffer->bytes)
        return DDP_OK;
    const size_t room = buffer->bytes + bytes + 1 + buffer->bytes / 2;
    char *grown = bytes < PTRDIFF_MAX && room > bytes ? (char *)realloc(buffer->at, room) : NULL;
    if (!grown)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: a text of %zu bytes", buffer->bytes);
    buffer->at = grown;
    buffer->room = room;
    return DDP_OK;
}

/* Appends bytes, and a 0 that does not count. */
static inline enum ddp_status ddp_buffer_append(struct ddp_buffer *buffer, const char *text,
                                                size_t bytes)
{
    enum ddp_status status = ddp_buffer_reserve(buffer, bytes);
    if (status != DDP_OK)
        return status;
    if (bytes > 0)
        memcpy(buffer->at + buffer->bytes, text, bytes);
    buffer->bytes += bytes;
    buffer->at[buffer->bytes] = '\0';
    return DDP_OK;
}

#endif
