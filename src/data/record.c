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

enum ddp_status ddp_record_message(struct ddp_chat_message *message, const json_t *json,
                                   size_t number, const char *where)
{
    const json_t *role = json_object_get(json, "role");
    const json_t *content = json_object_get(json, "content");
    if (!json_is_object(json) || !json_is_string(role))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: message %zu is not an object with a string \"role\", such as "
                        "{\"role\": \"user\", \"content\": \"Hello\"}",
                        where, number);
    if (json_object_get(json, "tool_calls"))
        return ddp_fail(DDP_ERR_FORMAT, "%s: message %zu has tool_calls, which are not supported",
                        where, number);
    if (!json_is_string(content))
        return ddp_fail(DDP_ERR_FORMAT, "%s: message %zu has no string \"content\"", where, number);
    *message = (struct ddp_chat_message){json_string_value(role), json_string_value(content),
                                         json_string_length(content)};
    return DDP_OK;
}

static enum ddp_status take_chat(struct ddp_record *record, const json_t *messages,
                                 const char *where)
{
    const size_t count = json_array_size(messages);
    bool answers = false;
    record->kind = DDP_RECORD_CHAT;
    if (count == 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"messages\" is not an array with messages in it",
                        where);
    record->messages = ddp_array_alloc(count, sizeof *record->messages);
    if (!record->messages)
        return DDP_ERR_MEMORY;
    record->message_count = count;
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        status =
            ddp_record_message(&record->messages[i], json_array_get(messages, i), i + 1, where);
        answers = answers || (status == DDP_OK && !strcmp(record->messages[i].role, "assistant"));
    }
    if (status == DDP_OK && !answers)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: no message of the assistant in this chat, so there is nothing to "
                          "learn: give it one, or leave the line out",
                          where);
    return status;
}

static enum ddp_status take_prompt(struct ddp_record *record, const json_t *prompt,
                                   const json_t *completion, const char *where)
{
    record->kind = DDP_RECORD_PROMPT;
    if (!json_is_string(prompt) || !json_is_string(completion))
        return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" is not a string", where,
                        json_is_string(prompt) ? "completion" : "prompt");
    record->text = json_string_value(prompt);
    record->text_bytes = json_string_length(prompt);
    record->completion = json_string_value(completion);
    record->completion_bytes = json_string_length(completion);
    return DDP_OK;
}

static enum ddp_status take(struct ddp_record *record, const char *where)
{
    const json_t *messages = json_object_get(record->root, "messages");
    const json_t *prompt = json_object_get(record->root, "prompt");
    const json_t *completion = json_object_get(record->root, "completion");
    const json_t *text = json_object_get(record->root, "text");
    if (messages)
        return take_chat(record, messages, where);
    if (completion)
        return take_prompt(record, prompt, completion, where);
    if (!text && json_object_get(record->root, "chosen"))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a chosen answer: preferences are learned with --objective dpo, ipo, "
                        "orpo, simpo or kto",
                        where);
    record->kind = DDP_RECORD_TEXT;
    record->text = json_string_value(text);
    record->text_bytes = json_string_length(text);
    return record->text ? DDP_OK
                        : ddp_fail(DDP_ERR_FORMAT,
                                   "%s: no text in it: each line must be an object with a string "
                                   "\"text\", strings \"prompt\" and \"completion\", or an array "
                                   "\"messages\"",
                                   where);
}

enum ddp_status ddp_record_read(struct ddp_record *record, const char *line, size_t bytes,
                                const char *where)
{
    json_error_t error;
    *record = (struct ddp_record){.root = NULL};
    const enum ddp_status status = ddp_json_parse_flags(
        &record->root, line, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if (status == DDP_ERR_FORMAT)
        return ddp_fail(status, "%s, column %d: %s: each line must be a JSON object of its own",
                        where, error.column, error.text);
    return status;
}

enum ddp_status ddp_record_parse(struct ddp_record *record, const char *line, size_t bytes,
                                 const char *where)
{
    const enum ddp_status status = ddp_record_read(record, line, bytes, where);
    return status == DDP_OK ? take(record, where) : status;
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
