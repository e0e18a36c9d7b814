/* SPDX-License-Identifier: MIT
 *
 * See data_names.h. */
#include "config.h"

#include "data/data_names.h"

#include "core/log.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool ddp_data_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool ddp_data_directory_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* --- names --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Puts a name that is freed with free() at the end, in memory that doubles. */
static enum ddp_status push(struct ddp_data_names *names, char *name)
{
    if ((names->count & (names->count - 1)) == 0) { /* 0 or a power of two: full */
        const size_t room = names->count ? 2 * names->count : 1;
        char **grown = realloc(names->at, room * sizeof *grown);
        if (!grown)
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", name);
        names->at = grown;
    }
    names->at[names->count++] = name;
    return DDP_OK;
}

enum ddp_status ddp_data_names_add(struct ddp_data_names *names, const char *name)
{
    char *copy = strdup(name);
    if (!copy)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", name);
    enum ddp_status status = push(names, copy);
    if (status != DDP_OK)
        free(copy);
    return status;
}

enum ddp_status ddp_data_names_move(struct ddp_data_names *names, struct ddp_data_names *from)
{
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && from->count > 0) {
        status = push(names, from->at[from->count - 1]);
        from->count -= status == DDP_OK;
    }
    return status;
}

void ddp_data_names_sort(struct ddp_data_names *names)
{
    if (names->count > 1)
        qsort(names->at, names->count, sizeof *names->at, by_name);
}

int64_t ddp_data_names_find(const struct ddp_data_names *names, const char *name)
{
    char *const *found =
        names->count ? bsearch(&name, names->at, names->count, sizeof *names->at, by_name) : NULL;
    return found ? found - names->at : -1;
}

static enum ddp_status copy_names(struct ddp_data_names *names, char *const *from, size_t count)
{
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        status = ddp_data_names_add(names, from[i]);
    ddp_data_names_sort(names);
    return status;
}

static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[") != NULL;
}

enum ddp_status ddp_data_names_list(struct ddp_data_names *names, const char *path)
{
    if (!is_pattern(path) || ddp_data_file_exists(path))
        return copy_names(names, (char *[]){(char *)(uintptr_t)path}, 1);
    glob_t found = {0};
    enum ddp_status status;
    int result = glob(path, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (result == 0)
        status = copy_names(names, found.gl_pathv, found.gl_pathc);
    else if (result == GLOB_NOMATCH)
        status = ddp_fail(DDP_ERR_IO, "%s: no such file, and no file matches this pattern", path);
    else if (result == GLOB_NOSPACE)
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", path);
    else
        status = ddp_fail_path(path, "list the files");
    globfree(&found);
    return status;
}

void ddp_data_names_free(struct ddp_data_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->at[i]);
    free(names->at);
    *names = (struct ddp_data_names){0};
}

bool ddp_data_names_any(const char *path)
{
    glob_t found = {0};
    if (!is_pattern(path) || ddp_data_file_exists(path))
        return ddp_data_file_exists(path);
    bool any = glob(path, GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc > 0;
    globfree(&found);
    return any;
}
