/* SPDX-License-Identifier: MIT
 *
 * CIFAR-10 and CIFAR-100, the "binary version" of both: records of a label (CIFAR-100: a coarse and
 * a fine one, of which the fine is learned) and 32 x 32 pixels in three planes, red, green, blue.
 * Records are read as they are wanted. Pixels become (pixel/255 - mean) / std, with mean and std of
 * each channel of the training set. */
#include "config.h"

#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/describe.h"
#include "data/pixels.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHANNELS  3
#define SIDE      32
#define PLANE     ((size_t)SIDE * SIDE)
#define PIXELS    (CHANNELS * PLANE)
#define CHUNK     256 /* records read at a time to measure them */
#define MAX_FILES 64

/* The two kinds. */
struct kind {
    const char *train, *test; /* names or patterns in the directory */
    size_t labels;            /* bytes before the pixels; the last is the class */
    int classes;
    const char *directory; /* what the archives unpack to */
};

static const struct kind kinds[] = {
    {"data_batch_*.bin", "test_batch.bin", 1, 10, "cifar-10-batches-bin"},
    {"train.bin", "test.bin", 2, 100, "cifar-100-binary"},
};

struct part {
    struct ddp_input_file file;
    int64_t first, end; /* samples */
};

struct cifar {
    struct ddp_dataset base;
    const struct kind *kind;
    struct part parts[MAX_FILES];
    size_t part_count;
    float scaled[CHANNELS][256]; /* what each pixel value becomes */
};

static size_t record_bytes(const struct cifar *cifar)
{
    return cifar->kind->labels + PIXELS;
}

/* The class of a record, checked. */
static enum ddp_status class_of(const struct cifar *cifar, const struct part *part, int64_t sample,
                                const unsigned char *record, int32_t *class)
{
    *class = record[cifar->kind->labels - 1];
    if (*class < cifar->kind->classes)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT, "%s: image %" PRId64 " has the label %d: there are %d, from 0",
                    part->file.path, sample - part->first, *class, cifar->kind->classes);
}

static enum ddp_status cifar_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                  void *x, int32_t *labels)
{
    const struct cifar *cifar = (const struct cifar *)dataset;
    const size_t bytes = record_bytes(cifar);
    unsigned char record[2 + PIXELS];
    float *to = x;
    for (size_t i = 0; i < count; i++) {
        const struct part *part = cifar->parts;
        int32_t class;
        while (indices[i] >= part->end)
            part++;
        enum ddp_status status = ddp_input_file_read(
            &part->file, (uint64_t)(indices[i] - part->first) * bytes, record, bytes);
        if (status == DDP_OK)
            status = class_of(cifar, part, indices[i], record, &class);
        if (status != DDP_OK)
            return status;
        for (size_t c = 0; c < CHANNELS; c++, to += PLANE)
            ddp_pixels_scale(to, record + cifar->kind->labels + c * PLANE, PLANE, cifar->scaled[c]);
        if (labels)
            labels[i] = class;
    }
    return DDP_OK;
}

static void cifar_close(ddp_dataset *dataset)
{
    struct cifar *cifar = (struct cifar *)dataset;
    for (size_t i = 0; i < cifar->part_count; i++)
        ddp_input_file_close(&cifar->parts[i].file);
}

static const struct ddp_dataset_ops ops = {.read = cifar_read, .close = cifar_close};

/* --- opening ---------------------------------------------------------------------------------- */

static enum ddp_status open_part(struct cifar *cifar, const char *path)
{
    const size_t bytes = record_bytes(cifar);
    if (cifar->part_count == MAX_FILES)
        return ddp_fail(DDP_ERR_UNSUPPORTED, "%s: more than %d files of training data", path,
                        MAX_FILES);
    struct part *part = &cifar->parts[cifar->part_count];
    enum ddp_status status = ddp_input_file_open(&part->file, path, true);
    if (status != DDP_OK)
        return status;
    cifar->part_count++;
    if (part->file.bytes == 0 || part->file.bytes % bytes != 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: truncated: %" PRIu64 " bytes are not a whole number of images of %zu "
                        "bytes",
                        path, part->file.bytes, bytes);
    part->first = cifar->base.info.sample_count;
    part->end = part->first + (int64_t)(part->file.bytes / bytes);
    cifar->base.info.sample_count = part->end;
    return DDP_OK;
}

static enum ddp_status open_parts(struct cifar *cifar, const char *name)
{
    struct ddp_data_names names = {0};
    char *path = ddp_path_in(cifar->base.path, name);
    enum ddp_status status = path ? ddp_data_names_list(&names, path) : DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < names.count; i++)
        status = open_part(cifar, names.at[i]);
    ddp_data_names_free(&names);
    free(path);
    return status;
}

static enum ddp_status open_set(ddp_dataset **result, const char *directory,
                                const struct kind *kind, const char *name)
{
    struct cifar *cifar = ddp_dataset_alloc(sizeof *cifar, &ops, directory);
    if (!cifar)
        return DDP_ERR_MEMORY;
    *result = &cifar->base;
    cifar->kind = kind;
    cifar->base.info = (struct ddp_dataset_info){
        .source = "cifar",
        .path = cifar->base.path,
        .class_count = kind->classes,
        .label_count = 1,
        .x_dtype = DDP_F32,
        .dim_count = 3,
        .dims = {CHANNELS, SIDE, SIDE},
        .sample_values = PIXELS,
        .sample_bytes = PIXELS * sizeof(float),
        .memory_bytes = sizeof *cifar,
        .shuffled = true,
        .channel_count = CHANNELS,
    };
    return open_parts(cifar, name);
}

