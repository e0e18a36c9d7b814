/* SPDX-License-Identifier: MIT
 *
 * See json_text.h. Where jansson gets no memory it says anything, such as "string expected": a text
 * counts as bad only when it is so again, with memory at hand. */
#include "config.h"

#include "core/json.h"

#include "core/log.h"

#include <stdlib.h>

#define ROOM_FACTOR 64 /* a value of a few bytes of text takes about that many in memory each */
#define ROOM_LEAST  65536

enum ddp_status ddp_json_parse(json_t **root, const char *text, size_t bytes, json_error_t *error)
{
    for (int tries = 0; tries < 2; tries++) {
        *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);
        if (*root)
            return DDP_OK;
        void *room = malloc(bytes * ROOM_FACTOR + ROOM_LEAST);
        if (!room)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory: a JSON text of %zu bytes", bytes);
        free(room);
    }
    return DDP_ERR_FORMAT;
}
