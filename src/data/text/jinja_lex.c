/* SPDX-License-Identifier: MIT
 *
 * See jinja.h: a template as tokens, with Jinja's rules of white space: trim_blocks, lstrip_blocks
 * and the signs - and +. */
#include "config.h"

#include "data/text/jinja_parts.h"

#include "core/memory.h"
#include "data/text/nfc.h"

struct lexer {
    ddp_jinja *jinja;
    const char *text; /* ends with a 0 */
    size_t at, bytes;
    int line;
    bool line_starts; /* what was last ended with a newline */
    size_t room;
    enum ddp_status status;
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c > 127 ||
           (!first && c >= '0' && c <= '9');
}

static void fail(struct lexer *l, const char *what)
{
    if (l->status == DDP_OK)
        l->status = ddp_fail(DDP_ERR_FORMAT, "%s: the chat template, line %d: %s", l->jinja->name,
                             l->line, what);
}

static void add(struct lexer *l, enum jinja_token_kind kind, const char *at, size_t bytes)
{
    const struct jinja_token token = {.kind = kind, .line = l->line, .text = {at, NULL, bytes}};
    if (l->status == DDP_OK)
        l->status =
            ddp_array_append(&l->jinja->tokens, &l->jinja->token_count, &token, sizeof token);
}

static void step(struct lexer *l, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        l->line += l->text[l->at + i] == '\n';
    l->at += bytes;
}

/* A text ends before a tag: what the tag strips of it is left out. */
static size_t strip_before(const struct lexer *l, size_t begin, size_t end)
{
    const char sign = l->text[end + 2];
    size_t stripped = end;
    if (l->text[end + 1] == '{' ? sign != '-' : sign == '+')
        return end;
    while (stripped > begin && is_space(l->text[stripped - 1]) &&
           (sign == '-' || l->text[stripped - 1] != '\n'))
        stripped--;
    if (sign == '-')
        return stripped;
    const bool line = stripped > begin ? l->text[stripped - 1] == '\n' : l->line_starts;
    return line ? stripped : end;
}

/* Behind a tag that ends at l->at.
 *   output  }}, which keeps its newline
 *   sign    before the end of the tag */
static void strip_after(struct lexer *l, bool output, char sign)
{
    const size_t begin = l->at;
    if (sign == '-')
        while (l->at < l->bytes && is_space(l->text[l->at]))
            step(l, 1);
    else if (!output && sign != '+' && l->text[l->at] == '\n')
        step(l, 1);
    l->line_starts = l->at > begin && l->text[l->at - 1] == '\n';
}

static void lex_comment(struct lexer *l)
{
    const char *end = memmem(l->text + l->at + 2, l->bytes - l->at - 2, "#}", 2);
    if (!end) {
        fail(l, "a comment {# without its #}");
        return;
    }
    const char sign = end > l->text + l->at + 2 ? end[-1] : ' ';
    step(l, (size_t)(end + 2 - l->text) - l->at);
    strip_after(l, false, sign);
}

/* Writes what an escape stands for; returns how many bytes of it were read. */
static size_t unescape(struct lexer *l, const char *at, char **out)
{
    static const char letters[] = "n\nt\tr\r\\\\'\'\"\"b\bf\fv\va\a";
    const size_t digits = at[1] == 'x' ? 2 : at[1] == 'u' ? 4 : at[1] == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (at[1] == '\n')
        return 2;
    for (size_t i = 0; i < digits; i++) {
        const char c = at[2 + i], *hex = "0123456789abcdef",
                   *found = c ? strchr(hex, c | 32) : NULL;
        if (!found || (c < '0') || (c > '9' && c < 'A')) {
            fail(l, "an escape \\x, \\u or \\U without its digits");
            return 1;
        }
        code = code * 16 + (uint32_t)(found - hex);
    }
    if (digits > 0) {
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            fail(l, "an escape \\u that is no character");
        else
            *out += ddp_utf8_encode(code, *out);
        return 2 + digits;
    }
    for (size_t i = 0; i + 1 < sizeof letters; i += 2)
        if (letters[i] == at[1]) {
            *(*out)++ = letters[i + 1];
            return 2;
        }
    *(*out)++ = '\\'; /* which stays, as in Python */
    return 1;
}

/* A string behind another is its end. */
static void lex_string(struct lexer *l)
{
    struct jinja_token *last = &l->jinja->tokens[l->jinja->token_count - 1];
    const struct jinja_string before = last->text;
    const size_t joined = last->kind == TOKEN_STRING ? before.bytes : 0;
    const char quote = l->text[l->at];
    size_t end = l->at + 1;
    while (end < l->bytes && l->text[end] != quote)
        end += l->text[end] == '\\' ? 2 : 1;
    if (end >= l->bytes) {
        fail(l, "a string without its end");
        return;
    }
    char *text = ddp_jinja_alloc(&l->jinja->arena, joined + end - l->at + 1), *out = text;
    if (!text) {
        l->status = DDP_ERR_MEMORY;
        return;
    }
    memcpy(out, before.at, joined);
    out += joined;
    for (size_t i = l->at + 1; i < end && l->status == DDP_OK;)
        if (l->text[i] == '\\')
            i += unescape(l, l->text + i, &out);
        else
            *out++ = l->text[i++];
    const size_t bytes = (size_t)(out - text);
    if (last->kind == TOKEN_STRING)
        last->text = (struct jinja_string){text, NULL, bytes};
    else
        add(l, TOKEN_STRING, text, bytes);
    step(l, end + 1 - l->at);
}

