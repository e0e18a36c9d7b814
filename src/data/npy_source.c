/* SPDX-License-Identifier: MIT
 *
 * See npy_source.h. */
#include "config.h"

#include "data/npy_source.h"

#include "core/log.h"
#include "core/text.h"
#include "data/data_names.h"

#include <stdlib.h>
#include <string.h>

void ddp_npy_source_free(struct ddp_npy_source *source)
{
    free(source->archive);
    free(source->x);
    free(source->y);
    *source = (struct ddp_npy_source){0};
}

/* The names in use: Keras, MedMNIST, everybody. */
static const struct {
    const char *x, *y, *test_x, *test_y;
} member_names[] = {
    {"x_train", "y_train", "x_test", "y_test"},
    {"train_images", "train_labels", "test_images", "test_labels"},
    {"x", "y", NULL, NULL},
};

enum ddp_status ddp_npy_archive_open(const char *path, struct ddp_input_file *file,
                                     struct ddp_zip *zip)
{
    enum ddp_status status = ddp_input_file_open(file, path, true);
    if (status != DDP_OK)
        return status;
    const struct ddp_blob blob = {.name = file->path, .file = file, .bytes = file->bytes};
    return ddp_zip_open(zip, &blob);
}

static bool has_member(const struct ddp_zip *zip, const char *name)
{
    char member[64];
    snprintf(member, sizeof member, "%s.npy", name);
    return ddp_zip_find(zip, member) != NULL;
}

static enum ddp_status set_source(struct ddp_npy_source *source, const char *archive, const char *x,
                                  const char *y)
{
    source->archive = archive ? strdup(archive) : NULL;
    source->x = strdup(x);
    source->y = y ? strdup(y) : NULL;
    if ((archive && !source->archive) || !source->x || (y && !source->y))
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", x);
    return DDP_OK;
}

/* The set that an archive has for training, and for the test. */
static enum ddp_status find_members(const char *path, const struct ddp_zip *zip,
                                    struct ddp_npy_source *train, struct ddp_npy_source *test)
{
    const size_t kinds = sizeof member_names / sizeof member_names[0];
    for (size_t i = 0; i < kinds; i++) {
        if (!has_member(zip, member_names[i].x))
            continue;
        const char *y = has_member(zip, member_names[i].y) ? member_names[i].y : NULL;
        enum ddp_status status = set_source(train, path, member_names[i].x, y);
        if (status == DDP_OK && test && member_names[i].test_x &&
            has_member(zip, member_names[i].test_x))
            status =
                set_source(test, path, member_names[i].test_x, y ? member_names[i].test_y : NULL);
        return status;
    }
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: no samples in this archive: looked for the arrays x and y, x_train and "
                    "y_train, train_images and train_labels",
                    path);
}

enum ddp_status ddp_npy_source_find(const char *path, struct ddp_npy_source *train,
                                    struct ddp_npy_source *test)
{
    struct ddp_input_file file = {.fd = -1};
    struct ddp_zip zip = {0};
    if (ddp_text_ends_with(path, ".npz")) {
        enum ddp_status status = ddp_npy_archive_open(path, &file, &zip);
        if (status == DDP_OK)
            status = find_members(path, &zip, train, test);
        ddp_zip_close(&zip);
        ddp_input_file_close(&file);
        return status;
    }
    const char *comma = ddp_data_file_exists(path) ? NULL : strchr(path, ',');
    if (!comma)
        return set_source(train, NULL, path, NULL);
    char *x = strndup(path, (size_t)(comma - path));
    enum ddp_status status = x ? set_source(train, NULL, x, comma + 1)
                               : ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    free(x);
    return status;
}
