/* SPDX-License-Identifier: MIT
 *
 * GGUF files that are written: what stands in front of the tensors' values. */
#include "config.h"

#include "core/gguf.h"
#include "core/log.h"
#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

static void put_u32(FILE *out, uint32_t value)
{
    fwrite(&value, sizeof value, 1, out);
}

static void put_u64(FILE *out, uint64_t value)
{
    fwrite(&value, sizeof value, 1, out);
}

static void put_text(FILE *out, const char *text, size_t bytes)
{
    put_u64(out, bytes);
    fwrite(text, 1, bytes, out);
}

static uint32_t kind_of(const json_t *value, bool in_array)
{
    return json_is_array(value)     ? ARRAY
           : json_is_string(value)  ? STRING
           : json_is_boolean(value) ? BOOL
           : json_is_real(value)    ? F32
           : in_array               ? I32
                                    : U32;
}

static void put_value(FILE *out, const json_t *value)
{
    const float real = (float)json_real_value(value);
    if (json_is_string(value))
        put_text(out, json_string_value(value), json_string_length(value));
    else if (json_is_boolean(value))
        fputc(json_is_true(value), out);
    else if (json_is_real(value))
        fwrite(&real, sizeof real, 1, out);
    else
        put_u32(out, (uint32_t)json_integer_value(value));
}

static void put_pair(FILE *out, const char *key, const json_t *value)
{
    put_text(out, key, strlen(key));
    put_u32(out, kind_of(value, false));
    if (!json_is_array(value)) {
        put_value(out, value);
        return;
    }
    put_u32(out, kind_of(json_array_get(value, 0), true));
    put_u64(out, json_array_size(value));
    for (size_t i = 0; i < json_array_size(value); i++)
        put_value(out, json_array_get(value, i));
}

enum ddp_status ddp_gguf_write_header(ddp_atomic_file *file, const json_t *keys,
                                      const struct ddp_gguf_tensor *tensors, size_t count)
{
    char *text = NULL;
    size_t bytes = 0;
    uint64_t offset = 0;
    const char *key;
    json_t *value;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    fwrite("GGUF", 1, 4, out);
    put_u32(out, 3);
    put_u64(out, count);
    put_u64(out, json_object_size(keys));
    json_object_foreach((json_t *)(uintptr_t)keys, key, value) put_pair(out, key, value);
    for (size_t i = 0; i < count; i++) {
        put_text(out, tensors[i].name, strlen(tensors[i].name));
        put_u32(out, (uint32_t)tensors[i].dim_count);
        for (int d = 0; d < tensors[i].dim_count; d++)
            put_u64(out, (uint64_t)tensors[i].dims[d]);
        put_u32(out, (uint32_t)tensors[i].type);
        put_u64(out, offset);
        offset += ddp_align_up(ddp_gguf_bytes(&tensors[i]), DDP_GGUF_ALIGN);
    }
    for (long at = ftell(out); at % DDP_GGUF_ALIGN != 0; at++)
        fputc(0, out);
    const bool failed = ferror(out) != 0;
    enum ddp_status status =
        fclose(out) != 0 || failed ? ddp_fail(DDP_ERR_MEMORY, "out of memory") : DDP_OK;
    if (status == DDP_OK)
        status = ddp_atomic_file_write(file, text, bytes);
    free(text);
    return status;
}
