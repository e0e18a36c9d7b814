/* SPDX-License-Identifier: MIT
 *
 * See pixels.h. */
#include "config.h"

#include "data/pixels.h"

#include <endian.h>
#include <math.h>
#include <string.h>

void ddp_pixels_add(struct ddp_pixel_sums *sums, const unsigned char *pixels, size_t count)
{
    const size_t block = 1 << 15; /* 2^15 x 255^2 fits 32 bits, which makes the loop a fast one */
    for (size_t i = 0; i < count; i += block) {
        size_t end = count - i < block ? count : i + block;
        uint32_t part = 0, part_squares = 0;
        for (size_t j = i; j < end; j++) {
            uint32_t pixel = pixels[j];
            part += pixel;
            part_squares += pixel * pixel;
        }
        sums->sum += part;
        sums->squares += part_squares;
    }
    sums->count += count;
}

void ddp_pixels_moments(const struct ddp_pixel_sums *sums, double *mean, double *std)
{
    double n = (double)sums->count;
    double average = (double)sums->sum / n;
    double variance = (double)sums->squares / n - average * average;
    *mean = average / 255;
    *std = variance > 0 ? sqrt(variance) / 255 : 1;
}

void ddp_pixels_set_scale(struct ddp_dataset_info *info, const struct ddp_dataset_info *train,
                          float (*tables)[256])
{
    for (int c = 0; c < info->channel_count; c++) {
        info->mean[c] = train->mean[c];
        info->std[c] = train->std[c];
        for (int i = 0; i < 256; i++)
            tables[c][i] = (float)((i / 255.0 - info->mean[c]) / info->std[c]);
    }
}

/* Eight pixels a load: nearly twice as fast as one by one, where the loads are what it waits for.
 */
void ddp_pixels_scale(float *restrict x, const unsigned char *restrict pixels, size_t count,
                      const float *restrict table)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t eight;
        memcpy(&eight, pixels + i, sizeof eight);
        eight = le64toh(eight);
        x[i] = table[eight & 0xff];
        x[i + 1] = table[eight >> 8 & 0xff];
        x[i + 2] = table[eight >> 16 & 0xff];
        x[i + 3] = table[eight >> 24 & 0xff];
        x[i + 4] = table[eight >> 32 & 0xff];
        x[i + 5] = table[eight >> 40 & 0xff];
        x[i + 6] = table[eight >> 48 & 0xff];
        x[i + 7] = table[eight >> 56];
    }
    for (; i < count; i++)
        x[i] = table[pixels[i]];
}
