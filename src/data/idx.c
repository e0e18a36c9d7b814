/* SPDX-License-Identifier: MIT
 *
 * Images and labels in IDX files, in the four files of MNIST and its relatives. Pixels stay bytes
 * in memory; reading a batch turns them into floats, (pixel/255 - mean) / std, where mean and std
 * are those of the training set. */
#include "config.h"

#include "core/log.h"
#include "core/write.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/describe.h"
#include "data/idx_file.h"
#include "data/pixels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct idx {
    struct ddp_dataset base;
    unsigned char *pixels; /* (sample_count, dims...) */
    unsigned char *labels; /* sample_count */
    float scaled[1][256];  /* what each pixel value becomes */
};

static enum ddp_status idx_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                void *x, int32_t *labels)
{
    const struct idx *idx = (const struct idx *)dataset;
    const float *scaled = idx->scaled[0];
    size_t floats = idx->base.info.sample_values;
    float *to = x;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *pixels = idx->pixels + (size_t)indices[i] * floats;
        ddp_pixels_scale(to, pixels, floats, scaled);
        to += floats;
        if (labels)
            labels[i] = idx->labels[indices[i]];
    }
    return DDP_OK;
}

static void idx_close(ddp_dataset *dataset)
{
    struct idx *idx = (struct idx *)dataset;
    free(idx->pixels);
    free(idx->labels);
}

static const struct ddp_dataset_ops ops = {.read = idx_read, .close = idx_close};

/* --- files ------------------------------------------------------------------------------------ */

static enum ddp_status missing(const char *directory, const char *name)
{
    if (strcmp(directory, DDP_DATASET_DEFAULT_DIR) == 0)
        return ddp_fail(
            DDP_ERR_IO,
            "%s/%s[.gz]: no such file: install Debian's package dataset-fashion-mnist, or "
            "name a directory of IDX files with --data",
            directory, name);
    return ddp_fail(DDP_ERR_IO,
                    "%s/%s[.gz]: no such file: the directory given with --data must hold it%s",
                    directory, name, strncmp(name, "t10k", 4) == 0 ? DDP_DATASET_NO_TEST : "");
}

static enum ddp_status check_directory(const char *directory)
{
    struct stat info;
    if (stat(directory, &info) < 0) {
        if (errno == ENOENT && strcmp(directory, DDP_DATASET_DEFAULT_DIR) == 0)
            return ddp_fail(
                DDP_ERR_IO,
                "%s: no such directory: install Debian's package dataset-fashion-mnist, or "
                "name a directory of IDX files with --data",
                directory);
        return ddp_fail_path(directory, "open the data directory");
    }
    if (!S_ISDIR(info.st_mode))
        return ddp_fail(DDP_ERR_IO,
                        "%s: not a directory: --data takes the directory that holds the IDX files",
                        directory);
    return DDP_OK;
}

static bool has_any(const char *directory, const char *const *names, size_t count)
{
    bool found = false;
    for (size_t i = 0; !found && i < count; i++) {
        char *file = ddp_path_in(directory, names[i]);
        found = file && ddp_data_file_exists(file);
        free(file);
    }
    return found;
}

/* Opens NAME or NAME.gz; *path is what was opened, to be freed. */
static enum ddp_status open_file(FILE **file, char **path, const char *directory, const char *name)
{
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        struct stat info;
        char *tried;
        FILE *opened = NULL;
        if (asprintf(&tried, "%s/%s%s", directory, name, endings[i]) < 0)
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", directory);
        enum ddp_status status = DDP_OK;
        const bool found = stat(tried, &info) == 0;
        if (found && !S_ISREG(info.st_mode)) /* before open(), which would wait at a FIFO */
            status = ddp_fail(DDP_ERR_IO, "%s: cannot read: not a regular file", tried);
        else if (!found || !(opened = fopen(tried, "rbe")))
            status = errno == ENOENT ? DDP_OK : ddp_fail_path(tried, "read");
        if (opened && status == DDP_OK) {
            *file = opened;
            *path = tried;
            return DDP_OK;
        }
        if (opened)
            fclose(opened);
        free(tried);
        if (status != DDP_OK)
            return status;
    }
    return missing(directory, name);
}

/* Reads one of the four files; *path is its full name, to be freed. */
static enum ddp_status load(struct ddp_idx_file *idx, char **path, const char *directory,
                            const char *split, const char *rest, int min_dims, int max_dims)
{
    char name[64];
    FILE *file = NULL;
    snprintf(name, sizeof name, "%s-%s", split, rest);
    enum ddp_status status = open_file(&file, path, directory, name);
    if (status != DDP_OK)
        return status;
    status = ddp_idx_file_read(idx, file, *path, min_dims, max_dims);
    fclose(file);
    if (status != DDP_OK) {
        free(*path);
        *path = NULL;
    }
    return status;
}

/* --- one set ---------------------------------------------------------------------------------- */

static void set_info(struct idx *idx, const struct ddp_idx_file *images)
{
    struct ddp_dataset_info *info = &idx->base.info;
    bool channels = images->dim_count == 4;
    info->source = "idx";
    info->sample_count = images->dims[0];
    info->dim_count = 3;
    info->dims[0] = channels ? images->dims[1] : 1;
    info->dims[1] = images->dims[images->dim_count - 2];
    info->dims[2] = images->dims[images->dim_count - 1];
    info->label_count = 1;
    info->x_dtype = DDP_F32;
    info->sample_values = images->bytes / (size_t)images->dims[0];
    info->sample_bytes = info->sample_values * sizeof(float);
    info->memory_bytes = images->bytes + (size_t)images->dims[0];
    info->channel_count = 1; /* of the mean: one for the whole image */
    info->shuffled = true;
}

