/* SPDX-License-Identifier: MIT
 *
 * See chat.h. A template is a row of strings and a few habits; one renderer serves all. */
#include "config.h"

#include "data/text/chat.h"

#include "core/hash.h"
#include "core/memory.h"
#include "data/text/nfc.h"

#include <inttypes.h>

enum system_habit {
    SYSTEM_PLAIN, /* a turn like any other */
    SYSTEM_QWEN,  /* one that says who Qwen is, where there is none */
    SYSTEM_DATES, /* always there, and begins with two dates */
};

enum think_habit {
    THINK_NEVER,
    THINK_LAST, /* a think block in the turn that ends the chat, cut out of those before */
    THINK_ALL,
};

struct ddp_chat_template {
    const char *name;
    const char *begin;          /* of the chat */
    const char *before, *after; /* the role */
    const char *end;            /* the token that ends a turn */
    const char *between;        /* what follows it */
    bool trims;                 /* content loses white space at both ends */
    enum system_habit system;
    enum think_habit think;
    uint64_t hashes[6]; /* of Jinja texts that do the same, without white space at their ends */
};

#define CHATML                                                                                     \
    .begin = "", .before = "<|im_start|>", .after = "\n", .end = "<|im_end|>", .between = "\n"
#define LLAMA3                                                                                     \
    .begin = "<|begin_of_text|>", .before = "<|start_header_id|>",                                 \
    .after = "<|end_header_id|>\n\n", .end = "<|eot_id|>", .between = "", .trims = true

/* Llama 3.2's own template writes today's date. Here it is that of 3.1, so that a text is the same
 * every day. */
static const struct ddp_chat_template templates[] = {
    {.name = "chatml",
     CHATML,
     .hashes = {UINT64_C(0x35340185f0dae31d), UINT64_C(0x8b6ece26e577de75),
                UINT64_C(0x2995bc6a01e50ada)}},
    {.name = "qwen2.5",
     CHATML,
     .system = SYSTEM_QWEN,
     .hashes = {UINT64_C(0xef16e70e069ee323), UINT64_C(0x882142ed35a116f2)}},
    {.name = "qwen3", CHATML, .think = THINK_LAST, .hashes = {UINT64_C(0x764b853499a39ae1)}},
    {.name = "qwen3-training",
     CHATML,
     .think = THINK_ALL,
     .hashes = {UINT64_C(0x6010ab0d438ee330)}},
    {.name = "llama3",
     LLAMA3,
     .hashes = {UINT64_C(0x32883ca4aac15a7d), UINT64_C(0x1c25428641664cb1)}},
    {.name = "llama3.1",
     LLAMA3,
     .system = SYSTEM_DATES,
     .hashes = {UINT64_C(0xbe7064f69c6922c0), UINT64_C(0xf6360faa7851049d)}},
};
#define TEMPLATES (sizeof templates / sizeof *templates)

const ddp_chat_template *ddp_chat_template_find(const char *name)
{
    for (size_t i = 0; i < TEMPLATES; i++)
        if (strcmp(templates[i].name, name) == 0)
            return &templates[i];
    return NULL;
}

const char *ddp_chat_template_name(const ddp_chat_template *chat)
{
    return chat->name;
}

/* All of them, "chatml, qwen2.5, ...". */
static const char *template_names(void)
{
    return "chatml, qwen2.5, qwen3, qwen3-training, llama3, llama3.1";
}

/* --- white space ------------------------------------------------------------------------------ */

/* What Python strips, and with it Jinja's trim. */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

static bool is_newline(uint32_t c)
{
    return c == '\n';
}

struct part {
    const char *at;
    size_t bytes;
};

static struct part strip(struct part part, bool (*drops)(uint32_t), bool left, bool right)
{
    size_t length;
    while (left && part.bytes > 0 && drops(ddp_utf8_decode(part.at, &length))) {
        part.at += length;
        part.bytes -= length;
    }
    while (right && part.bytes > 0) {
        size_t last = part.bytes - 1;
        while (last > 0 && ((unsigned char)part.at[last] & 0xc0) == 0x80)
            last--;
        if (!drops(ddp_utf8_decode(part.at + last, &length)))
            break;
        part.bytes = last;
    }
    return part;
}

/* --- choosing --------------------------------------------------------------------------------- */

static const struct ddp_chat_template *recognise(const char *text, uint64_t *hash)
{
    const struct part all = {text, strlen(text)};
    const struct part stripped =
        ddp_utf8_check(text, all.bytes) == all.bytes ? strip(all, is_space, true, true) : all;
    *hash = ddp_hash(stripped.at, stripped.bytes);
    for (size_t i = 0; i < TEMPLATES; i++)
        for (size_t k = 0; k < sizeof templates->hashes / sizeof *templates->hashes; k++)
            if (templates[i].hashes[k] == *hash)
                return &templates[i];
    return NULL;
}

