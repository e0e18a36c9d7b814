/* SPDX-License-Identifier: MIT
 *
 * Tests of the option table: command lines, the environment, help, and the words of messages. */
#include "config.h"

#include "tests/lib/messages.h"
#include "tests/lib/runner.h"

#include "core/options.h"

#include <stddef.h>
#include <stdlib.h>

struct values {
    bool verbose;
    bool shuffle;
    int64_t batch;
    int64_t any;
    uint64_t seed;
    double rate, least;
    bool fast;
    struct list {
        int count;
        int64_t numbers[3];
    } list;
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

static const char *read_list(void *member, const char *value)
{
    struct list *list = member;
    return ddp_option_list(value, ":", 3, 1, 9, true, list->numbers, &list->count) ? NULL
                                                                                   : "is bad";
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
     .argument = "X[,WHAT...]",
     .help = "rate"},
    {OPTION_REAL("lr ...,min", least, 0, 10, "X")},
    {OPTION_FLAG("lr ...,fast", fast)},
    {OPTION_CUSTOM_AT("lr ...,at", list, read_list, "N:N")},
    {.name = "save",
     .type = DDP_OPTION_TEXT,
     .offset = AT(path),
     .argument = "FILE",
     .help = "file"},
    {.name = "mode",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(mode),
     .choices = modes,
     .argument = "MODE",
     .help = "mode"},
    {.name = "seen",
     .type = DDP_OPTION_CUSTOM,
     .read = read_seen,
     .argument = "WORD",
     .help = "seen",
     .environment = "CHECK_SEEN"},
    {.name = "mark", .letter = 'm', .type = DDP_OPTION_CUSTOM, .read = read_seen, .help = "mark"},
    {.help = "help of --that"},
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

/* What is given again replaces all parts. */
START_TEST(options_parts)
{
    ck_assert_int_eq(parse("--lr=.5,min=.25,fast,at=2:3", false), DDP_OK);
    ck_assert(values.rate == 0.5 && values.least == 0.25 && values.fast);
    ck_assert(values.list.count == 2 && values.list.numbers[1] == 3);
    ck_assert(ddp_options_given(table, &given, "lr ...,min"));
    ck_assert_int_eq(parse("--lr .5,min=.25,min=.125,fast,at=2:3 --lr 1", false), DDP_OK);
    ck_assert(values.rate == 1 && values.least == 0 && !values.fast && values.list.count == 0);
    ck_assert(!ddp_options_given(table, &given, "lr ...,at"));
    ck_assert_int_eq(ddp_options_set(table, &values, &given, "lr", "2,fast"), DDP_OK);
    ck_assert_int_eq(ddp_options_set(table, &values, &given, "lr", "3,at=5"), DDP_OK);
    ck_assert(values.rate == 3 && !values.fast && values.list.numbers[0] == 5);
}
END_TEST

START_TEST(options_lists)
{
    int64_t numbers[3];
    int count = 0;
    ck_assert(ddp_option_list("5,3,9", ",", 3, 3, 9, false, numbers, &count));
    ck_assert(count == 3 && numbers[0] == 5 && numbers[1] == 3 && numbers[2] == 9);
    ck_assert(ddp_option_list("4", ",", 3, 1, 9, true, numbers, &count));
    ck_assert(count == 1 && numbers[0] == 4);
    static const char *const wrong[] = {"", "1,2,3,4", "1,,2", "1,", ",1", "0", "10", "1, 2", "x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(!ddp_option_list(wrong[i], ",", 3, 1, 9, false, numbers, &count), "%s",
                      wrong[i]);
    ck_assert(!ddp_option_list("1,3,3", ",", 3, 1, 9, true, numbers, &count));
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
    {"--batch-size=", "--batch-size '': must be"},
    {"--batch-size 99999999999999999999", "from 1 to 100"},
    {"--any 99999999999999999999", "--any 99999999999999999999: must be a whole number"},
    {"--any 1000000000000001", "must be a whole number from -1000000000000000 to 1000000000000000"},
    {"--seed 18446744073709551616", "must be a whole number from 0 to 18446744073709551615"},
    {"--seed -1", "must be a whole number from 0 to"},
    {"--batch-size", "--batch-size: needs a value"},
    {"-b", "-b: needs a value"},
    {"--lr nan", "--lr nan: must be a number from 0 to 10"},
    {"--lr -1", "from 0 to 10"},
    {"--lr 1,", "--lr 1,: \"\" is unknown: --lr takes X[,WHAT...]; see --help"},
    {"--lr 1,max=3", "--lr 1,max=3: \"max=3\" is unknown"},
    {"--lr 1,min", "\"min\" is unknown"},
    {"--lr 1,fast=1", "\"fast=1\" is unknown"},
    {"--lr 1,min=11", "--lr ...,min=11: must be a number from 0 to 10"},
    {"--lr 1,fast,at=3:2", "--lr ...,at=3:2: is bad"},
    {"--mode fast", "--mode fast: must be accum, ddp or dp"},
    {"--save=", "must not be empty"},
    {"--seen bad", "--seen bad: is bad"},
    {"--verbose=1", "--verbose: takes no value"},
    {"--no-verbose", "unknown option"},
    {"--no-batch-size", "unknown option"},
    {"--batch-sise 3", "did you mean --batch-size?"},
    {"--frobnicate", "--frobnicate: unknown option; see help of --that"},
    {"-x", "-x: unknown option; see help of --that"},
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
    ck_assert_ptr_nonnull(strstr(text, "--mode MODE"));
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

Suite *test_suite(void)
{
    Suite *suite = suite_create("options");
    TCase *options = test_case(suite, "options", 10);
    tcase_add_test(options, options_forms);
    tcase_add_test(options, options_parts);
    tcase_add_test(options, options_parts);
    tcase_add_test(options, options_lists);
    tcase_add_test(options, options_stop);
    tcase_add_loop_test(options, options_bad, 0, sizeof bad_lines / sizeof bad_lines[0]);
    tcase_add_test(options, options_environment);
    tcase_add_test(options, options_set);
    tcase_add_test(options, options_help);
    tcase_add_test(options, options_help_columns);
    tcase_add_test(options, options_help_short);
    return suite;
}
