/* SPDX-License-Identifier: MIT
 *
 * A line of JSON as training data for language models: {"text": "..."}, {"prompt": "...",
 * "completion": "..."} or {"messages": [{"role": "user", "content": "..."}, ...]}. Other members
 * are left alone. */
#ifndef DDP_DATA_RECORD_H
#define DDP_DATA_RECORD_H

#include "core/json.h"
#include "data/text/chat.h"

enum ddp_record_kind { DDP_RECORD_TEXT, DDP_RECORD_PROMPT, DDP_RECORD_CHAT };

/* What messages call the kind: "text", "prompt and completion", "messages". */
const char *ddp_record_kind_name(enum ddp_record_kind kind);

struct ddp_record {
    enum ddp_record_kind kind;
    json_t *root;     /* which has all that follows */
    const char *text; /* or the prompt; UTF-8, zeros included */
    size_t text_bytes;
    const char *completion; /* of a prompt */
    size_t completion_bytes;
    struct ddp_chat_message *messages;
    size_t message_count; /* from 1, one of the assistant among them */
};

/*   where         for messages: file and line
 *   record [out]  freed with ddp_record_free(), also after a failure
 * DDP_ERR_FORMAT: no JSON, or of another shape; DDP_ERR_MEMORY. */
enum ddp_status ddp_record_parse(struct ddp_record *record, const char *line, size_t bytes,
                                 const char *where);
void ddp_record_free(struct ddp_record *record);

#endif
