/* SPDX-License-Identifier: MIT
 *
 * Directories of images, a directory for each class, or images without labels in one
 * directory. An image is decoded when it is read, by the thread that reads it; a small set stays in
 * memory once it is. Pixels become (pixel/255 - mean) / std, with mean and std of each channel over
 * images of the training set. */
#include "config.h"

#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"
#include "data/augment.h"
#include "data/data_names.h"
#include "data/dataset.h"
#include "data/describe.h"
#include "data/image_file.h"
#include "data/image_list.h"
#include "data/image_resize.h"
#include "data/pixels.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MEASURED   1024                /* images that mean and deviation are of, at most */
#define KEEP_BYTES ((size_t)256 << 20) /* a set whose pixels are no more is kept in memory */
#define CHANNELS   3                   /* at most */

enum kept { NOT_KEPT, BEING_DECODED, KEPT };

struct folder {
    struct ddp_dataset base;
    struct ddp_image_list list;
    int channels, height, width;
    bool reduced;                  /* decoded at a size that is nearer to that, if possible */
    bool same_size;                /* images must have that size: nobody asked for another */
    unsigned char *kept;           /* (samples, channels, height, width); NULL: nothing is kept */
    _Atomic unsigned char *states; /* enum kept of each sample */
    float scaled[CHANNELS][256];   /* what each pixel value becomes */
    char *notice;
};

/* --- reading ---------------------------------------------------------------------------------- */

/* A file that is open with its header read. */
struct image {
    char *path;
    struct ddp_input_file file;
    struct ddp_blob blob;
    ddp_image_reader *reader;
};

static enum ddp_status open_image(const struct folder *f, size_t sample, struct image *image)
{
    *image = (struct image){.file = {.fd = -1}};
    image->path = ddp_path_in(f->base.path, ddp_image_list_name(&f->list, sample));
    if (!image->path)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_input_file_open(&image->file, image->path, true);
    if (status != DDP_OK)
        return status;
    image->blob =
        (struct ddp_blob){.name = image->path, .file = &image->file, .bytes = image->file.bytes};
    return ddp_image_open(&image->reader, &image->blob);
}

static void close_image(struct image *image)
{
    ddp_image_close(image->reader);
    ddp_input_file_close(&image->file);
    free(image->path);
}

static enum ddp_status check_same_size(const struct folder *f, const struct image *image)
{
    const struct ddp_image *info = ddp_image_info(image->reader);
    if (!f->same_size || (info->width == f->width && info->height == f->height))
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s is %d pixels wide and %d high, and %s/%s is %d wide and %d high: set one "
                    "size for all with --image-size N or HxW",
                    image->path, info->width, info->height, f->base.path,
                    ddp_image_list_name(&f->list, 0), f->width, f->height);
}

/* Which region of the image is a sample: the middle, or one that is drawn. */
struct choice {
    const struct ddp_augment *augment; /* NULL: the middle */
    int64_t epoch;
};

static enum ddp_status init_resize(const struct folder *f, size_t sample,
                                   const struct choice *choice, ddp_image_reader *reader,
                                   struct ddp_resize *resize)
{
    const struct ddp_image *image = ddp_image_info(reader);
    struct ddp_augment_box box = {.height = image->height, .width = image->width};
    if (choice->augment)
        box = ddp_augment_box(choice->augment, image->height, image->width, choice->epoch,
                              (int64_t)sample);
    if (f->reduced) {
        const int x = box.width / f->width, y = box.height / f->height;
        const int factor = ddp_image_reduce(reader, x < y ? x : y);
        const int right = box.left + box.width, bottom = box.top + box.height;
        box.left /= factor;
        box.top /= factor;
        box.width = (right + factor - 1) / factor - box.left;
        box.height = (bottom + factor - 1) / factor - box.top;
    }
    if (!choice->augment)
        return ddp_resize_init(resize, f->channels, box.width, box.height, f->width, f->height);
    return ddp_resize_init_region(resize, f->channels, box.left, box.top, box.width, box.height,
                                  f->width, f->height);
}

/* pixels [out]  (channels, height, width) */
static enum ddp_status decode(const struct folder *f, size_t sample, const struct choice *choice,
                              unsigned char *pixels)
{
    struct image image;
    struct ddp_resize resize = {0};
    enum ddp_status status = open_image(f, sample, &image);
    if (status == DDP_OK)
        status = check_same_size(f, &image);
    if (status == DDP_OK)
        status = init_resize(f, sample, choice, image.reader, &resize);
    if (status == DDP_OK)
        status = ddp_image_read(image.reader, f->channels, ddp_resize_row, &resize);
    if (status == DDP_OK)
        ddp_resize_finish(&resize, pixels);
    ddp_resize_free(&resize);
    close_image(&image);
    return status;
}

