/* SPDX-License-Identifier: MIT
 *
 * See bpe.h. Words are short: up to SHORT symbols their pairs are looked through for each merge.
 * Longer pieces have a heap of (rank, position), in which what is no longer true is skipped. */
#include "config.h"

#include "data/text/bpe.h"

#define SHORT 40
#define NONE  INT32_MAX
#define END   UINT32_MAX

void ddp_bpe_clear(struct ddp_bpe *bpe)
{
    free(bpe->next);
    free(bpe->previous);
    free(bpe->ranks);
    free(bpe->heap);
    *bpe = (struct ddp_bpe){0};
}

/* --- short pieces ----------------------------------------------------------------------------- */

struct pair {
    int32_t rank, id;
};

static struct pair look_up(const struct ddp_vocabulary *v, int32_t left, int32_t right)
{
    const struct ddp_merge *merge = ddp_vocabulary_merge(v, left, right);
    return merge ? (struct pair){merge->rank, merge->id} : (struct pair){NONE, -1};
}

static size_t merge_short(const struct ddp_vocabulary *v, int32_t *ids, size_t count)
{
    struct pair pairs[SHORT];
    for (size_t i = 0; i + 1 < count; i++)
        pairs[i] = look_up(v, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (pairs[i].rank < pairs[best].rank)
                best = i;
        if (pairs[best].rank == NONE)
            break;
        ids[best] = pairs[best].id;
        count--;
        memmove(&ids[best + 1], &ids[best + 2], (count - best - 1) * sizeof *ids);
        if (best + 1 < count) {
            memmove(&pairs[best + 1], &pairs[best + 2], (count - best - 2) * sizeof *pairs);
            pairs[best] = look_up(v, ids[best], ids[best + 1]);
        }
        if (best > 0)
            pairs[best - 1] = look_up(v, ids[best - 1], ids[best]);
    }
    return count;
}

/* --- long pieces ------------------------------------------------------------------------------ */

static enum ddp_status reserve(struct ddp_bpe *bpe, size_t count)
{
    if (count <= bpe->room)
        return DDP_OK;
    ddp_bpe_clear(bpe);
    const size_t heap_room = 3 * count; /* a pair for each symbol, and two for each merge */
    bpe->next = count < END ? malloc(count * sizeof *bpe->next) : NULL;
    bpe->previous = malloc(count * sizeof *bpe->previous);
    bpe->ranks = malloc(count * sizeof *bpe->ranks);
    bpe->heap = malloc(heap_room * sizeof *bpe->heap);
    if (!bpe->next || !bpe->previous || !bpe->ranks || !bpe->heap) {
        ddp_bpe_clear(bpe);
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: a piece of text of %zu characters", count);
    }
    bpe->room = count;
    bpe->heap_room = heap_room;
    return DDP_OK;
}

static void heap_push(struct ddp_bpe *bpe, uint64_t key)
{
    size_t i = bpe->heap_count++;
    for (; i > 0 && bpe->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        bpe->heap[i] = bpe->heap[(i - 1) / 2];
    bpe->heap[i] = key;
}

static uint64_t heap_pop(struct ddp_bpe *bpe)
{
    const uint64_t top = bpe->heap[0], last = bpe->heap[--bpe->heap_count];
    size_t i = 0;
    for (size_t child = 1; child < bpe->heap_count; child = 2 * i + 1) {
        if (child + 1 < bpe->heap_count && bpe->heap[child + 1] < bpe->heap[child])
            child++;
        if (bpe->heap[child] >= last)
            break;
        bpe->heap[i] = bpe->heap[child];
        i = child;
    }
    bpe->heap[i] = last;
    return top;
}

/* The pair that begins at a position has changed. */
static void renew(struct ddp_bpe *bpe, const struct ddp_vocabulary *v, const int32_t *ids,
                  uint32_t at)
{
    const uint32_t next = bpe->next[at];
    const struct ddp_merge *merge =
        next == END ? NULL : ddp_vocabulary_merge(v, ids[at], ids[next]);
    bpe->ranks[at] = merge ? merge->rank : NONE;
    if (merge)
        heap_push(bpe, (uint64_t)(uint32_t)merge->rank << 32 | at);
}

static size_t merge_long(struct ddp_bpe *bpe, const struct ddp_vocabulary *v, int32_t *ids,
                         size_t count)
{
    bpe->heap_count = 0;
    for (size_t i = 0; i < count; i++) {
        bpe->next[i] = i + 1 < count ? (uint32_t)i + 1 : END;
        bpe->previous[i] = i > 0 ? (uint32_t)i - 1 : END;
    }
    for (size_t i = 0; i < count; i++)
        renew(bpe, v, ids, (uint32_t)i);
    while (bpe->heap_count > 0) {
        const uint64_t key = heap_pop(bpe);
        const uint32_t at = (uint32_t)key;
        if (bpe->ranks[at] != (int32_t)(key >> 32)) /* merged away, or with another neighbour */
            continue;
        const uint32_t gone = bpe->next[at], next = bpe->next[gone];
        ids[at] = ddp_vocabulary_merge(v, ids[at], ids[gone])->id;
        bpe->ranks[gone] = NONE;
        bpe->next[at] = next;
        if (next != END)
            bpe->previous[next] = at;
        renew(bpe, v, ids, at);
        if (bpe->previous[at] != END)
            renew(bpe, v, ids, bpe->previous[at]);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != END; i = bpe->next[i])
        ids[kept++] = ids[i];
    return kept;
}

enum ddp_status ddp_bpe_merge(struct ddp_bpe *bpe, const struct ddp_vocabulary *vocabulary,
                              int32_t *ids, size_t *count)
{
    if (*count <= SHORT) {
        *count = merge_short(vocabulary, ids, *count);
        return DDP_OK;
    }
    enum ddp_status status = reserve(bpe, *count);
    if (status == DDP_OK)
        *count = merge_long(bpe, vocabulary, ids, *count);
    return status;
}
