/* SPDX-License-Identifier: MIT
 *
 * Samples and labels in NumPy arrays: two .npy files, or an archive (.npz) that holds them. Samples
 * are read as they are wanted, unless the archive is compressed; labels are kept. Bytes are taken
 * for pixels: (pixel/255 - mean) / std, with mean and std of the training set, of each channel
 * where there are some; numbers of other types stay as they are. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/describe.h"
#include "data/npy_file.h"
#include "data/npy_source.h"
#include "data/pixels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)1 << 20) /* read at a time to measure pixels and check labels */

/* One array and what it is in. */
struct array {
    struct ddp_npy npy;
    struct ddp_input_file file;
    char *name;           /* of the file, or "archive: member" */
    unsigned char *owned; /* a decompressed member; else NULL */
};

struct npy {
    struct ddp_dataset base;
    struct array x, y;
    int32_t *labels;      /* NULL: none */
    size_t row_bytes;     /* of a sample in the file */
    bool channels_last;   /* there: (height, width, channels); in a batch channels come first */
    bool pixels;          /* bytes, to be scaled */
    float (*scaled)[256]; /* by channel */
};

/* --- reading ---------------------------------------------------------------------------------- */

/* From (pixel_count, channels) to (channels, pixel_count). */
static void channels_first(const float *from, size_t channels, size_t pixel_count, float *to)
{
    for (size_t c = 0; c < channels; c++)
        for (size_t p = 0; p < pixel_count; p++)
            *to++ = from[p * channels + c];
}

static void pixels_to_floats(const struct npy *n, const unsigned char *row, float *x)
{
    const struct ddp_dataset_info *info = &n->base.info;
    const size_t channels = (size_t)info->channel_count,
                 pixel_count = info->sample_values / channels;
    for (size_t c = 0; c < channels; c++, x += pixel_count)
        if (n->channels_last)
            for (size_t p = 0; p < pixel_count; p++)
                x[p] = n->scaled[c][row[p * channels + c]];
        else
            ddp_pixels_scale(x, row + c * pixel_count, pixel_count, n->scaled[c]);
}

/* A NaN or an infinity would be in every weight one step later. Branch-free, so that it costs
 * little: the largest exponent of all. */
static bool all_finite(const float *x, size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7f800000u;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f800000u;
}

static enum ddp_status not_finite(const struct npy *n, int64_t sample, const float *x)
{
    size_t i = 0;
    while (i + 1 < n->base.info.sample_values && isfinite(x[i]))
        i++;
    return ddp_fail(DDP_ERR_FORMAT, "%s: sample %" PRId64 ": its value %zu is %s", n->x.name,
                    sample, i, isnan(x[i]) ? "not a number (NaN)" : "infinite, or beyond float32");
}

/* Are the bytes of a sample in the file those of a sample in a batch? */
static bool is_direct(const struct npy *n)
{
    return n->x.npy.kind == 'f' && n->x.npy.width == 4 && !n->channels_last &&
           __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
}

/* buffer: a row as it is in the file, then a sample of floats */
static enum ddp_status read_sample(const struct npy *n, int64_t sample, unsigned char *buffer,
                                   float *x)
{
    const struct ddp_dataset_info *info = &n->base.info;
    const struct ddp_npy *npy = &n->x.npy;
    const unsigned char *row;
    const uint64_t at = npy->offset + (uint64_t)sample * n->row_bytes;
    enum ddp_status status =
        ddp_blob_at(&npy->blob, at, n->row_bytes, is_direct(n) ? (void *)x : buffer, &row);
    if (status != DDP_OK)
        return status;
    if (n->pixels) {
        pixels_to_floats(n, row, x);
        return DDP_OK;
    }
    float *floats =
        n->channels_last ? (float *)(void *)(buffer + ddp_align_up(n->row_bytes, 8)) : x;
    if (row != (const unsigned char *)x) /* else it was read there */
        ddp_npy_to_floats(npy, row, info->sample_values, floats);
    if (!all_finite(floats, info->sample_values))
        return not_finite(n, sample, floats);
    if (n->channels_last) {
        const size_t channels = (size_t)info->dims[0];
        channels_first(floats, channels, info->sample_values / channels, x);
    }
    return DDP_OK;
}

