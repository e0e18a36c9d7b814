/* SPDX-License-Identifier: MIT
 *
 * See chat.h. Which part of a text a message wrote is known from the interpreter, which traces
 * strings; where a turn of the assistant begins, from what the template writes before an answer. */
#include "config.h"

#include "data/text/chat.h"

#include "core/input_file.h"
#include "core/memory.h"
#include "data/text/jinja.h"
#include "data/text/nfc.h"

#define FILE_MOST     ((uint64_t)16 << 20)
#define MESSAGES_MOST 30000

struct ddp_chat_template {
    char *name;
    ddp_jinja *jinja;
    const char *bos, *eos; /* the tokens' texts; NULL: none */
    bool says_itself;      /* what is learned, with {% generation %} */
    int32_t end;
};

/* --- templates with names --------------------------------------------------------------------- */

#define CHATML                                                                                     \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"   \
    "{% endfor %}" CHATML_PROMPT
#define CHATML_PROMPT "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
#define QWEN2_5                                                                                    \
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou are Qwen, created by "      \
    "Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}{% endif %}" CHATML
/* The turns after the last question of a user, not of a tool, keep what was thought. */
#define QWEN3(thinks)                                                                              \
    "{% set ns = namespace(query=messages | length - 1) %}{% for m in messages %}"                 \
    "{% if m.role == 'user' and not (m.content.startswith('<tool_response>') and "                 \
    "m.content.endswith('</tool_response>')) %}{% set ns.query = loop.index0 %}{% endif %}"        \
    "{% endfor %}{% for m in messages %}{% set content = m.content %}"                             \
    "{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% set thought = '' %}"    \
    "{% if '</think>' in content %}{% set thought = "                                              \
    "content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].strip('\\n') %}"              \
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"                   \
    "{% if " thinks " %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' }}"                        \
    "{% set content = content.lstrip('\\n') %}{% endif %}{% endif %}"                              \
    "{{ content + '<|im_end|>\\n' }}{% endfor %}" CHATML_PROMPT
#define LLAMA3_HEAD "'<|start_header_id|>' + role + '<|end_header_id|>\\n\\n'"
#define LLAMA3(first)                                                                              \
    "{% macro head(role) %}{{ " LLAMA3_HEAD " }}{% endmacro %}{{ '<|begin_of_text|>' }}" first     \
    "{% for m in messages %}{{ head(m.role) + m.content | trim + '<|eot_id|>' }}{% endfor %}"      \
    "{% if add_generation_prompt %}{{ head('assistant') }}{% endif %}"
/* 3.2 writes today's date, 3.1 this one, so that a text is the same every day. */
#define LLAMA3_DATES                                                                               \
    "{{ head('system') + 'Cutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n' " \
    "}}{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}"                      \
    "{% set messages = messages[1:] %}{% endif %}{{ '<|eot_id|>' }}"

static const struct named {
    const char *name, *text;
    const char *needs[3]; /* tokens */
} named[] = {
    {"chatml", CHATML, {"<|im_start|>", "<|im_end|>"}},
    {"qwen2.5", QWEN2_5, {"<|im_start|>", "<|im_end|>"}},
    {"qwen3",
     QWEN3("loop.index0 > ns.query and (loop.last or thought)"),
     {"<|im_start|>", "<|im_end|>"}},
    {"qwen3-training", QWEN3("true"), {"<|im_start|>", "<|im_end|>"}},
    {"llama3", LLAMA3(""), {"<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>"}},
    {"llama3.1", LLAMA3(LLAMA3_DATES), {"<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>"}},
};

/* All of them, and what else may stand there. */
#define NAMES "chatml, qwen2.5, qwen3, qwen3-training, llama3, llama3.1, or a file NAME.jinja"

bool ddp_chat_template_is_file(const char *name)
{
    const size_t bytes = strlen(name);
    return bytes > 6 && strcmp(name + bytes - 6, ".jinja") == 0;
}

/* --- choosing --------------------------------------------------------------------------------- */

static enum ddp_status parse_named(ddp_jinja **jinja, const ddp_tokenizer *tokenizer,
                                   const char *name)
{
    const struct named *found = NULL;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(named[i].name, name) == 0)
            found = &named[i];
    if (!found)
        return ddp_fail(DDP_ERR_INVALID, "--chat-template %s: chats need one of " NAMES, name);
    for (size_t i = 0; i < 3 && found->needs[i]; i++)
        if (ddp_tokenizer_find(tokenizer, found->needs[i], strlen(found->needs[i])) < 0)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: it has no token %s, which the chat template %s needs: choose "
                            "another with --chat-template (" NAMES ")",
                            ddp_tokenizer_path(tokenizer), found->needs[i], name);
    return ddp_jinja_parse(jinja, name, found->text, strlen(found->text));
}

