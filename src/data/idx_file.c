/* SPDX-License-Identifier: MIT
 *
 * See idx_file.h. */
#include "config.h"

#include "data/idx_file.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/byte_source.h"

#include <stdlib.h>
#include <sys/stat.h>

#define UNSIGNED_BYTE 0x08
#define FIRST_BYTES   ((size_t)4 << 20)

static enum ddp_status truncated_header(const char *name, size_t got, size_t wanted)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: truncated: %zu bytes, an IDX header has %zu", name, got,
                    wanted);
}

/* The four bytes of the magic number, then the sizes. */
static enum ddp_status read_header(struct ddp_idx_file *idx, ddp_byte_source *source,
                                   const char *name, int min_dims, int max_dims)
{
    unsigned char magic[4], size[4 * DDP_IDX_MAX_DIMS];
    size_t got;
    enum ddp_status status = ddp_byte_source_read(source, magic, sizeof magic, &got);
    if (status != DDP_OK)
        return status;
    if (got < sizeof magic)
        return truncated_header(name, got, 4 + 4 * (size_t)min_dims);
    if (magic[0] != 0 || magic[1] != 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: not an IDX file: it begins with %02x %02x, not 00 00",
                        name, magic[0], magic[1]);
    if (magic[2] != UNSIGNED_BYTE)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: IDX values of type 0x%02x: only unsigned bytes (0x08) can be read",
                        name, magic[2]);
    if (magic[3] < min_dims || magic[3] > max_dims)
        return ddp_fail(DDP_ERR_FORMAT, "%s: IDX data of %d dimensions: %s%d expected", name,
                        magic[3], min_dims < max_dims ? "up to " : "", max_dims);
    idx->dim_count = magic[3];
    size_t size_bytes = 4 * (size_t)idx->dim_count;
    status = ddp_byte_source_read(source, size, size_bytes, &got);
    if (status != DDP_OK)
        return status;
    if (got < size_bytes)
        return truncated_header(name, sizeof magic + got, sizeof magic + size_bytes);
    idx->bytes = 1;
    for (int i = 0; i < idx->dim_count; i++) {
        const unsigned char *s = size + 4 * i;
        uint32_t dim = (uint32_t)s[0] << 24 | (uint32_t)s[1] << 16 | (uint32_t)s[2] << 8 | s[3];
        if (dim == 0)
            return ddp_fail(DDP_ERR_FORMAT, "%s: %s", name,
                            i == 0 ? "the file has 0 items" : "items of size 0");
        idx->dims[i] = dim;
        if (!ddp_size_multiply(idx->bytes, dim, &idx->bytes) || idx->bytes > SIZE_MAX / 2)
            return ddp_fail(DDP_ERR_FORMAT, "%s: the sizes in its header are too large", name);
    }
    return DDP_OK;
}

/* Doubles the buffer as data comes, so that a false header costs no memory. */
static enum ddp_status read_values(struct ddp_idx_file *idx, ddp_byte_source *source,
                                   const char *name, size_t file_bytes)
{
    size_t done = 0, room = 0;
    const size_t memory = ddp_memory_total();
    while (done < idx->bytes) {
        size_t got;
        room = room == 0 ? FIRST_BYTES : room > SIZE_MAX / 4 ? idx->bytes : room * 2;
        if (room > idx->bytes)
            room = idx->bytes;
        /* Refused, for the kernel would not: it would end some process. Where the file is long
         * enough to mean what its header says, before a byte is read. */
        if (room > memory || (idx->bytes > memory && file_bytes >= idx->bytes))
            return ddp_fail(DDP_ERR_MEMORY,
                            "%s: out of memory: it holds %zu bytes, the machine has %zu", name,
                            idx->bytes, memory);
        unsigned char *grown = realloc(idx->values, room);
        if (!grown)
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory: it holds %zu bytes", name,
                            idx->bytes);
        idx->values = grown;
        enum ddp_status status = ddp_byte_source_read(source, grown + done, room - done, &got);
        if (status != DDP_OK)
            return status;
        if (got < room - done)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: truncated: %zu bytes of data, its header announces %zu", name,
                            done + got, idx->bytes);
        done = room;
    }
    return DDP_OK;
}

/* Nothing may follow; asking also makes gzip verify its checksum. */
static enum ddp_status check_end(const struct ddp_idx_file *idx, ddp_byte_source *source,
                                 const char *name)
{
    unsigned char extra;
    size_t got;
    enum ddp_status status = ddp_byte_source_read(source, &extra, 1, &got);
    if (status == DDP_OK && got > 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: there is more data than the %zu bytes that its header announces", name,
                        idx->bytes);
    return status;
}

enum ddp_status ddp_idx_file_read(struct ddp_idx_file *idx, FILE *file, const char *name,
                                  int min_dims, int max_dims)
{
    struct ddp_idx_file result = {0};
    ddp_byte_source *source;
    struct stat info;
    enum ddp_status status = ddp_byte_source_open(&source, file, name);
    if (status != DDP_OK)
        return status;
    status = read_header(&result, source, name, min_dims, max_dims);
    if (status == DDP_OK)
        status = read_values(&result, source, name,
                             fstat(fileno(file), &info) == 0 ? (size_t)info.st_size : 0);
    if (status == DDP_OK)
        status = check_end(&result, source, name);
    ddp_byte_source_close(source);
    if (status != DDP_OK) {
        free(result.values);
        return status;
    }
    *idx = result;
    return DDP_OK;
}
