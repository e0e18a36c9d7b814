/* SPDX-License-Identifier: MIT
 *
 * The part of Jinja that chat templates use, as transformers runs it (trim_blocks, lstrip_blocks),
 * by an interpreter that sees nothing but the data it is given and ends: limits are set to its
 * steps, to its memory and to how deep it goes. No includes, no autoescape. */
#ifndef DDP_DATA_TEXT_JINJA_H
#define DDP_DATA_TEXT_JINJA_H

#include "data/text/buffer.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct ddp_jinja ddp_jinja;

/* Parses a template. It does not change afterwards, and any number of threads may run it at once.
 *   name  of its file, for messages; copied
 *   text  UTF-8
 * DDP_ERR_FORMAT: names the line; DDP_ERR_UNSUPPORTED: a statement that is not of that part;
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_jinja_parse(ddp_jinja **jinja, const char *name, const char *text,
                                size_t bytes);
void ddp_jinja_free(ddp_jinja *jinja); /* also NULL */

/* Whether the name or string stands anywhere in it outside its plain text. */
bool ddp_jinja_mentions(const ddp_jinja *jinja, const char *name);

/* Whether it says itself, with {% generation %}, what is to be learned. */
bool ddp_jinja_has_generation(const ddp_jinja *jinja);

/* Where each byte of a rendered text is from: 0, the template; i + 1, the i-th element of the array
 * `owned` of the data; and whether it stood in {% generation %}. */
#define DDP_JINJA_GENERATED  0x8000
#define DDP_JINJA_OWNER_MASK 0x7fff

/* {0} is empty; free() frees both. */
struct ddp_jinja_text {
    char *at; /* ends with a 0 that does not count */
    uint16_t *owners;
    size_t bytes;
};

/* Renders it; what *out had is freed.
 *   where  for messages: what is rendered, such as a file and line
 *   data   an object: the variables
 *   owned  the name of an array in it, or NULL. Strings in it are traced, except what is called
 *          "role"
 * DDP_ERR_FORMAT: the template refuses the data, or fails, or does not end; DDP_ERR_MEMORY. */
enum ddp_status ddp_jinja_render(const ddp_jinja *jinja, const char *where, const json_t *data,
                                 const char *owned, struct ddp_jinja_text *out);

#endif
