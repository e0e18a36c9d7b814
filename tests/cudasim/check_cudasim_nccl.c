/* SPDX-License-Identifier: MIT
 *
 * The simulated NCCL between real processes: every call, groups, several communicators, graphs,
 * threads. */
#include "config.h"

#include "kernels/bf16.h"
#include "tests/cudasim/cudasim_nccl_test.h"

#include <pthread.h>

static const int sizes[] = {2, 3, 4, 8};
#define SIZES ((int)(sizeof sizes / sizeof sizes[0]))

static void setup(void)
{
    setenv("DDP_CUDASIM_DEVICES", "8", 1);
}

/* --- collectives --- */
static const size_t counts[] = {0, 1, 7, 1000, 65536, 200001}; /* a slot has 65536 floats */

static void check_all_reduce(struct rank *r, size_t count, int seed)
{
    float *data = pattern_new(r, count, seed), *host = malloc((count + 1) * sizeof *host);
    NCCL_OK(ncclAllReduce(data, data, count, ncclFloat, ncclSum, r->comm, r->stream));
    to_host(host, data, count * sizeof *host, r->stream);
    for (size_t i = 0; i < count; i++)
        EXPECT(host[i] == pattern_sum(r->size, i, seed));
    CUDA_OK(cudaFree(data));
    free(host);
}

static void check_rooted(struct rank *r, size_t count, int root)
{
    float *data = pattern_new(r, count, root), *out = device_new(count * sizeof *out);
    float *host = malloc((count + 1) * sizeof *host);
    NCCL_OK(ncclReduce(data, r->rank == root ? out : NULL, count, ncclFloat, ncclSum, root, r->comm,
                       r->stream));
    to_host(host, r->rank == root ? out : data, count * sizeof *host, r->stream);
    for (size_t i = 0; i < count; i++)
        EXPECT(host[i] ==
               (r->rank == root ? pattern_sum(r->size, i, root) : pattern(r->rank, i, root)));
    NCCL_OK(ncclBroadcast(r->rank == root ? data : NULL, out, count, ncclFloat, root, r->comm,
                          r->stream));
    to_host(host, out, count * sizeof *host, r->stream);
    for (size_t i = 0; i < count; i++)
        EXPECT(host[i] == pattern(root, i, root));
    CUDA_OK(cudaFree(data));
    CUDA_OK(cudaFree(out));
    free(host);
}

static void check_scattered(struct rank *r, size_t count, bool in_place)
{
    const size_t all = count * (size_t)r->size, mine = count * (size_t)r->rank;
    float *data = pattern_new(r, all, 3), *out = device_new(count * sizeof *out);
    float *part = in_place ? data + mine : out, *host = malloc((all + 1) * sizeof *host);
    NCCL_OK(ncclReduceScatter(data, part, count, ncclFloat, ncclSum, r->comm, r->stream));
    to_host(host, part, count * sizeof *host, r->stream);
    for (size_t i = 0; i < count; i++)
        EXPECT(host[i] == pattern_sum(r->size, mine + i, 3));
    NCCL_OK(ncclAllGather(part, data, count, ncclFloat, r->comm, r->stream));
    to_host(host, data, all * sizeof *host, r->stream);
    for (size_t i = 0; i < all; i++)
        EXPECT(host[i] == pattern_sum(r->size, i, 3));
    CUDA_OK(cudaFree(data));
    CUDA_OK(cudaFree(out));
    free(host);
}

static void collectives(struct rank *r)
{
    rank_begin(r);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        check_all_reduce(r, counts[c], (int)c);
        for (int root = 0; root < r->size; root += r->size - 1)
            check_rooted(r, counts[c], root);
        check_scattered(r, counts[c], c % 2 == 0);
    }
    for (int repeat = 0; repeat < 20; repeat++)
        check_all_reduce(r, 1000, repeat);
    rank_end(r);
}

START_TEST(test_collectives)
{
    run_ranks(sizes[_i], collectives, NULL, 0);
}
END_TEST

