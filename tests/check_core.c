/* SPDX-License-Identifier: MIT
 *
 * Tests of core: the option table, numbers, atomic files. What is written to standard
 * error is caught in a temporary file, because the words are part of what is promised. */
#include "config.h"

#include "tests/runner.h"

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/options.h"
#include "core/parse.h"

#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- catching standard error ------------------------------------------------------------------ */

static FILE *caught;
static char messages[8192];

static void catch_messages(void)
{
    fflush(stderr);
    caught = tmpfile();
    ck_assert_ptr_nonnull(caught);
    ck_assert_int_ge(dup2(fileno(caught), STDERR_FILENO), 0);
}

/* What was written so far; the next call tells only what came later. */
static const char *take_messages(void)
{
    ssize_t n = pread(fileno(caught), messages, sizeof messages - 1, 0);
    messages[n > 0 ? n : 0] = 0;
    ck_assert_int_eq(ftruncate(fileno(caught), 0), 0);
    lseek(fileno(caught), 0, SEEK_SET);
    return messages;
}

static void expect_message(const char *part)
{
    const char *text = take_messages();
    ck_assert_msg(strstr(text, part) != NULL, "expected \"%s\", got \"%s\"", part, text);
    ck_assert_msg(strchr(text, '\n') == text + strlen(text) - 1, "not one line: \"%s\"", text);
}

/* --- options ---------------------------------------------------------------------------------- */

struct values {
    bool verbose;
    bool shuffle;
    int64_t batch;
    int64_t any;
    uint64_t seed;
    double rate;
    const char *path;
    int mode;
    int seen;
};

static const char *const modes[] = {"accum", "ddp", "dp", NULL};

static const char *read_seen(void *destination, const char *value)
{
    struct values *values = destination;
    if (value && strcmp(value, "bad") == 0)
        return "is bad";
    values->seen += value ? (int)strlen(value) : 100;
    return NULL;
}

#define AT(field) offsetof(struct values, field)

#define OPTION_STRUCT struct values

static const struct ddp_option table[] = {
    {.section = "First",
     .name = "verbose",
     .letter = 'v',
     .offset = AT(verbose),
     .help = "say more"},
    {.name = "shuffle", .offset = AT(shuffle), .negatable = true, .help = "mix", .letter = 's'},
    {.name = "batch-size",
     .letter = 'b',
     .type = DDP_OPTION_INT,
     .offset = AT(batch),
     .min = 1,
     .max = 100,
     .argument = "N",
     .help = "samples of a shard, a text that is long enough to need a second line in the help",
     .example = "--batch-size 32",
     .environment = "CHECK_BATCH"},
    {.name = "batch", .alias_of = "batch-size"},
    {OPTION_UINT("seed", seed, "N"), .help = "seed"},
    {OPTION_INT("any", any, -1e15, 1e15, "N"), .help = "any"},
    {.section = "Second",
     .name = "lr",
     .type = DDP_OPTION_REAL,
     .offset = AT(rate),
     .max = 10,
     .argument = "X",
     .help = "rate"},
    {.name = "save",
     .type = DDP_OPTION_TEXT,
     .offset = AT(path),
     .argument = "FILE",
     .help = "file"},
    {.name = "mode",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(mode),
     .choices = modes,
     .help = "mode"},
    {.name = "seen",
     .type = DDP_OPTION_CUSTOM,
     .read = read_seen,
     .argument = "WORD",
     .help = "seen",
     .environment = "CHECK_SEEN"},
    {.name = "mark", .letter = 'm', .type = DDP_OPTION_CUSTOM, .read = read_seen, .help = "mark"},
    {.name = NULL},
};

static struct values values;
static struct ddp_options_given given;
static int rest;

static bool batch_given(void)
{
    return ddp_options_given(table, &given, "batch-size");
}

