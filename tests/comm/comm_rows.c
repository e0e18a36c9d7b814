/* SPDX-License-Identifier: MIT
 *
 * What every communicator must do, on whatever memory: run by each rank. */
#include "config.h"

#include "comm/thin.h"
#include "core/memory.h"
#include "kernels/reduce.h"
#include "tests/comm/comm_ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

/* Any two values of size, type, operation and memory meet at least once. A rank's part of the last
 * size needs two slots of shm. */
void row_collectives(ddp_comm *comm, ddp_job *job)
{
    enum { MOST = 33001, OPERATIONS = DDP_MAX + 1 };
    static const size_t counts[] = {0, 1, 3, 33, 64, 65, 1001, MOST};
    const size_t bytes = (MOST * (size_t)(ddp_comm_size(comm) + 1) + 1) * 8;
    void *registered, *second, *plain = ranks_alloc(bytes);
    char *zeros = calloc(1, bytes);
    (void)job;
    NEED(ddp_comm_alloc(comm, bytes, &registered) == DDP_OK);
    NEED(ddp_comm_alloc(comm, 5, &second) == DDP_OK);
    NEED(ranks_same(registered, zeros, bytes));
    void *const memories[] = {registered, plain, ddp_comm_rank(comm) & 1 ? plain : registered};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (int dtype = 0; dtype <= DDP_I64; dtype++)
            for (int m = 0; m < 3; m++)
                if (counts[c] < MOST || dtype == (m == 2 ? DDP_F64 : DDP_F32))
                    one_size(comm, memories[m], counts[c], (enum ddp_dtype)dtype,
                             (enum ddp_redop)(((int)c + dtype + m + 2) % OPERATIONS));
    NEED(ddp_comm_free(comm, second) == DDP_OK);
    free(zeros);
    ranks_free(plain, bytes);
}

void row_overlap(ddp_comm *comm, ddp_job *job)
{
    enum { MOST = 5000, BUFFERS = 40 };
    const int rank = ddp_comm_rank(comm);
    float *memory[BUFFERS], one, *single = ranks_alloc(sizeof *single);
    float *filled = malloc(MOST * sizeof *filled);
    char *sum = ranks_expect(ddp_comm_size(comm), MOST, DDP_F32, DDP_SUM);
    void *all;
    (void)job;
    srand((unsigned)rank);
    ranks_values(filled, MOST, DDP_F32, rank);
    NEED(ddp_comm_alloc(comm, sizeof(float) * MOST * BUFFERS, &all) == DDP_OK);
    for (int round = 0; round < 7; round++) {
        const int started = 1 + round * 6; /* more than shm's ring has entries, too */
        for (int b = 0; b < started; b++) {
            const size_t count = (size_t)(b * 128 + round);
            memory[b] = (float *)all + (size_t)b * MOST;
            ranks_put(memory[b], filled, count * 4);
            NEED(ddp_comm_allreduce_start(comm, memory[b], count, DDP_F32, DDP_SUM) == DDP_OK);
            for (int p = rand() % 3; p > 0; p--)
                NEED(ddp_comm_progress(comm) == DDP_OK);
        }
        NEED(ddp_comm_finish(comm) == DDP_OK);
        for (int b = 0; b < started; b++)
            NEED(ranks_same(memory[b], sum, (size_t)(b * 128 + round) * 4));
        one = 1;
        ranks_put(single, &one, sizeof one);
        NEED(ddp_comm_allreduce(comm, single, 1, DDP_F32, DDP_SUM) == DDP_OK);
        ranks_get(&one, single, sizeof one);
        NEED(one == (float)ddp_comm_size(comm));
    }
    if (ddp_comm_size(comm) > 1)
        NEED(ddp_comm_allreduce_start(comm, single, 1, DDP_F32, DDP_SUM) == DDP_ERR_INVALID);
    free(filled);
    free(sum);
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
    NEED(ddp_comm_alloc(comm, SLICED * sizeof(float), &registered) == DDP_OK);
    NEED(ddp_comm_alloc(comm, SLICED * sizeof(float), &second) == DDP_OK);
    for (size_t i = 0; i < 2 * sizeof counts / sizeof counts[0]; i++)
        one_slicing(comm, counts[i / 2], i & 1 ? 4096 : 16, registered, second, plain);
    NEED(ddp_comm_gather_slices(comm, plain, 1, 0, DDP_F32) == DDP_ERR_INVALID);
    if (ddp_comm_size(comm) > 1)
        NEED(ddp_comm_reduce_slices_start(comm, plain, 1, 1, DDP_F32, DDP_SUM) == DDP_ERR_INVALID);
    ranks_free(plain, SLICED * sizeof *plain);
}

