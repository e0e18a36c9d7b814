/* SPDX-License-Identifier: MIT
 *
 * Chat templates: messages to the text that a model was trained on, to its tokens, and which of
 * these are to be learned. A template is a program (jinja.h): the model's own, one in a file, or
 * one of a few that have names here. */
#ifndef DDP_DATA_TEXT_CHAT_H
#define DDP_DATA_TEXT_CHAT_H

#include "core/json.h"
#include "data/text/buffer.h"
#include "data/text/tokenizer.h"

struct ddp_chat_message {
    const char *role;    /* system, developer, user, assistant or tool */
    const char *content; /* UTF-8, zeros included */
    size_t bytes;        /* of content */
    const json_t *more;  /* an object with other members, such as "tool_calls"; NULL: none */
};

struct ddp_chat {
    const struct ddp_chat_message *messages;
    size_t count;
    const json_t *tools;    /* an array of what may be called; NULL: none */
    bool generation_prompt; /* end with the beginning of a turn of the assistant */
};

typedef struct ddp_chat_template ddp_chat_template;

/* Whether what --chat-template says is a file (NAME.jinja), not one of the names chatml, qwen2.5,
 * qwen3, qwen3-training (a think block in all turns, not only the last), llama3, llama3.1. */
bool ddp_chat_template_is_file(const char *name);

/* Chooses a template and tries it on a short chat.
 *   chat [out]  freed with ddp_chat_template_close()
 *   name        what --chat-template says, or NULL: that of the tokenizer's directory
 * DDP_ERR_INVALID: no such name, or the directory has no template, or the tokenizer lacks a special
 * token of a named one, or the template does not write what an assistant says; DDP_ERR_FORMAT,
 * DDP_ERR_UNSUPPORTED: of jinja.h; DDP_ERR_IO: the file; DDP_ERR_MEMORY. */
enum ddp_status ddp_chat_template_choose(ddp_chat_template **chat, const ddp_tokenizer *tokenizer,
                                         const char *name);
void ddp_chat_template_close(ddp_chat_template *chat); /* also NULL */

/* Its name, or that of its file. */
const char *ddp_chat_template_name(const ddp_chat_template *chat);

/* The token that ends a turn (<|im_end|>, <|eot_id|>): generation stops there. -1: none. */
int32_t ddp_chat_template_end(const ddp_chat_template *chat);

/* A chat as text; {0} is empty, and free() frees both arrays. */
struct ddp_chat_text {
    struct ddp_buffer text;
    size_t *spans; /* of each turn of the assistant three places: where it begins, where what it
                      said ends, and before where the token that ends it stands, if there is one */
    size_t span_count;
};

/* Renders a chat; what *out had is replaced.
 *   where  for messages: file and line
 * DDP_ERR_FORMAT: no messages, an unknown role, or what the template refuses: names `where`;
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_chat_render(const ddp_chat_template *template, const char *where,
                                const struct ddp_chat *chat, struct ddp_chat_text *out);

/* Appends the tokens of a chat, rendered and then encoded as a whole, without a bos but the
 * template's own. Any number of threads may do so at once.
 *   tokens   {0} or with tokens in it
 *   trained  a byte for each of these tokens, and then for the new ones: 1 for what the template
 *            has in {% generation %}, or else for the assistant's turn and the token that ends it;
 *            else 0
 * Statuses as for rendering and encoding. */
enum ddp_status ddp_chat_encode(const ddp_chat_template *template, const ddp_tokenizer *tokenizer,
                                const char *where, const struct ddp_chat *chat,
                                struct ddp_tokens *tokens, struct ddp_buffer *trained);

#endif