static enum ddp_status npy_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                void *x, int32_t *labels)
{
    const struct npy *n = (const struct npy *)dataset;
    const struct ddp_dataset_info *info = &dataset->info;
    enum ddp_status status = DDP_OK;
    float *to = x;
    unsigned char *buffer =
        malloc(ddp_align_up(n->row_bytes, 8) + info->sample_values * sizeof(float));
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", n->base.path);
    for (size_t i = 0; status == DDP_OK && i < count; i++, to += info->sample_values) {
        status = read_sample(n, indices[i], buffer, to);
        if (labels && n->labels)
            labels[i] = n->labels[indices[i]];
    }
    free(buffer);
    return status;
}

static void close_array(struct array *array)
{
    ddp_input_file_close(&array->file);
    free(array->name);
    free(array->owned);
}

static void npy_close(ddp_dataset *dataset)
{
    struct npy *n = (struct npy *)dataset;
    close_array(&n->x);
    close_array(&n->y);
    free(n->labels);
    free(n->scaled);
}

static const struct ddp_dataset_ops ops = {.read = npy_read, .close = npy_close};

/* --- opening ---------------------------------------------------------------------------------- */

static enum ddp_status open_member(struct array *array, const char *archive, const char *member)
{
    struct ddp_zip zip = {0};
    struct ddp_blob blob;
    char *name = NULL;
    if (asprintf(&name, "%s.npy", member) < 0)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", archive);
    if (asprintf(&array->name, "%s: %s", archive, member) < 0) {
        array->name = NULL;
        free(name);
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", archive);
    }
    enum ddp_status status = ddp_npy_archive_open(archive, &array->file, &zip);
    const struct ddp_zip_member *found = status == DDP_OK ? ddp_zip_find(&zip, name) : NULL;
    free(name);
    if (status == DDP_OK && !found)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: this array is missing", array->name);
    if (status == DDP_OK)
        status = ddp_zip_member_open(&zip, found, array->name, &blob, &array->owned);
    ddp_zip_close(&zip);
    if (status == DDP_OK)
        status = ddp_npy_open(&array->npy, &blob);
    return status;
}

static enum ddp_status open_array(struct array *array, const char *archive, const char *name)
{
    if (archive)
        return open_member(array, archive, name);
    enum ddp_status status = ddp_input_file_open(&array->file, name, true);
    if (status != DDP_OK)
        return status;
    array->name = strdup(name);
    if (!array->name)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", name);
    const struct ddp_blob blob = {
        .name = array->name, .file = &array->file, .bytes = array->file.bytes};
    return ddp_npy_open(&array->npy, &blob);
}

/* Three sizes of which the last alone is a usual number of channels. */
static bool looks_channels_last(const int64_t *dims)
{
    const bool first = dims[0] == 1 || dims[0] == 3 || dims[0] == 4;
    const bool last = dims[2] == 1 || dims[2] == 3 || dims[2] == 4;
    return last && !first;
}

static enum ddp_status set_shape(struct npy *n)
{
    char text[160];
    const struct ddp_npy *npy = &n->x.npy;
    struct ddp_dataset_info *info = &n->base.info;
    if (npy->dim_count < 1 || npy->dim_count - 1 > DDP_DATASET_MAX_DIMS)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: %s: an array of samples has one dimension for them and up to %d more",
                        n->x.name, ddp_npy_describe(npy, text, sizeof text), DDP_DATASET_MAX_DIMS);
    if (npy->count == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s: it is empty", n->x.name,
                        ddp_npy_describe(npy, text, sizeof text));
    const int64_t *dims = npy->dims + 1;
    info->sample_count = npy->dims[0];
    info->dim_count = npy->dim_count - 1;
    memcpy(info->dims, dims, (size_t)info->dim_count * sizeof *dims);
    if (info->dim_count == 0) {
        info->dim_count = 1;
        info->dims[0] = 1;
    } else if (info->dim_count == 2) { /* images without colours */
        info->dim_count = 3;
        info->dims[0] = 1;
        info->dims[1] = dims[0];
        info->dims[2] = dims[1];
    } else if (info->dim_count == 3 && looks_channels_last(dims)) {
        n->channels_last = true;
        info->dims[0] = dims[2];
        info->dims[1] = dims[0];
        info->dims[2] = dims[1];
    }
    info->sample_values = (size_t)(npy->count / (uint64_t)info->sample_count);
    info->sample_bytes = info->sample_values * sizeof(float);
    n->row_bytes = info->sample_values * (size_t)npy->width;
    info->channel_count =
        info->dim_count == 3 && info->dims[0] <= DDP_DATASET_MAX_CHANNELS ? (int)info->dims[0] : 1;
    return DDP_OK;
}

