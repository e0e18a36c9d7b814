/* SPDX-License-Identifier: MIT
 *
 * Which documents share a row: first-fit-decreasing over all of them, so that rows have little
 * padding. It follows from the lengths alone. Rows are numbered by their first document, and the
 * documents of a row stand in their own order. */
#ifndef DDP_DATA_PACKING_H
#define DDP_DATA_PACKING_H

#include "ddp.h"

struct ddp_packing {
    int64_t row_count;
    int64_t *begins; /* (row_count + 1) of a row's first entry in `documents` */
    int64_t *documents;
};

/*   lengths        (count) of the documents, 1 .. row_length each
 *   alone          each document has a row of its own
 *   packing [out]  freed with ddp_packing_free(), also after a failure
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_packing_make(struct ddp_packing *packing, const int32_t *lengths, int64_t count,
                                 int64_t row_length, bool alone);
void ddp_packing_free(struct ddp_packing *packing); /* also a zeroed one */

#endif
