/* SPDX-License-Identifier: MIT
 *
 * Tokenizers of language models: text to token ids and back, with the ids of Hugging Face's
 * `tokenizers`. BPE over bytes (GPT-2, Llama 3, Qwen, SmolLM) or over characters as SentencePiece
 * does it (Llama 2, Mistral), from a tokenizer.json or GPT-2's vocab.json and merges.txt; every
 * other kind is refused by name. Knows nothing of datasets. */
#ifndef DDP_DATA_TEXT_TOKENIZER_H
#define DDP_DATA_TEXT_TOKENIZER_H

#include "core/json.h"
#include "ddp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ddp_tokenizer ddp_tokenizer;

/* Opens a tokenizer. It does not change afterwards, and any number of threads may use it at once.
 *   path  a tokenizer.json, or a directory with a tokenizer.json, else with vocab.json and
 *         merges.txt; of a directory tokenizer_config.json, special_tokens_map.json and
 *         chat_template.jinja are read too, where they are there
 * DDP_ERR_IO, DDP_ERR_FORMAT: damaged; DDP_ERR_UNSUPPORTED: another kind of tokenizer, named;
 * DDP_ERR_MEMORY. Each message names the file. */
enum ddp_status ddp_tokenizer_open(ddp_tokenizer **tokenizer, const char *path);

/* The same from the text of a tokenizer.json.
 *   name  of its file, for messages */
enum ddp_status ddp_tokenizer_parse(ddp_tokenizer **tokenizer, const char *name, const char *text,
                                    size_t bytes);
void ddp_tokenizer_close(ddp_tokenizer *tokenizer); /* also NULL */

/* Takes bos_token, eos_token, add_bos_token and chat_template from a tokenizer_config.json that has
 * been read already; ddp_tokenizer_open() does so for that of its directory. No thread may use the
 * tokenizer meanwhile.
 *   name  of the file, for messages
 * DDP_ERR_FORMAT: a token that the tokenizer does not have, or a field of another type. */
enum ddp_status ddp_tokenizer_configure(ddp_tokenizer *tokenizer, const char *name,
                                        const json_t *config);

const char *ddp_tokenizer_path(const ddp_tokenizer *tokenizer); /* as it was opened */

/* The largest id + 1: an embedding needs at least so many rows. */
int32_t ddp_tokenizer_ids(const ddp_tokenizer *tokenizer);

/* The ids that begin and end a document; -1: the files name none. */
int32_t ddp_tokenizer_bos(const ddp_tokenizer *tokenizer);
int32_t ddp_tokenizer_eos(const ddp_tokenizer *tokenizer);

/* A hash of all that decides which ids a text gets, for keys of caches. */
uint64_t ddp_tokenizer_hash(const ddp_tokenizer *tokenizer);

/* The directory's own chat template, a Jinja text, and the file it is in. NULL: there is none. */
const char *ddp_tokenizer_chat_template(const ddp_tokenizer *tokenizer, const char **file);

/* --- tokens ----------------------------------------------------------------------------------- */

/* The id of a token by its text in the file ("<|im_end|>", or with a space as U+0120 or U+2581);
 * -1: no such token. */
int32_t ddp_tokenizer_find(const ddp_tokenizer *tokenizer, const char *text, size_t bytes);

/* The text of a token in the file, which is UTF-8 and ends with a 0. NULL: no such id.
 *   bytes [out]  may be NULL */
const char *ddp_tokenizer_token(const ddp_tokenizer *tokenizer, int32_t id, size_t *bytes);

/* Whether it is a special token such as <|im_end|>, which is left out of text for people. */
bool ddp_tokenizer_is_special(const ddp_tokenizer *tokenizer, int32_t id);

/* --- encoding --------------------------------------------------------------------------------- */

/* An array of ids that grows; {0} is an empty one. */
struct ddp_tokens {
    int32_t *ids; /* freed with free() */
    size_t count, room;
};

/* Makes room for so many more ids. DDP_ERR_MEMORY. */
enum ddp_status ddp_tokens_reserve(struct ddp_tokens *tokens, size_t count);

/* A part of a text, for encoding.
 *   name    of the file it comes from, for messages
 *   offset  where in that file it begins, in bytes */
struct ddp_text_part {
    const char *at; /* UTF-8, zeros included */
    size_t bytes;
    const char *name;
    uint64_t offset;
};

enum ddp_encode_flags {
    DDP_ENCODE_AS_TEXT = 1, /* special tokens in the text are text like any other */
    DDP_ENCODE_BOS = 2, /* what the tokenizer puts around a text, bos for Llama; often nothing */
};

/* Appends the ids of a text, on the calling thread.
 *   flags  of enum ddp_encode_flags, or 0
 * DDP_ERR_FORMAT: not UTF-8: names the file and the position; DDP_ERR_MEMORY. tokens->count is
 * then what it was. */
enum ddp_status ddp_tokenizer_encode(const ddp_tokenizer *tokenizer,
                                     const struct ddp_text_part *text, unsigned flags,
                                     struct ddp_tokens *tokens);

/* The same, and tells which tokens begin where.
 *   marks       ascending positions in the text, from 0 to text->bytes
 *   mark_count  of them
 *   first [out] for each the index in tokens->ids of the token that has the byte there, or the
 *               index behind the last one of this text
 * DDP_ERR_UNSUPPORTED: the text has characters that the vocabulary lacks, so its tokens have no
 * known lengths. */
enum ddp_status ddp_tokenizer_encode_marked(const ddp_tokenizer *tokenizer,
                                            const struct ddp_text_part *text, unsigned flags,
                                            const size_t *marks, size_t mark_count,
                                            struct ddp_tokens *tokens, size_t *first);

/* Appends the ids of several texts, one after another, on several threads; long texts are worked on
 * by several. The ids do not depend on the number of threads.
 *   threads     1 .. 1024
 *   ends [out]  for each text, tokens->count after it; may be NULL
 * Statuses as above; the error logged is that of the first text that has one. */
enum ddp_status ddp_tokenizer_encode_many(const ddp_tokenizer *tokenizer,
                                          const struct ddp_text_part *texts, size_t count,
                                          unsigned flags, int threads, struct ddp_tokens *tokens,
                                          size_t *ends);

/* --- decoding --------------------------------------------------------------------------------- */

typedef struct ddp_decoder ddp_decoder;

/* Turns ids into text as they come.
 *   skip_specials  leave special tokens out
 * DDP_ERR_MEMORY. The tokenizer must stay open. */
enum ddp_status ddp_decoder_create(ddp_decoder **decoder, const ddp_tokenizer *tokenizer,
                                   bool skip_specials);
void ddp_decoder_destroy(ddp_decoder *decoder); /* also NULL */

/* Takes the next ids. Ids without a token give no text.
 *   text [out]   the characters that are complete now, of *bytes, with a 0 behind them; valid
 *                until the next call. Bytes that are not UTF-8 have become U+FFFD.
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_decoder_next(ddp_decoder *decoder, const int32_t *ids, size_t count,
                                 const char **text, size_t *bytes);

/* The end of the ids: an incomplete character becomes U+FFFD. Then a new text may begin. */
enum ddp_status ddp_decoder_end(ddp_decoder *decoder, const char **text, size_t *bytes);

#endif
