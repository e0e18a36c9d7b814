/* SPDX-License-Identifier: MIT
 *
 * JSON texts, read and written even when memory runs short. */
#ifndef DDP_CORE_JSON_H
#define DDP_CORE_JSON_H

#include "ddp.h"

#include <jansson.h>

/* Parses a text, refusing duplicate keys. Logs nothing but lack of memory.
 *   root [out]   freed with json_decref()
 *   error [out]  with DDP_ERR_FORMAT: what is wrong, and where
 * DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_json_parse(json_t **root, const char *text, size_t bytes, json_error_t *error);

/* The same with jansson's flags for decoding alone. */
enum ddp_status ddp_json_parse_flags(json_t **root, const char *text, size_t bytes, size_t flags,
                                     json_error_t *error);

/* Parses a text that must be an object, with jansson's flags for decoding.
 *   root [out]  freed with json_decref(); NULL after a failure
 *   name        of the file, for messages
 * DDP_ERR_FORMAT: names the file and the place; DDP_ERR_MEMORY. */
enum ddp_status ddp_json_parse_object(json_t **root, const char *name, const char *text,
                                      size_t bytes, size_t flags);

/* The text of a value, with jansson's flags; freed with free(). NULL without memory: json_dumps()
 * returns a damaged text if it finds none for a key. */
char *ddp_json_text(const json_t *json, size_t flags);

/* A number from 0: an integer, or, above INT64_MAX, the largest integer of jansson and many other
 * readers, a text of its digits. */
json_t *ddp_json_uint64(uint64_t value);

/* The reverse; false when it is not such a number. */
bool ddp_json_read_uint64(const json_t *json, uint64_t *value);

#endif
