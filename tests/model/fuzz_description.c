/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: the line that says which model a file of weights holds. */
#include "config.h"

#include "model/model.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A model with fields of each kind. */
struct own {
    int64_t layers, heads, channels, context, hidden[16];
    int count;
    double norm_eps;
    bool exact_gelu;
};

static const struct ddp_model_field fields[] = {
    {"layers", DDP_FIELD_INT, offsetof(struct own, layers), 0, 1000, 0, 0},
    {"heads", DDP_FIELD_INT, offsetof(struct own, heads), 0, 1000, 0, 0},
    {"channels", DDP_FIELD_INT, offsetof(struct own, channels), 0, 65536, 0, 0},
    {"context", DDP_FIELD_INT, offsetof(struct own, context), 0, 1 << 20, 0, 0},
    {"hidden", DDP_FIELD_LIST, offsetof(struct own, hidden), 1, 1 << 20, 16,
     offsetof(struct own, count)},
    {"norm_eps", DDP_FIELD_REAL, offsetof(struct own, norm_eps), 0, 1, 0, 0},
    {"exact_gelu", DDP_FIELD_BOOL, offsetof(struct own, exact_gelu), 0, 1, 0, 0},
    {0},
};

static const struct ddp_model known = {.name = "gpt2", .fields = fields};
static const struct ddp_model plain = {.name = "cnn"};

static const struct ddp_model *find(const char *name)
{
    if (strcmp(name, "gpt2") == 0 || strcmp(name, "mlp") == 0)
        return &known;
    return strcmp(name, "cnn") == 0 || strcmp(name, "resnet") == 0 ? &plain : NULL;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char text[DDP_MODEL_TEXT];
    struct ddp_model_config config, second;
    const struct ddp_model *model, *again;
    char *line = malloc(size + 1);
    if (!line)
        return false;
    memcpy(line, data, size);
    line[size] = '\0';
    const bool accepted =
        ddp_model_read_description(&model, &config, line, find, "input") == DDP_OK;
    free(line);
    if (!accepted || !model)
        return accepted;
    /* What was read is written so that it is read again. */
    ddp_model_describe(model, &config, text);
    assert(ddp_model_read_description(&again, &second, text, find, "input") == DDP_OK);
    assert(model == again && config.features == second.features);
    const struct own *own = (const void *)&config.own, *reread = (const void *)&second.own;
    assert(own->layers == reread->layers && own->count == reread->count);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
