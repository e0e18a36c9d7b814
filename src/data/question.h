/* SPDX-License-Identifier: MIT
 *
 * A line of JSON as a question: {"prompt": "...", "choices": ["...", ...], "answer": N}. */
#ifndef DDP_DATA_QUESTION_H
#define DDP_DATA_QUESTION_H

#include "core/json.h"

struct ddp_question {
    json_t *root;          /* which has all that follows; freed with json_decref(), also after a
                             failure */
    const json_t *prompt;  /* a string without zeros, as the choices are */
    const json_t *choices; /* an array of at least two, none of them empty */
    int32_t count, answer; /* of choices; the right one, from 0 */
};

/* DDP_ERR_FORMAT: no JSON, or of another shape; names `where`, file and line. DDP_ERR_MEMORY. */
enum ddp_status ddp_question_parse(struct ddp_question *question, const char *line, size_t bytes,
                                   const char *where);

#endif
