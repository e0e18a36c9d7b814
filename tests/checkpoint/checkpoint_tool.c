/* SPDX-License-Identifier: MIT
 *
 * checkpoint_tool DIR: reads every checkpoint in a directory as a trainer would. Prints "STEP COUNT
 * TEMPORARIES": the newest step (-1: none), how many checkpoints, how many unfinished ones, among
 * them a link to the best one that is half made. Exit status: 0 all are whole, 1 one is not (its
 * message is on standard error), the link names none, or something else is in the directory. */
#include "config.h"

#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_whole(const struct ddp_checkpoint_dir *dir, int64_t step)
{
    char name[DDP_CHECKPOINT_NAME], path[4096];
    struct ddp_checkpoint checkpoint;
    ddp_checkpoint_name(name, step);
    snprintf(path, sizeof path, "%s/%s", dir->path, name);
    if (ddp_checkpoint_read(&checkpoint, path) != DDP_OK)
        return false;
    const bool right = checkpoint.state.cursor.step == step;
    ddp_checkpoint_free(&checkpoint);
    return right && ddp_checkpoint_looks_whole(dir->fd, step);
}

/* Unfinished checkpoints; -1: there is something else. */
static int count_temporaries(const char *path)
{
    int count = 0;
    DIR *stream = opendir(path);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        const char *name = entry->d_name;
        if ((strncmp(name, ".step-", 6) == 0 && strstr(name, ".tmp-")) ||
            strncmp(name, ".best.tmp-", 10) == 0)
            count += count >= 0;
        else if (strncmp(name, "step-", 5) != 0 && strcmp(name, ".") != 0 &&
                 strcmp(name, "..") != 0 && strcmp(name, DDP_CHECKPOINT_BEST) != 0)
            count = -1;
    }
    if (stream)
        closedir(stream);
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 99;
    struct ddp_checkpoint_dir dir = {.path = argv[1], .fd = open(argv[1], O_RDONLY | O_DIRECTORY)};
    int64_t *steps = NULL;
    size_t count = 0;
    bool whole = true;
    if (dir.fd < 0 || ddp_checkpoint_dir_list(&dir, &steps, &count) != DDP_OK)
        return 99;
    for (size_t i = 0; i < count; i++)
        whole = is_whole(&dir, steps[i]) && whole;
    const int64_t best = ddp_checkpoint_dir_best(&dir);
    if (best >= 0)
        whole = is_whole(&dir, best) && whole;
    const int temporaries = count_temporaries(argv[1]);
    printf("%" PRId64 " %zu %d\n", count ? steps[0] : -1, count, temporaries);
    free(steps);
    return !whole || temporaries < 0;
}
