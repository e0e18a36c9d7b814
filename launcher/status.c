/* SPDX-License-Identifier: MIT
 *
 * See status.h. */
#include "config.h"

#include "launcher/status.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/parse.h"
#include "launcher/settings.h"
#include "launcher/board_table.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is this a ddprun of this user's? */
static bool is_job(int pid)
{
    char path[64], name[32] = "";
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (stat(path, &info) < 0 || info.st_uid != geteuid())
        return false;
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool read = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    return read && strcmp(name, "ddprun\n") == 0;
}

/* Opens the board of a job, or returns -1. */
static int open_board(int pid)
{
    static const char wanted[] = "/memfd:ddprun-board";
    char path[PATH_MAX], target[64];
    int fd = -1;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory && fd < 0 && (entry = readdir(directory))) {
        snprintf(path, sizeof path, "/proc/%d/fd/%.20s", pid, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target);
        if (n >= (ssize_t)sizeof wanted - 1 && strncmp(target, wanted, sizeof wanted - 1) == 0)
            fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (directory)
        closedir(directory);
    return fd;
}

static bool show(int pid)
{
    struct ddp_board board;
    char source[32];
    int fd = open_board(pid);
    if (fd < 0)
        return false;
    snprintf(source, sizeof source, "job %d", pid);
    enum ddp_status status = ddp_board_attach(&board, fd, source);
    close(fd);
    if (status != DDP_OK)
        return false;
    int64_t now = ddp_clock_ns(), start = board.memory->start_ns;
    printf("job %d: %d worker%s, %.0f s\n", pid, board.world_size, board.world_size == 1 ? "" : "s",
           start > 0 && start <= now ? (double)(now - start) / 1e9 : 0);
    board_table_write(&board, stdout);
    ddp_board_unmap(&board);
    return true;
}

static int show_all(void)
{
    int shown = 0;
    DIR *proc = opendir("/proc");
    if (!proc || access("/proc/self", F_OK) < 0) {
        if (proc)
            closedir(proc);
        ddp_fail(DDP_ERR_SYSTEM, "status: cannot find jobs because /proc is missing");
        return EXIT_LAUNCHER;
    }
    const struct dirent *entry;
    while ((entry = readdir(proc))) {
        int pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (pid > 0 && is_job(pid))
            shown += show(pid);
    }
    closedir(proc);
    if (shown == 0)
        puts("no jobs");
    return EXIT_SUCCESS;
}

int status_main(int argc, char *const *argv)
{
    int exit_code = argc < 2 ? show_all() : EXIT_SUCCESS;
    for (int i = 1; i < argc; i++) {
        int64_t pid;
        if (!ddp_parse_int64(argv[i], 1, INT_MAX, &pid)) {
            ddp_fail(DDP_ERR_INVALID, "status %s: must be the process id of a ddprun", argv[i]);
            return EXIT_USAGE;
        }
        if (!is_job((int)pid) || !show((int)pid)) {
            ddp_fail(DDP_ERR_INVALID, "status %s: you have no such job", argv[i]);
            exit_code = 1;
        }
    }
    return exit_code;
}
