/* SPDX-License-Identifier: MIT
 *
 * What every communicator must do, on whatever memory: run by each rank. */
#include "config.h"

#include "tests/comm_ranks.h"

#include <stdlib.h>
#include <string.h>

/* All collectives over `count` elements (a part each); memory is one element off its alignment. */
static void one_size(ddp_comm *comm, char *memory, size_t count, enum ddp_dtype dtype,
                     enum ddp_redop op)
{
    const int size = ddp_comm_size(comm), rank = ddp_comm_rank(comm);
    const size_t element = ddp_dtype_bytes(dtype), bytes = count * element;
    const size_t parts = (size_t)size, own = (size_t)rank * bytes;
    char *all = memory + element, *part = all + parts * bytes;
    char *sum = ranks_expect(size, count * parts, dtype, op), *zeros = calloc(parts, bytes + 1);

    ranks_fill(all, count * parts, dtype, rank);
    NEED(ddp_comm_allreduce(comm, all, count * parts, dtype, op) == DDP_OK);
    NEED(ranks_same(all, sum, bytes * parts));

    ranks_fill(all, count * parts, dtype, rank);
    NEED(ddp_comm_reduce_scatter(comm, all, part, count, dtype, op) == DDP_OK);
    NEED(ranks_same(part, sum + own, bytes));
    NEED(ddp_comm_reduce_scatter(comm, all, all + own, count, dtype, op) == DDP_OK);
    NEED(ranks_same(all + own, sum + own, bytes));

    NEED(ddp_comm_all_gather(comm, all + own, all, count, dtype) == DDP_OK);
    NEED(ranks_same(all, sum, bytes * parts));
    ranks_put(all, zeros, bytes * parts);
    NEED(ddp_comm_all_gather(comm, part, all, count, dtype) == DDP_OK);
    NEED(ranks_same(all, sum, bytes * parts));

    const int root = size - 1;
    ranks_fill(all, count, dtype, rank);
    ranks_values(sum, count, dtype, root);
    NEED(ddp_comm_broadcast(comm, all, count, dtype, root) == DDP_OK);
    NEED(ranks_same(all, sum, bytes));
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    free(zeros);
    free(sum);
}

void row_collectives(ddp_comm *comm, ddp_job *job)
{
    static const size_t counts[] = {0, 1, 3, 33, 64, 65, 1001, 40000};
    const size_t bytes = (40000 * (size_t)(ddp_comm_size(comm) + 1) + 1) * 8;
    void *registered, *second, *plain = ranks_alloc(bytes);
    char *zeros = calloc(1, bytes);
    (void)job;
    NEED(ddp_comm_alloc(comm, bytes, &registered) == DDP_OK);
    NEED(ddp_comm_alloc(comm, 5, &second) == DDP_OK);
    NEED(ranks_same(registered, zeros, bytes));
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int dtype = 0; dtype <= DDP_I64; dtype++)
            for (int op = 0; op <= DDP_MAX; op++) {
                if (counts[c] > 1001 && dtype + op > 1)
                    continue;
                one_size(comm, registered, counts[c], (enum ddp_dtype)dtype, (enum ddp_redop)op);
                one_size(comm, plain, counts[c], (enum ddp_dtype)dtype, (enum ddp_redop)op);
                one_size(comm, ddp_comm_rank(comm) & 1 ? plain : registered, counts[c],
                         (enum ddp_dtype)dtype, (enum ddp_redop)op);
            }
    NEED(ddp_comm_free(comm, second) == DDP_OK);
    free(zeros);
    ranks_free(plain, bytes);
}

void row_overlap(ddp_comm *comm, ddp_job *job)
{
    enum { MOST = 5000, BUFFERS = 40 };
    const int rank = ddp_comm_rank(comm);
    float *memory[BUFFERS], one, *single = ranks_alloc(sizeof *single);
    void *all;
    (void)job;
    srand((unsigned)rank);
    NEED(ddp_comm_alloc(comm, sizeof(float) * MOST * BUFFERS, &all) == DDP_OK);
    for (int round = 0; round < 20; round++) {
        const int started = 1 + round * 2; /* more than shm's ring has entries, too */
        for (int b = 0; b < started; b++) {
            memory[b] = (float *)all + (size_t)b * MOST;
            ranks_fill(memory[b], MOST, DDP_F32, rank);
            NEED(ddp_comm_allreduce_start(comm, memory[b], (size_t)(b * 128 + round), DDP_F32,
                                          DDP_SUM) == DDP_OK);
            for (int p = rand() % 3; p > 0; p--)
                NEED(ddp_comm_progress(comm) == DDP_OK);
        }
        NEED(ddp_comm_finish(comm) == DDP_OK);
        for (int b = 0; b < started; b++) {
            size_t count = (size_t)(b * 128 + round);
            float *sum = ranks_expect(ddp_comm_size(comm), count, DDP_F32, DDP_SUM);
            NEED(ranks_same(memory[b], sum, count * 4));
            free(sum);
        }
        one = 1;
        ranks_put(single, &one, sizeof one);
        NEED(ddp_comm_allreduce(comm, single, 1, DDP_F32, DDP_SUM) == DDP_OK);
        ranks_get(&one, single, sizeof one);
        NEED(one == (float)ddp_comm_size(comm));
    }
    if (ddp_comm_size(comm) > 1)
        NEED(ddp_comm_allreduce_start(comm, single, 1, DDP_F32, DDP_SUM) == DDP_ERR_INVALID);
    ranks_free(single, sizeof *single);
}

