/* SPDX-License-Identifier: MIT
 *
 * The regular expressions of pre-tokenizers, on PCRE2, with the meaning that they have in
 * Oniguruma, for which they are written. */
#ifndef DDP_DATA_TEXT_REGEX_H
#define DDP_DATA_TEXT_REGEX_H

#include "ddp.h"

typedef struct ddp_regex ddp_regex;

/* Compiles a pattern.
 *   name     of its file, for messages
 *   literal  the pattern is the text itself
 * DDP_ERR_UNSUPPORTED: a pattern that is not understood; DDP_ERR_MEMORY. */
enum ddp_status ddp_regex_create(ddp_regex **regex, const char *name, const char *pattern,
                                 size_t bytes, bool literal);
void ddp_regex_destroy(ddp_regex *regex); /* also NULL */

/* What matching needs, for one thread. */
typedef struct ddp_regex_memory ddp_regex_memory;
enum ddp_status ddp_regex_memory_create(ddp_regex_memory **memory);
void ddp_regex_memory_destroy(ddp_regex_memory *memory); /* also NULL */

/* The first match that is not empty, from `at` on.
 *   subject  checked UTF-8
 * 1: it is [*begin, *end); 0: there is none; -1: PCRE2 gave up, for want of memory or time. */
int ddp_regex_match(const ddp_regex *regex, ddp_regex_memory *memory, const char *subject,
                    size_t bytes, size_t at, size_t *begin, size_t *end);

#endif