/* Parses a line split at blanks. */
static enum ddp_status parse(const char *line, bool stop_at_first)
{
    static char copy[512];
    char *argv[32] = {(char *)"prog"}, *save = NULL;
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    memset(&values, 0, sizeof values);
    memset(&given, 0, sizeof given);
    values.shuffle = true;
    rest = -1;
    return ddp_options_parse(table, &values, &given, argc, argv, stop_at_first, &rest);
}

START_TEST(options_forms)
{
    ck_assert_int_eq(parse("-v --batch-size 5 --lr=.5 --save f --mode dp --no-shuffle", false),
                     DDP_OK);
    ck_assert(values.verbose && !values.shuffle && batch_given());
    ck_assert_int_eq(values.batch, 5);
    ck_assert(values.rate == 0.5);
    ck_assert_str_eq(values.path, "f");
    ck_assert_int_eq(values.mode, 2);
    ck_assert_int_eq(rest, 10);
    ck_assert_int_eq(parse("-b7 -vm --any -3", false), DDP_OK);
    ck_assert_int_eq(values.batch, 7);
    ck_assert(values.verbose && batch_given());
    ck_assert_int_eq(values.seen, 100);
    ck_assert_int_eq(values.any, -3);
    ck_assert_int_eq(parse("--seed 18446744073709551615", false), DDP_OK);
    ck_assert_uint_eq(values.seed, UINT64_MAX);
    ck_assert(ddp_options_given(table, &given, "seed"));
    ck_assert(!batch_given());
    ck_assert_int_eq(parse("--batch_size=9", false), DDP_OK);
    ck_assert_int_eq(values.batch, 9);
    ck_assert_int_eq(parse("--batch 8 --seen abc --seen=de --no_shuffle", false), DDP_OK);
    ck_assert_int_eq(values.batch, 8);
    ck_assert_int_eq(values.seen, 5);
    ck_assert(!values.shuffle && batch_given());
    ck_assert_int_eq(parse("", false), DDP_OK);
    ck_assert(!batch_given());
    ck_assert_int_eq(rest, 1);
}
END_TEST