static enum ddp_status choose_own(const ddp_chat_template **chat, const ddp_tokenizer *tokenizer)
{
    const char *file = NULL;
    const char *text = ddp_tokenizer_chat_template(tokenizer, &file);
    uint64_t hash = 0;
    if (!text)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: there is no chat template beside it: choose one with --chat-template "
                        "(%s)",
                        ddp_tokenizer_path(tokenizer), template_names());
    *chat = recognise(text, &hash);
    if (!*chat)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: its chat template (hash %016" PRIx64 ") is not a known one: choose "
                        "the one it resembles with --chat-template (%s)",
                        file, hash, template_names());
    return DDP_OK;
}

enum ddp_status ddp_chat_template_choose(const ddp_chat_template **chat,
                                         const ddp_tokenizer *tokenizer, const char *name)
{
    enum ddp_status status = DDP_OK;
    const ddp_chat_template *found = NULL;
    if (name && !(found = ddp_chat_template_find(name)))
        return ddp_fail(DDP_ERR_INVALID, "--chat-template %s: chats need one of %s", name,
                        template_names());
    if (!name)
        status = choose_own(&found, tokenizer);
    if (status != DDP_OK)
        return status;
    const char *header_end = strchr(found->after, '>');
    const struct part needed[] = {
        {found->begin, strlen(found->begin)},
        {found->before, strlen(found->before)},
        {found->after, header_end ? (size_t)(header_end + 1 - found->after) : 0},
        {found->end, strlen(found->end)},
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i].bytes > 0 && ddp_tokenizer_find(tokenizer, needed[i].at, needed[i].bytes) < 0)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: it has no token %.*s, which the chat template %s needs: choose "
                            "another with --chat-template (%s)",
                            ddp_tokenizer_path(tokenizer), (int)needed[i].bytes, needed[i].at,
                            found->name, template_names());
    *chat = found;
    return DDP_OK;
}

int32_t ddp_chat_template_end(const ddp_chat_template *chat, const ddp_tokenizer *tokenizer)
{
    return ddp_tokenizer_find(tokenizer, chat->end, strlen(chat->end));
}

/* --- rendering -------------------------------------------------------------------------------- */

struct render {
    const struct ddp_chat_template *chat;
    struct ddp_chat_text *out;
    enum ddp_status status; /* the first failure; what comes after it is left out */
};

static void put(struct render *r, const char *text, size_t bytes)
{
    if (r->status == DDP_OK)
        r->status = ddp_buffer_append(&r->out->text, text, bytes);
}

static void put_string(struct render *r, const char *text)
{
    put(r, text, strlen(text));
}

static void put_mark(struct render *r)
{
    struct ddp_chat_text *out = r->out;
    if (r->status == DDP_OK)
        r->status = ddp_array_append(&out->spans, &out->span_count, &out->text.bytes,
                                     sizeof out->text.bytes);
}

static void put_header(struct render *r, const char *role)
{
    put_string(r, r->chat->before);
    put_string(r, role);
    put_string(r, r->chat->after);
}

static void put_end(struct render *r)
{
    put_string(r, r->chat->end);
}

static void put_content(struct render *r, struct part content)
{
    if (r->chat->trims)
        content = strip(content, is_space, true, true);
    put(r, content.at, content.bytes);
}

static bool is_role(const struct ddp_chat_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

/* The first or the last place of a text; NULL: none. */
static const char *place_of(struct part text, const char *what, bool last)
{
    const size_t bytes = strlen(what);
    const char *found = memmem(text.at, text.bytes, what, bytes);
    for (const char *next = found; last && next;) {
        found = next;
        next += bytes;
        next = memmem(next, text.bytes - (size_t)(next - text.at), what, bytes);
    }
    return found;
}

/* Takes a think block off a content: what stands in it, and what follows it. */
static struct part take_thought(struct part *content)
{
    static const char open[] = "<think>", close[] = "</think>";
    struct part thought = {content->at, 0};
    const char *end = place_of(*content, close, false), *stop = content->at + content->bytes;
    if (!end)
        return thought;
    thought =
        strip((struct part){content->at, (size_t)(end - content->at)}, is_newline, false, true);
    const char *begin = place_of(thought, open, true);
    if (begin) {
        begin += strlen(open);
        thought = (struct part){begin, (size_t)(thought.at + thought.bytes - begin)};
    }
    end = place_of(*content, close, true) + strlen(close);
    *content = strip((struct part){end, (size_t)(stop - end)}, is_newline, true, false);
    return strip(thought, is_newline, true, true);
}

/* The message that the last turns answer: that of a user, not of a tool. */
static size_t last_query(const struct ddp_chat_message *messages, size_t count)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    for (size_t i = count; i-- > 0;) {
        const struct ddp_chat_message *m = &messages[i];
        const bool tool = m->bytes >= strlen(close) &&
                          memcmp(m->content, open, strlen(open)) == 0 &&
                          memcmp(m->content + m->bytes - strlen(close), close, strlen(close)) == 0;
        if (is_role(m, "user") && !tool)
            return i;
    }
    return count - 1;
}

