/* SPDX-License-Identifier: MIT
 *
 * See regex.h. With PCRE2_UCP the classes are Unicode's, as in Oniguruma, except that PCRE2's \s
 * has U+180E besides: \s is spelled out. */
#include "config.h"

#include "data/text/regex.h"

#include "data/text/buffer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define STACK_LEAST (32 << 10)
#define STACK_MOST  (1 << 20)
#define STEPS_MOST  10000000

struct ddp_regex {
    pcre2_code *code;
    bool fast; /* compiled to machine code */
};

struct ddp_regex_memory {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static const char white_space[] = "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"
                                  "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

/* What Oniguruma takes for something else than PCRE2 does, or what looks behind the place where a
 * search begins. */
static const char refused_escapes[] = "wWbBhHGKCX";

static bool is_posix_class(const char *pattern, size_t bytes, size_t at)
{
    return at + 1 < bytes && pattern[at + 1] == ':';
}

/* PCRE2's form of a pattern.
 *   bad [out]  what is not understood in it, when DDP_ERR_UNSUPPORTED is returned */
static enum ddp_status translate(struct ddp_buffer *out, const char *pattern, size_t bytes,
                                 char bad[3])
{
    enum ddp_status status = DDP_OK;
    bool in_class = false;
    for (size_t i = 0; status == DDP_OK && i < bytes; i++) {
        const char c = pattern[i], next = i + 1 < bytes ? pattern[i + 1] : '\0';
        bad[0] = c;
        bad[1] = bad[2] = '\0';
        if (c == '\\' && next) {
            bad[1] = next;
            i++;
            if (strchr(refused_escapes, next) || (in_class && next == 'S'))
                return DDP_ERR_UNSUPPORTED;
            if (next != 's' && next != 'S') {
                status = ddp_buffer_append(out, &pattern[i - 1], 2);
                continue;
            }
            if (!in_class)
                status = ddp_buffer_append(out, "[^", next == 'S' ? 2 : 1);
            if (status == DDP_OK)
                status = ddp_buffer_append(out, white_space, sizeof white_space - 1);
            if (status == DDP_OK && !in_class)
                status = ddp_buffer_append(out, "]", 1);
            continue;
        }
        if (in_class ? (c == '[' && !is_posix_class(pattern, bytes, i)) || (c == '&' && next == '&')
                     : c == '^' || c == '$')
            return DDP_ERR_UNSUPPORTED;
        if (in_class && c == '[') { /* [:alpha:] */
            const char *end = memchr(pattern + i, ']', bytes - i);
            const size_t length = end ? (size_t)(end - (pattern + i)) + 1 : 1;
            status = ddp_buffer_append(out, pattern + i, length);
            i += length - 1;
            continue;
        }
        status = ddp_buffer_append(out, &c, 1);
        if (c == ']') {
            in_class = false;
        } else if (c == '[') {
            in_class = true;
            if (next == '^')
                status = ddp_buffer_append(out, &pattern[++i], 1);
        }
    }
    return status;
}

enum ddp_status ddp_regex_create(ddp_regex **regex, const char *name, const char *pattern,
                                 size_t bytes, bool literal)
{
    struct ddp_buffer form = {0};
    char bad[3];
    int error = 0;
    size_t offset = 0;
    struct ddp_regex *r = NULL;
    enum ddp_status status =
        literal ? ddp_buffer_append(&form, pattern, bytes) : translate(&form, pattern, bytes, bad);
    if (status == DDP_ERR_UNSUPPORTED)
        status = ddp_fail(status, "%s: \"%s\" in the regular expression %s is not supported", name,
                          bad, pattern);
    if (status == DDP_OK && !(r = calloc(1, sizeof *r)))
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (status == DDP_OK) {
        const uint32_t flags =
            PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
        r->code = pcre2_compile((PCRE2_SPTR)form.at, form.bytes, flags, &error, &offset, NULL);
        if (!r->code) {
            PCRE2_UCHAR text[256] = "";
            pcre2_get_error_message(error, text, sizeof text);
            status = error == PCRE2_ERROR_NOMEMORY || error == 121 /* no room to compile */
                         ? ddp_fail(DDP_ERR_MEMORY, "out of memory")
                         : ddp_fail(DDP_ERR_UNSUPPORTED, "%s: the regular expression %s: %s", name,
                                    pattern, (char *)text);
        } else {
            r->fast = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
        }
    }
    free(form.at);
    if (status != DDP_OK) {
        free(r);
        return status;
    }
    *regex = r;
    return DDP_OK;
}

void ddp_regex_destroy(ddp_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

enum ddp_status ddp_regex_memory_create(ddp_regex_memory **memory)
{
    struct ddp_regex_memory *m = calloc(1, sizeof *m);
    if (m) {
        m->data = pcre2_match_data_create(1, NULL);
        m->context = pcre2_match_context_create(NULL);
        m->stack =
            pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL); /* NULL: no machine code */
    }
    if (!m || !m->data || !m->context) {
        ddp_regex_memory_destroy(m);
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    }
    pcre2_set_match_limit(m->context, STEPS_MOST);
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    *memory = m;
    return DDP_OK;
}

void ddp_regex_memory_destroy(ddp_regex_memory *memory)
{
    if (!memory)
        return;
    pcre2_match_data_free(memory->data);
    pcre2_match_context_free(memory->context);
    pcre2_jit_stack_free(memory->stack);
    free(memory);
}

int ddp_regex_match(const ddp_regex *regex, ddp_regex_memory *memory, const char *subject,
                    size_t bytes, size_t at, size_t *begin, size_t *end)
{
    const size_t *found = pcre2_get_ovector_pointer(memory->data);
    while (at <= bytes) {
        int rc = PCRE2_ERROR_JIT_STACKLIMIT;
        if (regex->fast)
            rc = pcre2_jit_match(regex->code, (PCRE2_SPTR)subject, bytes, at, 0, memory->data,
                                 memory->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(regex->code, (PCRE2_SPTR)subject, bytes, at,
                             PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, memory->data, memory->context);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc < 0 || found[0] < at || found[1] < found[0])
            return -1;
        *begin = found[0];
        *end = found[1];
        if (*end > *begin)
            return 1;
        for (at = *end + 1; at < bytes && ((unsigned char)subject[at] & 0xc0) == 0x80;)
            at++;
    }
    return 0;
}
