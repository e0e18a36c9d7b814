/* SPDX-License-Identifier: MIT
 *
 * See image_list.h. Names are read from directories without a look at the files: a million takes a
 * second. */
#include "config.h"

#include "data/image_list.h"

#include "core/log.h"
#include "core/write.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define EXTENSIONS "png, .jpg, .jpeg, .webp, .gif, .tif, .tiff or .bmp"

/* A directory that is being read, in those that hold it. */
struct level {
    const struct level *above;
    const char *path; /* relative to the top one; "" for that */
    dev_t device;
    ino_t inode;
};

static bool ends_in_one_of(const char *name, const char *const *extensions)
{
    const char *dot = strrchr(name, '.');
    for (; dot && *extensions; extensions++)
        if (strcasecmp(dot, *extensions) == 0)
            return true;
    return false;
}

static bool is_image(const char *name)
{
    static const char *const extensions[] = {".png", ".jpg",  ".jpeg", ".webp", ".gif",
                                             ".tif", ".tiff", ".bmp",  NULL};
    return ends_in_one_of(name, extensions);
}

/* Images that are not read. */
static bool is_other_image(const char *name)
{
    static const char *const extensions[] = {
        ".heic", ".heif", ".avif", ".jxl", ".jp2", ".jfif", ".ppm", ".pgm", ".pbm", ".pnm", ".tga",
        ".ico",  ".svg",  ".psd",  ".xcf", ".exr", ".hdr",  ".dng", ".cr2", ".nef", ".arw", NULL};
    return ends_in_one_of(name, extensions);
}

