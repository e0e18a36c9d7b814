/* SPDX-License-Identifier: MIT
 *
 * See bnb.h. */
#include "config.h"

#include "weights/bnb.h"

#include "core/blocks.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "weights/hf_keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME       160
#define WHERE      1024 /* of a file and a tensor, for messages */
#define STATE      ".quant_state.bitsandbytes__nf4"
#define STATE_MOST 4096
#define MAP        256
#define CODE_BYTES (DDP_NF4_VALUES / 2)

static int64_t divided(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

bool ddp_bnb_is(const struct ddp_safetensor *tensor)
{
    return strcmp(tensor->dtype, "U8") == 0;
}

bool ddp_bnb_belongs(const char *name, size_t *stem)
{
    static const char *const ends[] = {".absmax", ".nested_absmax", ".quant_map",
                                       ".nested_quant_map", STATE};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ddp_text_ends_with(name, ends[i])) {
            *stem = strlen(name) - strlen(ends[i]);
            return true;
        }
    return false;
}

/* A list beside the codes; its dtype, or any of U8 and F32 where that is NULL. */
static enum ddp_status find_list(const struct ddp_safetensor **list, const struct ddp_bnb *bnb,
                                 const ddp_safetensors *file, const char *end, const char *dtype,
                                 int64_t count)
{
    char name[NAME];
    snprintf(name, sizeof name, "%s%s", bnb->codes->name, end);
    *list = ddp_safetensors_find(file, name);
    if (!*list)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is missing", bnb->path, name);
    const bool known = dtype ? strcmp((*list)->dtype, dtype) == 0
                             : strcmp((*list)->dtype, "F32") == 0 || ddp_bnb_is(*list);
    if (!known || (*list)->dim_count != 1 || (*list)->dims[0] != count)
        return ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s is not a list of %" PRId64 " values of %s",
                        bnb->path, name, count, dtype ? dtype : "U8 or F32");
    return DDP_OK;
}

/* The text that describes the codes. */
static enum ddp_status read_state(struct ddp_hf_keys *in, const struct ddp_bnb *bnb,
                                  const ddp_safetensors *file, char where[WHERE])
{
    char text[STATE_MOST], name[NAME];
    snprintf(name, sizeof name, "%s%s", bnb->codes->name, STATE);
    snprintf(where, WHERE, "%s: %s", bnb->path, name);
    const struct ddp_safetensor *state = ddp_safetensors_find(file, name);
    if (!state || !ddp_bnb_is(state) || state->bytes > sizeof text)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s is missing, or not a text: of quantised matrices only those of "
                        "bitsandbytes' nf4 can be read",
                        where);
    enum ddp_status status = ddp_safetensors_read(state, 0, text, state->bytes);
    return status == DDP_OK
               ? ddp_hf_keys_open(in, where, "not the state of bitsandbytes", text, state->bytes)
               : status;
}

static bool is_shape(const json_t *shape, int64_t rows, int64_t columns)
{
    return json_array_size(shape) == 2 && json_integer_value(json_array_get(shape, 0)) == rows &&
           json_integer_value(json_array_get(shape, 1)) == columns;
}

static enum ddp_status take_state(struct ddp_bnb *bnb, const struct ddp_hf_keys *in, int64_t rows,
                                  int64_t columns)
{
    const char *type = "", *dtype = "";
    int64_t block = 0;
    double offset = 0;
    enum ddp_status status = ddp_hf_keys_text(in, "quant_type", &type);
    if (status == DDP_OK)
        status = ddp_hf_keys_text(in, "dtype", &dtype);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "blocksize", 1 << 20, &block);
    if (status == DDP_OK)
        status = ddp_hf_keys_count(in, "nested_blocksize", 1 << 20, &bnb->nested_block);
    if (status == DDP_OK)
        status = ddp_hf_keys_real(in, "nested_offset", -1e30, 1e30, &offset);
    bnb->offset = (float)offset;
    bnb->dtype = strcmp(dtype, "bfloat16") == 0 ? DDP_NF4_BF16 : DDP_NF4;
    if (status != DDP_OK)
        return status;
    if (strcmp(type, "nf4") != 0 || block != DDP_NF4_VALUES)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: quant_type \"%s\" with a blocksize of %" PRId64
                        ": only nf4 with 64 can be read",
                        in->name, type, block);
    if (bnb->dtype == DDP_NF4 && strcmp(dtype, "float32") != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: values of the dtype \"%s\": only bfloat16 and float32 can be read",
                        in->name, dtype);
    if (!is_shape(ddp_hf_keys_get(in, "shape"), rows, columns))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: its shape is not the (%" PRId64 ",%" PRId64 ") of config.json",
                        in->name, rows, columns);
    return DDP_OK;
}

