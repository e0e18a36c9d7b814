/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: one image of any format, decoded and scaled. */
#include "config.h"

#include "data/image_file.h"
#include "data/image_resize.h"
#include "tests/lib/fuzz.h"

#include <assert.h>

static volatile unsigned used;

static bool decode(ddp_image_reader *reader)
{
    unsigned char pixels[3 * 8 * 9];
    struct ddp_resize resize;
    const struct ddp_image *image = ddp_image_info(reader);
    assert(image->width > 0 && image->height > 0 &&
           (int64_t)image->width * image->height <= DDP_IMAGE_MAX_PIXELS);
    const int channels = image->width % 2 ? 1 : 3; /* also those that it does not have */
    const bool decoded =
        ddp_resize_init(&resize, channels, image->width, image->height, 9, 8) == DDP_OK &&
        ddp_image_read(reader, channels, ddp_resize_row, &resize) == DDP_OK;
    if (decoded)
        ddp_resize_finish(&resize, pixels);
    for (int i = 0; decoded && i < channels * 8 * 9; i++)
        used += pixels[i];
    ddp_resize_free(&resize);
    return decoded;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    ddp_image_reader *reader = NULL;
    const struct ddp_blob blob = {.name = "input", .memory = data, .bytes = size};
    if (ddp_image_open(&reader, &blob) != DDP_OK) {
        assert(!reader);
        return false;
    }
    const bool decoded = decode(reader);
    ddp_image_close(reader);
    return decoded;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
