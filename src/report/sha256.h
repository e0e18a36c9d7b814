/* SPDX-License-Identifier: MIT
 *
 * SHA-256, for hashes that others compute too. To detect copies that differ, core/hash.h is faster.
 */
#ifndef DDP_REPORT_SHA256_H
#define DDP_REPORT_SHA256_H

#include "ddp.h"

#define DDP_SHA256_BYTES 32
#define DDP_SHA256_TEXT  (2 * DDP_SHA256_BYTES + 1)

/* Of two parts, one behind the other; the second may be NULL, of no bytes. */
void ddp_sha256(unsigned char digest[DDP_SHA256_BYTES], const void *first, size_t first_bytes,
                const void *second, size_t second_bytes);

/* Its lower-case hexadecimal digits. */
const char *ddp_sha256_text(char text[DDP_SHA256_TEXT],
                            const unsigned char digest[DDP_SHA256_BYTES]);

/* Whether these are `count` such digits, and nothing follows. NULL: no. */
bool ddp_sha256_is_text(const char *text, size_t count);

#endif