/* Leaves' values, added up over a subtree of them. */
static char *sum_leaves(int begin, int end, size_t count, size_t rounded)
{
    const struct ddp_comm_group group = {begin, 1, end - begin};
    if (rounded == 0)
        return ranks_expect_of(&group, count, DDP_F32, DDP_SUM);
    const void *leaves[DDP_REDUCE_MAX];
    void *sum = malloc(count * sizeof(float));
    for (int i = begin; i < end; i++) {
        const struct ddp_comm_group leaf = {i, 1, 1};
        float *values = (float *)(void *)ranks_expect_of(&leaf, count, DDP_F32, DDP_SUM);
        for (size_t k = 0; k < count; k++) /* no longer exact in bf16 */
            values[k] *= 1 + (float)(i + (int)(k % 7)) / 64;
        leaves[i - begin] = values;
    }
    const struct ddp_reduce reduce = {.source_count = end - begin,
                                      .destination_count = 1,
                                      .sources = leaves,
                                      .destinations = &sum,
                                      .count = (int64_t)count,
                                      .dtype = DDP_F32,
                                      .op = DDP_SUM,
                                      .rounded = (int64_t)rounded};
    NEED(ddp_reduce(&reduce) == DDP_OK);
    for (int i = begin; i < end; i++)
        free((void *)leaves[i - begin]);
    return sum;
}

static void put_root(char *memory, int begin, int end, size_t count, size_t rounded)
{
    char *sum = sum_leaves(begin, end, count, rounded);
    ranks_put(memory, sum, count * sizeof(float));
    free(sum);
}

/* Each rank brings the roots of a run of so many leaves: all have the sum of all leaves. */
static void one_tree(ddp_comm *comm, char *memory, int leaves, size_t count, size_t rounded)
{
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    const size_t bytes = count * sizeof(float), grain = 16;
    const size_t begin = 4 * ddp_slice_begin(count, grain, rank, size);
    const size_t end = 4 * ddp_slice_begin(count, grain, rank + 1, size);
    int *first = calloc((size_t)size + 1, sizeof *first),
        *ends = calloc((size_t)leaves, sizeof *ends);
    struct ddp_comm_roots roots = {.first = first, .end = ends, .bytes = (bytes + 63) / 64 * 64};
    char *sum = sum_leaves(0, leaves, count, rounded), *got = malloc(bytes);
    for (int r = 0; r < size; r++) {
        roots.count += ddp_reduce_run_roots(0, leaves, r * leaves / size, (r + 1) * leaves / size,
                                            ends + roots.count);
        first[r + 1] = roots.count;
    }
    for (int round = 0; round < 2; round++) {
        for (int i = first[rank]; i < first[rank + 1]; i++)
            put_root(memory + (size_t)(i - first[rank]) * roots.bytes,
                     i == 0             ? 0
                     : i == first[rank] ? rank * leaves / size
                                        : ends[i - 1],
                     ends[i], count, rounded);
        NEED(ddp_comm_reduce_roots_start(comm, (float *)(void *)memory, count, round ? 0 : grain,
                                         &roots, rounded, false) == DDP_OK);
        NEED(ddp_comm_finish(comm) == DDP_OK);
        ranks_get(got, memory, bytes);
        NEED(round ? memcmp(got, sum, bytes) == 0
                   : memcmp(got + begin, sum + begin, end - begin) == 0);
    }
    free(got);
    free(sum);
    free(ends);
    free(first);
}

/* Pages that are in memory. */
static size_t pages_in(char *memory, size_t bytes)
{
    unsigned char in[256];
    size_t pages = 0;
    NEED(bytes <= sizeof in * DDP_PAGE && mincore(memory, bytes, in) == 0);
    for (size_t i = 0; i < bytes / DDP_PAGE; i++)
        pages += in[i] & 1;
    return pages;
}

/* Two roots of each rank in memory that is there only while it is used, twice: of a sum its slice
 * stays. */