START_TEST(options_lists)
{
    int64_t numbers[3];
    int count = 0;
    ck_assert(ddp_option_list("5,3,9", 3, 3, 9, false, numbers, &count));
    ck_assert(count == 3 && numbers[0] == 5 && numbers[1] == 3 && numbers[2] == 9);
    ck_assert(ddp_option_list("4", 3, 1, 9, true, numbers, &count));
    ck_assert(count == 1 && numbers[0] == 4);
    static const char *const wrong[] = {"", "1,2,3,4", "1,,2", "1,", ",1", "0", "10", "1, 2", "x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(!ddp_option_list(wrong[i], 3, 1, 9, false, numbers, &count), "%s", wrong[i]);
    ck_assert(!ddp_option_list("1,3,3", 3, 1, 9, true, numbers, &count));
}
END_TEST

START_TEST(options_stop)
{
    ck_assert_int_eq(parse("-v prog2 --batch-size 999", true), DDP_OK);
    ck_assert_int_eq(rest, 2);
    ck_assert_int_eq(parse("-v -- --batch-size 999", true), DDP_OK);
    ck_assert_int_eq(rest, 3);
    ck_assert_int_eq(parse("-v - x", true), DDP_OK);
    ck_assert_int_eq(rest, 2);
    ck_assert_int_eq(parse("-v", true), DDP_OK);
    ck_assert_int_eq(rest, 2);
    ck_assert_int_eq(parse("-v --", false), DDP_OK);
}
END_TEST

static const struct {
    const char *line;
    const char *message;
} bad_lines[] = {
    {"--batch-size 0", "--batch-size 0: must be a whole number from 1 to 100"},
    {"--batch-size 101", "from 1 to 100"},
    {"--batch-size 1x", "--batch-size 1x: must be"},
    {"--batch-size=", "--batch-size : must be"},
    {"--batch-size 99999999999999999999", "from 1 to 100"},
    {"--any 99999999999999999999", "--any 99999999999999999999: must be a whole number"},
    {"--any 1000000000000001", "must be a whole number from -1000000000000000 to 1000000000000000"},
    {"--seed 18446744073709551616", "must be a whole number from 0 to 18446744073709551615"},
    {"--seed -1", "must be a whole number from 0 to"},
    {"--batch-size", "--batch-size: needs a value"},
    {"-b", "-b: needs a value"},
    {"--lr nan", "--lr nan: must be a number from 0 to 10"},
    {"--lr -1", "from 0 to 10"},
    {"--mode fast", "--mode fast: must be accum, ddp or dp"},
    {"--save=", "must not be empty"},
    {"--seen bad", "--seen bad: is bad"},
    {"--verbose=1", "--verbose: takes no value"},
    {"--no-verbose", "unknown option"},
    {"--no-batch-size", "unknown option"},
    {"--batch-sise 3", "did you mean --batch-size?"},
    {"--frobnicate", "--frobnicate: unknown option; --help"},
    {"-x", "-x: unknown option"},
    {"-vx", "-x: unknown option"},
    {"stray", "stray: unexpected argument"},
    {"-- stray", "stray: unexpected argument"},
};

START_TEST(options_bad)
{
    catch_messages();
    ck_assert_int_eq(parse(bad_lines[_i].line, false), DDP_ERR_INVALID);
    expect_message(bad_lines[_i].message);
}
END_TEST

START_TEST(options_environment)
{
    catch_messages();
    setenv("CHECK_BATCH", "12", 1);
    setenv("CHECK_SEEN", "four", 1);
    ck_assert_int_eq(parse("", false), DDP_OK);
    ck_assert_int_eq(values.batch, 12);
    ck_assert_int_eq(values.seen, 4);
    ck_assert(batch_given());
    ck_assert_int_eq(parse("--batch 3", false), DDP_OK);
    ck_assert_int_eq(values.batch, 3);
    setenv("CHECK_BATCH", "many", 1);
    ck_assert_int_eq(parse("", false), DDP_ERR_INVALID);
    expect_message("CHECK_BATCH=many: must be a whole number from 1 to 100");
    setenv("CHECK_BATCH", "", 1);
    ck_assert_int_eq(parse("", false), DDP_OK);
    ck_assert_int_eq(values.batch, 0);
}
END_TEST

START_TEST(options_set)
{
    catch_messages();
    memset(&values, 0, sizeof values);
    ck_assert_int_eq(ddp_options_set(table, &values, &given, "batch_size", "4"), DDP_OK);
    ck_assert_int_eq(values.batch, 4);
    ck_assert_int_eq(ddp_options_set(table, &values, &given, "verbose", NULL), DDP_OK);
    ck_assert(values.verbose);
    ck_assert_int_eq(ddp_options_set(table, &values, &given, "batch-size", "0"), DDP_ERR_INVALID);
    expect_message("--batch-size 0: must be");
    ck_assert_int_eq(ddp_options_set(table, &values, &given, "nonsense", "0"), DDP_ERR_INVALID);
    expect_message("--nonsense: unknown option");
}
END_TEST

/* The help with lines for so many columns; freed with free(). */
static char *help_text(void (*print)(const struct ddp_option *, FILE *), const char *columns)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (columns)
        setenv("COLUMNS", columns, 1);
    else
        unsetenv("COLUMNS");
    print(table, out);
    fclose(out);
    return text;
}

static size_t longest_line(const char *text)
{
    size_t longest = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > longest)
            longest = strcspn(line, "\n");
    return longest;
}

START_TEST(options_help)
{
    char *text = help_text(ddp_options_help, NULL);
    ck_assert_ptr_nonnull(strstr(text, "First:\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nSecond:\n"));
    ck_assert_ptr_nonnull(strstr(text, "  -b, --batch-size N "));
    ck_assert_ptr_nonnull(strstr(text, "--mode accum|ddp|dp"));
    ck_assert_ptr_null(strstr(text, "--batch "));
    ck_assert_uint_le(longest_line(text), 80);
    free(text);
}
END_TEST