/* One label of the array y. */
static enum ddp_status set_label(struct npy *n, int64_t i, int64_t label, int64_t class_count)
{
    if (label < 0 || label >= INT32_MAX)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: label %" PRId64 " is %" PRId64 ": classes count from 0", n->y.name, i,
                        label);
    if (class_count > 0 && label >= class_count)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: label %" PRId64 " is %" PRId64 ": there are %" PRId64
                        " classes, from 0",
                        n->y.name, i, label, class_count);
    n->labels[i] = (int32_t)label;
    if (label >= n->base.info.class_count)
        n->base.info.class_count = label + 1;
    return DDP_OK;
}

static enum ddp_status check_label_array(const struct npy *n)
{
    char text[160];
    const struct ddp_npy *y = &n->y.npy;
    const int64_t samples = n->base.info.sample_count;
    if (y->dim_count < 1 || y->count != (uint64_t)y->dims[0])
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s: labels are one number for each sample", n->y.name,
                        ddp_npy_describe(y, text, sizeof text));
    if (y->dims[0] != samples)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %" PRId64 " labels, but %s has %" PRId64 " samples",
                        n->y.name, y->dims[0], n->x.name, samples);
    return DDP_OK;
}

/* Labels that are numbers: scaled to mean 0 and deviation 1 of the training set, or as `scale`
 * says. What is in `labels` are floats. */
static enum ddp_status scale_labels(struct npy *n, const struct ddp_dataset_info *scale)
{
    struct ddp_dataset_info *info = &n->base.info;
    const size_t count = (size_t)info->sample_count;
    float *labels = (float *)(void *)n->labels;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(labels[i]))
            return ddp_fail(DDP_ERR_FORMAT, "%s: label %zu is %s", n->y.name, i,
                            isnan(labels[i]) ? "not a number (NaN)"
                                             : "infinite, or beyond float32");
        sum += (double)labels[i];
    }
    info->label_mean = scale ? scale->label_mean : sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += ((double)labels[i] - info->label_mean) * ((double)labels[i] - info->label_mean);
    info->label_std = scale ? scale->label_std : sqrt(squares / (double)count);
    if (info->label_std == 0)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: all labels have the same value, %g: there is nothing to learn",
                        n->y.name, (double)labels[0]);
    for (size_t i = 0; i < count; i++)
        labels[i] = (float)(((double)labels[i] - info->label_mean) / info->label_std);
    return DDP_OK;
}

/* Keeps the labels as numbers of 32 bits. class_count 0: the largest label determines it.
 *   scale  of labels that are numbers; NULL: their own */
static enum ddp_status read_labels(struct npy *n, int64_t class_count,
                                   const struct ddp_dataset_info *scale)
{
    const struct ddp_npy *y = &n->y.npy;
    const size_t width = (size_t)y->width;
    enum ddp_status status = check_label_array(n);
    if (status != DDP_OK)
        return status;
    n->base.info.float_labels = y->kind == 'f';
    n->labels = ddp_array_alloc((size_t)y->count, sizeof *n->labels);
    unsigned char *buffer = malloc(CHUNK_BYTES);
    if (!n->labels || !buffer)
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", n->y.name);
    for (uint64_t at = 0; status == DDP_OK && at < y->count; at += CHUNK_BYTES / width) {
        const unsigned char *values;
        const uint64_t left = y->count - at;
        const size_t count = left < CHUNK_BYTES / width ? (size_t)left : CHUNK_BYTES / width;
        status = ddp_blob_at(&y->blob, y->offset + at * width, count * width, buffer, &values);
        if (status == DDP_OK && n->base.info.float_labels)
            ddp_npy_to_floats(y, values, count, (float *)(void *)n->labels + at);
        for (size_t i = 0; status == DDP_OK && !n->base.info.float_labels && i < count; i++)
            status = set_label(n, (int64_t)(at + i), ddp_npy_to_integer(y, values + i * width),
                               class_count);
    }
    free(buffer);
    n->base.info.label_count = 1;
    n->base.info.memory_bytes += (size_t)y->count * sizeof *n->labels;
    if (class_count > 0 && !n->base.info.float_labels)
        n->base.info.class_count = class_count;
    return status == DDP_OK && n->base.info.float_labels ? scale_labels(n, scale) : status;
}