/* --- types and operators --- */
static double value_of(const void *data, size_t i, ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
        return ((const int8_t *)data)[i];
    case ncclUint8:
        return ((const uint8_t *)data)[i];
    case ncclInt32:
        return ((const int32_t *)data)[i];
    case ncclUint32:
        return ((const uint32_t *)data)[i];
    case ncclInt64:
        return (double)((const int64_t *)data)[i];
    case ncclUint64:
        return (double)((const uint64_t *)data)[i];
    case ncclFloat32:
        return (double)((const float *)data)[i];
    case ncclBfloat16:
        return (double)ddp_bf16_to_f32(((const uint16_t *)data)[i]);
    default:
        return ((const double *)data)[i];
    }
}

static size_t store(void *data, size_t i, ncclDataType_t type, int value)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        ((int8_t *)data)[i] = (int8_t)value;
        return 1;
    case ncclInt32:
    case ncclUint32:
        ((int32_t *)data)[i] = value;
        return 4;
    case ncclInt64:
    case ncclUint64:
        ((int64_t *)data)[i] = value;
        return 8;
    case ncclFloat32:
        ((float *)data)[i] = (float)value;
        return 4;
    case ncclBfloat16:
        ((uint16_t *)data)[i] = ddp_bf16_of((float)value);
        return 2;
    default:
        ((double *)data)[i] = value;
        return 8;
    }
}

static double expected(int size, size_t i, ncclRedOp_t op)
{
    double result = 0;
    for (int rank = 0; rank < size; rank++) {
        const double value = (double)((i + (size_t)rank) % 3 + 1);
        if (rank == 0)
            result = value;
        else if (op == ncclProd)
            result *= value;
        else if (op == ncclMax)
            result = value > result ? value : result;
        else if (op == ncclMin)
            result = value < result ? value : result;
        else
            result += value;
    }
    return op == ncclAvg ? result / size : result;
}

static void types(struct rank *r)
{
    static const ncclDataType_t all[] = {ncclInt8,    ncclUint8,   ncclInt32,
                                         ncclUint32,  ncclInt64,   ncclUint64,
                                         ncclFloat32, ncclFloat64, ncclBfloat16};
    enum { COUNT = 100 };
    unsigned char host[COUNT * 8];
    rank_begin(r);
    for (size_t t = 0; t < sizeof all / sizeof all[0]; t++)
        for (int op = ncclSum; op <= ncclAvg; op++) {
            size_t bytes = 0;
            if (op == ncclProd && all[t] <= ncclUint8 && r->size > 4)
                continue; /* too large */
            for (size_t i = 0; i < COUNT; i++)
                bytes = store(host, i, all[t], (int)((i + (size_t)r->rank) % 3 + 1));
            void *data = device_new(COUNT * bytes);
            to_device(data, host, COUNT * bytes, r->stream);
            NCCL_OK(ncclAllReduce(data, data, COUNT, all[t], (ncclRedOp_t)op, r->comm, r->stream));
            to_host(host, data, COUNT * bytes, r->stream);
            const bool whole = all[t] < ncclFloat16;
            for (size_t i = 0; i < COUNT; i++) {
                const double got = value_of(host, i, all[t]);
                double want = expected(r->size, i, (ncclRedOp_t)op);
                want = whole ? (double)(long)want : want;
                EXPECT(got - want < want / 128 && want - got < want / 128);
                EXPECT(op == ncclAvg || got == want);
            }
            CUDA_OK(cudaFree(data));
        }
    void *data = device_new(64);
    EXPECT(ncclAllReduce(data, data, 4, ncclFloat16, ncclSum, r->comm, r->stream) ==
           ncclInvalidArgument);
    NCCL_OK(ncclBroadcast(data, data, 4, ncclFloat16, 0, r->comm, r->stream));
    EXPECT(ncclBroadcast(data, data, 4, ncclFloat, r->size, r->comm, r->stream) ==
           ncclInvalidArgument);
    rank_end(r);
}

START_TEST(test_types)
{
    run_ranks(sizes[_i], types, NULL, 0);
}
END_TEST