static void thin_roots(ddp_comm *comm)
{
    enum { COUNT = 40000, ROOM = 40 * DDP_PAGE, GRAIN = 4096 };
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    const size_t begin = ddp_slice_begin(COUNT, GRAIN, rank, size), bytes = COUNT * sizeof(float);
    const size_t own = (ddp_slice_begin(COUNT, GRAIN, rank + 1, size) - begin) * sizeof(float);
    struct ddp_comm_roots roots = {.count = 2 * size, .bytes = ROOM};
    char *sum = sum_leaves(0, 2 * size, COUNT, 0);
    char *zeros = calloc(1, bytes);
    void *memory;
    roots.first = calloc((size_t)size + 1, sizeof *roots.first);
    roots.end = calloc((size_t)roots.count, sizeof *roots.end);
    for (int i = 0; i < roots.count; i++)
        roots.first[(i + 2) / 2] = roots.end[i] = i + 1;
    NEED(ddp_comm_alloc_thin(comm, 2 * ROOM, &memory) == DDP_OK);
    char *at = memory;
    NEED(pages_in(at, 2 * ROOM) == 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            NEED(ddp_comm_provide(comm, at + i * ROOM, bytes) == DDP_OK);
            NEED(memcmp(at + i * ROOM, zeros, i ? bytes / DDP_PAGE * DDP_PAGE : 4 * begin) == 0);
            put_root(at + i * ROOM, 2 * rank + i, 2 * rank + i + 1, COUNT, 0);
            NEED(pages_in(at + i * ROOM, ROOM) == ROOM / DDP_PAGE);
        }
        NEED(ddp_comm_reduce_roots_start(comm, (float *)memory, COUNT, GRAIN, &roots, 0, true) ==
             DDP_OK);
        NEED(ddp_comm_settle(comm, 1) == DDP_OK);
        NEED(ddp_comm_settle(comm, 0) == DDP_OK);
        NEED(memcmp(at + 4 * begin, sum + 4 * begin, own) == 0);
        /* A page that ends in the middle may stay. */
        NEED(pages_in(at, ROOM) <= own / DDP_PAGE + 1 && pages_in(at + ROOM, ROOM) <= 1);
        NEED(ddp_comm_finish(comm) == DDP_OK);
        NEED(ddp_comm_barrier(comm) == DDP_OK);
    }
    NEED(ddp_comm_provide(comm, sum, bytes) == DDP_ERR_INVALID);
    free(zeros);
    free(sum);
    free(roots.end);
    free(roots.first);
}

/* Slices that come to each machine's copy, which goes in between, while a sum is on its way. */
static void thin_gathered(ddp_comm *comm)
{
    enum { COUNT = 40000, GRAIN = 4096 };
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    const size_t begin = ddp_slice_begin(COUNT, GRAIN, rank, size), bytes = COUNT * sizeof(float);
    const size_t end = ddp_slice_begin(COUNT, GRAIN, rank + 1, size);
    void *shared, *own;
    NEED(ddp_comm_alloc_thin_shared(comm, bytes, &shared) == DDP_OK);
    NEED(ddp_comm_alloc(comm, sizeof(float), &own) == DDP_OK);
    float *all = shared, *sum = own;
    NEED(pages_in(shared, bytes) == 0);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    for (int round = 0; round < 2; round++) {
        NEED(ddp_comm_provide(comm, all, bytes) == DDP_OK);
        for (size_t i = begin; i < end; i++)
            all[i] = (float)(i + (size_t)round);
        *sum = 1;
        NEED(ddp_comm_allreduce_start(comm, sum, 1, DDP_F32, DDP_SUM) == DDP_OK);
        NEED(ddp_comm_gather_slices_start(comm, all, COUNT, GRAIN, DDP_F32) == DDP_OK);
        NEED(ddp_comm_settle(comm, 0) == DDP_OK);
        NEED(ddp_comm_finish(comm) == DDP_OK);
        NEED(*sum == (float)size);
        for (size_t i = 0; i < COUNT; i++)
            NEED(all[i] == (float)(i + (size_t)round));
        NEED(ddp_comm_barrier(comm) == DDP_OK);
        ddp_comm_punch(comm, all, bytes);
        NEED(pages_in(shared, bytes) <= 1); /* the page that ends in the middle */
        NEED(ddp_comm_barrier(comm) == DDP_OK);
    }
}

