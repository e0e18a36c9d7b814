/* SPDX-License-Identifier: MIT
 *
 * See added.h. The tokens are sorted, so those that share a beginning stand together: each byte of
 * the text narrows their range. */
#include "config.h"

#include "data/text/added.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

void ddp_added_clear(struct ddp_added *added)
{
    for (size_t i = 0; i < added->count; i++)
        free(added->tokens[i].text);
    free(added->tokens);
    *added = (struct ddp_added){0};
}

enum ddp_status ddp_added_append(struct ddp_added *added, const char *text, size_t bytes,
                                 int32_t id, bool special)
{
    struct ddp_added_token token = {ddp_array_alloc(bytes + 1, 1), bytes, id, special};
    if (!token.text)
        return DDP_ERR_MEMORY;
    memcpy(token.text, text, bytes);
    enum ddp_status status = ddp_array_append(&added->tokens, &added->count, &token, sizeof token);
    if (status != DDP_OK)
        free(token.text);
    return status;
}

static int compare(const void *a, const void *b)
{
    const struct ddp_added_token *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    if (order != 0)
        return order;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->id > y->id) - (x->id < y->id);
}

void ddp_added_sort(struct ddp_added *added)
{
    if (added->count > 0)
        qsort(added->tokens, added->count, sizeof *added->tokens, compare);
    for (size_t i = 0; i < added->count; i++)
        added->begins[(unsigned char)added->tokens[i].text[0]] = true;
}

/* Of the sorted tokens low .. high-1, which share `depth` bytes and have more, the first whose next
 * byte is not below `byte`. */
static size_t lower(const struct ddp_added *added, size_t low, size_t high, size_t depth, int byte)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((unsigned char)added->tokens[middle].text[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const struct ddp_added_token *longest(const struct ddp_added *added, const char *text,
                                             size_t bytes)
{
    const struct ddp_added_token *found = NULL;
    size_t low = 0, high = added->count;
    for (size_t depth = 0; depth < bytes && low < high; depth++) {
        const int byte = (unsigned char)text[depth];
        low = lower(added, low, high, depth, byte);
        high = lower(added, low, high, depth, byte + 1);
        while (low < high && added->tokens[low].bytes == depth + 1)
            found = &added->tokens[low++];
    }
    return found;
}

const struct ddp_added_token *ddp_added_find(const struct ddp_added *added, const char *text,
                                             size_t bytes, size_t *begin)
{
    if (added->count > 0)
        for (size_t at = *begin; at < bytes; at++)
            if (added->begins[(unsigned char)text[at]]) {
                const struct ddp_added_token *token = longest(added, text + at, bytes - at);
                if (token) {
                    *begin = at;
                    return token;
                }
            }
    *begin = bytes;
    return NULL;
}
