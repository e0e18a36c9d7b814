/* SPDX-License-Identifier: MIT
 *
 * See zip_file.h. The numbers are those of PKWARE's APPNOTE.TXT, 4.3. */
#include "config.h"

#include "data/zip_file.h"

#include "core/log.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define END_BYTES       22 /* of the record at the end, without its comment */
#define COMMENT_MAX     65535
#define LOCATOR_BYTES   20
#define END64_BYTES     56
#define ENTRY_BYTES     46 /* of a member in the central directory, without its name and extras */
#define LOCAL_BYTES     30
#define DIRECTORY_LIMIT (64u << 20)
#define MEMBER_LIMIT    4096
#define NAME_LIMIT      1024

#define END_MAGIC     0x06054b50u
#define LOCATOR_MAGIC 0x07064b50u
#define END64_MAGIC   0x06064b50u
#define ENTRY_MAGIC   0x02014b50u
#define LOCAL_MAGIC   0x04034b50u

#define STORED     0
#define DEFLATED   8
#define ENCRYPTED  1 /* flag */
#define EXTRA_64   1 /* extra field */
#define PIECE_READ (1u << 18)

static uint32_t number16(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t number32(const unsigned char *p)
{
    return number16(p) | number16(p + 2) << 16;
}

static uint64_t number64(const unsigned char *p)
{
    return number32(p) | (uint64_t)number32(p + 4) << 32;
}

static enum ddp_status bad(const struct ddp_zip *zip, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: damaged zip archive: %s", zip->blob.name, what);
}

/* --- the central directory -------------------------------------------------------------------- */

struct directory {
    uint64_t offset, bytes, members;
    uint64_t end; /* where the records at the end begin: the directory is before them */
};

/* The record at the end, after which only a comment of the length it names may follow. */
static enum ddp_status find_end(const struct ddp_zip *zip, const unsigned char *tail, size_t bytes,
                                size_t *at)
{
    if (bytes < END_BYTES)
        return ddp_fail(DDP_ERR_FORMAT, "%s: truncated: %zu bytes are not a zip archive",
                        zip->blob.name, bytes);
    for (size_t i = bytes - END_BYTES + 1; i-- > 0;)
        if (number32(tail + i) == END_MAGIC && number16(tail + i + 20) == bytes - i - END_BYTES) {
            *at = i;
            return DDP_OK;
        }
    return ddp_fail(DDP_ERR_FORMAT, "%s: not a zip archive, or truncated: its end is missing",
                    zip->blob.name);
}

/* The 64-bit record, which the locator just before `end` points to. */
static enum ddp_status read_end64(const struct ddp_zip *zip, uint64_t end,
                                  struct directory *directory)
{
    unsigned char buffer[END64_BYTES];
    const unsigned char *p;
    if (end < LOCATOR_BYTES)
        return bad(zip, "its 64-bit end is missing");
    enum ddp_status status =
        ddp_blob_at(&zip->blob, end - LOCATOR_BYTES, LOCATOR_BYTES, buffer, &p);
    if (status != DDP_OK)
        return status;
    if (number32(p) != LOCATOR_MAGIC)
        return bad(zip, "its 64-bit end is missing");
    const uint64_t at = number64(p + 8);
    if (at > end - LOCATOR_BYTES || end - LOCATOR_BYTES - at < END64_BYTES)
        return bad(zip, "its 64-bit end lies beyond the file");
    status = ddp_blob_at(&zip->blob, at, END64_BYTES, buffer, &p);
    if (status != DDP_OK)
        return status;
    if (number32(p) != END64_MAGIC)
        return bad(zip, "its 64-bit end is not where it should be");
    directory->members = number64(p + 32);
    directory->bytes = number64(p + 40);
    directory->offset = number64(p + 48);
    directory->end = at;
    return DDP_OK;
}

static enum ddp_status find_directory(const struct ddp_zip *zip, struct directory *directory)
{
    const uint64_t total = zip->blob.bytes;
    const size_t bytes = total < END_BYTES + COMMENT_MAX ? (size_t)total : END_BYTES + COMMENT_MAX;
    const unsigned char *tail;
    size_t at = 0;
    unsigned char *buffer = malloc(bytes + 1);
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", zip->blob.name);
    enum ddp_status status = ddp_blob_at(&zip->blob, total - bytes, bytes, buffer, &tail);
    if (status == DDP_OK)
        status = find_end(zip, tail, bytes, &at);
    if (status == DDP_OK) {
        const unsigned char *p = tail + at;
        *directory = (struct directory){.members = number16(p + 10),
                                        .bytes = number32(p + 12),
                                        .offset = number32(p + 16),
                                        .end = total - bytes + at};
        if (number16(p + 4) != 0 && number16(p + 4) != 0xffff)
            status = bad(zip, "it has several parts");
        else if (directory->members == 0xffff || directory->bytes == 0xffffffffu ||
                 directory->offset == 0xffffffffu)
            status = read_end64(zip, directory->end, directory);
    }
    free(buffer);
    if (status != DDP_OK)
        return status;
    if (directory->offset > directory->end || directory->bytes > directory->end - directory->offset)
        return bad(zip, "its directory lies beyond the file");
    if (directory->bytes > DIRECTORY_LIMIT || directory->members > MEMBER_LIMIT)
        return bad(zip, "its directory is too large");
    return DDP_OK;
}

/* The 64-bit sizes among the extra fields: those of the three that are too large for 32 bits, in
 * this order. */
static bool read_extra(const unsigned char *extra, size_t bytes, uint64_t *const fields[3])
{
    while (bytes >= 4) {
        const uint32_t id = number16(extra), length = number16(extra + 2);
        if (length > bytes - 4)
            return false;
        if (id == EXTRA_64) {
            size_t at = 0;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] != 0xffffffffu)
                    continue;
                if (length - at < 8)
                    return false;
                *fields[i] = number64(extra + 4 + at);
                at += 8;
            }
            return true;
        }
        extra += 4 + length;
        bytes -= 4 + length;
    }
    return *fields[0] != 0xffffffffu && *fields[1] != 0xffffffffu && *fields[2] != 0xffffffffu;
}

