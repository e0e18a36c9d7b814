/* SPDX-License-Identifier: MIT
 *
 * A line of JSON as training data for language models: {"text": "..."}, {"prompt": "...",
 * "completion": "..."} or {"messages": [{"role": "user", "content": "..."}, ...]}, and what others
 * call these: ShareGPT's {"conversations": [{"from": "human", "value": "..."}, ...]} and Alpaca's
 * {"instruction": "...", "input": "...", "output": "..."}, which are chats; or preferences. Other
 * members are left alone. */
#ifndef DDP_DATA_RECORD_H
#define DDP_DATA_RECORD_H

#include "core/json.h"
#include "data/columns.h"
#include "data/text/chat.h"

enum ddp_record_kind {
    DDP_RECORD_TEXT,
    DDP_RECORD_PROMPT,
    DDP_RECORD_CHAT,
    DDP_RECORD_PAIR, /* of a chosen and a rejected answer */
    DDP_RECORD_RATED /* an answer with a label */
};

/* What messages call the kind: "text", "prompt and completion", "messages", ... */
const char *ddp_record_kind_name(enum ddp_record_kind kind);

/* A prompt or an answer: text, or messages. */
struct ddp_said {
    const char *text; /* UTF-8, zeros included; NULL: messages */
    size_t bytes;
    struct ddp_chat_message *messages;
    size_t message_count;
};

struct ddp_record {
    enum ddp_record_kind kind;
    json_t *root;     /* which has all that follows */
    const char *text; /* or the prompt; UTF-8, zeros included */
    size_t text_bytes;
    const char *completion; /* of a prompt */
    size_t completion_bytes;
    struct ddp_chat_message *messages;
    size_t message_count; /* from 1, one of the assistant among them */
    /* Of preferences, or of a prompt and completion that are messages: then, as where it is rated,
     * there is one answer. */
    struct ddp_said prompt, answers[2];
    bool bad;      /* its label is false */
    json_t *tools; /* an array of what may be called; NULL: none */
};

/*   columns       whose names to look for; NULL: ours
 *   where         for messages: file and line
 *   record [out]  freed with ddp_record_free(), also after a failure
 * DDP_ERR_FORMAT: no JSON, or of another shape; DDP_ERR_MEMORY. */
enum ddp_status ddp_record_parse(struct ddp_record *record, const struct ddp_columns *columns,
                                 const char *line, size_t bytes, const char *where);
void ddp_record_free(struct ddp_record *record);

/* The same for lines of preferences, in TRL's forms:
 *   {"prompt": P, "chosen": A, "rejected": A}  a pair
 *   {"chosen": A, "rejected": A}               what both begin with is the prompt
 *   {"prompt": P, "completion": A, "label": true or false}
 * P and A are strings, or both arrays of messages, or a message. In LLaMA-Factory's forms the
 * prompt is "conversations", or "instruction" and "input" with strings for answers. */
enum ddp_status ddp_record_parse_preference(struct ddp_record *record,
                                            const struct ddp_columns *columns, const char *line,
                                            size_t bytes, const char *where);

/* For record.c and preference.c alone: a string, messages or one message; a line as an object. */
enum ddp_status ddp_record_said(struct ddp_said *said, const json_t *json, const char *name,
                                const char *where);
enum ddp_status ddp_record_read(struct ddp_record *record, const struct ddp_columns *columns,
                                const char *line, size_t bytes, const char *where);

/* Tools are for messages. DDP_ERR_FORMAT. */
enum ddp_status ddp_record_check_tools(const struct ddp_record *record, const char *where);

/* Alpaca's members of `root` as an array "messages" in it: "system", the "history", a question of
 * "instruction" and "input", and its answer.
 *   answer  the member with the answer; NULL: leave it out
 * DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_alpaca_messages(json_t *root, const char *answer, const char *where);

#endif
