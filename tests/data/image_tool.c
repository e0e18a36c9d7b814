/* SPDX-License-Identifier: MIT
 *
 * Writes directories of images for tests: DIRECTORY/stripes-N/NNN.png and .jpg, in turn, for each
 * class; what tells classes apart is how their stripes run. */
#include "config.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* It uses types of stdio.h. */
#include <jpeglib.h>

static unsigned state;

/* 0 .. limit-1 */
static int draw(int limit)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 16) % (unsigned)limit);
}

/* Stripes along x, y, x+y or x-y, five pixels wide, with noise, from a random start. */
static void paint(unsigned char *pixels, int width, int height, int channels, int class_id)
{
    const int along_x[] = {1, 0, 1, 1}, along_y[] = {0, 1, 1, -1};
    const int start = 1000 + draw(10), tint = draw(60);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const int at = start + along_x[class_id % 4] * x + along_y[class_id % 4] * y;
            for (int c = 0; c < channels; c++)
                *pixels++ =
                    (unsigned char)((at / 5 % 2 ? 150 : 40) + draw(30) + (c == 1 ? tint : 0));
        }
}

static int write_png(const char *path, const unsigned char *pixels, int width, int height,
                     int channels)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    return png_image_write_to_file(&image, path, 0, pixels, 0, NULL) ? 0 : -1;
}

static int write_jpeg(const char *path, unsigned char *pixels, int width, int height, int channels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "wb");
    if (!file)
        return -1;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = pixels + (size_t)(y * width * channels);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return fclose(file);
}

static int write_image(const char *directory, int class_id, int number, int side, int channels)
{
    static unsigned char pixels[3 * 512 * 512];
    char path[4096];
    const int width = side > 0 ? side : 24 + draw(40), height = side > 0 ? side : 24 + draw(40);
    snprintf(path, sizeof path, "%s/stripes-%d/%03d.%s", directory, class_id, number,
             number % 2 ? "jpg" : "png");
    paint(pixels, width, height, channels, class_id);
    return number % 2 ? write_jpeg(path, pixels, width, height, channels)
                      : write_png(path, pixels, width, height, channels);
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: image_tool DIRECTORY CLASSES IMAGES SIDE CHANNELS SEED\n"
                        "IMAGES of each class; SIDE 0: each has a size of its own\n");
        return 2;
    }
    const int classes = atoi(argv[2]), images = atoi(argv[3]), side = atoi(argv[4]);
    if (side > 512)
        return 2;
    state = (unsigned)atoi(argv[6]);
    mkdir(argv[1], 0777);
    for (int c = 0; c < classes; c++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/stripes-%d", argv[1], c);
        mkdir(path, 0777);
        for (int i = 0; i < images; i++)
            if (write_image(argv[1], c, i, side, atoi(argv[5])) != 0) {
                fprintf(stderr, "image_tool: cannot write %s\n", path);
                return 1;
            }
    }
    return 0;
}