enum { SLICED = 30000 };

/* One vector: the sums of slices leave the rest alone, and gathered all have all, whether the
 * memory is registered or not. */
static void one_slicing(ddp_comm *comm, size_t count, size_t grain, float *all, float *second,
                        float *plain)
{
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    const size_t begin = ddp_slice_begin(count, grain, rank, size);
    const size_t end = ddp_slice_begin(count, grain, rank + 1, size);
    float *sum = ranks_expect(size, count, DDP_F32, DDP_SUM);
    float *filled = malloc(SLICED * sizeof *filled);
    ranks_values(filled, SLICED, DDP_F32, rank);
    ranks_put(all, filled, SLICED * sizeof *all);
    ranks_put(second, filled, SLICED * sizeof *all);
    NEED(begin % grain == 0 || begin == count);
    NEED(ddp_comm_reduce_slices_start(comm, all, count, grain, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_allreduce_start(comm, second, count, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_finish(comm) == DDP_OK);
    NEED(ranks_same(second, sum, count * sizeof *all));
    memcpy(filled + begin, sum + begin, (end - begin) * sizeof *all);
    NEED(ranks_same(all, filled, SLICED * sizeof *all));
    ranks_put(plain, filled, SLICED * sizeof *all);
    NEED(ddp_comm_gather_slices(comm, all, count, grain, DDP_F32) == DDP_OK);
    if (size > 1)
        NEED(ranks_same(all, sum, count * sizeof *all));
    NEED(ddp_comm_gather_slices(comm, rank & 1 ? plain : all, count, grain, DDP_F32) == DDP_OK);
    NEED(ddp_comm_gather_slices(comm, plain, count, grain, DDP_F32) == DDP_OK);
    if (size > 1)
        NEED(ranks_same(plain, sum, count * sizeof *all));
    free(filled);
    free(sum);
}

void row_slices(ddp_comm *comm, ddp_job *job)
{
    static const size_t counts[] = {0, 1, 16, 4096, 4097, 12288, SLICED};
    void *registered, *second;
    float *plain = ranks_alloc(SLICED * sizeof *plain);
    (void)job;
    NEED(ddp_comm_has_slices(comm));
    NEED(ddp_comm_alloc(comm, SLICED * sizeof(float), &registered) == DDP_OK);
    NEED(ddp_comm_alloc(comm, SLICED * sizeof(float), &second) == DDP_OK);
    for (size_t i = 0; i < 2 * sizeof counts / sizeof counts[0]; i++)
        one_slicing(comm, counts[i / 2], i & 1 ? 4096 : 16, registered, second, plain);
    NEED(ddp_comm_gather_slices(comm, plain, 1, 0, DDP_F32) == DDP_ERR_INVALID);
    if (ddp_comm_size(comm) > 1)
        NEED(ddp_comm_reduce_slices_start(comm, plain, 1, 1, DDP_F32, DDP_SUM) == DDP_ERR_INVALID);
    ranks_free(plain, SLICED * sizeof *plain);
}

/* bf16 is copied, but not reduced; the communicator lives on. */
void row_bf16(ddp_comm *comm, ddp_job *job)
{
    enum { COUNT = 33 };
    const int size = ddp_comm_size(comm);
    uint16_t expected[COUNT], *all = ranks_alloc((size_t)size * sizeof expected);
    uint16_t *part = ranks_alloc(sizeof expected);
    (void)job;
    for (int round = 0; round < 2; round++) {
        ranks_fill(part, COUNT, DDP_BF16, ddp_comm_rank(comm));
        NEED(ddp_comm_all_gather(comm, part, all, COUNT, DDP_BF16) == DDP_OK);
        for (int rank = 0; rank < size; rank++) {
            ranks_values(expected, COUNT, DDP_BF16, rank);
            NEED(ranks_same(all + rank * COUNT, expected, sizeof expected));
        }
        NEED(ddp_comm_broadcast(comm, part, COUNT, DDP_BF16, size - 1) == DDP_OK);
        NEED(ranks_same(part, expected, sizeof expected));
        NEED(ddp_comm_allreduce(comm, part, 1, DDP_BF16, DDP_SUM) == DDP_ERR_INVALID);
        NEED(ddp_comm_allreduce_start(comm, part, 1, DDP_BF16, DDP_MAX) == DDP_ERR_INVALID);
        NEED(ddp_comm_reduce_scatter(comm, all, part, 1, DDP_BF16, DDP_SUM) == DDP_ERR_INVALID);
    }
    ranks_free(part, sizeof expected);
    ranks_free(all, (size_t)size * sizeof expected);
}

void row_memory(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, (size_t)1 << 46, &memory) == DDP_ERR_MEMORY);
    NEED(ddp_comm_alloc(comm, SIZE_MAX, &memory) == DDP_ERR_INVALID);
    NEED(ddp_comm_alloc(comm, 1, &memory) == DDP_OK); /* the communicator lives on */
    NEED(ddp_comm_barrier(comm) == DDP_OK);
}
