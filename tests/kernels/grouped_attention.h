/* SPDX-License-Identifier: MIT
 *
 * Cases of attention with shared heads of keys, windows and documents, for the CPU's test and
 * CUDA's. Rows of q, k and v have gaps. */
#ifndef DDP_TESTS_GROUPED_ATTENTION_H
#define DDP_TESTS_GROUPED_ATTENTION_H

#include "kernels/attention/attention.h"
#include "tests/kernels/kernels_test.h"

#define GAP 8 /* elements behind a row of q; twice for k, three times for v */

enum documents { WHOLE, ONES, HALVES, SOME }; /* one a row, one a token, two, at random */

struct grouped {
    int64_t batch, length, heads, kv_heads, size, window;
    enum documents documents;
};

/* Lengths around blocks and tiles, windows from a key to more than there are. */
static const struct grouped grouped_cases[] = {
    {1, 1, 1, 1, 1, 0, WHOLE},      {2, 1, 4, 2, 24, 1, ONES},     {2, 7, 4, 1, 8, 1, WHOLE},
    {2, 9, 6, 3, 5, 3, SOME},       {1, 17, 2, 2, 16, 100, ONES},  {1, 64, 4, 2, 24, 16, WHOLE},
    {2, 65, 3, 1, 64, 0, HALVES},   {1, 129, 4, 4, 24, 64, SOME},  {1, 130, 2, 1, 128, 33, SOME},
    {1, 257, 2, 1, 32, 0, SOME},    {1, 300, 4, 2, 16, 65, WHOLE}, {1, 321, 2, 2, 8, 255, HALVES},
    {1, 600, 2, 1, 8, 257, SOME},   {1, 600, 2, 1, 8, 0, HALVES},  {0, 4, 4, 2, 8, 3, WHOLE},
    {2, 0, 4, 2, 8, 3, WHOLE},      {1, 200, 8, 2, 40, 128, SOME}, {1, 127, 2, 1, 64, 63, SOME},
    {1, 161, 2, 1, 72, 40, HALVES}, {1, 600, 1, 1, 16, 1, WHOLE},  {1, 200, 2, 1, 8, 66, WHOLE},
};
#define GROUPED (int)(sizeof grouped_cases / sizeof *grouped_cases)

/* Where the documents of B rows of T begin; freed with free(). */
static inline int32_t *grouped_documents(const struct grouped *c)
{
    int32_t *begins = malloc((size_t)(c->batch * c->length + 1) * sizeof *begins);
    ck_assert_ptr_nonnull(begins);
    for (int64_t i = 0; i < c->batch * c->length; i++) {
        const int64_t t = i % c->length;
        const bool next = c->documents == ONES || (c->documents == HALVES && t == c->length / 2) ||
                          (c->documents == SOME && random_below(c->length) < 3);
        begins[i] = (int32_t)(t == 0 ? 0 : next ? t : begins[i - 1]);
    }
    return begins;
}

static inline struct ddp_attention_shape grouped_shape(const struct grouped *c,
                                                       const int32_t *documents)
{
    return (struct ddp_attention_shape){.batch = c->batch,
                                        .length = c->length,
                                        .heads = c->heads,
                                        .kv_heads = c->kv_heads,
                                        .head_size = c->size,
                                        .q_stride = c->heads * c->size + GAP,
                                        .k_stride = c->kv_heads * c->size + 2 * GAP,
                                        .v_stride = c->kv_heads * c->size + 3 * GAP,
                                        .window = c->window,
                                        .documents = c->documents == WHOLE ? NULL : documents,
                                        .dtype = DDP_F32};
}

/* Arrays of an attention, and their sizes. */
enum { GQ, GK, GV, GY, GLSE, GDY, GDQ, GDK, GDV, GARRAYS };

static inline int64_t grouped_count(const struct ddp_attention_shape *s, int array)
{
    const int64_t rows = s->batch * s->length;
    const int64_t counts[GARRAYS] = {
        [GQ] = rows * s->q_stride,  [GK] = rows * s->k_stride,
        [GV] = rows * s->v_stride,  [GY] = rows * s->heads * s->head_size,
        [GLSE] = rows * s->heads,   [GDY] = rows * s->heads * s->head_size,
        [GDQ] = rows * s->q_stride, [GDK] = rows * s->k_stride,
        [GDV] = rows * s->v_stride,
    };
    return counts[array];
}

#endif
