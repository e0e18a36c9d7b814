/* SPDX-License-Identifier: MIT
 *
 * Where the samples and the labels of a set are: two files that numpy.save() wrote, or two members
 * of an archive. */
#ifndef DDP_DATA_NPY_SOURCE_H
#define DDP_DATA_NPY_SOURCE_H

#include "data/zip_file.h"

struct ddp_npy_source {
    char *archive; /* NULL: x and y are files */
    char *x, *y;   /* y NULL: there are no labels */
};

/* "FILE.npz", "X.npy" or "X.npy,Y.npy".
 *   train [out]  zeroed before, freed with ddp_npy_source_free(), also after a failure
 *   test [out]   the same; stays empty where the path has no test set. NULL: not wanted
 * DDP_ERR_IO, DDP_ERR_FORMAT (an archive without samples), DDP_ERR_MEMORY. */
enum ddp_status ddp_npy_source_find(const char *path, struct ddp_npy_source *train,
                                    struct ddp_npy_source *test);
void ddp_npy_source_free(struct ddp_npy_source *source);

/* Opens an archive, which is read through the file: both stay open. */
enum ddp_status ddp_npy_archive_open(const char *path, struct ddp_input_file *file,
                                     struct ddp_zip *zip);

#endif
