/* SPDX-License-Identifier: MIT
 *
 * Tests of core: numbers, atomic files, status. */
#include "config.h"

#include "tests/lib/messages.h"
#include "tests/lib/runner.h"

#include "core/atomic_file.h"
#include "core/write.h"
#include "core/log.h"
#include "core/parse.h"

#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- numbers --------------------------------------------------------------------------------- */

START_TEST(parse_numbers)
{
    int64_t i = 7;
    double d = 7;
    ck_assert(ddp_parse_int64("-9223372036854775808", INT64_MIN, INT64_MAX, &i));
    ck_assert_int_eq(i, INT64_MIN);
    ck_assert(ddp_parse_int64("+5", 0, 5, &i));
    ck_assert_int_eq(i, 5);
    static const char *const bad_ints[] = {
        "", " 5", "5 ", "0x5", "5.0", "-", "9223372036854775808"};
    for (size_t n = 0; n < sizeof bad_ints / sizeof bad_ints[0]; n++)
        ck_assert_msg(!ddp_parse_int64(bad_ints[n], INT64_MIN, INT64_MAX, &i), "%s", bad_ints[n]);
    ck_assert_int_eq(i, 5);
    ck_assert(!ddp_parse_int64(NULL, 0, 1, &i));
    uint64_t u = 7;
    ck_assert(ddp_parse_uint64("18446744073709551615", &u));
    ck_assert_uint_eq(u, UINT64_MAX);
    ck_assert(ddp_parse_uint64("+0", &u));
    ck_assert_uint_eq(u, 0);
    static const char *const bad_unsigned[] = {"",   " 5", "5 ",  "0x5",
                                               "-1", "+",  "+-1", "18446744073709551616"};
    for (size_t n = 0; n < sizeof bad_unsigned / sizeof bad_unsigned[0]; n++)
        ck_assert_msg(!ddp_parse_uint64(bad_unsigned[n], &u), "%s", bad_unsigned[n]);
    ck_assert(!ddp_parse_uint64(NULL, &u));
    ck_assert(ddp_parse_double("-1.5e-3", -1, 1, &d));
    ck_assert(d == -1.5e-3);
    static const char *const bad_reals[] = {"",   "nan", "inf", "1e999", "0x1p3",
                                            "1 ", ".",   "1,5", "1e",    "--1"};
    for (size_t n = 0; n < sizeof bad_reals / sizeof bad_reals[0]; n++)
        ck_assert_msg(!ddp_parse_double(bad_reals[n], -1e308, 1e308, &d), "%s", bad_reals[n]);
    ck_assert(!ddp_parse_double("1.01", 0, 1, &d));
}
END_TEST

START_TEST(parse_ignores_locale)
{
    double d = 0;
    const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8"};
    for (size_t n = 0; n < 3; n++)
        if (setlocale(LC_ALL, names[n]))
            break;
    ck_assert(ddp_parse_double("2.5", 0, 10, &d));
    ck_assert(d == 2.5);
}
END_TEST

/* --- atomic files ---------------------------------------------------------------------------- */

static char directory[] = "/tmp/check-core-XXXXXX";
static char path[PATH_MAX];

static void make_directory(void)
{
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
}

static void remove_directory(void)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "chmod 700 %s && rm -r %s", directory, directory);
    ck_assert_int_eq(system(command), 0);
    memcpy(directory + strlen(directory) - 6, "XXXXXX", 6);
}

static void write_whole(const char *text)
{
    ddp_atomic_file *file;
    ck_assert_int_eq(ddp_atomic_file_open(&file, path), DDP_OK);
    ck_assert_int_eq(ddp_atomic_file_write(file, text, strlen(text)), DDP_OK);
    ck_assert_int_eq(ddp_atomic_file_commit(file), DDP_OK);
    ddp_atomic_file_close(file);
}

static void expect_contents(const char *text)
{
    char contents[64] = "";
    int fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ge((int)read(fd, contents, sizeof contents - 1), 0);
    close(fd);
    ck_assert_str_eq(contents, text);
}

static void expect_alone(void)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = file", directory);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(atomic_commit)
{
    ddp_atomic_file *file;
    write_whole("old");
    ck_assert_int_eq(ddp_atomic_file_open(&file, path), DDP_OK);
    ck_assert_int_eq(ddp_atomic_file_write(file, "new", 3), DDP_OK);
    expect_contents("old");
    ddp_atomic_file_close(file); /* without a commit: as if nothing had been */
    expect_contents("old");
    expect_alone();
    write_whole("newer");
    expect_contents("newer");
    expect_alone();
}
END_TEST

static void make_file(const char *name, int mode)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, (mode_t)mode), 0);
    close(fd);
}

/* The new file has the old one's permissions. What a killed writer left is removed; what a living
 * one is at, of whatever process, and the user's files stay, whatever their names. */
