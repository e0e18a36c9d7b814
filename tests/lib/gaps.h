/* SPDX-License-Identifier: MIT
 *
 * What lies behind parameters, their padding and what aligns the next one, is zero. */
#ifndef TESTS_GAPS_H
#define TESTS_GAPS_H

#include "graph/graph.h"

#include <check.h>

static inline void check_gaps(const ddp_graph *graph, const float *flat)
{
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *p = ddp_graph_parameter_at(graph, i);
        for (int64_t k = p->offset + p->count; k < ddp_parameter_end(p); k++)
            ck_assert_msg(flat[k] == 0, "%s is followed by %g", p->name, (double)flat[k]);
    }
}

#endif