static enum ddp_status open_set(ddp_dataset **result, const char *path,
                                const struct ddp_npy_source *source, int64_t class_count,
                                const struct ddp_dataset_info *scale)
{
    struct npy *n = ddp_dataset_alloc(sizeof *n, &ops, path);
    if (!n)
        return DDP_ERR_MEMORY;
    *result = &n->base;
    n->base.info = (struct ddp_dataset_info){
        .source = "npy", .path = n->base.path, .x_dtype = DDP_F32, .shuffled = true};
    for (int c = 0; c < DDP_DATASET_MAX_CHANNELS; c++)
        n->base.info.std[c] = 1;
    enum ddp_status status = open_array(&n->x, source->archive, source->x);
    if (status == DDP_OK)
        status = set_shape(n);
    if (status == DDP_OK && source->y) {
        status = open_array(&n->y, source->archive, source->y);
        if (status == DDP_OK)
            status = read_labels(n, class_count, scale);
    }
    n->pixels = n->x.npy.kind == 'u' && n->x.npy.width == 1;
    if (n->x.owned)
        n->base.info.memory_bytes += (size_t)n->x.npy.blob.bytes;
    return status;
}

/* Pixels of every channel, from one sample. */
static void add_sample(const struct npy *n, const unsigned char *row, unsigned char *plane,
                       struct ddp_pixel_sums *sums)
{
    const size_t channels = (size_t)n->base.info.channel_count;
    const size_t pixel_count = n->base.info.sample_values / channels;
    for (size_t c = 0; c < channels; c++) {
        const unsigned char *pixels = row + c * pixel_count;
        if (n->channels_last) {
            for (size_t p = 0; p < pixel_count; p++)
                plane[p] = row[p * channels + c];
            pixels = plane;
        }
        ddp_pixels_add(&sums[c], pixels, pixel_count);
    }
}

/* Reads all pixels of the training set once. */
static enum ddp_status measure(struct npy *n)
{
    struct ddp_pixel_sums sums[DDP_DATASET_MAX_CHANNELS] = {{0}};
    struct ddp_dataset_info *info = &n->base.info;
    const struct ddp_npy *x = &n->x.npy;
    const size_t row = n->row_bytes, rows = row < CHUNK_BYTES ? CHUNK_BYTES / row : 1;
    enum ddp_status status = DDP_OK;
    unsigned char *buffer = malloc((rows + 1) * row);
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", n->x.name);
    for (int64_t at = 0; status == DDP_OK && at < info->sample_count; at += (int64_t)rows) {
        const unsigned char *values;
        const int64_t left = info->sample_count - at;
        const size_t count = left < (int64_t)rows ? (size_t)left : rows;
        status =
            ddp_blob_at(&x->blob, x->offset + (uint64_t)at * row, count * row, buffer, &values);
        for (size_t i = 0; status == DDP_OK && i < count; i++)
            add_sample(n, values + i * row, buffer + rows * row, sums);
    }
    free(buffer);
    for (int c = 0; status == DDP_OK && c < info->channel_count; c++)
        ddp_pixels_moments(&sums[c], &info->mean[c], &info->std[c]);
    return status;
}

static enum ddp_status set_scale(struct npy *n, const struct ddp_dataset_info *train)
{
    n->scaled = ddp_array_alloc((size_t)n->base.info.channel_count, sizeof *n->scaled);
    if (!n->scaled)
        return DDP_ERR_MEMORY;
    ddp_pixels_set_scale(&n->base.info, train, n->scaled);
    return DDP_OK;
}