static enum ddp_status parse_file(ddp_jinja **jinja, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "not a chat template", FILE_MOST, &text, &bytes);
    if (status == DDP_OK)
        status = ddp_jinja_parse(jinja, path, text, bytes);
    free(text);
    return status;
}

/* A user, the assistant, and the user again; templates that refuse the last one too. */
static enum ddp_status try_out(ddp_chat_template *chat, const ddp_tokenizer *tokenizer)
{
    static const struct ddp_chat_message turns[] = {
        {"user", "Q", 1, NULL}, {"assistant", "A", 1, NULL}, {"user", "Q", 1, NULL}};
    const struct ddp_chat probe = {.messages = turns, .count = 3};
    struct ddp_chat_text text = {0};
    struct ddp_tokens tokens = {0};
    size_t first[3];
    enum ddp_status status = ddp_chat_render(chat, chat->name, &probe, &text);
    const struct ddp_text_part part = {text.text.at, text.text.bytes, chat->name, 0};
    if (status == DDP_OK && (text.span_count == 0 || text.spans[0] == text.spans[1]))
        status = ddp_fail(DDP_ERR_INVALID,
                          "%s: the chat template does not write what the assistant says, as those "
                          "for images do not: choose another with --chat-template (" NAMES ")",
                          chat->name);
    if (status == DDP_OK)
        status = ddp_tokenizer_encode_marked(tokenizer, &part, 0, text.spans, 3, &tokens, first);
    for (size_t i = first[1]; status == DDP_OK && chat->end < 0 && i < tokens.count; i++)
        if (ddp_tokenizer_is_special(tokenizer, tokens.ids[i]))
            chat->end = tokens.ids[i];
    free(tokens.ids);
    free(text.text.at);
    free(text.spans);
    return status;
}

static const char *token_text(const ddp_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 ? ddp_tokenizer_token(tokenizer, id, NULL) : NULL;
}

enum ddp_status ddp_chat_template_choose(ddp_chat_template **chat, const ddp_tokenizer *tokenizer,
                                         const char *name)
{
    const char *file = NULL;
    const char *own = name ? NULL : ddp_tokenizer_chat_template(tokenizer, &file);
    if (!name && !own)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: there is no chat template beside it: choose one with --chat-template "
                        "(" NAMES ")",
                        ddp_tokenizer_path(tokenizer));
    ddp_chat_template *made = ddp_array_alloc(1, sizeof *made);
    if (!made)
        return DDP_ERR_MEMORY;
    made->end = -1;
    made->bos = token_text(tokenizer, ddp_tokenizer_bos(tokenizer));
    made->eos = token_text(tokenizer, ddp_tokenizer_eos(tokenizer));
    made->name = strdup(name ? name : file);
    enum ddp_status status = !made->name ? ddp_fail(DDP_ERR_MEMORY, "out of memory: a template")
                             : own       ? ddp_jinja_parse(&made->jinja, file, own, strlen(own))
                             : ddp_chat_template_is_file(name)
                                 ? parse_file(&made->jinja, name)
                                 : parse_named(&made->jinja, tokenizer, name);
    if (status == DDP_OK) {
        status = try_out(made, tokenizer);
        made->says_itself = ddp_jinja_has_generation(made->jinja);
    }
    if (status == DDP_OK)
        *chat = made;
    else
        ddp_chat_template_close(made);
    return status;
}