/* With class_count 0 the largest label determines the number of classes. */
static enum ddp_status check_labels(struct idx *idx, const char *path, int64_t class_count)
{
    int64_t largest = 0;
    for (int64_t i = 0; i < idx->base.info.sample_count; i++) {
        if (class_count > 0 && idx->labels[i] >= class_count)
            return ddp_fail(DDP_ERR_FORMAT, "%s: label %lld is %d: there are %lld classes, from 0",
                            path, (long long)i, idx->labels[i], (long long)class_count);
        if (idx->labels[i] > largest)
            largest = idx->labels[i];
    }
    idx->base.info.class_count = class_count > 0 ? class_count : largest + 1;
    return DDP_OK;
}

static enum ddp_status open_split(ddp_dataset **result, const char *directory, const char *split,
                                  int64_t class_count)
{
    struct ddp_idx_file images = {0}, labels = {0};
    char *image_path = NULL, *label_path = NULL;
    struct idx *idx = ddp_dataset_alloc(sizeof *idx, &ops, directory);
    if (!idx)
        return DDP_ERR_MEMORY;
    *result = &idx->base;
    /* Labels first: they are small, and wrong ones need not wait for the images. */
    enum ddp_status status =
        load(&labels, &label_path, directory, split, "labels-idx1-ubyte", 1, 1);
    idx->labels = labels.values;
    if (status == DDP_OK)
        status = load(&images, &image_path, directory, split, "images-idx3-ubyte", 3, 4);
    idx->pixels = images.values;
    if (status == DDP_OK && images.dims[0] != labels.dims[0])
        status = ddp_fail(DDP_ERR_FORMAT, "%s: %lld images, but %s has %lld labels", image_path,
                          (long long)images.dims[0], label_path, (long long)labels.dims[0]);
    if (status == DDP_OK) {
        set_info(idx, &images);
        status = check_labels(idx, label_path, class_count);
    }
    free(image_path);
    free(label_path);
    return status;
}

/* --- both sets -------------------------------------------------------------------------------- */

/* description: of the data that loaded weights learned from, whose scale is kept; NULL: none */
static void measure(struct idx *idx, const char *description)
{
    struct ddp_pixel_sums sums = {0};
    struct ddp_dataset_info *info = &idx->base.info;
    if (!ddp_dataset_pixel_scale(description, info)) {
        ddp_pixels_add(&sums, idx->pixels, (size_t)info->sample_count * info->sample_values);
        ddp_pixels_moments(&sums, &info->mean[0], &info->std[0]);
    }
    ddp_pixels_set_scale(info, info, idx->scaled);
}

static enum ddp_status check_same_shape(const ddp_dataset *train, const ddp_dataset *test)
{
    const struct ddp_dataset_info *a = &train->info, *b = &test->info;
    if (memcmp(a->dims, b->dims, sizeof a->dims) == 0)
        return DDP_OK;
    return ddp_fail(
        DDP_ERR_FORMAT, "%s: test images of %lldx%lldx%lld, but training images of %lldx%lldx%lld",
        train->path, (long long)b->dims[0], (long long)b->dims[1], (long long)b->dims[2],
        (long long)a->dims[0], (long long)a->dims[1], (long long)a->dims[2]);
}

/* Is there anything of a test set? */
static bool has_test(const char *directory)
{
    static const char *const names[] = {"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz",
                                        "t10k-labels-idx1-ubyte", "t10k-labels-idx1-ubyte.gz"};
    return has_any(directory, names, sizeof names / sizeof names[0]);
}

static enum ddp_status idx_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                ddp_dataset **test)
{
    const char *directory = options->path ? options->path : DDP_DATASET_DEFAULT_DIR;
    enum ddp_status status = check_directory(directory);
    if (status == DDP_OK)
        status = open_split(train, directory, "train", options->class_count);
    if (status != DDP_OK)
        return status;
    measure((struct idx *)*train, options->description);
    if (!test || (options->val_split > 0 && !has_test(directory)))
        return DDP_OK;
    status = open_split(test, directory, "t10k", (*train)->info.class_count);
    if (status == DDP_OK)
        status = check_same_shape(*train, *test);
    if (status == DDP_OK)
        ddp_pixels_set_scale(&(*test)->info, &(*train)->info, ((struct idx *)*test)->scaled);
    return status;
}

/* Also a directory that lacks some of the files: then the missing one can be named. */
static bool idx_recognise(const char *path)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz",
                                        "train-labels-idx1-ubyte", "train-labels-idx1-ubyte.gz"};
    return strcmp(path, DDP_DATASET_DEFAULT_DIR) == 0 ||
           has_any(path, names, sizeof names / sizeof names[0]);
}

const struct ddp_dataset_source ddp_dataset_idx = {
    .name = "idx",
    .help = "images and labels in IDX files, as those of MNIST",
    .looks_for = "train-images-idx3-ubyte[.gz] (IDX)",
    .recognise = idx_recognise,
    .open = idx_open,
};
