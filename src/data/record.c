/* SPDX-License-Identifier: MIT
 *
 * See record.h. */
#include "config.h"

#include "data/record.h"

#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

const char *ddp_record_kind_name(enum ddp_record_kind kind)
{
    static const char *const names[] = {"text", "prompt and completion", "messages",
                                        "chosen and rejected", "completion and label"};
    return names[kind];
}

/* What we call those whom ShareGPT has. */
static const char *role_of(const char *from)
{
    return strcmp(from, "human") == 0           ? "user"
           : strcmp(from, "gpt") == 0           ? "assistant"
           : strcmp(from, "function_call") == 0 ? "assistant"
           : strcmp(from, "observation") == 0   ? "tool"
                                                : from;
}

/* ShareGPT's call of a function, JSON text of {"name", "arguments"} or of a list of them, becomes
 * the tool_calls of its message. */
static enum ddp_status take_call(const json_t *message, const json_t *value, size_t number,
                                 const char *where)
{
    json_t *calls = NULL, *all = json_array();
    json_error_t error;
    bool good = json_is_string(value);
    if (good && ddp_json_parse_flags(&calls, json_string_value(value), json_string_length(value), 0,
                                     &error) == DDP_ERR_MEMORY)
        all = NULL;
    const bool alone = json_is_object(calls);
    const size_t count = alone ? 1 : json_array_size(calls);
    int failed = !all;
    for (size_t i = 0; good && i < count; i++) {
        json_t *call = alone ? calls : json_array_get(calls, i);
        good = json_is_string(json_object_get(call, "name")) && json_object_get(call, "arguments");
        failed |= json_array_append_new(
            all, json_pack("{s:s, s:O}", "type", "function", "function", call));
    }
    failed |= json_object_set_new((json_t *)(uintptr_t)message, "tool_calls", all);
    json_decref(calls);
    if (failed)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: %s", where);
    return good && count > 0
               ? DDP_OK
               : ddp_fail(DDP_ERR_FORMAT,
                          "%s: message %zu is a function_call, whose value must be JSON text such "
                          "as {\"name\": \"add\", \"arguments\": {\"a\": 2}}, or a list of them",
                          where, number);
}

static enum ddp_status take_message(struct ddp_chat_message *message, const json_t *json,
                                    size_t number, const char *where)
{
    const json_t *said_by = json_object_get(json, "from"); /* ShareGPT's */
    const json_t *role = said_by ? said_by : json_object_get(json, "role");
    const char *content_name = said_by ? "value" : "content";
    const json_t *content = json_object_get(json, content_name);
    if (!json_is_object(json) || !json_is_string(role))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: message %zu is not an object with a string \"role\", such as "
                        "{\"role\": \"user\", \"content\": \"Hello\"}",
                        where, number);
    const char *name = json_string_value(role);
    const bool call = said_by && strcmp(name, "function_call") == 0;
    if (call) {
        const enum ddp_status status = take_call(json, content, number, where);
        if (status != DDP_OK)
            return status;
        content = NULL;
    }
    /* A call of a tool may say nothing. */
    const bool silent = json_array_size(json_object_get(json, "tool_calls")) > 0 &&
                        (!content || json_is_null(content));
    if (!json_is_string(content) && !silent)
        return ddp_fail(DDP_ERR_FORMAT, "%s: message %zu has no string \"%s\"", where, number,
                        content_name);
    *message = (struct ddp_chat_message){
        said_by ? role_of(name) : name, silent ? "" : json_string_value(content),
        json_string_length(content), said_by && !call ? NULL : json};
    return DDP_OK;
}

enum ddp_status ddp_record_said(struct ddp_said *said, const json_t *json, const char *name,
                                const char *where)
{
    const bool alone = json_is_object(json); /* a message without an array, as LLaMA-Factory has */
    enum ddp_status status = DDP_OK;
    if (json_is_string(json)) {
        *said =
            (struct ddp_said){.text = json_string_value(json), .bytes = json_string_length(json)};
        return DDP_OK;
    }
    if (!json_is_array(json) && !alone)
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" is neither a string nor an array of messages",
                        where, name);
    const size_t count = alone ? 1 : json_array_size(json);
    said->messages = ddp_array_alloc(count + 1, sizeof *said->messages);
    if (!said->messages)
        return DDP_ERR_MEMORY;
    said->message_count = count;
    for (size_t i = 0; status == DDP_OK && i < count; i++)
        status =
            take_message(&said->messages[i], alone ? json : json_array_get(json, i), i + 1, where);
    return status;
}

static enum ddp_status take_chat(struct ddp_record *record, const json_t *messages,
                                 const char *name, const char *where)
{
    struct ddp_said said = {0};
    bool answers = false;
    record->kind = DDP_RECORD_CHAT;
    if (json_array_size(messages) == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" is not an array with messages in it", where,
                        name);
    const enum ddp_status status = ddp_record_said(&said, messages, name, where);
    record->messages = said.messages;
    record->message_count = said.message_count;
    for (size_t i = 0; status == DDP_OK && i < said.message_count; i++)
        answers = answers || strcmp(said.messages[i].role, "assistant") == 0;
    if (status == DDP_OK && !answers)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: no message of the assistant in this chat, so there is nothing to "
                        "learn: give it one, or leave the line out",
                        where);
    return status;
}

