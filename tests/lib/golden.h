/* SPDX-License-Identifier: MIT
 *
 * Reads tests/ROOM/golden/NAME: a line is "kind number ... : answer ...". DDP_GOLDEN_DIR names
 * another directory than tests, for a comparison with a PyTorch that is installed. */
#ifndef DDP_TESTS_GOLDEN_H
#define DDP_TESTS_GOLDEN_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line: kind and arguments before the colon, answer after it, both split at blanks. */
struct golden {
    char *line;
    char *name; /* the whole left side, for messages */
    char *words[16];
    int word_count;
    char **answer;
    int answer_count;
};

/* The path of "ROOM/golden/NAME"; the next call overwrites it. */
static inline const char *golden_path(const char *name)
{
    static char path[2048];
    const char *directory = getenv("DDP_GOLDEN_DIR"), *source = getenv("srcdir");
    if (directory)
        snprintf(path, sizeof path, "%s/%s", directory, name);
    else
        snprintf(path, sizeof path, "%s/tests/%s", source ? source : ".", name);
    return path;
}

static inline FILE *golden_open(const char *name)
{
    const char *path = golden_path(name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    return file;
}

static inline int golden_next(FILE *file, struct golden *g)
{
    size_t room = 0;
    memset(g, 0, sizeof *g);
    if (getline(&g->line, &room, file) < 0) {
        free(g->line);
        return 0;
    }
    char *colon = strchr(g->line, ':'), *at = NULL;
    ck_assert_msg(colon != NULL, "no colon in: %s", g->line);
    *colon = '\0';
    g->name = strdup(g->line);
    for (char *w = strtok_r(g->line, " ", &at); w && g->word_count < 16;
         w = strtok_r(NULL, " ", &at))
        g->words[g->word_count++] = w;
    for (char *w = strtok_r(colon + 1, " \n", &at); w; w = strtok_r(NULL, " \n", &at)) {
        g->answer = realloc(g->answer, (size_t)(g->answer_count + 1) * sizeof *g->answer);
        g->answer[g->answer_count++] = w;
    }
    return 1;
}

static inline void golden_free(struct golden *g)
{
    free(g->line);
    free(g->name);
    free(g->answer);
}

#endif
