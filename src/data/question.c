/* SPDX-License-Identifier: MIT
 *
 * See question.h. */
#include "config.h"

#include "data/question.h"

#include "core/log.h"

#define MOST_CHOICES 1000

enum ddp_status ddp_question_parse(struct ddp_question *question, const char *line, size_t bytes,
                                   const char *where)
{
    json_error_t error;
    *question = (struct ddp_question){.root = NULL};
    const enum ddp_status status = ddp_json_parse(&question->root, line, bytes, &error);
    if (status == DDP_ERR_FORMAT)
        return ddp_fail(status, "%s, column %d: %s", where, error.column, error.text);
    if (status != DDP_OK)
        return status;
    const json_t *answer = json_object_get(question->root, "answer");
    question->prompt = json_object_get(question->root, "prompt");
    question->choices = json_object_get(question->root, "choices");
    const size_t count = json_array_size(question->choices);
    bool strings = json_is_string(question->prompt) && count >= 2 && count <= MOST_CHOICES;
    for (size_t i = 0; i < count; i++)
        strings = strings && json_string_length(json_array_get(question->choices, i)) > 0;
    if (!strings)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: a question has a string \"prompt\" and two to %d strings in "
                        "\"choices\", none of them empty",
                        where, MOST_CHOICES);
    if (!json_is_integer(answer) || json_integer_value(answer) < 0 ||
        json_integer_value(answer) >= (json_int_t)count)
        return ddp_fail(DDP_ERR_FORMAT,
                        "%s: \"answer\" is not the number of the right choice, from 0 to %zu",
                        where, count - 1);
    question->count = (int32_t)count;
    question->answer = (int32_t)json_integer_value(answer);
    return DDP_OK;
}
