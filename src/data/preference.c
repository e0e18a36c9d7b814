/* SPDX-License-Identifier: MIT
 *
 * Lines of preferences; see record.h. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/record.h"

#include <string.h>

static enum ddp_status take_said(struct ddp_said *said, const json_t *json, const char *name,
                                 const char *where)
{
    return json ? ddp_record_said(said, json, name, where)
                : ddp_fail(DDP_ERR_FORMAT,
                           "%s: no \"%s\" in it: a line of preferences has \"prompt\", \"chosen\" "
                           "and \"rejected\", or \"prompt\", \"completion\" and \"label\"",
                           where, name);
}

/* LLaMA-Factory's forms as TRL's: the prompt is messages, and so are the answers. */
static enum ddp_status translate(json_t *root, const char *where)
{
    static const char *const answers[] = {"chosen", "rejected"};
    json_t *conversations = json_object_get(root, "conversations");
    const bool alpaca = json_object_get(root, "instruction");
    enum ddp_status status = DDP_OK;
    if (json_object_get(root, "prompt") || (!alpaca && !conversations))
        return DDP_OK;
    if (alpaca)
        status = ddp_alpaca_messages(root, NULL, where);
    if (status != DDP_OK)
        return status;
    int failed =
        json_object_set(root, "prompt", alpaca ? json_object_get(root, "messages") : conversations);
    for (int i = 0; alpaca && failed == 0 && i < 2; i++) {
        json_t *answer = json_object_get(root, answers[i]);
        if (json_is_string(answer))
            failed = json_object_set_new(
                root, answers[i], json_pack("{s:s, s:O}", "role", "assistant", "content", answer));
    }
    return failed == 0 ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", where);
}

/* The beginning that both answers have becomes the prompt: characters, less a space before the
 * difference. */
static void split_texts(struct ddp_record *record)
{
    struct ddp_said *chosen = &record->answers[0], *rejected = &record->answers[1];
    const size_t most = chosen->bytes < rejected->bytes ? chosen->bytes : rejected->bytes;
    size_t same = 0;
    while (same < most && chosen->text[same] == rejected->text[same])
        same++;
    const bool differ = same < most;
    if (!differ) /* as TRL: the last character of the shorter one is not taken */
        same -= same > 0;
    while (same > 0 && ((unsigned char)chosen->text[same] & 0xc0) == 0x80)
        same--;
    if (differ && same > 0 && chosen->text[same - 1] == ' ')
        same--;
    record->prompt = (struct ddp_said){.text = chosen->text, .bytes = same};
    for (int i = 0; i < 2; i++) {
        record->answers[i].text += same;
        record->answers[i].bytes -= same;
    }
}

/* The same for messages. */
static enum ddp_status split_messages(struct ddp_record *record, const json_t *chosen,
                                      const json_t *rejected)
{
    struct ddp_said *answers = record->answers;
    size_t same = 0;
    while (same < answers[0].message_count && same < answers[1].message_count &&
           json_equal(json_array_get(chosen, same), json_array_get(rejected, same)))
        same++;
    record->prompt.messages = ddp_array_alloc(same + 1, sizeof *record->prompt.messages);
    if (!record->prompt.messages)
        return DDP_ERR_MEMORY;
    record->prompt.message_count = same;
    memcpy(record->prompt.messages, answers[0].messages, same * sizeof *answers[0].messages);
    for (int i = 0; i < 2; i++) {
        answers[i].message_count -= same;
        memmove(answers[i].messages, answers[i].messages + same,
                answers[i].message_count * sizeof *answers[i].messages);
    }
    return DDP_OK;
}

/* Are prompt and answers of one kind, and is there an answer? */
static enum ddp_status check(const struct ddp_record *record, const char *where)
{
    const int count = record->kind == DDP_RECORD_PAIR ? 2 : 1;
    for (int i = 0; i < count; i++) {
        const struct ddp_said *answer = &record->answers[i];
        if (!answer->text != !record->prompt.text)
            return ddp_fail(DDP_ERR_FORMAT,
                            "%s: prompt and answers must all be strings, or all arrays of messages",
                            where);
        if (!answer->text && answer->message_count == 0)
            return ddp_fail(DDP_ERR_FORMAT, "%s: an answer has no message of its own", where);
    }
    return DDP_OK;
}

static enum ddp_status take_pair(struct ddp_record *record, const json_t *prompt, const char *where)
{
    const json_t *chosen = json_object_get(record->root, "chosen");
    const json_t *rejected = json_object_get(record->root, "rejected");
    record->kind = DDP_RECORD_PAIR;
    enum ddp_status status = take_said(&record->answers[0], chosen, "chosen", where);
    if (status == DDP_OK)
        status = take_said(&record->answers[1], rejected, "rejected", where);
    if (status == DDP_OK && json_equal(chosen, rejected))
        status =
            ddp_fail(DDP_ERR_FORMAT,
                     "%s: chosen and rejected are the same: there is nothing to prefer", where);
    if (status == DDP_OK && !record->answers[0].text != !record->answers[1].text)
        return check(record, where);
    if (status != DDP_OK || prompt)
        return status;
    if (!record->answers[0].text)
        return split_messages(record, chosen, rejected);
    split_texts(record);
    return DDP_OK;
}

static enum ddp_status take_rated(struct ddp_record *record, const json_t *prompt,
                                  const char *where)
{
    const json_t *label = json_object_get(record->root, "label");
    record->kind = DDP_RECORD_RATED;
    record->bad = json_is_false(label);
    if (!prompt)
        return ddp_fail(DDP_ERR_FORMAT, "%s: a rated answer has no \"prompt\"", where);
    if (!json_is_boolean(label))
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: \"label\" must be true for a good answer or false for a bad one",
                        where);
    return take_said(&record->answers[0], json_object_get(record->root, "completion"), "completion",
                     where);
}

enum ddp_status ddp_record_parse_preference(struct ddp_record *record,
                                            const struct ddp_columns *columns, const char *line,
                                            size_t bytes, const char *where)
{
    enum ddp_status status = ddp_record_read(record, columns, line, bytes, where);
    if (status == DDP_OK)
        status = translate(record->root, where);
    if (status != DDP_OK)
        return status;
    const json_t *prompt = json_object_get(record->root, "prompt");
    if (prompt)
        status = take_said(&record->prompt, prompt, "prompt", where);
    const bool rated =
        json_object_get(record->root, "completion") && !json_object_get(record->root, "chosen");
    if (status == DDP_OK)
        status = rated ? take_rated(record, prompt, where) : take_pair(record, prompt, where);
    if (status == DDP_OK)
        status = check(record, where);
    return status == DDP_OK ? ddp_record_check_tools(record, where) : status;
}
