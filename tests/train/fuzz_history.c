/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a log with --hash-every, whose last run is taken. The last line of an input may be
 * the word "sign": chains of hashes are then made right first, so that the parser behind them is
 * reached. */
#include "config.h"

#include "report/metrics.h"
#include "report/sha256.h"
#include "tests/lib/fuzz.h"
#include "train/history.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS (DDP_SHA256_TEXT - 1)

/* One line; those without a chain stay. */
static void sign_line(char *line, size_t bytes, char chain[DDP_SHA256_TEXT])
{
    static const char run[] = "{\"event\":\"run\"";
    const size_t key = strlen(DDP_LOG_CHAIN), end = key + DIGITS + 2;
    unsigned char digest[DDP_SHA256_BYTES];
    if (bytes < end || memcmp(line + bytes - end, DDP_LOG_CHAIN, key) != 0)
        return;
    if (bytes > sizeof run && memcmp(line, run, sizeof run - 1) == 0)
        chain[0] = '\0';
    ddp_sha256(digest, chain, strlen(chain), line, bytes - end);
    memcpy(line + bytes - DIGITS - 2, ddp_sha256_text(chain, digest), DIGITS);
}

static void sign_all(char *text, size_t size)
{
    char chain[DDP_SHA256_TEXT] = "";
    for (char *newline; (newline = memchr(text, '\n', size));) {
        const size_t bytes = (size_t)(newline - text);
        sign_line(text, bytes, chain);
        text += bytes + 1;
        size -= bytes + 1;
    }
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    static const char sign[] = "\nsign";
    struct ddp_history history, again;
    char *text = malloc(size + 1);
    if (!text)
        return false;
    memcpy(text, data, size);
    if (size > strlen(sign) && memcmp(text + size - strlen(sign), sign, strlen(sign)) == 0) {
        size -= strlen(sign) - 1; /* the line's end stays */
        sign_all(text, size);
    }
    const bool accepted = ddp_history_parse(&history, "log", text, size, 0) == DDP_OK;
    if (accepted) {
        assert(history.step > 0 && history.first_step >= 0);
        assert(ddp_history_hash(&history, history.step));
        assert(ddp_history_hash(&history, history.first_step) == history.run);
        assert(ddp_history_parse(&again, "log", text, size, history.step) == DDP_OK);
        ddp_history_free(&again);
        ddp_history_free(&history);
    }
    free(text);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