/* One member of the directory; *at moves on. */
static enum ddp_status read_entry(struct ddp_zip *zip, const unsigned char *directory, size_t bytes,
                                  size_t *at)
{
    const unsigned char *p = directory + *at;
    if (bytes - *at < ENTRY_BYTES || number32(p) != ENTRY_MAGIC)
        return bad(zip, "its directory is truncated");
    const size_t name = number16(p + 28), extra = number16(p + 30), comment = number16(p + 32);
    if (name + extra + comment > bytes - *at - ENTRY_BYTES)
        return bad(zip, "its directory is truncated");
    if (name == 0 || name > NAME_LIMIT || memchr(p + ENTRY_BYTES, 0, name))
        return bad(zip, "the name of a member");
    struct ddp_zip_member member = {
        .offset = number32(p + 42),
        .packed_bytes = number32(p + 20),
        .bytes = number32(p + 24),
        .crc = number32(p + 16),
        .method = (int)number16(p + 10),
    };
    if (number16(p + 8) & ENCRYPTED)
        return bad(zip, "a member is encrypted");
    if (!read_extra(p + ENTRY_BYTES + name, extra,
                    (uint64_t *const[3]){&member.bytes, &member.packed_bytes, &member.offset}))
        return bad(zip, "the 64-bit sizes of a member");
    member.name = strndup((const char *)p + ENTRY_BYTES, name);
    if (!member.name)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", zip->blob.name);
    if (ddp_zip_find(zip, member.name)) {
        free(member.name);
        return bad(zip, "two members of the same name");
    }
    zip->members[zip->member_count++] = member;
    *at += ENTRY_BYTES + name + extra + comment;
    return DDP_OK;
}

static enum ddp_status read_directory(struct ddp_zip *zip, const struct directory *directory)
{
    const unsigned char *data;
    const size_t bytes = (size_t)directory->bytes;
    if (directory->members * ENTRY_BYTES > bytes)
        return bad(zip, "its directory is truncated");
    unsigned char *buffer = malloc(bytes + 1);
    zip->members = ddp_array_alloc((size_t)directory->members, sizeof *zip->members);
    if (!buffer || !zip->members) {
        free(buffer);
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", zip->blob.name);
    }
    enum ddp_status status = ddp_blob_at(&zip->blob, directory->offset, bytes, buffer, &data);
    size_t at = 0;
    for (uint64_t i = 0; status == DDP_OK && i < directory->members; i++)
        status = read_entry(zip, data, bytes, &at);
    free(buffer);
    return status;
}

enum ddp_status ddp_zip_open(struct ddp_zip *zip, const struct ddp_blob *blob)
{
    struct directory directory = {0};
    *zip = (struct ddp_zip){.blob = *blob};
    enum ddp_status status = find_directory(zip, &directory);
    if (status == DDP_OK)
        status = read_directory(zip, &directory);
    if (status != DDP_OK)
        ddp_zip_close(zip);
    return status;
}

void ddp_zip_close(struct ddp_zip *zip)
{
    for (size_t i = 0; i < zip->member_count; i++)
        free(zip->members[i].name);
    free(zip->members);
    zip->members = NULL;
    zip->member_count = 0;
}

const struct ddp_zip_member *ddp_zip_find(const struct ddp_zip *zip, const char *name)
{
    for (size_t i = 0; i < zip->member_count; i++)
        if (strcmp(zip->members[i].name, name) == 0)
            return &zip->members[i];
    return NULL;
}

/* --- members ---------------------------------------------------------------------------------- */

