/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: one zip archive, of which every member is opened. */
#include "config.h"

#include "data/zip_file.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>

static volatile unsigned used;

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_zip zip;
    const struct ddp_blob blob = {.name = "input", .memory = data, .bytes = size};
    bool accepted = ddp_zip_open(&zip, &blob) == DDP_OK;
    assert(accepted || (!zip.members && zip.member_count == 0));
    for (size_t i = 0; accepted && i < zip.member_count; i++) {
        struct ddp_blob member;
        unsigned char *owned = NULL;
        assert(ddp_zip_find(&zip, zip.members[i].name) == &zip.members[i]);
        accepted =
            ddp_zip_member_open(&zip, &zip.members[i], "input: member", &member, &owned) == DDP_OK;
        assert(accepted || !owned);
        for (uint64_t j = 0; accepted && j < member.bytes; j++)
            used += member.memory[j];
        free(owned);
    }
    ddp_zip_close(&zip);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
