/* SPDX-License-Identifier: MIT
 *
 * See sha256.h. */
#include "config.h"

#include "report/sha256.h"

#include <nettle/sha2.h>
#include <nettle/version.h>
#include <string.h>

void ddp_sha256(unsigned char digest[DDP_SHA256_BYTES], const void *first, size_t first_bytes,
                const void *second, size_t second_bytes)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, first_bytes, first);
    if (second_bytes > 0)
        sha256_update(&context, second_bytes, second);
#if NETTLE_VERSION_MAJOR >= 4
    sha256_digest(&context, digest);
#else
    sha256_digest(&context, DDP_SHA256_BYTES, digest);
#endif
}

const char *ddp_sha256_text(char text[DDP_SHA256_TEXT],
                            const unsigned char digest[DDP_SHA256_BYTES])
{
    for (size_t i = 0; i < DDP_SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return text;
}

bool ddp_sha256_is_text(const char *text, size_t count)
{
    return text && strlen(text) == count && strspn(text, "0123456789abcdef") == count;
}
