/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a command line, one argument a line, against a table with an option of each type. */
#include "config.h"

#include "core/options.h"
#include "tests/fuzz/fuzz.h"

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
};

static const char *const colours[] = {"red", "green", NULL};

static const char *read_letters(void *destination, const char *value)
{
    struct settings *settings = destination;
    settings->letters = (int)strlen(value);
    return settings->letters > 9 ? "is longer than 9 letters" : NULL;
}

static const struct ddp_option table[] = {
    {.name = "count",
     .letter = 'n',
     .type = DDP_OPTION_INT,
     .offset = offsetof(struct settings, count),
     .min = -10,
     .max = 1e6,
     .argument = "N",
     .help = "a number"},
    {.name = "rate",
     .type = DDP_OPTION_REAL,
     .offset = offsetof(struct settings, rate),
     .min = 0,
     .max = 10,
     .argument = "X",
     .help = "a number with a point"},
    {.name = "text",
     .letter = 't',
     .type = DDP_OPTION_TEXT,
     .offset = offsetof(struct settings, text),
     .argument = "TEXT",
     .help = "text"},
    {.name = "choice",
     .type = DDP_OPTION_CHOICE,
     .offset = offsetof(struct settings, choice),
     .choices = colours,
     .argument = "COLOUR",
     .help = "a colour"},
    {.name = "flag",
     .type = DDP_OPTION_FLAG,
     .offset = offsetof(struct settings, flag),
     .help = "a flag",
     .negatable = true},
    {.name = "verbose",
     .letter = 'v',
     .type = DDP_OPTION_FLAG,
     .offset = offsetof(struct settings, verbose),
     .help = "another flag"},
    {.name = "long-name",
     .type = DDP_OPTION_INT,
     .offset = offsetof(struct settings, long_name),
     .min = 0,
     .max = 9,
     .argument = "N",
     .help = "a number"},
    {.name = "letters",
     .type = DDP_OPTION_CUSTOM,
     .argument = "TEXT",
     .help = "a few letters",
     .read = read_letters},
    {.name = "size", .alias_of = "count"},
    {0},
};

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char program[] = "fuzz", *argv[MAX_ARGUMENTS + 2] = {program}, *at = NULL;
    int argc = 1, rest = 0;
    struct settings settings = {0};
    char *lines = malloc(size + 1);
    if (!lines)
        return false;
    memcpy(lines, data, size);
    lines[size] = '\0';
    for (char *line = strtok_r(lines, "\n", &at); line && argc <= MAX_ARGUMENTS;
         line = strtok_r(NULL, "\n", &at))
        argv[argc++] = line;
    bool stop_at_first = size % 2;
    bool accepted = ddp_options_parse(table, &settings, argc, argv, stop_at_first, &rest) == DDP_OK;
    if (accepted) {
        assert(settings.count >= -10 && settings.count <= 1000000);
        assert(settings.rate >= 0 && settings.rate <= 10);
        assert(!settings.text || *settings.text);
        assert(settings.choice == 0 || settings.choice == 1);
        assert(settings.letters <= 9);
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
