/* SPDX-License-Identifier: MIT
 *
 * Of EXIF, which cameras write into images, the one field that pixels need: how they held it. */
#ifndef DDP_DATA_IMAGE_EXIF_H
#define DDP_DATA_IMAGE_EXIF_H

#include <stddef.h>

/* The orientation, 1 to 8: where the first row and the first column of the stored image are shown.
 *   exif  a TIFF header with its directories, whatever stands in it; "Exif\0\0" may precede it
 * 1, as it is stored, where the field is missing or the data are damaged. */
int ddp_exif_orientation(const unsigned char *exif, size_t bytes);

#endif