/* For each number of leaves; the last size is in several pieces where there are any. */
void row_roots(ddp_comm *comm, ddp_job *job)
{
    enum { ROOTS = 8 };
    static const size_t counts[] = {1, 17, 4097, 100003};
    const int size = ddp_comm_size(comm), leaves[] = {size, 8, 13, 2 * size + 5, 64};
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, ROOTS * (counts[3] + 16) * sizeof(float), &memory) == DDP_OK);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t l = 0; l < sizeof leaves / sizeof leaves[0]; l++)
            if (leaves[l] >= size && (l == 2 || counts[c] < counts[3])) {
                one_tree(comm, memory, leaves[l], counts[c], 0);
                if (!ranks_device && l < 3) {
                    one_tree(comm, memory, leaves[l], counts[c], counts[c]);
                    one_tree(comm, memory, leaves[l], counts[c], (counts[c] + 2) / 3);
                }
            }
    if (size > 1 && ddp_comm_has_shared(comm)) {
        thin_roots(comm);
        thin_gathered(comm);
    }
}

/* Buffers that are used again the moment that a collective returns. */
struct reused {
    int size, rank;
    size_t count, bytes; /* of a part; elements are float32 */
    char *all, *part;    /* size parts; one */
    const char *own;     /* host: what this rank puts in, for all parts */
    const char *sum;     /* ... their sum over the ranks */
    const char *parts;   /* ... part r as rank r has it */
    char *result, *junk;
};

/* Spoils `parts` parts, first of all the ends, which others read last. */
static void spoil(const struct reused *r, char *memory, int parts)
{
    const size_t end = r->bytes < 4096 ? r->bytes : 4096;
    for (int p = parts - 1; p >= 0; p--)
        ranks_put(memory + (size_t)(p + 1) * r->bytes - end, r->junk, end);
    ranks_put(memory, r->junk, (size_t)parts * r->bytes);
}

static void reuse_reduced(ddp_comm *comm, const struct reused *r)
{
    const size_t whole = r->bytes * (size_t)r->size;
    ranks_put(r->all, r->own, whole);
    NEED(ddp_comm_reduce_scatter(comm, r->all, r->part, r->count, DDP_F32, DDP_SUM) == DDP_OK);
    spoil(r, r->all, r->size);
    NEED(ranks_same(r->part, r->sum + (size_t)r->rank * r->bytes, r->bytes));
    ranks_put(r->all, r->own, whole);
    NEED(ddp_comm_allreduce(comm, r->all, r->count * (size_t)r->size, DDP_F32, DDP_SUM) == DDP_OK);
    ranks_get(r->result, r->all, whole);
    spoil(r, r->all, r->size);
    NEED(memcmp(r->result, r->sum, whole) == 0);
    ranks_put(r->all, r->own, r->bytes); /* a small one goes another way */
    NEED(ddp_comm_allreduce(comm, r->all, 8, DDP_F32, DDP_SUM) == DDP_OK);
    ranks_get(r->result, r->all, 32);
    spoil(r, r->all, 1);
    NEED(memcmp(r->result, r->sum, 32) == 0);
}

static void reuse_copied(ddp_comm *comm, const struct reused *r, int root)
{
    const size_t whole = r->bytes * (size_t)r->size, elements = r->count * (size_t)r->size;
    ranks_put(r->part, r->own, r->bytes);
    NEED(ddp_comm_all_gather(comm, r->part, r->all, r->count, DDP_F32) == DDP_OK);
    spoil(r, r->part, 1);
    ranks_get(r->result, r->all, whole);
    spoil(r, r->all, r->size);
    NEED(memcmp(r->result, r->parts, whole) == 0);
    ranks_put(r->part, r->own, r->bytes);
    NEED(ddp_comm_broadcast(comm, r->part, r->count, DDP_F32, root) == DDP_OK);
    ranks_get(r->result, r->part, r->bytes);
    spoil(r, r->part, 1);
    NEED(memcmp(r->result, r->parts + (size_t)root * r->bytes, r->bytes) == 0);
    ranks_put(r->all, r->sum, whole); /* of which its slice alone is this rank's to give */
    const size_t begin = 4 * ddp_slice_begin(elements, 16, r->rank, r->size);
    const size_t end = 4 * ddp_slice_begin(elements, 16, r->rank + 1, r->size);
    ranks_put(r->all, r->junk, begin);
    ranks_put(r->all + end, r->junk, whole - end);
    NEED(ddp_comm_gather_slices(comm, r->all, elements, 16, DDP_F32) == DDP_OK);
    ranks_get(r->result, r->all, whole);
    spoil(r, r->all, r->size);
    NEED(memcmp(r->result, r->sum, whole) == 0);
}

