/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: one file of tokens, as each kind; what counts is whether it says itself what it is.
 */
#include "config.h"

#include "data/token_file.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned used;

static bool read_as(const char *path, enum ddp_token_kind kind, size_t size)
{
    struct ddp_token_file tokens;
    if (ddp_token_file_open(&tokens, path, kind, true, 1 << 20) != DDP_OK)
        return false;
    assert(tokens.offset + (uint64_t)tokens.count * (uint64_t)tokens.width == size);
    int32_t *out = malloc(((size_t)tokens.count + 1) * 2 * sizeof *out);
    if (out && ddp_token_file_read(&tokens, 0, (size_t)tokens.count, tokens.vocabulary,
                                   out + tokens.count, out) == DDP_OK)
        for (int64_t i = 0; i < tokens.count; i++)
            assert(out[i] >= 0 && out[i] < tokens.vocabulary);
    free(out);
    ddp_token_file_close(&tokens);
    return true;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char path[64];
    bool accepted = false;
    int fd = memfd_create("tokens", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, data, size) == (ssize_t)size) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        for (int kind = DDP_TOKENS_GPT2; kind <= DDP_TOKENS_BYTES; kind++)
            used += read_as(path, (enum ddp_token_kind)kind, size);
        accepted = read_as(path, DDP_TOKENS_AUTO, size);
    }
    close(fd);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