/* Sums go from rank 0 upwards; DDP_CUDASIM_NCCL_ORDER changes that, alike for all ranks. */
static void orders(struct rank *r)
{
    static const float terms[] = {1, 1e8f, -1e8f};
    rank_begin(r);
    float *data = device_new(sizeof *data), *all = device_new(3 * sizeof *all), host[3];
    for (int permuted = 0; permuted < 2; permuted++) {
        if (permuted)
            setenv("DDP_CUDASIM_NCCL_ORDER", "permuted", 1);
        for (int repeat = 0; repeat < 3; repeat++) {
            to_device(data, &terms[r->rank], sizeof *data, r->stream);
            NCCL_OK(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, r->comm, r->stream));
            NCCL_OK(ncclAllGather(data, all, 1, ncclFloat, r->comm, r->stream));
            to_host(host, all, sizeof host, r->stream);
            EXPECT(host[0] == host[1] && host[1] == host[2]);
            EXPECT(permuted || host[0] == 0);
            if (host[0] == 1)
                atomic_store(&r->board->flag, 1);
        }
    }
    meet(r, 0);
    EXPECT(atomic_load(&r->board->flag) == 1);
    rank_end(r);
}

START_TEST(test_orders)
{
    run_ranks(3, orders, NULL, 0);
}
END_TEST

/* --- send, receive, groups --- */
/* Each rank sends a part of its own to each, itself too, of more than a slot; twice in one group.
 */
static void exchange(struct rank *r)
{
    enum { COUNT = 40000 };
    const size_t all = (size_t)r->size * COUNT;
    rank_begin(r);
    float *out = pattern_new(r, all, 1), *in = device_new(all * sizeof *in);
    float *host = malloc(all * sizeof *host), *last = device_new(4);
    for (int repeat = 0; repeat < 3; repeat++) {
        NCCL_OK(ncclGroupStart());
        for (int peer = 0; peer < r->size; peer++) {
            NCCL_OK(ncclSend(out + peer * COUNT, COUNT, ncclFloat, peer, r->comm, r->stream));
            NCCL_OK(ncclSend(out, 1, ncclFloat, peer, r->comm, r->stream));
            NCCL_OK(ncclRecv(in + peer * COUNT, COUNT, ncclFloat, peer, r->comm, r->stream));
            NCCL_OK(ncclRecv(last, 1, ncclFloat, peer, r->comm, r->stream));
        }
        NCCL_OK(ncclGroupEnd());
        to_host(host, in, all * sizeof *host, r->stream);
        for (size_t i = 0; i < all; i++)
            EXPECT(host[i] == pattern((int)(i / COUNT), (size_t)r->rank * COUNT + i % COUNT, 1));
        CUDA_OK(cudaMemsetAsync(in, 0, all * sizeof *in, r->stream));
    }
    /* Outside a group: along a chain. */
    if (r->rank > 0)
        NCCL_OK(ncclRecv(last, 1, ncclFloat, r->rank - 1, r->comm, r->stream));
    if (r->rank < r->size - 1)
        NCCL_OK(ncclSend(r->rank == 0 ? out : last, 1, ncclFloat, r->rank + 1, r->comm, r->stream));
    if (r->rank > 0) {
        to_host(host, last, sizeof *host, r->stream);
        EXPECT(host[0] == pattern(0, 0, 1));
    }
    EXPECT(ncclSend(out, 1, ncclFloat, r->size, r->comm, r->stream) == ncclInvalidArgument);
    free(host);
    rank_end(r);
}

START_TEST(test_exchange)
{
    run_ranks(sizes[_i], exchange, NULL, 0);
}
END_TEST