static void reuse_slices(ddp_comm *comm, const struct reused *r)
{
    const size_t whole = r->bytes * (size_t)r->size, elements = r->count * (size_t)r->size;
    const size_t begin = 4 * ddp_slice_begin(elements, 16, r->rank, r->size);
    const size_t end = 4 * ddp_slice_begin(elements, 16, r->rank + 1, r->size);
    ranks_put(r->all, r->own, whole);
    NEED(ddp_comm_reduce_slices_start(comm, r->all, elements, 16, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_finish(comm) == DDP_OK);
    ranks_get(r->result, r->all, whole);
    spoil(r, r->all, r->size);
    NEED(memcmp(r->result + begin, r->sum + begin, end - begin) == 0);
    ranks_put(r->all, r->own, whole);
    NEED(ddp_comm_allreduce_start(comm, r->all, elements, DDP_F32, DDP_SUM) == DDP_OK);
    NEED(ddp_comm_finish(comm) == DDP_OK);
    ranks_get(r->result, r->all, whole);
    spoil(r, r->all, r->size);
    NEED(memcmp(r->result, r->sum, whole) == 0);
}

/* A collective that returns has let go of its buffers: nobody reads or writes there any more. */
void row_returns(ddp_comm *comm, ddp_job *job)
{
    const int size = ddp_comm_size(comm), rounds = ranks_device ? 2 : 12;
    struct reused r = {.size = size, .rank = ddp_comm_rank(comm)};
    r.count = ranks_device ? 1000 : 34000; /* more than a slot of shm's */
    r.bytes = r.count * sizeof(float);
    const size_t elements = r.count * (size_t)size, whole = elements * sizeof(float);
    void *registered, *parts = malloc(whole), *own = malloc(whole);
    char *plain = ranks_alloc(whole + r.bytes);
    (void)job;
    NEED(ddp_comm_alloc(comm, whole + r.bytes, &registered) == DDP_OK);
    for (int rank = 0; rank < size; rank++)
        ranks_values((char *)parts + (size_t)rank * r.bytes, r.count, DDP_F32, rank);
    ranks_values(own, elements, DDP_F32, r.rank);
    r.own = own;
    r.parts = parts;
    r.sum = ranks_expect(size, elements, DDP_F32, DDP_SUM);
    r.result = malloc(whole);
    r.junk = malloc(whole);
    memset(r.junk, 0x5a, whole);
    for (int round = 0; round < rounds; round++) {
        const bool mixed = round % 4 == 3, staged = round % 4 == 2 || (mixed && r.rank % 2);
        r.all = staged ? plain : registered;
        r.part = r.all + whole;
        reuse_reduced(comm, &r);
        reuse_copied(comm, &r, round % size);
        r.all = registered;
        reuse_slices(comm, &r);
    }
    free(parts);
    free(own);
    free((void *)(uintptr_t)r.sum);
    free(r.result);
    free(r.junk);
    ranks_free(plain, whole + r.bytes);
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

/* What the root of a broadcast has is not written. */
void row_only_read(ddp_comm *comm, ddp_job *job)
{
    enum { MOST = 100000 };
    const int rank = ddp_comm_rank(comm);
    float *expected = ranks_alloc(MOST * sizeof *expected);
    (void)job;
    ranks_values(expected, MOST, DDP_F32, 1);
    for (size_t count = 1000; count <= MOST; count *= 100) {
        float *values = mmap(NULL, count * sizeof *values, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(values != MAP_FAILED);
        ranks_values(values, count, DDP_F32, rank);
        NEED(rank != 1 || mprotect(values, count * sizeof *values, PROT_READ) == 0);
        NEED(ddp_comm_broadcast(comm, values, count, DDP_F32, 1) == DDP_OK);
        NEED(ranks_same(values, expected, count * sizeof *values));
        munmap(values, count * sizeof *values);
    }
    ranks_free(expected, MOST * sizeof *expected);
}
