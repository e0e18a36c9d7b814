/* SPDX-License-Identifier: MIT
 *
 * See packing.h. The first row with room is found in a tree: a node has the largest room of the
 * rows below it. */
#include "config.h"

#include "data/packing.h"

#include "core/memory.h"

#include <stdlib.h>

/* --- the longest first ------------------------------------------------------------------------ */

/* Counts lengths: of equals the earlier one comes first.
 *   order [out]  (count) */
static enum ddp_status order_by_length(int64_t *order, const int32_t *lengths, int64_t count,
                                       int64_t row_length)
{
    int64_t *ends = ddp_array_alloc((size_t)row_length + 2, sizeof *ends);
    if (!ends)
        return DDP_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        ends[row_length - lengths[i] + 1]++;
    for (int64_t length = 0; length <= row_length; length++)
        ends[length + 1] += ends[length];
    for (int64_t i = 0; i < count; i++)
        order[ends[row_length - lengths[i]]++] = i;
    free(ends);
    return DDP_OK;
}

/* --- first fit -------------------------------------------------------------------------------- */

struct rooms {
    int32_t *tree; /* of `leaves` rows, a power of two; the root is tree[1] */
    int64_t leaves;
};

static enum ddp_status make_rooms(struct rooms *rooms, int64_t count, int64_t row_length)
{
    rooms->leaves = 1;
    while (rooms->leaves < count)
        rooms->leaves *= 2;
    rooms->tree = ddp_array_alloc(2 * (size_t)rooms->leaves, sizeof *rooms->tree);
    if (!rooms->tree)
        return DDP_ERR_MEMORY;
    for (int64_t i = 1; i < 2 * rooms->leaves; i++)
        rooms->tree[i] = (int32_t)row_length;
    return DDP_OK;
}

/* The first row with room for it; there is one, because there are as many rows as documents. */
static int64_t place(struct rooms *rooms, int32_t length)
{
    int32_t *tree = rooms->tree;
    int64_t at = 1;
    while (at < rooms->leaves)
        at = 2 * at + (tree[2 * at] < length);
    const int64_t row = at - rooms->leaves;
    tree[at] -= length;
    for (at /= 2; at > 0; at /= 2)
        tree[at] = tree[2 * at] > tree[2 * at + 1] ? tree[2 * at] : tree[2 * at + 1];
    return row;
}

static enum ddp_status first_fit(int64_t *rows, const int32_t *lengths, int64_t count,
                                 int64_t row_length)
{
    struct rooms rooms = {0};
    int64_t *order = ddp_array_alloc((size_t)count + 1, sizeof *order);
    enum ddp_status status = order ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = order_by_length(order, lengths, count, row_length);
    if (status == DDP_OK)
        status = make_rooms(&rooms, count, row_length);
    for (int64_t i = 0; status == DDP_OK && i < count; i++)
        rows[order[i]] = place(&rooms, lengths[order[i]]);
    free(rooms.tree);
    free(order);
    return status;
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Numbers the rows anew in the order in which the documents name them, and lists their documents.
 *   rows     (count) of each document; numbered anew
 *   numbers  (count) zeroed; scratch */
static void list_rows(struct ddp_packing *p, int64_t *rows, int64_t count, int64_t *numbers)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t *number = &numbers[rows[i]];
        if (*number == 0)
            *number = ++p->row_count;
        rows[i] = *number - 1;
        p->begins[*number]++;
    }
    for (int64_t row = 0; row < p->row_count; row++)
        p->begins[row + 1] += p->begins[row];
    for (int64_t row = 0; row < p->row_count; row++)
        numbers[row] = p->begins[row];
    for (int64_t i = 0; i < count; i++)
        p->documents[numbers[rows[i]]++] = i;
}

enum ddp_status ddp_packing_make(struct ddp_packing *packing, const int32_t *lengths, int64_t count,
                                 int64_t row_length, bool alone)
{
    const size_t room = (size_t)count + 1;
    int64_t *rows = ddp_array_alloc(room, sizeof *rows);
    int64_t *numbers = ddp_array_alloc(room, sizeof *numbers);
    *packing = (struct ddp_packing){
        .begins = ddp_array_alloc(room, sizeof *packing->begins),
        .documents = ddp_array_alloc(room, sizeof *packing->documents),
    };
    enum ddp_status status =
        rows && numbers && packing->begins && packing->documents ? DDP_OK : DDP_ERR_MEMORY;
    for (int64_t i = 0; status == DDP_OK && alone && i < count; i++)
        rows[i] = i;
    if (status == DDP_OK && !alone)
        status = first_fit(rows, lengths, count, row_length);
    if (status == DDP_OK)
        list_rows(packing, rows, count, numbers);
    free(numbers);
    free(rows);
    return status;
}

void ddp_packing_free(struct ddp_packing *packing)
{
    free(packing->begins);
    free(packing->documents);
    *packing = (struct ddp_packing){0};
}