static void lex_number(struct lexer *l)
{
    const char *at = l->text + l->at, *end = at;
    while (*end >= '0' && *end <= '9')
        end++;
    const bool real = *end == '.' && end[1] >= '0' && end[1] <= '9';
    for (end += real; real && *end >= '0' && *end <= '9';)
        end++;
    if (is_name(*end, false) || end - at > 18) {
        fail(l, "a number of another kind than 12 or 1.5, or of more than 18 digits");
        return;
    }
    add(l, TOKEN_NUMBER, at, (size_t)(end - at));
    if (l->status == DDP_OK)
        l->jinja->tokens[l->jinja->token_count - 1].number =
            real ? (struct jinja_value){.type = JINJA_FLOAT, .real = strtod(at, NULL)}
                 : ddp_jinja_int(strtoll(at, NULL, 10));
    step(l, (size_t)(end - at));
}

static void lex_operator(struct lexer *l, int *open)
{
    static const char two[][3] = {"==", "!=", "<=", ">=", "//", "**"};
    const char *at = l->text + l->at;
    size_t bytes = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (at[0] == two[i][0] && at[1] == two[i][1])
            bytes = 2;
    if (!strchr("=<>+-/*%~[](){}.:|,!", *at) || (bytes == 1 && *at == '!')) {
        fail(l, "a character that begins nothing of Jinja");
        return;
    }
    *open += strchr("([{", *at) ? 1 : strchr(")]}", *at) ? -1 : 0;
    add(l, TOKEN_OPERATOR, at, bytes);
    step(l, bytes);
}

/* From {{ or {% to its end. */
static void lex_tag(struct lexer *l)
{
    const bool output = l->text[l->at + 1] == '{';
    const char close[] = {output ? '}' : '%', '}', '\0'};
    int open = 0;
    add(l, output ? TOKEN_OUTPUT : TOKEN_BLOCK, l->text + l->at, 2);
    step(l, l->text[l->at + 2] == '-' || l->text[l->at + 2] == '+' ? 3 : 2);
    while (l->status == DDP_OK) {
        const char *at = l->text + l->at;
        const bool sign = *at == '-' || (*at == '+' && !output);
        if (l->at >= l->bytes) {
            fail(l, output ? "{{ without its }}" : "{% without its %}");
        } else if (open == 0 && strncmp(at + sign, close, 2) == 0) {
            add(l, TOKEN_CLOSE, at, 2);
            step(l, 2 + sign);
            strip_after(l, output, sign ? *at : ' ');
            return;
        } else if (is_space(*at)) {
            step(l, 1);
        } else if (*at == '\'' || *at == '"') {
            lex_string(l);
        } else if (*at >= '0' && *at <= '9') {
            lex_number(l);
        } else if (is_name(*at, true)) {
            size_t bytes = 1;
            while (is_name(at[bytes], false))
                bytes++;
            add(l, TOKEN_NAME, at, bytes);
            step(l, bytes);
        } else {
            lex_operator(l, &open);
        }
    }
}

/* The text with newlines alone between its lines, and none at its end. */
static const char *normalized(struct ddp_jinja_arena *arena, const char *text, size_t *bytes)
{
    char *copy = ddp_jinja_alloc(arena, *bytes + 4); /* a tag may be looked for behind the end */
    size_t count = 0;
    for (size_t i = 0; copy && i < *bytes; i++)
        if (text[i] != '\r')
            copy[count++] = text[i];
        else if (i + 1 == *bytes || text[i + 1] != '\n')
            copy[count++] = '\n';
    *bytes = count > 0 && copy[count - 1] == '\n' ? count - 1 : count;
    if (copy)
        copy[*bytes] = '\0';
    return copy;
}

enum ddp_status ddp_jinja_lex(ddp_jinja *jinja, const char *text, size_t bytes)
{
    struct lexer l = {.jinja = jinja, .line = 1, .line_starts = true, .bytes = bytes};
    if (ddp_utf8_check(text, bytes) < bytes || memchr(text, '\0', bytes))
        return ddp_fail(DDP_ERR_FORMAT, "%s: the chat template is not UTF-8 text", jinja->name);
    l.text = normalized(&jinja->arena, text, &l.bytes);
    if (!l.text)
        return DDP_ERR_MEMORY;
    while (l.at < l.bytes && l.status == DDP_OK) {
        size_t end = l.at;
        while (end < l.bytes &&
               (l.text[end] != '{' || !strchr("{%#", l.text[end + 1]) || l.text[end + 1] == '\0'))
            end++;
        const size_t stripped = end < l.bytes ? strip_before(&l, l.at, end) : end;
        if (stripped > l.at)
            add(&l, TOKEN_DATA, l.text + l.at, stripped - l.at);
        step(&l, end - l.at);
        if (l.at == l.bytes)
            break;
        if (l.text[l.at + 1] == '#')
            lex_comment(&l);
        else
            lex_tag(&l);
    }
    add(&l, TOKEN_END, "", 0);
    return l.status;
}