/* pixels [out]  where they are: in `buffer`, or where they are kept */
static enum ddp_status get_pixels(const struct folder *f, size_t sample,
                                  const struct choice *choice, unsigned char *buffer,
                                  const unsigned char **pixels)
{
    *pixels = buffer;
    if (!f->kept || choice->augment)
        return decode(f, sample, choice, buffer);
    unsigned char *kept = f->kept + sample * f->base.info.sample_values, expected = NOT_KEPT;
    _Atomic unsigned char *state = &f->states[sample];
    if (atomic_load_explicit(state, memory_order_acquire) == KEPT) {
        *pixels = kept;
        return DDP_OK;
    }
    if (!atomic_compare_exchange_strong(state, &expected, BEING_DECODED))
        return decode(f, sample, choice, buffer); /* another thread is at it: no need to wait */
    enum ddp_status status = decode(f, sample, choice, kept);
    atomic_store_explicit(state, status == DDP_OK ? KEPT : NOT_KEPT, memory_order_release);
    *pixels = kept;
    return status;
}

static enum ddp_status folder_read_resized(const ddp_dataset *dataset,
                                           const struct ddp_augment *augment, int64_t epoch,
                                           const int64_t *indices, size_t count, void *x,
                                           int32_t *labels)
{
    const struct choice choice = {augment, epoch};
    const struct folder *f = (const struct folder *)dataset;
    const size_t plane = (size_t)f->height * (size_t)f->width;
    enum ddp_status status = DDP_OK;
    float *to = x;
    unsigned char *buffer = malloc(dataset->info.sample_values);
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", dataset->path);
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        const unsigned char *pixels;
        status = get_pixels(f, (size_t)indices[i], &choice, buffer, &pixels);
        for (int c = 0; status == DDP_OK && c < f->channels; c++, to += plane, pixels += plane)
            ddp_pixels_scale(to, pixels, plane, f->scaled[c]);
        if (labels && dataset->info.label_count > 0)
            labels[i] = f->list.entries[indices[i]].class_id;
    }
    free(buffer);
    return status;
}

static enum ddp_status folder_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                   void *x, int32_t *labels)
{
    return folder_read_resized(dataset, NULL, 0, indices, count, x, labels);
}

static const char *folder_sample_name(const ddp_dataset *dataset, int64_t index)
{
    return ddp_image_list_name(&((const struct folder *)dataset)->list, (size_t)index);
}

static void folder_close(ddp_dataset *dataset)
{
    struct folder *f = (struct folder *)dataset;
    ddp_image_list_free(&f->list);
    free(f->kept);
    free((void *)f->states);
    free(f->notice);
}

static const struct ddp_dataset_ops ops = {
    .read = folder_read,
    .read_resized = folder_read_resized,
    .sample_name = folder_sample_name,
    .close = folder_close,
};

/* --- opening ---------------------------------------------------------------------------------- */

/* Reads headers, as far as they are needed: all to know that the sizes agree, or that no image has
 * colours. With `channels` given only the first. */
static enum ddp_status scan(struct folder *f, bool sized, int channels)
{
    enum ddp_status status = DDP_OK;
    f->channels = channels ? channels : 1;
    for (size_t i = 0; status == DDP_OK && i < f->list.count; i++) {
        struct image image;
        status = open_image(f, i, &image);
        if (status == DDP_OK) {
            const struct ddp_image *info = ddp_image_info(image.reader);
            if (i == 0 && !sized) {
                f->width = info->width;
                f->height = info->height;
                f->same_size = true;
            }
            if (!channels && info->channels > f->channels)
                f->channels = info->channels;
            status = check_same_size(f, &image);
        }
        close_image(&image);
        if (sized && (channels || f->channels == CHANNELS))
            break;
    }
    return status;
}

static enum ddp_status keep_if_small(struct folder *f)
{
    size_t bytes;
    if (!ddp_size_multiply(f->list.count, f->base.info.sample_values, &bytes) || bytes > KEEP_BYTES)
        return DDP_OK;
    f->kept = ddp_array_alloc(bytes, 1); /* pages that nobody has touched take no memory */
    f->states = ddp_array_alloc(f->list.count, sizeof *f->states);
    f->base.info.memory_bytes += bytes + f->list.count;
    return f->kept && f->states ? DDP_OK : DDP_ERR_MEMORY;
}