START_TEST(atomic_replaced)
{
    struct stat info;
    char users[PATH_MAX + 32], living[PATH_MAX + 32], dead[PATH_MAX + 32];
    snprintf(users, sizeof users, "%s.20260101.tmp", path);
    snprintf(living, sizeof living, "%s/.file.ddprun-1-1.tmp", directory);
    snprintf(dead, sizeof dead, "%s/.file.ddprun-2-2.tmp", directory);
    make_file(path, 0604);
    make_file(users, 0600);
    make_file(living, 0600);
    make_file(dead, 0600);
    const int fd = open(living, O_RDONLY);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    write_whole("new");
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0604);
    ck_assert_int_eq(access(users, F_OK), 0);
    ck_assert_int_eq(access(living, F_OK), 0);
    ck_assert_int_lt(access(dead, F_OK), 0);
    close(fd);
}
END_TEST

/* In a directory that may not be written a file that may is written in place; until the commit
 * nobody takes it for a whole one. */
START_TEST(atomic_in_place)
{
    ddp_atomic_file *file;
    write_whole("old and longer than the new one");
    if (geteuid() == 0) { /* whom modes do not bind */
        ck_assert_int_eq(chown(directory, 65534, 65534), 0);
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
    ck_assert_int_eq(chmod(directory, 0500), 0);
    ck_assert_int_eq(ddp_atomic_file_open(&file, path), DDP_OK);
    ddp_atomic_file_close(file);
    expect_contents("old and longer than the new one");
    ck_assert_int_eq(ddp_atomic_file_open(&file, path), DDP_OK);
    for (const char *c = "new, in pieces"; *c; c++) {
        ck_assert_int_eq(ddp_atomic_file_write(file, c, 1), DDP_OK);
        expect_contents("");
    }
    ck_assert_int_eq(ddp_atomic_file_commit(file), DDP_OK);
    ddp_atomic_file_close(file);
    expect_contents("new, in pieces");
    write_whole("short");
    expect_contents("short");
    expect_alone();
    ck_assert_int_eq(seteuid(getuid()), 0);
}
END_TEST

START_TEST(atomic_room)
{
    ddp_atomic_file *file;
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    write_whole("old");
    catch_messages();
    ck_assert_int_eq(ddp_atomic_file_open(&file, path), DDP_OK);
    ck_assert_int_eq(ddp_atomic_file_reserve(file, 100000, 100000), DDP_OK);
    ck_assert_int_eq(ddp_atomic_file_reserve(file, (uint64_t)1 << 60, 1), DDP_ERR_IO);
    expect_message("/file: cannot write it: it will have ");
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(ddp_atomic_file_reserve(file, 100000, 5000), DDP_ERR_IO);
    expect_message("raise ulimit -f");
    ck_assert_int_eq(ddp_atomic_file_reserve(file, 100000, 4096), DDP_OK);
    ddp_atomic_file_close(file);
    expect_contents("old");
    expect_alone();
}
END_TEST

/* --- links ----------------------------------------------------------------------------------- */

static void make_link(const char *target, const char *name, uid_t owner)
{
    char link[PATH_MAX];
    snprintf(link, sizeof link, "%s/%s", directory, name);
    ck_assert_int_eq(symlink(target, link), 0);
    ck_assert(owner == geteuid() || lchown(link, owner, owner) == 0);
}

static void expect_followed(const char *name, const char *target)
{
    char from[PATH_MAX], to[PATH_MAX], *followed;
    snprintf(from, sizeof from, "%s/%s", directory, name);
    snprintf(to, sizeof to, "%s/%s", directory, target);
    ck_assert_int_eq(ddp_path_follow(&followed, from), DDP_OK);
    ck_assert_str_eq(followed, to);
    free(followed);
}

START_TEST(links_are_followed)
{
    char *followed, name[PATH_MAX];
    make_link("b", "a", geteuid());
    make_link("./c//d", "b", geteuid());
    make_link("loop", "loop", geteuid());
    make_link(directory, "up", geteuid());
    expect_followed("x", "x");
    expect_followed("a", "./c/d");
    expect_followed("a/", "./c/d/");
    expect_followed("a/e", "./c/d/e");
    expect_followed("up/a/e/", "./c/d/e/");
    catch_messages();
    snprintf(name, sizeof name, "%s/loop/x", directory);
    ck_assert_int_eq(ddp_path_follow(&followed, name), DDP_ERR_IO);
    expect_message("Too many levels");
    ck_assert_int_eq(ddp_path_follow(&followed, ""), DDP_ERR_IO);
    ck_assert_int_eq(ddp_path_follow(&followed, "/proc/self/fd/1"), DDP_OK);
    ck_assert_str_eq(followed, "/proc/self/fd/1");
    free(followed);
}
END_TEST

/* In a sticky directory that all may write another user's link is refused, wherever it stands. */
START_TEST(links_of_others_are_refused)
{
    const char *const names[] = {"theirs", "theirs/x", "mine", "mine/x/y"};
    char *followed, name[PATH_MAX];
    if (geteuid() != 0)
        return;
    make_link("/etc", "theirs", 65534);
    make_link("theirs", "mine", 0);
    expect_followed("x", "x");
    catch_messages();
    ck_assert_int_eq(chmod(directory, 01777), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(name, sizeof name, "%s/%s", directory, names[i]);
        ck_assert_int_eq(ddp_path_follow(&followed, name), DDP_ERR_IO);
        expect_message("symbolic link of another user");
    }
    ck_assert_int_eq(chown(directory, 65534, 65534), 0); /* the directory's owner may */
    snprintf(name, sizeof name, "%s/theirs", directory);
    ck_assert_int_eq(ddp_path_follow(&followed, name), DDP_OK);
    ck_assert_str_eq(followed, "/etc");
    free(followed);
}
END_TEST

START_TEST(atomic_full_disk)
{
    ddp_atomic_file *file;
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
    char block[3000] = {0};
    write_whole("old");
    catch_messages();
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(ddp_atomic_file_open(&file, path), DDP_OK);
    ck_assert_int_eq(ddp_atomic_file_write(file, block, sizeof block), DDP_OK);
    ck_assert_int_eq(ddp_atomic_file_write(file, block, sizeof block), DDP_ERR_IO);
    expect_message("/file: cannot write: ");
    ddp_atomic_file_close(file);
    expect_contents("old");
    expect_alone();
}
END_TEST

START_TEST(atomic_bad_places)
{
    ddp_atomic_file *file = NULL;
    char where[PATH_MAX + 16];
    catch_messages();
    ck_assert_int_eq(ddp_atomic_file_open(&file, directory), DDP_ERR_IO);
    expect_message("it is a directory");
    snprintf(where, sizeof where, "%s/none/file", directory);
    ck_assert_int_eq(ddp_atomic_file_open(&file, where), DDP_ERR_IO);
    expect_message("No such file or directory");
    ck_assert_int_eq(ddp_atomic_file_open(&file, ""), DDP_ERR_IO);
    expect_message("cannot write");
    if (geteuid() != 0) {
        ck_assert_int_eq(chmod(directory, 0500), 0);
        ck_assert_int_eq(ddp_atomic_file_open(&file, path), DDP_ERR_IO);
        expect_message("Permission denied");
    }
    ck_assert_ptr_null(file);
}
END_TEST

/* A kill at any moment leaves the old file or the new one, never a part. */
START_TEST(atomic_kill)
{
    write_whole("old");
    for (int round = 0; round < 50; round++) {
        pid_t pid = fork();
        if (pid == 0)
            for (;;)
                write_whole("new");
        usleep((useconds_t)(round * 50));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        char contents[8] = "";
        int fd = open(path, O_RDONLY);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq((int)read(fd, contents, sizeof contents - 1), 3);
        close(fd);
        ck_assert(strcmp(contents, "old") == 0 || strcmp(contents, "new") == 0);
    }
}
END_TEST

/* --- status ---------------------------------------------------------------------------------- */

START_TEST(status_names)
{
    for (int status = 0; status >= -11; status--)
        ck_assert_str_ne(ddp_status_string((enum ddp_status)status), "unknown status");
    ck_assert_str_eq(ddp_status_string((enum ddp_status) - 12), "unknown status");
    ck_assert_str_eq(ddp_status_string((enum ddp_status)1), "unknown status");
    ck_assert_int_eq(ddp_status_exit_code(DDP_OK), 0);
    ck_assert_int_eq(ddp_status_exit_code(DDP_ERR_ABORTED), 6);
    ck_assert_int_eq(ddp_status_exit_code((enum ddp_status) - 99), 1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("core");
    TCase *numbers = test_case(suite, "parse", 10);
    tcase_add_test(numbers, parse_numbers);
    tcase_add_test(numbers, parse_ignores_locale);
    TCase *files = test_case(suite, "atomic files", 30);
    tcase_add_checked_fixture(files, make_directory, remove_directory);
    tcase_add_test(files, atomic_commit);
    tcase_add_test(files, atomic_replaced);
    tcase_add_test(files, atomic_in_place);
    tcase_add_test(files, atomic_room);
    tcase_add_test(files, links_are_followed);
    tcase_add_test(files, links_of_others_are_refused);
    tcase_add_test(files, atomic_full_disk);
    tcase_add_test(files, atomic_bad_places);
    tcase_add_test(files, atomic_kill);
    tcase_add_test(test_case(suite, "status", 10), status_names);
    return suite;
}