/* Where a member's bytes begin, after its own header, whose name must be the directory's. */
static enum ddp_status locate(const struct ddp_zip *zip, const struct ddp_zip_member *member,
                              const char *name, uint64_t *begin)
{
    unsigned char buffer[LOCAL_BYTES + NAME_LIMIT];
    const unsigned char *p;
    const uint64_t total = zip->blob.bytes;
    const size_t length = strlen(member->name);
    if (member->offset > total || total - member->offset < LOCAL_BYTES + length)
        return ddp_fail(DDP_ERR_FORMAT, "%s: damaged zip archive: the member lies beyond the file",
                        name);
    enum ddp_status status =
        ddp_blob_at(&zip->blob, member->offset, LOCAL_BYTES + length, buffer, &p);
    if (status != DDP_OK)
        return status;
    if (number32(p) != LOCAL_MAGIC || number16(p + 26) != length ||
        memcmp(p + LOCAL_BYTES, member->name, length) != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: damaged zip archive: the member is not where it should be", name);
    *begin = member->offset + LOCAL_BYTES + length + number16(p + 28);
    if (*begin > total || member->packed_bytes > total - *begin)
        return ddp_fail(DDP_ERR_FORMAT, "%s: damaged zip archive: the member lies beyond the file",
                        name);
    return DDP_OK;
}

/* What deflate cannot do is not believed; what memory cannot hold is not tried. */
static enum ddp_status check_size(const struct ddp_zip_member *member, const char *name)
{
    if (member->bytes / 1040 > member->packed_bytes)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: damaged zip archive: %" PRIu64 " bytes cannot come from %" PRIu64,
                        name, member->bytes, member->packed_bytes);
    if (member->bytes > ddp_memory_total())
        return ddp_fail(DDP_ERR_MEMORY,
                        "%s: out of memory: it holds %" PRIu64 " bytes, the machine has %zu: save "
                        "it with numpy.savez, uncompressed, which is read as needed",
                        name, member->bytes, ddp_memory_total());
    return DDP_OK;
}

/* Feeds the member's packed bytes to zlib until it has given `bytes`. */
static enum ddp_status inflate_member(const struct ddp_blob *packed, z_stream *stream,
                                      unsigned char *out, uint64_t bytes)
{
    enum ddp_status status = DDP_OK;
    uint64_t taken = 0, given = 0;
    int result = Z_OK;
    unsigned char *buffer = malloc(PIECE_READ);
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", packed->name);
    while (status == DDP_OK && result == Z_OK) {
        const uint64_t left = packed->bytes - taken, room = bytes - given;
        if (stream->avail_in == 0 && left > 0) {
            const unsigned char *from;
            const size_t count = left < PIECE_READ ? (size_t)left : PIECE_READ;
            status = ddp_blob_at(packed, taken, count, buffer, &from);
            stream->next_in = (unsigned char *)(uintptr_t)from;
            stream->avail_in = (uInt)count;
            taken += count;
        }
        const uInt piece = room < (1u << 30) ? (uInt)room : 1u << 30;
        stream->next_out = out + given;
        stream->avail_out = piece;
        if (status == DDP_OK)
            result = inflate(stream, Z_NO_FLUSH);
        given += piece - stream->avail_out;
    }
    free(buffer);
    if (status == DDP_OK && result == Z_MEM_ERROR)
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", packed->name);
    if (status == DDP_OK && (result != Z_STREAM_END || given != bytes))
        status = ddp_fail(DDP_ERR_FORMAT, "%s: damaged zip archive: %s", packed->name,
                          stream->msg ? stream->msg : "the member has another size");
    return status;
}

static enum ddp_status unpack(const struct ddp_zip_member *member, const struct ddp_blob *packed,
                              unsigned char **owned)
{
    z_stream stream = {0};
    enum ddp_status status = check_size(member, packed->name);
    if (status != DDP_OK)
        return status;
    unsigned char *out = malloc(member->bytes ? (size_t)member->bytes : 1);
    if (!out || inflateInit2(&stream, -15) != Z_OK) {
        free(out);
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory: it holds %" PRIu64 " bytes",
                        packed->name, member->bytes);
    }
    status = inflate_member(packed, &stream, out, member->bytes);
    inflateEnd(&stream);
    if (status == DDP_OK && crc32_z(0, out, (size_t)member->bytes) != member->crc)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: damaged zip archive: wrong checksum", packed->name);
    if (status != DDP_OK) {
        free(out);
        return status;
    }
    *owned = out;
    return DDP_OK;
}

enum ddp_status ddp_zip_member_open(const struct ddp_zip *zip, const struct ddp_zip_member *member,
                                    const char *name, struct ddp_blob *data, unsigned char **owned)
{
    uint64_t begin;
    enum ddp_status status = locate(zip, member, name, &begin);
    if (status != DDP_OK)
        return status;
    struct ddp_blob packed = zip->blob;
    packed.name = name;
    packed.offset += begin;
    packed.memory = packed.memory ? packed.memory + begin : NULL;
    packed.bytes = member->packed_bytes;
    *owned = NULL;
    if (member->method == STORED && member->bytes == member->packed_bytes) {
        *data = packed;
        return DDP_OK;
    }
    if (member->method != DEFLATED)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s", name,
                        member->method == STORED
                            ? "damaged zip archive: a stored member of two sizes"
                            : "compressed by another method than deflate");
    status = unpack(member, &packed, owned);
    if (status == DDP_OK)
        *data = (struct ddp_blob){.name = name, .memory = *owned, .bytes = member->bytes};
    return status;
}
