/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a file of options. */
#include "config.h"

#include "plan/yaml.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <string.h>

static volatile size_t used;

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_yaml yaml;
    const bool accepted = ddp_yaml_parse(&yaml, "input", (const char *)data, size) == DDP_OK;
    for (size_t i = 0; accepted && i < yaml.count; i++) {
        const struct ddp_yaml_entry *entry = &yaml.entries[i];
        assert(entry->name >= yaml.text && entry->value < yaml.text + yaml.used);
        assert(entry->name + strlen(entry->name) + 1 == entry->value);
        assert(entry->line > 0 && !(entry->plain && entry->list));
        used += strlen(entry->value);
        for (size_t k = 0; k < i; k++)
            assert(strcmp(yaml.entries[k].name, entry->name) != 0);
    }
    ddp_yaml_free(&yaml);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
