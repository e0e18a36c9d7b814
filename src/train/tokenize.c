/* SPDX-License-Identifier: MIT
 *
 * See tokenize.h. */
#include "config.h"

#include "train/tokenize.h"

#include "core/log.h"
#include "core/text.h"
#include "data/encode.h"
#include "data/text_directory.h"
#include "data/token_file.h"
#include "generate/texts.h"

#include <inttypes.h>

static enum ddp_status write_file(const struct ddp_train_options *options,
                                  const struct ddp_encoded *encoded, const ddp_tokenizer *tokenizer,
                                  FILE *out)
{
    const struct ddp_encoded_facts *facts = &encoded->facts;
    char shown[DDP_TEXT_SHOWN];
    if (facts->document_count > 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "tokenize: %s has prompts or chats, whose masks a file of tokens cannot "
                        "hold: give it to --data as it is",
                        options->tokenize_in);
    enum ddp_status status = ddp_token_file_write(options->tokenize_out, &encoded->blob,
                                                  facts->token_count, (int)facts->width);
    if (status != DDP_OK || options->quiet)
        return status;
    fprintf(out,
            "wrote    %s: %" PRId64 " tokens of %d bits, of a vocabulary of %" PRId32
            ", for %" PRId64 " bytes of text\n",
            ddp_text_show(shown, options->tokenize_out), facts->token_count, 8 * (int)facts->width,
            ddp_tokenizer_ids(tokenizer), facts->text_bytes);
    return fflush(out) == 0 && !ferror(out)
               ? DDP_OK
               : ddp_fail(DDP_ERR_IO, "cannot write to standard output");
}

enum ddp_status ddp_tokenize(const struct ddp_train_options *options, FILE *out)
{
    struct ddp_data_names files = {.count = 0};
    ddp_tokenizer *tokenizer = NULL;
    struct ddp_encoded *encoded = NULL;
    const char *in = options->tokenize_in;
    enum ddp_status status = ddp_train_open_tokenizer(&tokenizer, options, true);
    if (status == DDP_OK && !tokenizer)
        status = ddp_fail(DDP_ERR_INVALID,
                          "tokenize: name a tokenizer with --tokenizer PATH, or a directory that "
                          "has one with --load DIR");
    if (status == DDP_OK)
        status = ddp_data_directory_exists(in) ? ddp_text_directory_list(in, &files, NULL)
                                               : ddp_data_names_list(&files, in);
    if (status == DDP_OK && files.count == 0)
        status = ddp_fail(DDP_ERR_IO, "%s: there is no text in this directory", in);
    struct ddp_columns columns;
    const struct ddp_encoding encoding = {.files = &files,
                                          .tokenizer = tokenizer,
                                          .chat = options->chat_template,
                                          .columns = options->columns ? &columns : NULL};
    if (status == DDP_OK && options->columns)
        status = ddp_columns_read(&columns, options->columns);
    if (status == DDP_OK)
        status = ddp_encode_texts(&encoded, &encoding);
    if (status == DDP_OK)
        status = write_file(options, encoded, tokenizer, out);
    ddp_encode_close(encoded);
    ddp_data_names_free(&files);
    ddp_tokenizer_close(tokenizer);
    return status;
}