/* Texts, or TRL's messages. */
static enum ddp_status take_prompt(struct ddp_record *record, const json_t *prompt,
                                   const json_t *completion, const char *where)
{
    record->kind = DDP_RECORD_PROMPT;
    if (json_is_array(prompt) && json_is_array(completion)) {
        enum ddp_status status = ddp_record_said(&record->prompt, prompt, "prompt", where);
        if (status == DDP_OK)
            status = ddp_record_said(&record->answers[0], completion, "completion", where);
        if (status == DDP_OK && (json_array_size(prompt) == 0 || json_array_size(completion) == 0))
            status = ddp_fail(DDP_ERR_FORMAT,
                              "%s: \"prompt\" and \"completion\" need a message each", where);
        return status;
    }
    if (!json_is_string(prompt) || !json_is_string(completion))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: \"%s\" is not a string: prompt and completion must both be strings, "
                        "or both arrays of messages",
                        where, json_is_string(prompt) ? "completion" : "prompt");
    record->text = json_string_value(prompt);
    record->text_bytes = json_string_length(prompt);
    record->completion = json_string_value(completion);
    record->completion_bytes = json_string_length(completion);
    return DDP_OK;
}

/* What a tool can do: a list, or the JSON text of one. */
static enum ddp_status take_tools(struct ddp_record *record, const char *where)
{
    json_t *tools = json_object_get(record->root, "tools"), *parsed = NULL;
    json_error_t error;
    if (json_string_length(tools) > 0) {
        const enum ddp_status status = ddp_json_parse_flags(
            &parsed, json_string_value(tools), json_string_length(tools), JSON_ALLOW_NUL, &error);
        if (status == DDP_ERR_MEMORY ||
            (parsed && json_object_set_new(record->root, "tools", parsed)))
            return DDP_ERR_MEMORY;
        tools = parsed ? parsed : tools;
    } else if (json_is_string(tools) || json_is_null(tools)) {
        return DDP_OK;
    }
    if (tools && !json_is_array(tools))
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"tools\" is not a list of tools, or JSON text of one",
                        where);
    record->tools = json_array_size(tools) > 0 ? tools : NULL;
    return DDP_OK;
}

enum ddp_status ddp_record_check_tools(const struct ddp_record *record, const char *where)
{
    if (!record->tools || record->messages || record->answers[0].messages)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: it has tools, which are for messages alone: a chat template writes them",
                    where);
}

static enum ddp_status take(struct ddp_record *record, const char *where)
{
    json_t *root = record->root;
    const json_t *messages = json_object_get(root, "messages");
    const json_t *conversations = json_object_get(root, "conversations");
    const json_t *completion = json_object_get(root, "completion");
    const json_t *text = json_object_get(root, "text");
    char found[256];
    if (messages)
        return take_chat(record, messages, "messages", where);
    if (conversations && !json_object_get(root, "chosen"))
        return take_chat(record, conversations, "conversations", where);
    if (completion)
        return take_prompt(record, json_object_get(root, "prompt"), completion, where);
    if (json_object_get(root, "instruction") && json_object_get(root, "output")) {
        const enum ddp_status status = ddp_alpaca_messages(root, "output", where);
        return status == DDP_OK
                   ? take_chat(record, json_object_get(root, "messages"), "messages", where)
                   : status;
    }
    if (!text && json_object_get(root, "chosen"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a chosen answer: preferences are learned with --objective dpo, ipo, "
                        "orpo, simpo or kto",
                        where);
    if (!text && json_object_get(root, "choices"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a question with choices: those are evaluated, with --val, and --data "
                        "names what is trained",
                        where);
    record->kind = DDP_RECORD_TEXT;
    record->text = json_string_value(text);
    record->text_bytes = json_string_length(text);
    if (record->text)
        return DDP_OK;
    return ddp_fail(DDP_ERR_FORMAT,
                    "%s: no text in it: each line must be an object with a string \"text\", "
                    "strings \"prompt\" and \"completion\", or \"instruction\" and \"output\", or "
                    "an array \"messages\" or \"conversations\"; this one has %s: name yours with "
                    "--columns prompt=NAME,completion=NAME",
                    where, ddp_columns_found(root, found, sizeof found));
}

enum ddp_status ddp_record_read(struct ddp_record *record, const struct ddp_columns *columns,
                                const char *line, size_t bytes, const char *where)
{
    json_error_t error;
    *record = (struct ddp_record){.root = NULL};
    enum ddp_status status =
        ddp_json_parse_flags(&record->root, line, bytes, JSON_ALLOW_NUL, &error);
    if (status == DDP_ERR_FORMAT) /* integers beyond 64 bits are no fault */
        status = ddp_json_parse_flags(&record->root, line, bytes,
                                      JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if ((status == DDP_ERR_FORMAT && bytes > 0 && *line == '[') || json_is_array(record->root))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a JSON array, and each line must be a JSON object of its own: "
                        "convert the file with  jq -c '.[]' FILE.json >FILE.jsonl",
                        where);
    if (status == DDP_ERR_FORMAT)
        return ddp_fail(status, "%s, column %d: %s: each line must be a JSON object of its own",
                        where, error.column, error.text);
    if (status == DDP_OK)
        status = ddp_columns_apply(columns, &record->root, where);
    return status == DDP_OK ? take_tools(record, where) : status;
}

enum ddp_status ddp_record_parse(struct ddp_record *record, const struct ddp_columns *columns,
                                 const char *line, size_t bytes, const char *where)
{
    enum ddp_status status = ddp_record_read(record, columns, line, bytes, where);
    if (status == DDP_OK)
        status = take(record, where);
    return status == DDP_OK ? ddp_record_check_tools(record, where) : status;
}

void ddp_record_free(struct ddp_record *record)
{
    json_decref(record->root);
    free(record->messages);
    free(record->prompt.messages);
    free(record->answers[0].messages);
    free(record->answers[1].messages);
    *record = (struct ddp_record){.root = NULL};
}