/* The codes stand for ours. */
static enum ddp_status check_map(const struct ddp_bnb *bnb, const ddp_safetensors *file)
{
    const struct ddp_safetensor *map;
    float codes[16];
    enum ddp_status status = find_list(&map, bnb, file, ".quant_map", "F32", 16);
    if (status == DDP_OK)
        status = ddp_safetensors_read(map, 0, codes, sizeof codes);
    if (status == DDP_OK && memcmp(codes, ddp_nf4_codes, sizeof codes) != 0)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: tensor %s does not have the values of nf4",
                          bnb->path, map->name);
    return status;
}

enum ddp_status ddp_bnb_find(struct ddp_bnb *bnb, const ddp_safetensors *file, const char *path,
                             const struct ddp_safetensor *codes, int64_t rows, int64_t columns)
{
    char where[WHERE];
    struct ddp_hf_keys in = {.root = NULL};
    *bnb = (struct ddp_bnb){.codes = codes, .path = path, .count = rows * columns};
    const int64_t blocks = divided(bnb->count, DDP_NF4_VALUES);
    if ((int64_t)codes->bytes != divided(bnb->count, 2))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: tensor %s has %zu bytes of codes, by config.json it has %" PRId64,
                        path, codes->name, codes->bytes, divided(bnb->count, 2));
    enum ddp_status status = read_state(&in, bnb, file, where);
    if (status == DDP_OK)
        status = take_state(bnb, &in, rows, columns);
    json_decref(in.root);
    if (status == DDP_OK)
        status = check_map(bnb, file);
    if (status == DDP_OK)
        status = find_list(&bnb->scales, bnb, file, ".absmax", NULL, blocks);
    if (status != DDP_OK || !ddp_bnb_is(bnb->scales))
        return status;
    if (bnb->nested_block == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s has no nested_blocksize, and its scales are U8", where);
    status = find_list(&bnb->map, bnb, file, ".nested_quant_map", "F32", MAP);
    return status == DDP_OK ? find_list(&bnb->nested, bnb, file, ".nested_absmax", "F32",
                                        divided(blocks, bnb->nested_block))
                            : status;
}

/* Products are rounded before the offset is added. */
static enum ddp_status restore(float *scales, const struct ddp_bnb *bnb, int64_t count)
{
    float map[MAP];
    uint8_t *bytes = ddp_array_alloc((size_t)count, 1);
    float *nested = ddp_array_alloc(bnb->nested->bytes / sizeof *nested, sizeof *nested);
    enum ddp_status status = bytes && nested ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_safetensors_read(bnb->scales, 0, bytes, (size_t)count);
    if (status == DDP_OK)
        status = ddp_safetensors_read(bnb->nested, 0, nested, bnb->nested->bytes);
    if (status == DDP_OK)
        status = ddp_safetensors_read(bnb->map, 0, map, sizeof map);
    for (int64_t i = 0; status == DDP_OK && i < count; i++)
        scales[i] = map[bytes[i]] * nested[i / bnb->nested_block];
    for (int64_t i = 0; status == DDP_OK && i < count; i++)
        scales[i] += bnb->offset;
    free(bytes);
    free(nested);
    return status;
}

enum ddp_status ddp_bnb_scales(float **scales, const struct ddp_bnb *bnb)
{
    const int64_t count = divided(bnb->count, DDP_NF4_VALUES);
    *scales = ddp_array_alloc((size_t)count, sizeof **scales);
    enum ddp_status status = !*scales      ? DDP_ERR_MEMORY
                             : bnb->nested ? restore(*scales, bnb, count)
                                           : ddp_safetensors_read(bnb->scales, 0, *scales,
                                                                  (size_t)count * sizeof **scales);
    for (int64_t i = 0; status == DDP_OK && i < count; i++)
        if (!isfinite((*scales)[i]))
            status = ddp_fail(DDP_ERR_FORMAT,
                              "%s: tensor %s has a value that is not finite, at index %" PRId64,
                              bnb->path, bnb->scales->name, i);
    if (status != DDP_OK) {
        free(*scales);
        *scales = NULL;
    }
    return status;
}

enum ddp_status ddp_bnb_blocks(const struct ddp_bnb *bnb, const float *scales, int64_t first,
                               int64_t count, uint8_t *blocks)
{
    const size_t size = sizeof *scales + CODE_BYTES, begin = (size_t)first * CODE_BYTES;
    const size_t left = bnb->codes->bytes - begin;
    const size_t bytes = (size_t)count * CODE_BYTES < left ? (size_t)count * CODE_BYTES : left;
    /* All codes at once, behind where they belong. */
    uint8_t *codes = blocks + (size_t)count * sizeof *scales;
    memset(codes + bytes, 0x77, (size_t)count * CODE_BYTES - bytes);
    enum ddp_status status = ddp_safetensors_read(bnb->codes, begin, codes, bytes);
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        memmove(blocks + (size_t)i * size + sizeof *scales, codes + i * CODE_BYTES, CODE_BYTES);
        memcpy(blocks + (size_t)i * size, &scales[first + i], sizeof *scales);
    }
    return status;
}
