/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a tokenizer.json, and behind the last newline a text; what counts is whether the
 * tokenizer is accepted. The text is encoded and its ids decoded. */
#include "config.h"

#include "data/text/tokenizer.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char plain[] =
    "The loss  is 12.5,\ne\xcc\x81 I'll <|im_end|>\xe6\x97\xa5 \xf0\x9f\x98\x80";

static void use(const ddp_tokenizer *t, const char *text, size_t bytes, unsigned flags)
{
    const struct ddp_text_part parts[] = {{plain, sizeof plain - 1, "text", 0},
                                          {text, bytes, "input", 0}};
    struct ddp_tokens tokens = {0};
    ddp_decoder *decoder = NULL;
    const char *back;
    size_t length;
    if (ddp_tokenizer_encode(t, &parts[0], flags, &tokens) == DDP_OK)
        (void)ddp_tokenizer_encode(t, &parts[1], flags, &tokens);
    for (size_t i = 0; i < tokens.count; i++)
        assert(ddp_tokenizer_token(t, tokens.ids[i], NULL));
    if (ddp_decoder_create(&decoder, t, false) == DDP_OK &&
        ddp_decoder_next(decoder, tokens.ids, tokens.count, &back, &length) == DDP_OK)
        assert(back[length] == '\0');
    ddp_decoder_destroy(decoder);
    free(tokens.ids);
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    const uint8_t *newline = size > 0 ? memrchr(data, '\n', size) : NULL;
    const size_t json = newline ? (size_t)(newline - data) : size;
    const char *text = (const char *)data + json;
    ddp_tokenizer *t = NULL;
    if (ddp_tokenizer_parse(&t, "input", (const char *)data, json) != DDP_OK)
        return false;
    use(t, text, size - json, 0);
    use(t, text, size - json, DDP_ENCODE_AS_TEXT | DDP_ENCODE_BOS);
    ddp_tokenizer_close(t);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
