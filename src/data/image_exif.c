/* SPDX-License-Identifier: MIT
 *
 * See image_exif.h. */
#include "config.h"

#include "data/image_exif.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ORIENTATION 0x0112
#define ENTRY_BYTES 12
#define SHORT       3

static uint32_t number(const unsigned char *from, int bytes, bool big)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | from[big ? i : bytes - 1 - i];
    return value;
}

int ddp_exif_orientation(const unsigned char *exif, size_t bytes)
{
    if (bytes >= 6 && memcmp(exif, "Exif\0", 6) == 0) {
        exif += 6;
        bytes -= 6;
    }
    if (bytes < 8 || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0))
        return 1;
    const bool big = exif[0] == 'M';
    const size_t directory = number(exif + 4, 4, big);
    if (directory > bytes - 2)
        return 1;
    const size_t room = (bytes - directory - 2) / ENTRY_BYTES;
    size_t count = number(exif + directory, 2, big);
    if (count > room)
        count = room;
    for (const unsigned char *entry = exif + directory + 2; count > 0;
         count--, entry += ENTRY_BYTES) {
        const uint32_t value = number(entry + 8, 2, big);
        if (number(entry, 2, big) == ORIENTATION)
            return number(entry + 2, 2, big) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