static enum ddp_status measure_part(const struct cifar *cifar, const struct part *part,
                                    unsigned char *chunk, struct ddp_pixel_sums sums[CHANNELS])
{
    const size_t bytes = record_bytes(cifar);
    for (int64_t at = part->first; at < part->end; at += CHUNK) {
        const int64_t left = part->end - at;
        const size_t count = left < CHUNK ? (size_t)left : CHUNK;
        enum ddp_status status = ddp_input_file_read(
            &part->file, (uint64_t)(at - part->first) * bytes, chunk, count * bytes);
        for (size_t i = 0; status == DDP_OK && i < count; i++) {
            const unsigned char *record = chunk + i * bytes;
            int32_t class;
            status = class_of(cifar, part, at + (int64_t)i, record, &class);
            for (size_t c = 0; c < CHANNELS; c++)
                ddp_pixels_add(&sums[c], record + cifar->kind->labels + c * PLANE, PLANE);
        }
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

/* Reads the whole training set once. */
static enum ddp_status measure(struct cifar *cifar)
{
    struct ddp_pixel_sums sums[CHANNELS] = {{0}};
    enum ddp_status status = DDP_OK;
    unsigned char *chunk = ddp_array_alloc(CHUNK, record_bytes(cifar));
    if (!chunk)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; status == DDP_OK && i < cifar->part_count; i++)
        status = measure_part(cifar, &cifar->parts[i], chunk, sums);
    free(chunk);
    for (size_t c = 0; status == DDP_OK && c < CHANNELS; c++)
        ddp_pixels_moments(&sums[c], &cifar->base.info.mean[c], &cifar->base.info.std[c]);
    return status;
}

/* A directory has a kind's files when it has the first of its training set. CIFAR-100's train.bin
 * is also nanoGPT's; there it comes with a val.bin. */
static bool has_files(const char *directory, const struct kind *kind)
{
    char *train = ddp_path_in(directory, kind->train);
    char *test = ddp_path_in(directory, kind->test);
    char *val = ddp_path_in(directory, "val.bin");
    bool found = train && test && val && ddp_data_names_any(train);
    if (found && kind->classes == 100)
        found = ddp_data_file_exists(test) && !ddp_data_file_exists(val);
    free(train);
    free(test);
    free(val);
    return found;
}

/* The directory that holds the files, this one or the archive's in it; freed with free(). NULL:
 * none. */
static char *find_directory(const char *path, const struct kind **kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        *kind = &kinds[i];
        if (has_files(path, *kind))
            return strdup(path);
        char *inner = ddp_path_in(path, (*kind)->directory);
        if (inner && has_files(inner, *kind))
            return inner;
        free(inner);
    }
    return NULL;
}

static bool cifar_recognise(const char *path)
{
    const struct kind *kind;
    char *directory = find_directory(path, &kind);
    free(directory);
    return directory != NULL;
}

/* Sets the scale of a set, as the training set has it. */
static void set_scale(ddp_dataset *dataset, const ddp_dataset *train)
{
    ddp_pixels_set_scale(&dataset->info, &train->info, ((struct cifar *)dataset)->scaled);
}

/* Where the test set may be missing, *test stays NULL then. */
static enum ddp_status open_test(ddp_dataset **test, const ddp_dataset *train,
                                 const char *directory, const struct kind *kind, bool may_miss)
{
    char *path = ddp_path_in(directory, kind->test);
    if (!path)
        return DDP_ERR_MEMORY;
    enum ddp_status status = DDP_OK;
    if (ddp_data_names_any(path))
        status = open_set(test, directory, kind, kind->test);
    else if (!may_miss)
        status = ddp_fail(DDP_ERR_IO,
                          "%s: cannot open: No such file or directory" DDP_DATASET_NO_TEST, path);
    if (status == DDP_OK && *test)
        set_scale(*test, train);
    free(path);
    return status;
}

static enum ddp_status cifar_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                  ddp_dataset **test)
{
    const struct kind *kind;
    if (!options->path)
        return ddp_fail(DDP_ERR_INVALID, "give images with --data: a directory of images, "
                                         "of CIFAR's files or of another format");
    char *directory = find_directory(options->path, &kind);
    if (!directory)
        return ddp_fail(DDP_ERR_IO,
                        "%s: neither data_batch_*.bin (CIFAR-10) nor train.bin and test.bin "
                        "(CIFAR-100) are in this directory",
                        options->path);
    enum ddp_status status = open_set(train, directory, kind, kind->train);
    if (status == DDP_OK && !ddp_dataset_pixel_scale(options->description, &(*train)->info))
        status = measure((struct cifar *)*train);
    if (status == DDP_OK)
        set_scale(*train, *train);
    if (status == DDP_OK && test)
        status = open_test(test, *train, directory, kind, options->val_split > 0);
    free(directory);
    return status;
}

const struct ddp_dataset_source ddp_dataset_cifar = {
    .name = "cifar",
    .help = "CIFAR-10 and CIFAR-100, the binary version",
    .looks_for = "data_batch_*.bin (CIFAR-10); train.bin and test.bin (CIFAR-100)",
    .recognise = cifar_recognise,
    .open = cifar_open,
};
