/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: the line that says which model a file of weights holds. */
#include "config.h"

#include "model/model.h"
#include "tests/fuzz/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char name[DDP_MODEL_TEXT], text[DDP_MODEL_TEXT], again[DDP_MODEL_TEXT];
    struct ddp_model_config config, second;
    char *line = malloc(size + 1);
    if (!line)
        return false;
    memcpy(line, data, size);
    line[size] = '\0';
    const bool accepted = ddp_model_read_description(name, &config, line, "input") == DDP_OK;
    free(line);
    if (!accepted)
        return false;
    /* What was read is written so that it is read again. */
    ddp_model_describe(name, &config, text);
    assert(ddp_model_read_description(again, &second, text, "input") == DDP_OK);
    assert(strcmp(name, again) == 0 && config.layers == second.layers);
    assert(config.hidden_count == second.hidden_count && config.features == second.features);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