/* Several collectives of two communicators on three streams in one group, in orders that differ. */
static void groups(struct rank *r)
{
    enum { COUNT = 1000 };
    ncclComm_t second;
    cudaStream_t other, third;
    rank_begin(r);
    NCCL_OK(ncclCommInitRank(&second, r->size, id_of(r, 1), r->rank));
    CUDA_OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CUDA_OK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
    float *host = malloc(COUNT * sizeof *host), *data[4];
    for (int repeat = 0; repeat < 5; repeat++) {
        for (int i = 0; i < 4; i++)
            data[i] = pattern_new(r, COUNT, i);
        NCCL_OK(ncclGroupStart());
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < 2; i++) {
            ncclComm_t comm = (r->rank + i) % 2 ? second : r->comm;
            const int first = comm == second ? 2 : 0;
            NCCL_OK(ncclAllReduce(data[first], data[first], COUNT, ncclFloat, ncclSum, comm,
                                  comm == second ? third : r->stream));
            NCCL_OK(ncclAllReduce(data[first + 1], data[first + 1], COUNT, ncclFloat, ncclSum, comm,
                                  comm == second ? third : other));
        }
        NCCL_OK(ncclGroupEnd());
        NCCL_OK(ncclGroupEnd());
        for (int i = 0; i < 4; i++) {
            to_host(host, data[i], COUNT * sizeof *host,
                    i == 0   ? r->stream
                    : i == 1 ? other
                             : third);
            for (size_t j = 0; j < COUNT; j++)
                EXPECT(host[j] == pattern_sum(r->size, j, i));
            CUDA_OK(cudaFree(data[i]));
        }
    }
    EXPECT(ncclGroupEnd() == ncclInvalidUsage);
    NCCL_OK(ncclCommFinalize(second));
    NCCL_OK(ncclCommDestroy(second));
    free(host);
    rank_end(r);
}

START_TEST(test_groups)
{
    run_ranks(sizes[_i], groups, NULL, 0);
}
END_TEST

/* A rank waits for its stream and then for its peer, which does the reverse: a GPU goes on by
 * itself. */
static void progress(struct rank *r)
{
    rank_begin(r);
    float *data = pattern_new(r, 10, 0);
    NCCL_OK(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, r->comm, r->stream));
    if (r->rank == 0)
        CUDA_OK(cudaStreamSynchronize(r->stream));
    meet(r, 0);
    CUDA_OK(cudaStreamSynchronize(r->stream));
    rank_end(r);
}

START_TEST(test_progress)
{
    run_ranks(2, progress, NULL, 0);
}
END_TEST

/* A captured collective, launched several times, among others. */
static void graphs(struct rank *r)
{
    enum { COUNT = 100 };
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    rank_begin(r);
    float host[COUNT], *data = pattern_new(r, COUNT, 0), *other = pattern_new(r, COUNT, 0);
    CUDA_OK(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce(data, data, COUNT, ncclFloat, ncclMax, r->comm, r->stream));
    NCCL_OK(ncclAllReduce(other, other, COUNT, ncclFloat, ncclMin, r->comm, r->stream));
    NCCL_OK(ncclGroupEnd());
    CUDA_OK(cudaStreamEndCapture(r->stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int repeat = 0; repeat < 4; repeat++) {
        for (size_t i = 0; i < COUNT; i++)
            host[i] = pattern(r->rank, i, repeat);
        to_device(data, host, sizeof host, r->stream);
        to_device(other, host, sizeof host, r->stream);
        CUDA_OK(cudaGraphLaunch(exec, r->stream));
        check_all_reduce(r, 50, repeat);
        to_host(host, data, sizeof host, r->stream);
        for (size_t i = 0; i < COUNT; i++)
            EXPECT(host[i] == pattern(r->size - 1, i, repeat));
        to_host(host, other, sizeof host, r->stream);
        for (size_t i = 0; i < COUNT; i++)
            EXPECT(host[i] == pattern(0, i, repeat));
    }
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    rank_end(r);
}

START_TEST(test_graphs)
{
    run_ranks(sizes[_i], graphs, NULL, 0);
}
END_TEST

/* --- one process --- */
START_TEST(test_init_all)
{
    enum { COUNT = 70000, DEVICES = 4 };
    static const int twice[] = {0, 1, 0, 2};
    ncclComm_t comms[DEVICES];
    struct rank ranks[DEVICES];
    float *data[DEVICES], *host = malloc(COUNT * sizeof *host);
    EXPECT(ncclCommInitAll(comms, DEVICES, twice) == ncclInvalidUsage);
    NCCL_OK(ncclCommInitAll(comms, DEVICES, NULL));
    for (int i = 0; i < DEVICES; i++) {
        int device, rank;
        NCCL_OK(ncclCommCuDevice(comms[i], &device));
        NCCL_OK(ncclCommUserRank(comms[i], &rank));
        EXPECT(device == i && rank == i);
        CUDA_OK(cudaSetDevice(i));
        ranks[i] = (struct rank){.rank = i, .size = DEVICES};
        CUDA_OK(cudaStreamCreateWithFlags(&ranks[i].stream, cudaStreamNonBlocking));
        data[i] = pattern_new(&ranks[i], COUNT, 0);
    }
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < DEVICES; i++)
        NCCL_OK(
            ncclAllReduce(data[i], data[i], COUNT, ncclFloat, ncclSum, comms[i], ranks[i].stream));
    NCCL_OK(ncclGroupEnd());
    for (int i = 0; i < DEVICES; i++) {
        to_host(host, data[i], COUNT * sizeof *host, ranks[i].stream);
        for (size_t j = 0; j < COUNT; j++)
            EXPECT(host[j] == pattern_sum(DEVICES, j, 0));
    }
    for (int i = 0; i < DEVICES; i++)
        NCCL_OK(ncclCommDestroy(comms[i]));
    free(host);
}
END_TEST

