/* SPDX-License-Identifier: MIT
 *
 * The alphabet in which byte-level tokenizers write bytes. */
#include "config.h"

#include "data/text/nfc.h"
#include "data/text/tokenizer_parts.h"

/* Printable characters of Latin-1 stand for themselves, the other 68 bytes are U+0100 and on. */
static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
           (byte >= 174 && byte <= 255);
}

uint32_t ddp_byte_character(unsigned char byte)
{
    if (stands_for_itself(byte))
        return byte;
    return byte < 33 ? 256u + byte : byte < 173 ? 256u + 33 + byte - 127 : 256u + 67;
}

/* The reverse; -1: it stands for none. */
static int character_byte(uint32_t character)
{
    if (character < 256)
        return stands_for_itself(character) ? (int)character : -1;
    const int other = (int)character - 256;
    return other < 33 ? other : other < 67 ? other - 33 + 127 : other == 67 ? 173 : -1;
}

enum ddp_status ddp_token_bytes(const ddp_tokenizer *tokenizer, int32_t id, struct ddp_buffer *out)
{
    const struct ddp_token *token = &tokenizer->vocabulary.tokens[id];
    const size_t bytes = token->normal_bytes, before = out->bytes;
    const char *text = tokenizer->vocabulary.texts.at + token->normal_at;
    enum ddp_status status = ddp_buffer_reserve(out, bytes);
    if (status != DDP_OK)
        return status;
    bool spelled = tokenizer->byte_level;
    for (size_t i = 0, length; spelled && i < bytes; i += length) {
        const int byte = character_byte(ddp_utf8_decode(text + i, &length));
        spelled = byte >= 0;
        if (spelled)
            out->at[out->bytes++] = (char)byte;
    }
    if (spelled)
        return DDP_OK;
    out->bytes = before;
    return ddp_buffer_append(out, text, bytes);
}