void ddp_chat_template_close(ddp_chat_template *chat)
{
    if (!chat)
        return;
    ddp_jinja_free(chat->jinja);
    free(chat->name);
    free(chat);
}

const char *ddp_chat_template_name(const ddp_chat_template *chat)
{
    return chat->name;
}

int32_t ddp_chat_template_end(const ddp_chat_template *chat)
{
    return chat->end;
}

/* --- data for the template -------------------------------------------------------------------- */

static bool is_role(const struct ddp_chat_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

static enum ddp_status check_messages(const char *where, const struct ddp_chat *chat)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    if (chat->count == 0 || chat->count > MESSAGES_MOST)
        return ddp_fail(DDP_ERR_FORMAT, "%s: the chat has %s", where,
                        chat->count == 0 ? "no messages" : "more than 30000 messages");
    for (size_t i = 0; i < chat->count; i++) {
        const struct ddp_chat_message *m = &chat->messages[i];
        bool known = false;
        for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
            known = known || is_role(m, roles[k]);
        if (!known)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: message %zu has the role \"%s\": roles are system, developer, "
                            "user, assistant and tool",
                            where, i + 1, m->role);
        const size_t bad = ddp_utf8_check(m->content, m->bytes);
        if (bad < m->bytes)
            return ddp_fail(DDP_ERR_FORMAT, "%s: message %zu: byte %zu (0x%02x) is not UTF-8",
                            where, i + 1, bad, (unsigned char)m->content[bad]);
    }
    return DDP_OK;
}

/* What a template never reads would be lost without a word. */
static enum ddp_status check_tools(const ddp_chat_template *template, const char *where,
                                   const struct ddp_chat *chat)
{
    bool calls = false;
    for (size_t i = 0; i < chat->count; i++)
        calls = calls || json_object_get(chat->messages[i].more, "tool_calls");
    const char *what = chat->tools && !ddp_jinja_mentions(template->jinja, "tools")  ? "tools"
                       : calls && !ddp_jinja_mentions(template->jinja, "tool_calls") ? "tool_calls"
                                                                                     : NULL;
    return what ? ddp_fail(DDP_ERR_FORMAT,
                           "%s: it has %s, which the chat template %s does not write: leave the "
                           "line out, or give another template with --chat-template",
                           where, what, template->name)
                : DDP_OK;
}

/* As transformers has it, what was thought has two names. */
static void add_thought(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *thought = json_object_get(message, names[i]);
        if (!thought || json_is_null(thought))
            continue;
        if (!json_object_get(message, "thinking"))
            (void)json_object_set(message, "thinking", thought);
        (void)json_object_set(message, "reasoning_content", thought);
        return;
    }
}

static json_t *message_json(const struct ddp_chat_message *m)
{
    json_t *message = json_object(), *value;
    const char *key;
    int failed = json_object_set_new(message, "role", json_string(m->role));
    failed |= json_object_set_new(message, "content", json_stringn(m->content, m->bytes));
    if (m->more) {
        json_object_foreach((json_t *)m->more, key, value) if (!json_object_get(message, key))
            failed |= json_object_set(message, key, value);
        add_thought(message);
    }
    if (!failed)
        return message;
    json_decref(message);
    return NULL;
}

/* The variables of a template. NULL: no memory.
 *   count  of the messages, from the first on */
static json_t *variables(const ddp_chat_template *template, const struct ddp_chat *chat,
                         size_t count, bool prompt)
{
    json_t *all = json_object(), *messages = json_array();
    int failed = !all || !messages;
    for (size_t i = 0; i < count; i++)
        failed |= json_array_append_new(messages, message_json(&chat->messages[i]));
    failed |= json_object_set_new(all, "messages", messages);
    failed |= chat->tools ? json_object_set(all, "tools", (json_t *)chat->tools)
                          : json_object_set_new(all, "tools", json_null());
    failed |= json_object_set_new(all, "add_generation_prompt", json_boolean(prompt));
    if (template->bos)
        failed |= json_object_set_new(all, "bos_token", json_string(template->bos));
    if (template->eos)
        failed |= json_object_set_new(all, "eos_token", json_string(template->eos));
    if (!failed)
        return all;
    json_decref(all);
    return NULL;
}

