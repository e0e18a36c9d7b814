/* SPDX-License-Identifier: MIT
 *
 * See status.h. */
#include "config.h"

#include "launcher/status.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "launcher/device_paths.h"
#include "launcher/system/proc.h"
#include "launcher/python.h"
#include "launcher/settings.h"
#include "launcher/stacks.h"
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
    char path[64], name[32];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (stat(path, &info) < 0 || info.st_uid != geteuid())
        return false;
    return proc_read(pid, "comm", name, sizeof name) && strcmp(name, "ddprun\n") == 0;
}

/* Opens the next file of a job's ddprun whose name begins so; *number [out]: what follows in the
 * name, as a number. -1: there are no more. */
static int next_file(DIR *directory, int pid, const char *wanted, int *number)
{
    char path[PATH_MAX], target[64];
    const struct dirent *entry;
    const size_t length = strlen(wanted);
    while (directory && (entry = readdir(directory))) {
        snprintf(path, sizeof path, "/proc/%d/fd/%.20s", pid, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        if (strncmp(target, wanted, length) != 0)
            continue;
        *number = atoi(target + length);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

static DIR *open_files(int pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    return opendir(path);
}

/* Opens the board of a job, or returns -1. */
static int open_board(int pid)
{
    int number;
    DIR *directory = open_files(pid);
    int fd = next_file(directory, pid, "/memfd:ddprun-board", &number);
    if (directory)
        closedir(directory);
    return fd;
}

/* The workers' stacks, in the files that ddprun shares with them. */
static void show_stacks(int pid, const struct ddp_board *board)
{
    struct ddp_board_view view;
    struct stack_source *sources = ddp_array_alloc((size_t)board->shape.workers, sizeof *sources);
    if (!sources)
        return;
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        sources[rank] = (struct stack_source){
            .rank = ddp_board_first_rank(board) + rank, .pid = view.started, .fd = -1};
    }
    DIR *directory = open_files(pid);
    for (int fd, rank; (fd = next_file(directory, pid, "/memfd:" PYTHON_STACK_FILE, &rank)) >= 0;) {
        if (rank >= 0 && rank < board->shape.workers && sources[rank].fd < 0)
            sources[rank].fd = fd;
        else
            close(fd);
    }
    if (directory)
        closedir(directory);
    stacks_write(sources, board->shape.workers, stdout);
    for (int rank = 0; rank < board->shape.workers; rank++)
        if (sources[rank].fd >= 0)
            close(sources[rank].fd);
    free(sources);
}

static bool show(int pid, bool stacks)
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
    printf("job %d: ", pid);
    if (board.shape.nodes > 1)
        printf("node %d of %d, ", board.shape.node, board.shape.nodes);
    printf("%d worker%s, %.0f s\n", board.shape.workers, board.shape.workers == 1 ? "" : "s",
           start > 0 && start <= now ? (double)(now - start) / 1e9 : 0);
    board_table_write(&board, stdout);
    board_table_nodes(&board, stdout);
    if (stacks)
        show_stacks(pid, &board);
    ddp_board_unmap(&board);
    return true;
}

static int show_all(bool stacks)
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
            shown += show(pid, stacks);
    }
    closedir(proc);
    if (shown == 0)
        puts("no jobs");
    else
        device_paths_show(0, stdout);
    return EXIT_SUCCESS;
}

int status_main(int argc, char *const *argv)
{
    const bool stacks = argc > 1 && strcmp(argv[1], "--stack") == 0;
    argc -= stacks;
    argv += stacks;
    int exit_code = argc < 2 ? show_all(stacks) : EXIT_SUCCESS;
    for (int i = 1; i < argc; i++) {
        int64_t pid;
        if (!ddp_parse_int64(argv[i], 1, INT_MAX, &pid)) {
            ddp_fail(DDP_ERR_INVALID,
                     "status %s: must be the process id of a ddprun, or --stack before it",
                     argv[i]);
            return EXIT_USAGE;
        }
        if (!is_job((int)pid) || !show((int)pid, stacks)) {
            ddp_fail(DDP_ERR_INVALID, "status %s: you have no such job", argv[i]);
            exit_code = 1;
        }
    }
    return exit_code;
}
