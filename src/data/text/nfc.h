/* SPDX-License-Identifier: MIT
 *
 * UTF-8 that is checked, and Unicode's normal form C. */
#ifndef DDP_DATA_TEXT_NFC_H
#define DDP_DATA_TEXT_NFC_H

#include "data/text/buffer.h"

#include <stdint.h>

/* Where the first byte stands that is not UTF-8; `bytes`: nowhere. */
size_t ddp_utf8_check(const char *text, size_t bytes);

/* The character that begins at a position of checked text, and its bytes. */
uint32_t ddp_utf8_decode(const char *text, size_t *bytes);

/* Writes a character's bytes (at most 4) and returns how many they are. */
size_t ddp_utf8_encode(uint32_t character, char *text);

/* Where the first character stands that normal form C may change or join with the one before it;
 * `bytes`: the text is normal. */
size_t ddp_nfc_check(const char *text, size_t bytes);

/* Appends checked text in normal form C. DDP_ERR_MEMORY. */
enum ddp_status ddp_nfc_append(struct ddp_buffer *out, const char *text, size_t bytes);

#endif
