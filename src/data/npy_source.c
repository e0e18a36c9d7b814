/* SPDX-License-Identifier: MIT
 *
 * See npy_source.h. */
#include "config.h"

#include "data/npy_source.h"

#include "core/log.h"
#include "core/text.h"
#include "data/data_names.h"
#include "data/npy_file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define LISTED       16                  /* arrays of an archive, in a message */
#define LISTED_BYTES ((uint64_t)1 << 28) /* of each: a compressed one is unpacked to describe it */

void ddp_npy_source_free(struct ddp_npy_source *source)
{
    free(source->archive);
    free(source->x);
    free(source->y);
    *source = (struct ddp_npy_source){0};
}

enum ddp_status ddp_npy_archive_open(const char *path, struct ddp_input_file *file,
                                     struct ddp_zip *zip)
{
    enum ddp_status status = ddp_input_file_open(file, path, true);
    if (status != DDP_OK)
        return status;
    const struct ddp_blob blob = {.name = file->path, .file = file, .bytes = file->bytes};
    return ddp_zip_open(zip, &blob);
}

/* --- names of arrays -------------------------------------------------------------------------- */

/* The names in use for samples and labels, the likelier ones first; arr_0 and arr_1 are those of
 * numpy.savez(file, samples, labels). Small and capital letters are the same, and '_', '-', '.' and
 * ' ' do not count. For a set of an archive with several, one of the words stands before or after:
 * x_train, train_images. */
static const char *const sample_words[] = {"x",        "images",  "image", "data", "inputs",
                                           "features", "samples", "arr0",  NULL};
static const char *const label_words[] = {"y",       "labels", "label", "targets", "target",
                                          "classes", "class",  "arr1",  NULL};
static const char *const train_words[] = {"train", "training", NULL};
static const char *const test_words[] = {"test", "val", "valid", "validation", NULL};

/* "X_train.npy" becomes "xtrain"; false: not the name of an array, or too long. */
static bool plain_name(char plain[32], const char *member)
{
    const size_t length = strlen(member);
    size_t used = 0;
    if (!ddp_text_ends_with(member, ".npy"))
        return false;
    for (size_t i = 0; i < length - strlen(".npy"); i++)
        if (!strchr("_-. ", member[i])) {
            if (used == 31)
                return false;
            plain[used++] = (char)tolower((unsigned char)member[i]);
        }
    plain[used] = '\0';
    return true;
}

static bool is_joined(const char *name, const char *first, const char *second)
{
    const size_t length = strlen(first);
    return strncmp(name, first, length) == 0 && strcmp(name + length, second) == 0;
}

static bool has_capital(const char *name)
{
    while (*name && !isupper((unsigned char)*name))
        name++;
    return *name != '\0';
}

/* The array of that word, with one of the set's before or after it; set NULL: alone. Of X and x
 * it is x. */
static const char *find_one(const struct ddp_zip *zip, const char *word, const char *set)
{
    char name[32];
    const char *found = NULL;
    for (size_t i = 0; i < zip->member_count; i++)
        if (plain_name(name, zip->members[i].name) && (!found || has_capital(found)) &&
            (set ? is_joined(name, word, set) || is_joined(name, set, word)
                 : strcmp(name, word) == 0))
            found = zip->members[i].name;
    return found;
}

/* The first of the words, in the first of the sets that has it. */
static const char *find_any(const struct ddp_zip *zip, const char *const *words,
                            const char *const *sets)
{
    const char *found = NULL;
    for (; !found && *words; words++) {
        if (!sets)
            found = find_one(zip, *words, NULL);
        for (int i = 0; sets && !found && sets[i]; i++)
            found = find_one(zip, *words, sets[i]);
    }
    return found;
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

/* Samples and labels, without the ".npy" of the members' names. */
static enum ddp_status set_members(struct ddp_npy_source *source, const char *path, const char *x,
                                   const char *y)
{
    enum ddp_status status = set_source(source, path, x, y);
    if (status == DDP_OK) {
        source->x[strlen(x) - strlen(".npy")] = '\0';
        if (y)
            source->y[strlen(y) - strlen(".npy")] = '\0';
    }
    return status;
}

/* "images float32 of (100, 28, 28)" of an array of the archive, or why it cannot be read. */
static void describe_member(const struct ddp_zip *zip, const struct ddp_zip_member *member,
                            FILE *out)
{
    char message[512] = "", shape[160];
    struct ddp_npy npy;
    struct ddp_blob blob;
    unsigned char *owned = NULL;
    const int length = (int)strlen(member->name) - (int)strlen(".npy");
    ddp_log_hold(message, sizeof message);
    enum ddp_status status = ddp_zip_member_open(zip, member, member->name, &blob, &owned);
    if (status == DDP_OK)
        status = ddp_npy_open(&npy, &blob);
    ddp_log_hold(NULL, 0);
    if (status == DDP_OK)
        fprintf(out, "%.*s %s", length, member->name, ddp_npy_describe(&npy, shape, sizeof shape));
    else
        fprintf(out, "%s", message);
    free(owned);
}

static enum ddp_status no_samples(const char *path, const struct ddp_zip *zip)
{
    char *list = NULL;
    size_t bytes = 0, listed = 0;
    FILE *out = open_memstream(&list, &bytes);
    if (!out)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; i < zip->member_count && listed < LISTED; i++)
        if (ddp_text_ends_with(zip->members[i].name, ".npy") &&
            zip->members[i].bytes <= LISTED_BYTES) {
            fputs(listed++ ? "; " : "", out);
            describe_member(zip, &zip->members[i], out);
        }
    enum ddp_status status = DDP_ERR_FORMAT;
    if (fclose(out) != 0 || !list)
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    else
        status = ddp_fail(status,
                          "%s: no samples in this archive: it has %s; call the samples x or "
                          "x_train, images, data, inputs, features or samples, and the labels y or "
                          "y_train, labels, targets or classes",
                          path, listed ? list : "no arrays");
    free(list);
    return status;
}

/* The set that an archive has for training, and for the test. */
static enum ddp_status find_members(const char *path, const struct ddp_zip *zip,
                                    struct ddp_npy_source *train, struct ddp_npy_source *test)
{
    const char *const *sets = train_words;
    const char *x = find_any(zip, sample_words, sets);
    if (!x) {
        sets = NULL;
        x = find_any(zip, sample_words, sets);
    }
    if (!x)
        return no_samples(path, zip);
    const char *y = find_any(zip, label_words, sets);
    enum ddp_status status = set_members(train, path, x, y);
    const char *test_x = NULL;
    for (int i = 0; status == DDP_OK && test && !test_x && test_words[i]; i++) {
        const char *const set[] = {test_words[i], NULL};
        test_x = find_any(zip, sample_words, set);
        if (test_x)
            status = set_members(test, path, test_x, y ? find_any(zip, label_words, set) : NULL);
    }
    return status;
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
