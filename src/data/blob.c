/* SPDX-License-Identifier: MIT
 *
 * See blob.h. */
#include "config.h"

#include "data/blob.h"

#include <assert.h>

enum ddp_status ddp_blob_at(const struct ddp_blob *blob, uint64_t at, size_t count, void *buffer,
                            const unsigned char **pointer)
{
    assert(at <= blob->bytes && count <= blob->bytes - at);
    if (!blob->file) {
        *pointer = blob->memory + at;
        return DDP_OK;
    }
    *pointer = buffer;
    return ddp_input_file_read(blob->file, blob->offset + at, buffer, count);
}