static void put_assistant(struct render *r, const struct ddp_chat_message *messages, size_t count,
                          size_t index)
{
    struct part content = {messages[index].content, messages[index].bytes};
    put_header(r, messages[index].role);
    put_mark(r);
    if (r->chat->think != THINK_NEVER) {
        const struct part thought = take_thought(&content);
        const bool answers = index > last_query(messages, count);
        if (r->chat->think == THINK_ALL || (answers && (index == count - 1 || thought.bytes > 0))) {
            put_string(r, "<think>\n");
            put(r, thought.at, thought.bytes);
            put_string(r, "\n</think>\n\n");
            content = strip(content, is_newline, true, false);
        }
    }
    put_content(r, content);
    put_end(r);
    put_mark(r);
    put_string(r, r->chat->between);
}

/* What stands before the first message; the system's, if it is in here, is done with. Returns how
 * many messages are. */
static size_t put_beginning(struct render *r, const struct ddp_chat_message *messages)
{
    const bool system = is_role(&messages[0], "system");
    put_string(r, r->chat->begin);
    if (r->chat->system == SYSTEM_QWEN && !system) {
        put_header(r, "system");
        put_string(r, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
        put_end(r);
        put_string(r, r->chat->between);
    }
    if (r->chat->system != SYSTEM_DATES)
        return 0;
    put_header(r, "system");
    put_string(r, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n");
    if (system)
        put_content(r, (struct part){messages[0].content, messages[0].bytes});
    put_end(r);
    put_string(r, r->chat->between);
    return system;
}

static enum ddp_status check_messages(const char *where, const struct ddp_chat_message *messages,
                                      size_t count)
{
    if (count == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the chat has no messages", where);
    for (size_t i = 0; i < count; i++) {
        const struct ddp_chat_message *m = &messages[i];
        if (!is_role(m, "system") && !is_role(m, "user") && !is_role(m, "assistant"))
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: message %zu has the role \"%s\": roles are system, user and "
                            "assistant",
                            where, i + 1, m->role);
        const size_t bad = ddp_utf8_check(m->content, m->bytes);
        if (bad < m->bytes)
            return ddp_fail(DDP_ERR_FORMAT, "%s: message %zu: byte %zu (0x%02x) is not UTF-8",
                            where, i + 1, bad, (unsigned char)m->content[bad]);
    }
    return DDP_OK;
}

enum ddp_status ddp_chat_render(const ddp_chat_template *chat, const char *where,
                                const struct ddp_chat_message *messages, size_t count,
                                bool generation_prompt, struct ddp_chat_text *out)
{
    struct render r = {chat, out, check_messages(where, messages, count)};
    if (r.status != DDP_OK)
        return r.status;
    out->text.bytes = out->span_count = 0;
    for (size_t i = put_beginning(&r, messages); i < count; i++) {
        if (is_role(&messages[i], "assistant")) {
            put_assistant(&r, messages, count, i);
            continue;
        }
        put_header(&r, messages[i].role);
        put_content(&r, (struct part){messages[i].content, messages[i].bytes});
        put_end(&r);
        put_string(&r, chat->between);
    }
    if (generation_prompt)
        put_header(&r, "assistant");
    out->span_count /= 2;
    return r.status;
}

/* --- tokens ----------------------------------------------------------------------------------- */

/*   first  token of each span's begin and end
 *   count  of all tokens */
static enum ddp_status mark_trained(const struct ddp_chat_text *text, const size_t *first,
                                    size_t count, struct ddp_buffer *trained)
{
    enum ddp_status status = ddp_buffer_reserve(trained, count - trained->bytes);
    if (status != DDP_OK)
        return status;
    memset(trained->at + trained->bytes, 0, count - trained->bytes);
    for (size_t i = 0; i < text->span_count; i++)
        memset(trained->at + first[2 * i], 1, first[2 * i + 1] - first[2 * i]);
    trained->bytes = count;
    return DDP_OK;
}

enum ddp_status ddp_chat_encode(const ddp_chat_template *chat, const ddp_tokenizer *tokenizer,
                                const char *where, const struct ddp_chat_message *messages,
                                size_t count, bool generation_prompt, struct ddp_tokens *tokens,
                                struct ddp_buffer *trained)
{
    struct ddp_chat_text text = {0};
    size_t *first = NULL;
    const size_t before = tokens->count;
    enum ddp_status status =
        ddp_chat_render(chat, where, messages, count, generation_prompt, &text);
    if (status == DDP_OK) {
        const struct ddp_text_part part = {text.text.at, text.text.bytes, where, 0};
        first = ddp_array_alloc(2 * text.span_count + 1, sizeof *first);
        status = first ? ddp_tokenizer_encode_marked(tokenizer, &part, 0, text.spans,
                                                     2 * text.span_count, tokens, first)
                       : DDP_ERR_MEMORY;
    }
    if (status == DDP_OK)
        status = mark_trained(&text, first, tokens->count, trained);
    if (status != DDP_OK)
        tokens->count = before;
    free(first);
    free(text.text.at);
    free(text.spans);
    return status;
}