/* Links to directories count as directories. */
static bool is_directory(DIR *directory, const struct dirent *entry)
{
    struct stat info;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return fstatat(dirfd(directory), entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

/* The next entry that is seen. NULL: the end, or an error, which errno tells apart. */
static const struct dirent *next_entry(DIR *directory)
{
    const struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(directory);
    } while (entry && entry->d_name[0] == '.');
    return entry;
}

/* "directory/name" for one below the top, of which the path is empty. NULL (logged): no memory. */
static char *join(const char *directory, const char *name)
{
    if (*directory)
        return ddp_path_in(directory, name);
    char *copy = strdup(name);
    if (!copy)
        (void)ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", name);
    return copy;
}

/* --- the list --------------------------------------------------------------------------------- */

/* Room for `more` elements of so many bytes after those that are used. */
static enum ddp_status make_room(void **at, size_t used, size_t more, size_t *room, size_t bytes)
{
    if (*room - used >= more)
        return DDP_OK;
    const size_t wanted = *room * 2 > used + more ? *room * 2 : used + more + 64;
    void *larger = reallocarray(*at, wanted, bytes);
    if (!larger)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for a list of images");
    *at = larger;
    *room = wanted;
    return DDP_OK;
}

static enum ddp_status add_image(struct ddp_image_list *list, const char *directory,
                                 const char *name, int32_t class_id)
{
    const size_t dir = strlen(directory), bytes = dir + (dir > 0) + strlen(name) + 1;
    enum ddp_status status =
        make_room((void **)&list->text, list->text_bytes, bytes, &list->text_room, 1);
    if (status == DDP_OK)
        status =
            make_room((void **)&list->entries, list->count, 1, &list->room, sizeof *list->entries);
    if (status != DDP_OK)
        return status;
    snprintf(list->text + list->text_bytes, bytes, "%s%s%s", directory, dir > 0 ? "/" : "", name);
    list->entries[list->count++] =
        (struct ddp_image_entry){list->text_bytes, (uint32_t)dir, class_id};
    list->text_bytes += bytes;
    return DDP_OK;
}

static enum ddp_status add_other(struct ddp_image_list *list, const char *directory,
                                 const char *name)
{
    if (list->others++ == 0)
        list->other = join(directory, name);
    return list->other ? DDP_OK : DDP_ERR_MEMORY;
}

static int compare_entries(const void *a, const void *b, void *arg)
{
    const struct ddp_image_entry *x = a, *y = b;
    const char *text = arg, *of_x = text + x->at, *of_y = text + y->at;
    const int order = memcmp(of_x, of_y, x->dir < y->dir ? x->dir : y->dir);
    if (order != 0)
        return order;
    if (x->dir != y->dir)
        return x->dir < y->dir ? -1 : 1;
    return strcmp(of_x + x->dir, of_y + y->dir);
}

const char *ddp_image_list_name(const struct ddp_image_list *list, size_t i)
{
    return list->text + list->entries[i].at;
}

void ddp_image_list_free(struct ddp_image_list *list)
{
    free(list->entries);
    free(list->text);
    free(list->other);
    ddp_data_names_free(&list->classes);
}

/* --- directories ------------------------------------------------------------------------------ */

static bool holds_itself(const struct level *level)
{
    for (const struct level *above = level->above; above; above = above->above)
        if (above->device == level->device && above->inode == level->inode)
            return true;
    return false;
}

/* Opens a directory of the tree below `top`. */
static enum ddp_status open_level(DIR **directory, const char *top, struct level *level)
{
    struct stat info;
    char *path = *level->path ? ddp_path_in(top, level->path) : join("", top);
    if (!path)
        return DDP_ERR_MEMORY;
    enum ddp_status status = DDP_OK;
    *directory = opendir(path);
    if (!*directory || fstat(dirfd(*directory), &info) < 0)
        status = ddp_fail_path(path, "read this directory");
    if (status == DDP_OK) {
        level->device = info.st_dev;
        level->inode = info.st_ino;
        if (holds_itself(level))
            status =
                ddp_fail(DDP_ERR_IO, "%s: this link leads back to a directory that holds it", path);
    }
    if (status != DDP_OK && *directory)
        closedir(*directory);
    free(path);
    return status;
}

/* Lists a directory's images, and the directories in it, sorted. With class_id -1 it is the top
 * one: images there are of no class. */
static enum ddp_status list_level(struct ddp_image_list *list, const char *top, struct level *level,
                                  int32_t class_id, struct ddp_data_names *inside)
{
    const struct dirent *entry;
    DIR *directory;
    enum ddp_status status = open_level(&directory, top, level);
    if (status != DDP_OK)
        return status;
    while (status == DDP_OK && (entry = next_entry(directory)) != NULL)
        if (is_directory(directory, entry))
            status = ddp_data_names_add(inside, entry->d_name);
        else if (is_image(entry->d_name))
            status = add_image(list, level->path, entry->d_name, class_id < 0 ? 0 : class_id);
        else if (class_id >= 0)
            status = add_other(list, level->path, entry->d_name);
    if (status == DDP_OK && errno)
        status = ddp_fail_path(*level->path ? level->path : top, "read this directory");
    closedir(directory);
    ddp_data_names_sort(inside);
    return status;
}

/* A class's directory, or one in it. */
static enum ddp_status list_tree(struct ddp_image_list *list, const char *top,
                                 const struct level *above, const char *name, int32_t class_id)
{
    struct ddp_data_names inside = {0};
    struct level level = {.above = above, .path = join(above->path, name)};
    if (!level.path)
        return DDP_ERR_MEMORY;
    enum ddp_status status = list_level(list, top, &level, class_id, &inside);
    for (size_t i = 0; status == DDP_OK && i < inside.count; i++)
        status = list_tree(list, top, &level, inside.at[i], class_id);
    ddp_data_names_free(&inside);
    free((char *)(uintptr_t)level.path);
    return status;
}

static enum ddp_status no_images_of_class(const char *top, const char *name, bool others)
{
    char kinds[DDP_IMAGE_OTHERS_BYTES] = "";
    char *path = ddp_path_in(top, name);
    if (path)
        (void)ddp_image_list_tell_others(path, kinds);
    free(path);
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s/%s: this class has no images: no file in its directory ends in ." EXTENSIONS
                    "%s; add some, or remove the directory%s",
                    top, name, others ? ", though others are there" : "", kinds);
}

static enum ddp_status list_class(struct ddp_image_list *list, const char *top,
                                  const struct level *above, const char *name, int32_t class_id)
{
    const size_t before = list->count, others = list->others;
    enum ddp_status status = list_tree(list, top, above, name, class_id);
    if (status != DDP_OK)
        return status;
    if (list->count == before)
        return no_images_of_class(top, name, list->others > others);
    qsort_r(list->entries + before, list->count - before, sizeof *list->entries, compare_entries,
            list->text);
    return DDP_OK;
}

/* The number of a class among those of another list. */
static enum ddp_status find_class(const struct ddp_data_names *classes, const char *top,
                                  const char *name, int32_t *class_id)
{
    const int64_t found = ddp_data_names_find(classes, name);
    if (found < 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s/%s: the training set has no class of this name", top,
                        name);
    *class_id = (int32_t)found;
    return DDP_OK;
}

