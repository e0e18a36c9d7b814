/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a command line, one argument a line, against a table with an option of each type. */
#include "config.h"

#include "core/options.h"
#include "core/parse.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGUMENTS 64

struct settings {
    int64_t count;
    double rate;
    const char *text;
    int choice;
    bool flag, verbose;
    int64_t long_name;
    int letters;
    uint64_t seed;
    int64_t list[4];
    int listed;
    double bytes, size;
    bool bright;
};

static const char *const colours[] = {"red", "green", NULL};

static const char *read_letters(void *letters, const char *value)
{
    *(int *)letters = (int)strlen(value);
    return strlen(value) > 9 ? "is longer than 9 letters" : NULL;
}

static const char *read_list(void *destination, const char *value)
{
    struct settings *settings = destination;
    return ddp_option_list(value, ",", 4, 1, 50, true, settings->list, &settings->listed)
               ? NULL
               : "must be up to 4 rising numbers from 1 to 50";
}

static const char *read_bytes(void *bytes, const char *value)
{
    return ddp_parse_bytes(value, bytes) ? NULL : "must be a size";
}

#define OPTION_STRUCT struct settings

static const struct ddp_option table[] = {
    {OPTION_INT("count", count, -10, 1e6, "N"), .letter = 'n', .help = "a number"},
    {OPTION_REAL("rate", rate, 0, 10, "X"), .help = "a number with a point"},
    {OPTION_TEXT("text", text, "TEXT"), .letter = 't', .help = "text"},
    {OPTION_CHOICE("choice", choice, colours, "COLOUR"), .help = "a colour"},
    {OPTION_REAL("choice ...,size", size, 0, 9, "X")},
    {OPTION_FLAG("choice ...,bright", bright)},
    {OPTION_NEGATABLE("flag", flag), .help = "a flag"},
    {OPTION_FLAG("verbose", verbose), .letter = 'v', .help = "another flag"},
    {OPTION_INT("long-name", long_name, 0, 9, "N"), .help = "a number"},
    {OPTION_UINT("seed", seed, "N"), .help = "any number from 0"},
    {OPTION_CUSTOM_AT("letters", letters, read_letters, "TEXT"), .help = "a few letters"},
    {OPTION_CUSTOM("list", read_list, "N,N,..."), .help = "numbers"},
    {OPTION_CUSTOM_AT("bytes", bytes, read_bytes, "SIZE"), .help = "a size"},
    {.name = "size", .alias_of = "count"},
    {0},
};

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char program[] = "fuzz", *argv[MAX_ARGUMENTS + 2] = {program}, *at = NULL;
    int argc = 1, rest = 0;
    struct settings settings = {0};
    struct ddp_options_given given = {0};
    char *lines = malloc(size + 1);
    if (!lines)
        return false;
    memcpy(lines, data, size);
    lines[size] = '\0';
    for (char *line = strtok_r(lines, "\n", &at); line && argc <= MAX_ARGUMENTS;
         line = strtok_r(NULL, "\n", &at))
        argv[argc++] = line;
    bool stop_at_first = size % 2;
    bool accepted =
        ddp_options_parse(table, &settings, &given, argc, argv, stop_at_first, &rest) == DDP_OK;
    if (accepted) {
        assert(settings.count >= -10 && settings.count <= 1000000);
        assert(settings.rate >= 0 && settings.rate <= 10);
        assert(!settings.text || *settings.text);
        assert(settings.choice == 0 || settings.choice == 1);
        assert(settings.letters <= 9);
        assert(settings.bytes == 0 || (settings.bytes >= 1 && settings.bytes <= 1e18));
        assert(settings.listed >= 0 && settings.listed <= 4);
        for (int i = 1; i < settings.listed; i++)
            assert(settings.list[i] > settings.list[i - 1] && settings.list[i] <= 50);
        assert(!stop_at_first || (rest >= 1 && rest <= argc));
    }
    free(lines);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
