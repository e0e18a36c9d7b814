/* SPDX-License-Identifier: MIT
 *
 * See text_directory.h. The names at the top say what a text is for; below, all are alike. */
#include "config.h"

#include "data/text_directory.h"

#include "core/log.h"
#include "core/text.h"

#include <errno.h>
#include <fts.h>
#include <string.h>

static const char *const endings[] = {".txt", ".txt.gz", ".jsonl", ".jsonl.gz"};

/* Bytes of a text's name without the ending; 0: it is none. */
static size_t stem_bytes(const char *name)
{
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ddp_text_ends_with(name, endings[i]))
            return strlen(name) - strlen(endings[i]);
    return 0;
}

/* --- what a text is for ----------------------------------------------------------------------- */

enum role { OTHER, TRAIN, VAL, TEST, ROLES };

static const struct {
    const char *word;
    enum role role;
} words[] = {
    {"train", TRAIN}, {"val", VAL}, {"valid", VAL}, {"validation", VAL}, {"test", TEST},
};

/* Of what stands at the top of the directory.
 *   whole [out]  the name is the word alone: without a train beside it, stories-test.txt is a text
 *     as any other */
static enum role role_of(const char *name, size_t bytes, bool *whole)
{
    size_t begin = bytes;
    while (begin > 0 && !strchr("-_.", name[begin - 1]))
        begin--;
    *whole = begin == 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == bytes - begin &&
            strncmp(words[i].word, name + begin, bytes - begin) == 0)
            return words[i].role;
    return OTHER;
}

/* Of a text that was found: by the entry at the top that it is, or is below. */
static enum role role_of_found(const FTSENT *found, bool *whole)
{
    const FTSENT *top = found;
    while (top->fts_level > 1)
        top = top->fts_parent;
    if (top == found)
        return role_of(top->fts_name, stem_bytes(top->fts_name), whole);
    const enum role role = role_of(top->fts_name, top->fts_namelen, whole);
    return *whole ? role : OTHER;
}

/* --- walking ---------------------------------------------------------------------------------- */

/* Calls found(arg, entry) for every text, until it fails. Directories that cannot be read are an
 * error; links are followed, round in a circle they are not. */
static enum ddp_status walk(const char *directory,
                            enum ddp_status (*found)(void *arg, const FTSENT *entry), void *arg)
{
    enum ddp_status status = DDP_OK;
    FTS *tree = fts_open((char *const[]){(char *)(uintptr_t)directory, NULL},
                         FTS_LOGICAL | FTS_NOCHDIR, NULL);
    if (!tree)
        return ddp_fail_path(directory, "list the files");
    for (FTSENT *entry; status == DDP_OK && (errno = 0, entry = fts_read(tree));) {
        if (entry->fts_level > 0 && entry->fts_name[0] == '.')
            fts_set(tree, entry, FTS_SKIP);
        else if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR ||
                 entry->fts_info == FTS_NS) {
            errno = entry->fts_errno;
            status = ddp_fail_path(entry->fts_path, "list the files");
        } else if (entry->fts_info == FTS_F && stem_bytes(entry->fts_name) > 0)
            status = found(arg, entry);
    }
    if (status == DDP_OK && errno != 0)
        status = ddp_fail_path(directory, "list the files");
    fts_close(tree);
    return status;
}

static enum ddp_status stop(void *arg, const FTSENT *entry)
{
    (void)entry;
    *(bool *)arg = true;
    return DDP_ERR_INVALID; /* ends the walk */
}

bool ddp_text_directory_any(const char *directory)
{
    char message[256];
    bool any = false;
    ddp_log_hold(message, sizeof message);
    const enum ddp_status status = walk(directory, stop, &any);
    ddp_log_hold(NULL, 0);
    return any || status != DDP_OK; /* what failed is said when they are listed */
}

/* What was found, by what it is for, and separately where that is the name's last word alone. */
struct listing {
    struct ddp_data_names names[ROLES][2];
};

static enum ddp_status add(void *arg, const FTSENT *entry)
{
    struct listing *listing = arg;
    bool whole;
    const enum role role = role_of_found(entry, &whole);
    return ddp_data_names_add(&listing->names[role][whole], entry->fts_path);
}

static enum ddp_status take(struct ddp_data_names *names, struct listing *listing, enum role role)
{
    enum ddp_status status = DDP_OK;
    for (int whole = 0; status == DDP_OK && whole < 2; whole++)
        status = ddp_data_names_move(names, &listing->names[role][whole]);
    return status;
}

static size_t count_of(const struct listing *listing, enum role role)
{
    return listing->names[role][0].count + listing->names[role][1].count;
}

enum ddp_status ddp_text_directory_list(const char *directory, struct ddp_data_names *train,
                                        struct ddp_data_names *val)
{
    struct listing listing = {0};
    enum ddp_status status = walk(directory, add, &listing);
    const bool named = count_of(&listing, TRAIN) > 0;
    for (int role = 0; status == DDP_OK && role < ROLES; role++) {
        struct ddp_data_names *last_words = &listing.names[role][0];
        if (!val)
            status = take(train, &listing, (enum role)role);
        else if (!named && role != OTHER)
            status = ddp_data_names_move(&listing.names[OTHER][0], last_words);
    }
    if (status == DDP_OK && val)
        status = take(train, &listing, named ? TRAIN : OTHER);
    if (status == DDP_OK && val)
        status = take(val, &listing, count_of(&listing, VAL) > 0 ? VAL : TEST);
    ddp_data_names_sort(train);
    if (val)
        ddp_data_names_sort(val);
    for (int role = 0; role < ROLES; role++)
        for (int whole = 0; whole < 2; whole++)
            ddp_data_names_free(&listing.names[role][whole]);
    return status;
}