/* Images that lie beside the classes belong to none. */
static enum ddp_status leave_out_top(struct ddp_image_list *list)
{
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < list->count; i++)
        status = add_other(list, "", ddp_image_list_name(list, i));
    list->count = 0;
    list->text_bytes = 0;
    return status;
}

/* Takes another list's classes in place of its own. */
static enum ddp_status take_classes(struct ddp_image_list *list,
                                    const struct ddp_data_names *classes)
{
    enum ddp_status status = DDP_OK;
    ddp_data_names_free(&list->classes);
    for (size_t i = 0; status == DDP_OK && i < classes->count; i++)
        status = ddp_data_names_add(&list->classes, classes->at[i]);
    return status;
}

enum ddp_status ddp_image_list_make(struct ddp_image_list *list, const char *directory,
                                    const struct ddp_data_names *classes)
{
    struct level level = {.path = ""};
    *list = (struct ddp_image_list){0};
    enum ddp_status status = list_level(list, directory, &level, -1, &list->classes);
    if (status == DDP_OK && list->classes.count > INT32_MAX)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: too many classes", directory);
    list->labelled = list->classes.count > 0;
    if (status == DDP_OK && list->labelled)
        status = leave_out_top(list);
    else if (status == DDP_OK && list->count > 0)
        qsort_r(list->entries, list->count, sizeof *list->entries, compare_entries, list->text);
    for (size_t i = 0; status == DDP_OK && i < list->classes.count; i++) {
        int32_t class_id = (int32_t)i;
        if (classes)
            status = find_class(classes, directory, list->classes.at[i], &class_id);
        if (status == DDP_OK)
            status = list_class(list, directory, &level, list->classes.at[i], class_id);
    }
    if (status == DDP_OK && classes)
        status = take_classes(list, classes);
    if (status == DDP_OK && list->count == 0)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: no images: a directory for each class is expected, with files that "
                          "end in ." EXTENSIONS,
                          directory);
    return status;
}

/* --- is it one? ------------------------------------------------------------------------------- */

/* What --data names by mistake may be a tree of millions of files. */
static bool is_deep(const struct level *level)
{
    int above = 0;
    while ((level = level->above) != NULL)
        above++;
    return above > 3;
}

/* Files of a kind, up to `most` of them. */
struct search {
    bool (*is_wanted)(const char *name);
    size_t most, found;
    char first[32]; /* the extension of the first one that was found */
};

static void search_below(struct search *search, const char *top, const struct level *above,
                         const char *name, bool inside)
{
    struct level level = {.above = above, .path = name};
    struct ddp_data_names directories = {0};
    const struct dirent *entry;
    DIR *directory;
    if (is_deep(&level) || open_level(&directory, top, &level) != DDP_OK)
        return;
    while (search->found < search->most && (entry = next_entry(directory)) != NULL)
        if (is_directory(directory, entry))
            (void)ddp_data_names_add(&directories, entry->d_name);
        else if (!inside && search->is_wanted(entry->d_name) && search->found++ == 0)
            snprintf(search->first, sizeof search->first, "%s", strrchr(entry->d_name, '.'));
    closedir(directory);
    for (size_t i = 0; search->found < search->most && i < directories.count; i++) {
        char *path = join(name, directories.at[i]);
        if (path)
            search_below(search, top, &level, path, false);
        free(path);
    }
    ddp_data_names_free(&directories);
}

static void search_quietly(struct search *search, const char *directory, bool inside)
{
    char message[256];
    ddp_log_hold(message, sizeof message);
    search_below(search, directory, NULL, "", inside);
    ddp_log_hold(NULL, 0);
}

bool ddp_image_list_any(const char *directory, bool inside)
{
    struct search search = {.is_wanted = is_image, .most = 1};
    search_quietly(&search, directory, inside);
    return search.found > 0;
}

const char *ddp_image_list_tell_others(const char *directory, char text[DDP_IMAGE_OTHERS_BYTES])
{
    struct search search = {.is_wanted = is_other_image, .most = SIZE_MAX};
    search_quietly(&search, directory, false);
    *text = '\0';
    if (search.found > 0)
        snprintf(text, DDP_IMAGE_OTHERS_BYTES,
                 "; %zu image%s of other kinds, such as %s, %s there: convert them to JPEG or PNG",
                 search.found, search.found == 1 ? "" : "s", search.first,
                 search.found == 1 ? "is" : "are");
    return text;
}