static enum ddp_status run(const ddp_chat_template *template, const char *where,
                           const struct ddp_chat *chat, size_t count, bool prompt,
                           struct ddp_jinja_text *out)
{
    json_t *data = variables(template, chat, count, prompt);
    if (!data)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: a chat");
    const enum ddp_status status = ddp_jinja_render(template->jinja, where, data, "messages", out);
    json_decref(data);
    return status;
}

/* --- what is learned -------------------------------------------------------------------------- */

static int owner_at(const struct ddp_jinja_text *text, size_t at)
{
    return text->owners[at] & DDP_JINJA_OWNER_MASK;
}

/* Behind the last byte of any message before `end`. */
static size_t owned_end(const struct ddp_jinja_text *text, size_t end)
{
    while (end > 0 && owner_at(text, end - 1) == 0)
        end--;
    return end;
}

static enum ddp_status add_span(struct ddp_chat_text *out, size_t begin, size_t end, size_t limit)
{
    const size_t span[] = {begin, end, limit};
    size_t count = 3 * out->span_count;
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; i < 3 && status == DDP_OK; i++)
        status = ddp_array_append(&out->spans, &count, &span[i], sizeof span[i]);
    out->span_count += status == DDP_OK;
    return status;
}

static enum ddp_status add_generated(const struct ddp_jinja_text *text, struct ddp_chat_text *out)
{
    enum ddp_status status = DDP_OK;
    for (size_t at = 0, begin; at < text->bytes && status == DDP_OK;) {
        for (begin = at; at < text->bytes && text->owners[at] & DDP_JINJA_GENERATED;)
            at++;
        if (at > begin)
            status = add_span(out, begin, at, at);
        else
            at++;
    }
    return status;
}

/* Behind what a template writes before an answer, where the text has it: at `from`, or last before
 * `end`. A part of it may be there: a prompt may begin a thought that the answer does not have. */
static size_t behind(const struct ddp_jinja_text *text, size_t from, size_t end, const char *what,
                     size_t bytes)
{
    size_t same = 0, at = end;
    while (same < bytes && from + same < end && text->at[from + same] == what[same])
        same++;
    for (; same < bytes && bytes <= end - from && at >= from + bytes; at--)
        if (memcmp(text->at + at - bytes, what, bytes) == 0)
            return at;
    for (at = same; same < bytes && at > 0 && what[at - 1] != '>'; at--)
        if (what[at - 1] == '<')
            return from + at - 1; /* two tags that begin alike */
    return from + same;
}

/* Where the turn of a message begins: behind what the template writes between the messages before
 * it and an answer. The template is asked for each turn: bytes that no message owns are those of a
 * turn or of the prompt for it by its statements alone, which may look at any message before it.
 *   from            behind the last byte of these
 *   begin [in,out]  of its own bytes, or where those of others begin */
static enum ddp_status find_begin(const ddp_chat_template *template, const struct ddp_chat *chat,
                                  size_t index, const struct ddp_jinja_text *text, size_t from,
                                  size_t *begin)
{
    char said[512] = "";
    struct ddp_jinja_text asked = {0};
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    const enum ddp_status status = run(template, "chat", chat, index, true, &asked);
    ddp_log_exchange(before);
    if (status == DDP_OK) {
        const size_t last = owned_end(&asked, asked.bytes);
        *begin = behind(text, from, *begin, asked.at + last, asked.bytes - last);
    }
    free(asked.at);
    free(asked.owners);
    /* A template that refuses to be asked there: what is the message's own is learned. */
    return status == DDP_ERR_MEMORY ? status : DDP_OK;
}

