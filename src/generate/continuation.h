/* SPDX-License-Identifier: MIT
 *
 * Continuations of --prompt, as --generate prints them and --sample-every shows them during
 * training: --samples of them, each of so many tokens or until it has --stop in it. */
#ifndef DDP_GENERATE_CONTINUATION_H
#define DDP_GENERATE_CONTINUATION_H

#include "data/text/chat.h"
#include "generate/generate.h"
#include "plan/options.h"

struct ddp_continuation {
    ddp_generator *generator;
    const ddp_tokenizer *tokenizer; /* NULL: tokens are bytes or numbers */
    bool is_text;                   /* tokens are bytes: the vocabulary is 256 */
    int32_t *prompt, *stop;
    int64_t prompt_count, stop_count; /* stop_count 0: none */
    const char *stop_text;            /* with a tokenizer, instead of `stop`; NULL: none */
    int32_t end_tokens[2];            /* of a text and of a turn; -1: none */
    ddp_decoder *decoder;             /* with a tokenizer; between calls it is at a beginning */
    int64_t samples, length;
    int64_t *ends;  /* how many tokens each sample has, prompt included; 0: it goes on */
    int64_t ending; /* samples that have ended */
};

/* Reads the options and makes the generator. With a tokenizer the prompt is encoded, with
 * --chat-template as what a user says, and a sample ends with the token that ends a text or a turn.
 *   tokenizer      borrowed; NULL: tokens are bytes or numbers
 *   model, config  one that learns texts, completed
 *   device, weights, frozen  as of struct ddp_generator_config
 *   length   tokens to be added to the prompt, at most
 * On failure c is closed by the caller all the same; DDP_ERR_INVALID, DDP_ERR_IO name the flag. */
enum ddp_status ddp_continuation_open(struct ddp_continuation *c,
                                      const struct ddp_train_options *options,
                                      const ddp_tokenizer *tokenizer, const struct ddp_model *model,
                                      const struct ddp_model_config *config, ddp_device *device,
                                      const float *weights, const struct ddp_frozen *frozen,
                                      int64_t length);
void ddp_continuation_close(struct ddp_continuation *c);

/* From the prompt on; before the first token and before each repetition. */
void ddp_continuation_begin(struct ddp_continuation *c);
/* Whether any sample is still without its end. */
bool ddp_continuation_goes_on(const struct ddp_continuation *c);
/* One more token for each sample that has not ended. Statuses of ddp_generator_next(). */
enum ddp_status ddp_continuation_next(struct ddp_continuation *c);

/* A sample so far: prompt and text.
 *   count [out]  of its tokens */
const int32_t *ddp_continuation_tokens(const struct ddp_continuation *c, int64_t sample,
                                       int64_t *count);

/* The same to be shown: bytes, and what the tokenizer makes of tokens, as UTF-8 text with all that
 * a terminal could obey escaped but line ends; other tokens as numbers with spaces. Freed with
 * free(); NULL: out of memory, logged. */
char *ddp_continuation_text(const struct ddp_continuation *c, int64_t sample);

#endif