/* Of images spread over the set evenly: how many are grey among colours, or the other way round;
 * and how many are smaller than the samples. */
static enum ddp_status count_changed(const struct folder *f, size_t seen, size_t *converted,
                                     size_t *enlarged)
{
    enum ddp_status status = DDP_OK;
    *converted = *enlarged = 0;
    for (size_t i = 0; status == DDP_OK && i < seen; i++) {
        struct image image;
        status = open_image(
            f, (size_t)ddp_dataset_spread((int64_t)f->list.count, (int64_t)seen, (int64_t)i),
            &image);
        if (status == DDP_OK) {
            const struct ddp_image *info = ddp_image_info(image.reader);
            *converted += info->channels != f->channels;
            *enlarged += info->height < f->height || info->width < f->width;
        }
        close_image(&image);
    }
    return status;
}

static enum ddp_status set_notice(struct folder *f)
{
    const struct ddp_image_list *list = &f->list;
    const size_t seen = list->count < MEASURED ? list->count : MEASURED;
    const char *of = seen < list->count ? " looked at" : "";
    char others[128] = "", colours[128] = "", sizes[128] = "";
    size_t converted, enlarged;
    enum ddp_status status = count_changed(f, seen, &converted, &enlarged);
    if (status != DDP_OK || (list->others == 0 && converted == 0 && enlarged == 0))
        return status;
    if (list->others > 0)
        snprintf(others, sizeof others,
                 "ignored %zu file%s: not an image, or not in a class's directory, such as ",
                 list->others, list->others == 1 ? "" : "s");
    if (converted > 0)
        snprintf(colours, sizeof colours, "%s%zu of %zu images%s %s", *others ? "; " : "",
                 converted, seen, of,
                 f->channels == 1 ? "have colours and become grey, as the training images are"
                                  : "are grey and get three equal channels");
    if (enlarged > 0)
        snprintf(sizes, sizeof sizes, "%s%zu of %zu images%s are smaller than %d x %d and enlarged",
                 *others || *colours ? "; " : "", enlarged, seen, of, f->height, f->width);
    if (asprintf(&f->notice, "%s: %s%s%s%s", f->base.path, others, list->other ? list->other : "",
                 colours, sizes) < 0) {
        f->notice = NULL;
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", f->base.path);
    }
    f->base.info.notice = f->notice;
    return DDP_OK;
}

static enum ddp_status set_info(struct folder *f)
{
    const size_t values = (size_t)f->channels * (size_t)f->height * (size_t)f->width;
    f->base.info = (struct ddp_dataset_info){
        .source = "images",
        .path = f->base.path,
        .sample_count = (int64_t)f->list.count,
        .class_count = (int64_t)f->list.classes.count,
        .label_count = f->list.labelled,
        .x_dtype = DDP_F32,
        .dim_count = 3,
        .dims = {f->channels, f->height, f->width},
        .sample_values = values,
        .sample_bytes = values * sizeof(float),
        .memory_bytes = sizeof *f + f->list.room * sizeof *f->list.entries + f->list.text_room,
        .shuffled = true,
        .channel_count = f->channels,
        .class_names = f->list.classes.count > 0 ? (const char *const *)f->list.classes.at : NULL,
    };
    enum ddp_status status = keep_if_small(f);
    return status == DDP_OK ? set_notice(f) : status;
}

/* The channels of the images that loaded weights learned from; 0: they are not known. */
static int described_channels(const char *description)
{
    struct ddp_dataset_info grey = {.channel_count = 1}, colours = {.channel_count = CHANNELS};
    return ddp_dataset_pixel_scale(description, &colours) ? CHANNELS
           : ddp_dataset_pixel_scale(description, &grey)  ? 1
                                                          : 0;
}