static enum ddp_status add_turns(const ddp_chat_template *template, const char *where,
                                 const struct ddp_chat *chat, const struct ddp_jinja_text *text,
                                 struct ddp_chat_text *out)
{
    enum ddp_status status = DDP_OK;
    size_t done = 0; /* behind the messages so far */
    for (size_t i = 0; i < chat->count && status == DDP_OK; i++) {
        const int owner = (int)i + 1;
        size_t first = text->bytes, end = 0, limit = text->bytes;
        for (size_t at = done; at < text->bytes; at++)
            if (owner_at(text, at) == owner) {
                first = at < first ? at : first;
                end = at + 1;
            } else if (owner_at(text, at) > owner) {
                limit = at; /* where that of another begins */
                break;
            }
        const bool has = end > 0;
        if (is_role(&chat->messages[i], "assistant")) {
            size_t begin = has ? first : limit;
            status = find_begin(template, chat, i, text, owned_end(text, begin), &begin);
            end = has ? end : begin;
            for (limit = end; limit < text->bytes && owner_at(text, limit) == 0;)
                limit++;
            if (out->span_count > 0 && out->spans[3 * out->span_count - 1] > begin)
                out->spans[3 * out->span_count - 1] = begin;
            if (out->span_count > 0 && out->spans[3 * out->span_count - 2] > begin)
                status = ddp_fail(DDP_ERR_FORMAT,
                                  "%s: the chat template %s writes the turns of the assistant in "
                                  "another order, so what is to be learned is not known",
                                  where, template->name);
            if (status == DDP_OK)
                status = add_span(out, begin, end, limit);
        }
        done = has ? end : done;
    }
    return status;
}

enum ddp_status ddp_chat_render(const ddp_chat_template *template, const char *where,
                                const struct ddp_chat *chat, struct ddp_chat_text *out)
{
    struct ddp_jinja_text text = {0};
    enum ddp_status status = check_messages(where, chat);
    if (status == DDP_OK)
        status = check_tools(template, where, chat);
    if (status == DDP_OK)
        status = run(template, where, chat, chat->count, chat->generation_prompt, &text);
    out->text.bytes = out->span_count = 0;
    if (status == DDP_OK)
        status = ddp_buffer_append(&out->text, text.at, text.bytes);
    if (status == DDP_OK)
        status = template->says_itself ? add_generated(&text, out)
                                       : add_turns(template, where, chat, &text, out);
    free(text.at);
    free(text.owners);
    return status;
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* Behind a turn whose tokens end before ids[from]: its end, the template's if it is there, else the
 * first special token before ids[limit], is the turn's too. */
static size_t turn_end(const ddp_chat_template *template, const ddp_tokenizer *tokenizer,
                       const int32_t *ids, size_t from, size_t limit)
{
    for (size_t i = from; i < limit; i++)
        if (ids[i] == template->end)
            return i + 1;
    for (size_t i = from; i < limit; i++)
        if (ddp_tokenizer_is_special(tokenizer, ids[i]))
            return i + 1;
    return from;
}

enum ddp_status ddp_chat_encode(const ddp_chat_template *template, const ddp_tokenizer *tokenizer,
                                const char *where, const struct ddp_chat *chat,
                                struct ddp_tokens *tokens, struct ddp_buffer *trained)
{
    struct ddp_chat_text text = {0};
    size_t *first = NULL;
    const size_t before = tokens->count;
    enum ddp_status status = ddp_chat_render(template, where, chat, &text);
    if (status == DDP_OK) {
        const struct ddp_text_part part = {text.text.at, text.text.bytes, where, 0};
        first = ddp_array_alloc(3 * text.span_count + 1, sizeof *first);
        status = first ? ddp_tokenizer_encode_marked(tokenizer, &part, 0, text.spans,
                                                     3 * text.span_count, tokens, first)
                       : DDP_ERR_MEMORY;
    }
    if (status == DDP_OK)
        status = ddp_buffer_reserve(trained, tokens->count - trained->bytes);
    if (status == DDP_OK) {
        memset(trained->at + trained->bytes, 0, tokens->count - trained->bytes);
        trained->bytes = tokens->count;
        for (size_t i = 0; i < text.span_count; i++) {
            const size_t *at = &first[3 * i];
            const size_t end = template->says_itself
                                   ? at[1]
                                   : turn_end(template, tokenizer, tokens->ids, at[1], at[2]);
            memset(trained->at + at[0], 1, end > at[0] ? end - at[0] : 0);
        }
    } else {
        tokens->count = before;
    }
    free(first);
    free(text.text.at);
    free(text.spans);
    return status;
}
