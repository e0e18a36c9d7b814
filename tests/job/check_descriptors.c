/* SPDX-License-Identifier: MIT
 *
 * What a worker makes of descriptors in DDPRUN_BOARD_FD, _HEAP_FD and _COPY_FD that are open and
 * are something else: a wrapper may have used the numbers for files of its own. */
#include "config.h"

#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include "job/board.h"
#include "job/job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* One message names the variable, and a heap that is not ours is not written to. */
START_TEST(open_wrong_files)
{
    char line[100];
    FILE *file = tmpfile();
    int other = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(file && other >= 0 && fputs("precious", file) >= 0 && fflush(file) == 0);
    static const char *const names[][2] = {
        {"DDPRUN_HEAP_FD", "heap"}, {"DDPRUN_BOARD_FD", "board"}, {"DDPRUN_COPY_FD", "copy"}};
    const char *name = names[_i / 3][0];
    struct ddp_board board;
    int board_fd, heap_fd, copy_fd;
    ddp_job *job = NULL;
    ck_assert_int_eq(ddp_board_create(&board, &board_fd, (const int[]){0, 2}, 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_board_create_heap(&board, &heap_fd), DDP_OK);
    ck_assert_int_eq(ddp_board_create_copy(&copy_fd), DDP_OK);
    ddp_board_know_copy(&board, copy_fd);
    set_number("DDPRUN_COPY_FD", copy_fd);
    set_number("DDPRUN_BOARD_FD", board_fd);
    set_number("DDPRUN_HEAP_FD", heap_fd);
    set_number("WORLD_SIZE", 2);
    set_number("RANK", 0);
    set_number(name, _i % 3 == 0   ? fileno(file)
                     : _i % 3 == 1 ? other
                     : _i == 5     ? heap_fd
                                   : board_fd);
    snprintf(line, sizeof line, "%s=%s: not the %s of ", name, getenv(name), names[_i / 3][1]);
    capture_start();
    ck_assert_int_eq(ddp_job_open(&job), DDP_ERR_INVALID);
    one_message(capture_stop(), line, "ddprun job\n");
    ck_assert_ptr_null(job);
    rewind(file);
    ck_assert(fgets(line, sizeof line, file) && strcmp(line, "precious") == 0);
    ddp_board_unmap(&board);
    close(board_fd);
    close(heap_fd);
    close(copy_fd);
    fclose(file);
    close(other);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *tc = test_case(suite, "descriptors", 20);
    tcase_add_loop_test(tc, open_wrong_files, 0, 9);
    return suite;
}