static void *thread_body(void *arg)
{
    struct rank *r = arg;
    rank_begin(r);
    for (int repeat = 0; repeat < 10; repeat++)
        check_all_reduce(r, 1000, repeat);
    rank_end(r);
    return NULL;
}

START_TEST(test_threads)
{
    static struct board board;
    struct rank ranks[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        ranks[i] = (struct rank){.rank = i, .size = 4, .board = &board};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, thread_body, &ranks[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

/* --- the rest --- */
static void registered(struct rank *r)
{
    void *memory, *handle;
    rank_begin(r);
    NCCL_OK(ncclMemAlloc(&memory, 4096));
    NCCL_OK(ncclCommRegister(r->comm, memory, 4096, &handle));
    EXPECT(handle != NULL);
    CUDA_OK(cudaMemsetAsync(memory, 0, 4096, r->stream));
    NCCL_OK(ncclAllReduce(memory, memory, 1024, ncclFloat, ncclSum, r->comm, r->stream));
    CUDA_OK(cudaStreamSynchronize(r->stream));
    NCCL_OK(ncclCommDeregister(r->comm, handle));
    EXPECT(ncclCommDeregister(r->comm, handle) == ncclInvalidUsage);
    NCCL_OK(ncclMemFree(memory));
    rank_end(r);
}

START_TEST(test_registered)
{
    run_ranks(2, registered, NULL, 0);
}
END_TEST

START_TEST(test_words)
{
    int version;
    NCCL_OK(ncclGetVersion(&version));
    ck_assert_int_eq(version, NCCL_VERSION_CODE);
    for (int i = ncclSuccess; i <= ncclInProgress; i++)
        ck_assert_ptr_nonnull(ncclGetErrorString((ncclResult_t)i));
    ck_assert_str_eq(ncclGetErrorString(ncclRemoteError),
                     "remote process exited or there was a network error");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cudasim_nccl");
    TCase *calls = test_case(suite, "calls", 60);
    tcase_add_checked_fixture(calls, setup, NULL);
    tcase_add_loop_test(calls, test_collectives, 0, SIZES);
    tcase_add_loop_test(calls, test_types, 0, SIZES);
    tcase_add_test(calls, test_orders);
    tcase_add_loop_test(calls, test_exchange, 0, SIZES);
    tcase_add_loop_test(calls, test_groups, 0, SIZES);
    tcase_add_test(calls, test_progress);
    tcase_add_loop_test(calls, test_graphs, 0, SIZES);
    tcase_add_test(calls, test_init_all);
    tcase_add_test(calls, test_threads);
    tcase_add_test(calls, test_registered);
    tcase_add_test(calls, test_words);
    return suite;
}
