/* SPDX-License-Identifier: MIT
 *
 * Makes text from outside safe to print: file names, file contents, generated text. A terminal
 * obeys control characters, so they are escaped. */
#ifndef DDP_CORE_TEXT_H
#define DDP_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the UTF-8 character that text begins with; 0: it begins with none; -1: it may, but ends
 * inside it. Overlong forms and surrogates are not accepted.
 *   bytes  of text, from 1 */
int ddp_text_character(const char *text, size_t bytes);

bool ddp_text_ends_with(const char *text, const char *ending);
bool ddp_text_is_utf8(const char *text);

/* UTF-8 characters, counted as one column each. */
int ddp_text_columns(const char *text, size_t bytes);

/* Copies text and escapes control characters (except tabs) and bytes that are not UTF-8 as \x1b,
 * those of C1 as \u009b. Text that does not fit is cut, never inside a character. Returns the bytes
 * written, without the final 0.
 *   out   [out]  size bytes, from 1
 *   bytes        of text, which may contain zeros */
size_t ddp_text_clean(char *out, size_t size, const char *text, size_t bytes);

#define DDP_TEXT_SHOWN 8192

/* The same for a whole string; returns out. */
const char *ddp_text_show(char out[DDP_TEXT_SHOWN], const char *text);

#define DDP_TEXT_BYTES 32

/* A number of bytes for people, in decimal units: "2.7 MB"; "-" for NaN. Returns out. */
const char *ddp_text_bytes(double bytes, char out[DDP_TEXT_BYTES]);

#ifdef __cplusplus
}
#endif

#endif
