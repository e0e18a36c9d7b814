/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a chat template, and behind the first byte 0 the JSON of its variables, if they are
 * not those here. What counts is whether the template is accepted; it is run. */
#include "config.h"

#include "data/text/jinja.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char plain[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
    "\"content\": \"\xc3\xa9 <think>a</think> b\", \"tool_calls\": [{\"function\": {\"name\": "
    "\"f\", \"arguments\": {\"a\": [1, 2.5, null, true]}}}]}], \"tools\": null, "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\"}";

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t bytes = zero ? (size_t)(zero - data) : size;
    struct ddp_jinja_text out = {0};
    ddp_jinja *jinja = NULL;
    json_t *variables = zero ? json_loadb((const char *)zero + 1, size - bytes - 1, 0, NULL)
                             : json_loads(plain, 0, NULL);
    const bool accepted = ddp_jinja_parse(&jinja, "input", (const char *)data, bytes) == DDP_OK;
    if (accepted && json_is_object(variables) &&
        ddp_jinja_render(jinja, "data", variables, "messages", &out) == DDP_OK)
        assert(out.at[out.bytes] == '\0');
    ddp_jinja_free(jinja);
    json_decref(variables);
    free(out.at);
    free(out.owners);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
