/* SPDX-License-Identifier: MIT
 *
 * What the tests of tokenizers and of chats share: the small tokenizers, texts in hexadecimal. */
#ifndef DDP_TESTS_TOKENIZER_TEST_H
#define DDP_TESTS_TOKENIZER_TEST_H

#include "data/text/tokenizer.h"
#include "tests/lib/golden.h"

/* The path of tests/data/text/golden/tokenizers/NAME.json. */
static inline const char *tokenizer_path(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "data/text/golden/tokenizers/%s.json", name);
    return golden_path(path);
}

/* The tokenizer of that name; the next call with another one closes it. */
static inline const ddp_tokenizer *tokenizer_named(const char *name)
{
    static ddp_tokenizer *tokenizer;
    static char current[32];
    if (strcmp(current, name) != 0) {
        ddp_tokenizer_close(tokenizer);
        tokenizer = NULL;
        snprintf(current, sizeof current, "%s", name);
        if (*name)
            ck_assert_int_eq(ddp_tokenizer_open(&tokenizer, tokenizer_path(name)), DDP_OK);
    }
    return tokenizer;
}

static inline unsigned hex_digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* A text in hexadecimal ("-": an empty one), with a 0 behind it; valid for eight calls. */
static inline struct ddp_text_part from_hex(const char *hex)
{
    static char texts[8][1 << 13];
    static int turn;
    char *text = texts[turn++ % 8];
    size_t bytes = 0;
    for (; *hex && *hex != '-'; hex += 2)
        text[bytes++] = (char)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
    text[bytes] = '\0';
    return (struct ddp_text_part){text, bytes, "a text", 0};
}

static inline struct ddp_text_part text_part(const char *text)
{
    return (struct ddp_text_part){text, strlen(text), "a text", 0};
}

/* "1 2 3" */
static inline const char *ids_shown(const int32_t *ids, size_t count)
{
    static char texts[2][1 << 13];
    static int turn;
    char *text = texts[turn++ % 2], *at = text;
    *text = '\0';
    for (size_t i = 0; i < count && at < text + sizeof texts[0] - 16; i++)
        at += sprintf(at, "%s%d", i > 0 ? " " : "", ids[i]);
    return text;
}

/* The words of an answer from the first on, up to "|", joined. */
static inline const char *answer_shown(const struct golden *g, int first)
{
    static char text[1 << 13];
    char *at = text;
    *text = '\0';
    for (int i = first; i < g->answer_count && strcmp(g->answer[i], "|") != 0; i++)
        at += sprintf(at, "%s%s", i > first ? " " : "", g->answer[i]);
    return text;
}

#endif