/* train: NULL when this is the training set */
static enum ddp_status open_set(ddp_dataset **result, const char *directory,
                                const struct ddp_dataset_options *options,
                                const struct folder *train)
{
    struct folder *f = ddp_dataset_alloc(sizeof *f, &ops, directory);
    if (!f)
        return DDP_ERR_MEMORY;
    *result = &f->base;
    enum ddp_status status =
        ddp_image_list_make(&f->list, directory, train ? &train->list.classes : NULL);
    if (status != DDP_OK)
        return status;
    const bool sized = options->image_height > 0;
    f->height = (int)options->image_height;
    f->width = (int)options->image_width;
    f->reduced = sized && options->image_reduced;
    status = scan(f, sized, train ? train->channels : described_channels(options->description));
    if (status == DDP_OK && train && (f->height != train->height || f->width != train->width))
        status =
            ddp_fail(DDP_ERR_FORMAT,
                     "%s: images are %d pixels wide and %d high, and those of %s %d wide and "
                     "%d high: set one size for all with --image-size N or HxW",
                     directory, f->width, f->height, train->base.path, train->width, train->height);
    return status == DDP_OK ? set_info(f) : status;
}

/* Decodes images spread over the set evenly: of a small set all. */
static enum ddp_status measure(struct folder *f)
{
    struct ddp_dataset_info *info = &f->base.info;
    struct ddp_pixel_sums sums[CHANNELS] = {{0}};
    const int64_t total = info->sample_count, count = total < MEASURED ? total : MEASURED;
    const size_t plane = (size_t)f->height * (size_t)f->width;
    const struct choice whole = {NULL, 0};
    enum ddp_status status = DDP_OK;
    unsigned char *buffer = malloc(info->sample_values);
    if (!buffer)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", f->base.path);
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        const unsigned char *pixels;
        status =
            get_pixels(f, (size_t)ddp_dataset_spread(total, count, i), &whole, buffer, &pixels);
        for (int c = 0; status == DDP_OK && c < f->channels; c++)
            ddp_pixels_add(&sums[c], pixels + (size_t)c * plane, plane);
    }
    free(buffer);
    for (int c = 0; status == DDP_OK && c < f->channels; c++)
        ddp_pixels_moments(&sums[c], &info->mean[c], &info->std[c]);
    return status;
}

/* A directory in `path` of one of the names, with classes in it; freed with free(). NULL: none. */
static char *find_part(const char *path, const char *const *names)
{
    for (size_t i = 0; names[i]; i++) {
        char *part = ddp_path_in(path, names[i]);
        if (part && ddp_data_directory_exists(part) && ddp_image_list_any(part, true))
            return part;
        free(part);
    }
    return NULL;
}

static const char *const train_names[] = {"train", NULL};
static const char *const test_names[] = {"val", "valid", "validation", "test", NULL};

static enum ddp_status folder_open(const struct ddp_dataset_options *given, ddp_dataset **train,
                                   ddp_dataset **test)
{
    struct ddp_dataset_options sized = *given;
    const struct ddp_dataset_options *options = &sized;
    int64_t height, width;
    if (!given->image_height && ddp_dataset_image_size(given->description, &height, &width)) {
        sized.image_height = height;
        sized.image_width = width;
    }
    if (!options->path)
        return ddp_fail(DDP_ERR_INVALID,
                        "give a directory with a directory of images for each class with --data");
    char *train_part = find_part(options->path, train_names);
    char *test_part = train_part ? find_part(options->path, test_names) : NULL;
    const char *val = options->val ? options->val : test_part;
    enum ddp_status status =
        open_set(train, train_part ? train_part : options->path, options, NULL);
    struct folder *f = (struct folder *)*train;
    if (status == DDP_OK && !ddp_dataset_pixel_scale(options->description, &f->base.info))
        status = measure(f);
    if (status == DDP_OK)
        ddp_pixels_set_scale(&f->base.info, &f->base.info, f->scaled);
    if (status == DDP_OK && test && val) {
        status = open_set(test, val, options, f);
        if (status == DDP_OK)
            ddp_pixels_set_scale(&(*test)->info, &f->base.info, ((struct folder *)*test)->scaled);
    }
    free(train_part);
    free(test_part);
    return status;
}

/* Tokens and texts may have pictures beside them: *.bin makes a directory theirs, while texts,
 * which may be a description or a list of labels, leave it one of images. */
static bool folder_recognise(const char *path)
{
    char *tokens = ddp_path_in(path, "*.bin");
    const bool found = tokens && ddp_data_directory_exists(path) && !ddp_data_names_any(tokens) &&
                       ddp_image_list_any(path, false);
    free(tokens);
    return found;
}

const struct ddp_dataset_source ddp_dataset_images = {
    .name = "images",
    .help = "directories of images, PNG, JPEG and others, one for each class",
    .looks_for = "directories with image files (.png, .jpg, .jpeg, .webp, .gif, .tif, .bmp)",
    .takes_val = true,
    .takes_size = true,
    .recognise = folder_recognise,
    .open = folder_open,
};