static enum ddp_status check_same_kind(const struct npy *train, const struct npy *test)
{
    char text[2][160];
    const struct ddp_dataset_info *a = &train->base.info, *b = &test->base.info;
    if (train->labels && test->labels && a->float_labels != b->float_labels)
        return ddp_fail(DDP_ERR_FORMAT, "%s: test labels are %s, but training labels %s",
                        test->y.name, b->float_labels ? "numbers" : "classes",
                        a->float_labels ? "numbers" : "classes");
    if (a->dim_count == b->dim_count && memcmp(a->dims, b->dims, sizeof a->dims) == 0 &&
        train->pixels == test->pixels)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT, "%s: test samples are %s, but training samples %s",
                    test->x.name, ddp_npy_describe(&test->x.npy, text[0], sizeof text[0]),
                    ddp_npy_describe(&train->x.npy, text[1], sizeof text[1]));
}

static enum ddp_status open_test(ddp_dataset **result, const struct npy *train, const char *path,
                                 const struct ddp_npy_source *source, bool unlabelled)
{
    if (!source->y && train->labels && !unlabelled)
        return ddp_fail(DDP_ERR_FORMAT, "%s: test samples without labels", path);
    const struct ddp_dataset_info *info = &train->base.info;
    enum ddp_status status =
        open_set(result, path, source, info->class_count, info->label_std > 0 ? info : NULL);
    struct npy *test = (struct npy *)*result;
    if (status == DDP_OK)
        status = check_same_kind(train, test);
    if (status == DDP_OK && train->pixels)
        status = set_scale(test, &train->base.info);
    return status;
}

static enum ddp_status open_both(const struct ddp_dataset_options *options,
                                 const struct ddp_npy_source *train_source,
                                 const struct ddp_npy_source *test_source, ddp_dataset **train,
                                 ddp_dataset **test)
{
    struct ddp_dataset_info scale = {0};
    const bool scaled =
        ddp_dataset_label_scale(options->description, &scale.label_mean, &scale.label_std);
    enum ddp_status status =
        open_set(train, options->path, train_source, options->class_count, scaled ? &scale : NULL);
    struct npy *n = (struct npy *)*train;
    if (status == DDP_OK && n->pixels &&
        !ddp_dataset_pixel_scale(options->description, &n->base.info))
        status = measure(n);
    if (status == DDP_OK && n->pixels)
        status = set_scale(n, &n->base.info);
    if (status == DDP_OK && test_source->x)
        status = open_test(test, n, options->val ? options->val : options->path, test_source,
                           options->unlabelled);
    return status;
}

static enum ddp_status npy_open(const struct ddp_dataset_options *options, ddp_dataset **train,
                                ddp_dataset **test)
{
    struct ddp_npy_source train_source = {0}, test_source = {0};
    if (!options->path)
        return ddp_fail(DDP_ERR_INVALID, "give NumPy arrays with --data: X.npy,Y.npy or an archive "
                                         "(.npz)");
    enum ddp_status status = ddp_npy_source_find(options->path, &train_source,
                                                 test && !options->val ? &test_source : NULL);
    if (status == DDP_OK && test && options->val)
        status = ddp_npy_source_find(options->val, &test_source, NULL);
    if (status == DDP_OK)
        status = open_both(options, &train_source, &test_source, train, test);
    ddp_npy_source_free(&train_source);
    ddp_npy_source_free(&test_source);
    return status;
}

/* An array of one dimension of whole numbers is tokens, as are many files. */
static bool holds_tokens(const char *path)
{
    char message[256];
    struct array array = {.file = {.fd = -1}};
    ddp_log_hold(message, sizeof message);
    const bool tokens = open_array(&array, NULL, path) == DDP_OK && array.npy.dim_count == 1 &&
                        array.npy.kind != 'f';
    ddp_log_hold(NULL, 0);
    close_array(&array);
    return tokens;
}

/* By its name, whether it is there or not: then the missing file can be named. */
static bool npy_recognise(const char *path)
{
    if (ddp_text_ends_with(path, ".npz"))
        return true;
    if (!ddp_text_ends_with(path, ".npy"))
        return false;
    if (ddp_data_file_exists(path))
        return !holds_tokens(path);
    return strchr(path, ',') || !ddp_data_names_any(path);
}

const struct ddp_dataset_source ddp_dataset_npy = {
    .name = "npy",
    .help = "NumPy arrays: X.npy,Y.npy or an archive (.npz)",
    .takes_val = true,
    .recognise = npy_recognise,
    .open = npy_open,
};
