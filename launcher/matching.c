/* SPDX-License-Identifier: MIT
 *
 * See matching.h. */
#include "config.h"

#include "launcher/matching.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define TEXT_BYTES 1024 /* of one text; what is longer is cut */

/* Takes the next text off the list: false at its end. */
static bool next_text(const char **list, char text[TEXT_BYTES])
{
    size_t used = 0;
    const char *at = *list;
    if (!*at)
        return false;
    for (; *at; at++) {
        if (*at == ',' && at[1] != ',')
            break;
        at += *at == ',';
        if (used + 1 < TEXT_BYTES)
            text[used++] = *at;
    }
    text[used] = 0;
    *list = *at ? at + 1 : at;
    return true;
}

/* Whether a line contains one of the texts. */
static bool has_one(const char *filters, const char *line, size_t bytes)
{
    char text[TEXT_BYTES];
    while (next_text(&filters, text))
        if (*text && memmem(line, bytes, text, strlen(text)))
            return true;
    return false;
}

/* One write for each line: lines of several ranks are not mixed. */
static bool write_line(struct matching *matching, const char *prefix)
{
    const size_t bytes = matching->used;
    const bool whole = bytes > 0 && matching->line[bytes - 1] == '\n';
    const struct iovec parts[] = {
        {(void *)prefix, strlen(prefix)}, {matching->line, bytes}, {(void *)"\n", !whole}};
    matching->used = 0;
    if (!has_one(matching->filters, matching->line, bytes))
        return true;
    ssize_t written;
    do
        written = writev(matching->file, parts, 3);
    while (written < 0 && errno == EINTR);
    return written >= 0;
}

bool matching_take(struct matching *matching, const char *prefix, const char *data, size_t bytes)
{
    bool right = true;
    if (!matching->filters || matching->file < 0)
        return true;
    if (!matching->line && !(matching->line = malloc(MATCHING_LINE_BYTES)))
        return false;
    while (bytes > 0) {
        const char *newline = memchr(data, '\n', bytes);
        size_t part = newline ? (size_t)(newline - data) + 1 : bytes;
        if (part > MATCHING_LINE_BYTES - matching->used)
            part = MATCHING_LINE_BYTES - matching->used;
        memcpy(matching->line + matching->used, data, part);
        matching->used += part;
        if (data[part - 1] == '\n' || matching->used == MATCHING_LINE_BYTES)
            right = write_line(matching, prefix) && right;
        data += part;
        bytes -= part;
    }
    return right;
}

bool matching_end(struct matching *matching, const char *prefix)
{
    const bool right = matching->used == 0 || write_line(matching, prefix);
    free(matching->line);
    matching->line = NULL;
    return right;
}
