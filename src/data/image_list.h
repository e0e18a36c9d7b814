/* SPDX-License-Identifier: MIT
 *
 * The images of a directory that has a directory for each class, in the order of torchvision's
 * ImageFolder: classes by name, in a class the directories in it by path, in each the files by
 * name, all by their bytes. Names that begin with a dot are not seen. */
#ifndef DDP_DATA_IMAGE_LIST_H
#define DDP_DATA_IMAGE_LIST_H

#include "data/data_names.h"

struct ddp_image_entry {
    size_t at;        /* of its name in the text */
    uint32_t dir;     /* bytes of the name before its last slash */
    int32_t class_id; /* 0 in a list without labels */
};

struct ddp_image_list {
    struct ddp_image_entry *entries;
    size_t count, room;
    char *text; /* names relative to the directory, each ended by a zero */
    size_t text_bytes, text_room;
    struct ddp_data_names classes;
    bool labelled; /* false: the images lie in the directory itself */
    size_t others; /* files in classes' directories that are not images by name */
    char *other;   /* the first of them, or NULL; like an image's name */
};

/* Lists them.
 *   classes     of another list, which are then those of this one too, labelled or not; NULL: as
 *               the directory has them
 *   list [out]  freed with ddp_image_list_free(), also after a failure
 * DDP_ERR_IO, DDP_ERR_FORMAT (no image at all, a class without images, a class that is not one of
 * `classes`), DDP_ERR_MEMORY. */
enum ddp_status ddp_image_list_make(struct ddp_image_list *list, const char *directory,
                                    const struct ddp_data_names *classes);
void ddp_image_list_free(struct ddp_image_list *list);

const char *ddp_image_list_name(const struct ddp_image_list *list, size_t i);

/* Whether the directory, or one up to three levels below it, has an image by name. With `inside`,
 * only those below it count. */
bool ddp_image_list_any(const char *directory, bool inside);

/* The end of a message that no images were found: how many of other kinds there are, or "". */
#define DDP_IMAGE_OTHERS_BYTES 160
const char *ddp_image_list_tell_others(const char *directory, char text[DDP_IMAGE_OTHERS_BYTES]);

#endif
