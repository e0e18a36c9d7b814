/* SPDX-License-Identifier: MIT
 *
 * Alpaca's lines as chats, the way LLaMA-Factory reads them: see record.h. The text around an
 * instruction is that of the chat template, not the one of Stanford's first model. */
#include "config.h"

#include "core/log.h"
#include "data/record.h"

#include <stdlib.h>
#include <string.h>

/* Adds a message; takes `content`. */
static bool add(json_t *messages, const char *role, json_t *content)
{
    return content && json_array_append_new(
                          messages, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0;
}

static bool is_empty(const json_t *text)
{
    return !text || json_is_null(text) || (json_is_string(text) && json_string_length(text) == 0);
}

/* The instruction, and on the next line the input, if there is one. */
static json_t *question_of(const json_t *root)
{
    const json_t *first = json_object_get(root, "instruction"),
                 *then = json_object_get(root, "input");
    if (is_empty(then))
        return json_stringn(json_string_value(first), json_string_length(first));
    const size_t bytes = json_string_length(first) + 1 + json_string_length(then);
    char *both = malloc(bytes + 1);
    if (!both)
        return NULL;
    memcpy(both, json_string_value(first), json_string_length(first));
    both[json_string_length(first)] = '\n';
    memcpy(both + json_string_length(first) + 1, json_string_value(then),
           json_string_length(then) + 1);
    json_t *question = json_stringn(both, bytes);
    free(both);
    return question;
}

/* [["question", "answer"], ...] */
static enum ddp_status add_history(json_t *messages, json_t *history, const char *where)
{
    size_t i;
    json_t *turn;
    if (!history || json_is_null(history))
        return DDP_OK;
    bool right = json_is_array(history);
    json_array_foreach(history, i, turn)
    {
        json_t *const said[] = {json_array_get(turn, 0), json_array_get(turn, 1)};
        if (json_array_size(turn) != 2 || !json_is_string(said[0]) || !json_is_string(said[1])) {
            right = false;
            break;
        }
        if (!add(messages, "user", json_incref(said[0])) ||
            !add(messages, "assistant", json_incref(said[1])))
            return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", where);
    }
    return right ? DDP_OK
                 : ddp_fail(DDP_ERR_FORMAT,
                            "%s: \"history\" is not an array of pairs of strings, such as "
                            "[[\"Hi\", \"Hello\"]]",
                            where);
}

enum ddp_status ddp_alpaca_messages(json_t *root, const char *answer, const char *where)
{
    const char *const texts[] = {"instruction", "input", "system", answer ? answer : "instruction"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const json_t *text = json_object_get(root, texts[i]);
        const bool optional = i == 1 || i == 2;
        if (!json_is_string(text) && !(optional && is_empty(text)))
            return ddp_fail(DDP_ERR_FORMAT, "%s: \"%s\" is not a string", where, texts[i]);
    }
    json_t *messages = json_array(), *system = json_object_get(root, "system");
    enum ddp_status status = DDP_OK;
    bool added = messages != NULL;
    if (added && !is_empty(system))
        added = add(messages, "system", json_incref(system));
    if (added)
        status = add_history(messages, json_object_get(root, "history"), where);
    if (status == DDP_OK && added)
        added = add(messages, "user", question_of(root));
    if (status == DDP_OK && added && answer)
        added = add(messages, "assistant", json_incref(json_object_get(root, answer)));
    if (status == DDP_OK && (!added || json_object_set(root, "messages", messages) != 0))
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", where);
    json_decref(messages);
    return status;
}
