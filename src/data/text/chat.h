/* SPDX-License-Identifier: MIT
 *
 * Chat templates: messages to the text that a model was trained on, to its tokens, and which of
 * these are to be learned. The templates in directories are programs (Jinja), which are not run: a
 * known one is recognised by its hash, and has a built-in twin here. */
#ifndef DDP_DATA_TEXT_CHAT_H
#define DDP_DATA_TEXT_CHAT_H

#include "data/text/buffer.h"
#include "data/text/tokenizer.h"

struct ddp_chat_message {
    const char *role;    /* system, user or assistant */
    const char *content; /* UTF-8, zeros included */
    size_t bytes;        /* of content */
};

typedef struct ddp_chat_template ddp_chat_template;

/* The template of that name: chatml, qwen2.5, qwen3, qwen3-training (a think block in all turns,
 * not only the last), llama3, llama3.1. NULL: there is none. */
const ddp_chat_template *ddp_chat_template_find(const char *name);
const char *ddp_chat_template_name(const ddp_chat_template *chat);

/* Chooses a template.
 *   name  what --chat-template says, or NULL: that of the tokenizer's directory
 * DDP_ERR_INVALID: no such name, or the directory has no template, or one that is not known, or the
 * tokenizer lacks a special token of the template. */
enum ddp_status ddp_chat_template_choose(const ddp_chat_template **chat,
                                         const ddp_tokenizer *tokenizer, const char *name);

/* The token that ends a turn (<|im_end|>, <|eot_id|>): generation stops there. -1: none. */
int32_t ddp_chat_template_end(const ddp_chat_template *chat, const ddp_tokenizer *tokenizer);

/* A chat as text; {0} is empty, and free() frees both arrays. */
struct ddp_chat_text {
    struct ddp_buffer text;
    size_t *spans; /* what is to be learned: bytes spans[2i] .. spans[2i+1]-1 */
    size_t span_count;
};

/* Renders a chat; what *out had is replaced.
 *   where              for messages: file and line
 *   generation_prompt  end with the beginning of a turn of the assistant
 * DDP_ERR_FORMAT: no messages, a role that the template does not know, names `where`;
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_chat_render(const ddp_chat_template *chat, const char *where,
                                const struct ddp_chat_message *messages, size_t count,
                                bool generation_prompt, struct ddp_chat_text *out);

/* Appends the tokens of a chat, rendered and then encoded as a whole, without a bos but the
 * template's own. Any number of threads may do so at once.
 *   tokens   {0} or with tokens in it
 *   trained  a byte for each of these tokens, and then for the new ones: 1 for the assistant's
 *            content and the token that ends its turn, else 0
 * Statuses as for rendering and encoding. */
enum ddp_status ddp_chat_encode(const ddp_chat_template *chat, const ddp_tokenizer *tokenizer,
                                const char *where, const struct ddp_chat_message *messages,
                                size_t count, bool generation_prompt, struct ddp_tokens *tokens,
                                struct ddp_buffer *trained);

#endif