START_TEST(options_help_columns)
{
    static const struct {
        const char *columns;
        size_t least, most;
    } cases[] = {{"50", 40, 50}, {"1", 30, 40}, {"95", 81, 95}, {"1000", 81, 100}, {"x", 70, 80}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = help_text(ddp_options_help, cases[i].columns);
        ck_assert_uint_ge(longest_line(text), cases[i].least);
        ck_assert_uint_le(longest_line(text), cases[i].most);
        free(text);
    }
}
END_TEST

START_TEST(options_help_short)
{
    char *text = help_text(ddp_options_help_short, NULL);
    ck_assert_ptr_eq(strstr(text, "  --batch-size 32         samples of a shard"), text);
    ck_assert_ptr_null(strstr(text, "lr"));
    ck_assert_ptr_null(strstr(text, "First"));
    free(text);
}
END_TEST

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
    static const struct {
        const char *text;
        double bytes;
    } sizes[] = {{"7", 7},
                 {"7B", 7},
                 {"2k", 2000},
                 {"80G", 80e9},
                 {"1.5GB", 15e8},
                 {"1KiB", 1024},
                 {"1kiB", 1024},
                 {"2MiB", 2097152},
                 {"0.5T", 5e11},
                 {"1P", 1e15},
                 {"80Gi", 0},
                 {"80Gb", 0},
                 {"G", 0},
                 {"", 0},
                 {"0", 0},
                 {"0.5", 0},
                 {"-1G", 0},
                 {"1e3", 0},
                 {"1 G", 0},
                 {"5000P", 0},
                 {"1.2.3k", 0},
                 {"1BB", 0},
                 {"1GBx", 0},
                 {"9X", 0},
                 {"00000000000000000000000000000001", 0}};
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        ck_assert_msg(ddp_parse_bytes(sizes[n].text, &d) == (sizes[n].bytes > 0), "%s",
                      sizes[n].text);
        ck_assert_msg(sizes[n].bytes == 0 || d == sizes[n].bytes, "%s: %g", sizes[n].text, d);
    }
    ck_assert(!ddp_parse_bytes(NULL, &d));
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

/* The new file has the old one's permissions; of the temporary files beside it only those go whose
 * writers are dead. */
START_TEST(atomic_replaced)
{
    struct stat info;
    char living[PATH_MAX + 32], dead[PATH_MAX + 32];
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    waitpid(gone, NULL, 0);
    snprintf(living, sizeof living, "%s.%d.tmp", path, (int)getppid());
    snprintf(dead, sizeof dead, "%s.%d.tmp", path, (int)gone);
    make_file(path, 0604);
    make_file(living, 0600);
    make_file(dead, 0600);
    write_whole("new");
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0604);
    ck_assert_int_eq(access(living, F_OK), 0);
    ck_assert_int_lt(access(dead, F_OK), 0);
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
    TCase *options = test_case(suite, "options", 10);
    tcase_add_test(options, options_forms);
    tcase_add_test(options, options_lists);
    tcase_add_test(options, options_stop);
    tcase_add_loop_test(options, options_bad, 0, sizeof bad_lines / sizeof bad_lines[0]);
    tcase_add_test(options, options_environment);
    tcase_add_test(options, options_set);
    tcase_add_test(options, options_help);
    tcase_add_test(options, options_help_columns);
    tcase_add_test(options, options_help_short);
    TCase *numbers = test_case(suite, "parse", 10);
    tcase_add_test(numbers, parse_numbers);
    tcase_add_test(numbers, parse_ignores_locale);
    TCase *files = test_case(suite, "atomic files", 30);
    tcase_add_checked_fixture(files, make_directory, remove_directory);
    tcase_add_test(files, atomic_commit);
    tcase_add_test(files, atomic_replaced);
    tcase_add_test(files, atomic_full_disk);
    tcase_add_test(files, atomic_bad_places);
    tcase_add_test(files, atomic_kill);
    tcase_add_test(test_case(suite, "status", 10), status_names);
    return suite;
}
