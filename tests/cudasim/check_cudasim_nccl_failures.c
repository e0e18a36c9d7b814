/* SPDX-License-Identifier: MIT
 *
 * What the simulated NCCL reports, between real processes: calls that do not match, devices used
 * twice, ranks that come late, never, or die inside a collective. */
#include "config.h"

#include "tests/cudasim/cudasim_nccl_test.h"

static const int sizes[] = {2, 3, 4, 8};
#define SIZES ((int)(sizeof sizes / sizeof sizes[0]))

static void setup(void)
{
    setenv("DDP_CUDASIM_DEVICES", "8", 1);
}

/* --- mistakes --- */
/* What rank 0 calls and what the last rank calls instead; each names both. */
static const struct {
    const char *first, *last;
} mistakes[] = {
    {"AllReduce(count 8, float32, sum)", "AllReduce(count 9, float32, sum)"},
    {"AllReduce(count 8, float32, sum)", "AllReduce(count 8, int32, sum)"},
    {"AllReduce(count 8, float32, sum)", "AllReduce(count 8, float32, max)"},
    {"AllReduce(count 8, float32, sum)", "Broadcast(count 8, float32, root 0)"},
    {"Broadcast(count 8, float32, root 0)", "Broadcast(count 8, float32, root 1)"},
    {"Send(count 8, float32)", "Recv(count 4, float32)"},
};

static void mistaken(struct rank *r)
{
    const int which = *(int *)r->arg;
    const bool last = r->rank == r->size - 1, root = which == 4 && last;
    rank_begin(r);
    float *data = pattern_new(r, 16, 0), host;
    if (which == 5 && r->rank == 0)
        NCCL_OK(ncclSend(data, 8, ncclFloat, r->size - 1, r->comm, r->stream));
    else if (which == 5 && last)
        NCCL_OK(ncclRecv(data, 4, ncclFloat, 0, r->comm, r->stream));
    else if (which == 4 || (which == 3 && last))
        NCCL_OK(ncclBroadcast(data, data, 8, ncclFloat, root, r->comm, r->stream));
    else if (which < 4)
        NCCL_OK(ncclAllReduce(data, data, which == 0 && last ? 9 : 8,
                              which == 1 && last ? ncclInt : ncclFloat,
                              which == 2 && last ? ncclMax : ncclSum, r->comm, r->stream));
    CUDA_OK(cudaStreamSynchronize(r->stream));
    if (which == 5 && r->rank != 0 && !last)
        return;
    ncclResult_t error;
    NCCL_OK(ncclCommGetAsyncError(r->comm, &error));
    EXPECT(error == ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(r->comm), mistakes[which].first) != NULL);
    EXPECT(strstr(ncclGetLastError(r->comm), mistakes[which].last) != NULL);
    EXPECT(ncclAllReduce(data, data, 8, ncclFloat, ncclSum, r->comm, r->stream) ==
           ncclInvalidUsage);
    EXPECT(ncclCommDestroy(r->comm) == ncclInvalidUsage);
    if (which < 5) { /* no number that looks like a sum */
        to_host(&host, data, sizeof host, r->stream);
        EXPECT(host != host);
    }
    meet(r, 0);
    NCCL_OK(ncclCommAbort(r->comm));
}

START_TEST(test_mistakes)
{
    run_ranks(2, mistaken, &_i, 0);
}
END_TEST

static void duplicate(struct rank *r)
{
    const bool named = *(bool *)r->arg;
    char name[16];
    snprintf(name, sizeof name, "host-%d", r->rank);
    if (named)
        setenv("NCCL_HOSTID", name, 1);
    CUDA_OK(cudaSetDevice(1));
    ncclResult_t result = ncclCommInitRank(&r->comm, r->size, id_of(r, 0), r->rank);
    EXPECT(result == (named ? ncclSuccess : ncclInvalidUsage));
    EXPECT(named || strstr(ncclGetLastError(NULL), "Duplicate GPU") != NULL);
    if (named)
        NCCL_OK(ncclCommDestroy(r->comm));
    else
        NCCL_OK(ncclCommAbort(r->comm));
}

START_TEST(test_duplicate_device)
{
    bool named = _i;
    run_ranks(3, duplicate, &named, 0);
}
END_TEST

static void bad_init(struct rank *r)
{
    ncclUniqueId id = id_of(r, 0), none;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    memset(&none, 0, sizeof none);
    CUDA_OK(cudaSetDevice(r->rank));
    EXPECT(ncclCommInitRank(&r->comm, 2, id, 2) == ncclInvalidArgument);
    EXPECT(ncclCommInitRank(&r->comm, 0, id, 0) == ncclInvalidArgument);
    EXPECT(ncclCommInitRank(&r->comm, 2, none, 0) == ncclSystemError);
    config.magic = 0;
    EXPECT(ncclCommInitRankConfig(&r->comm, 2, id, r->rank, &config) == ncclInvalidArgument);
    NCCL_OK(ncclCommInitRank(&r->comm, 2, id, r->rank));
    /* Everyone has come: the id is used up. */
    ncclComm_t late;
    meet(r, 0);
    EXPECT(ncclCommInitRank(&late, 2, id, r->rank) != ncclSuccess);
    NCCL_OK(ncclCommDestroy(r->comm));
    EXPECT(ncclCommInitRank(NULL, 2, id, 0) == ncclInvalidArgument);
}

START_TEST(test_bad_init)
{
    run_ranks(2, bad_init, NULL, 0);
}
END_TEST

START_TEST(test_destroyed)
{
    ncclUniqueId id;
    ncclComm_t comm;
    ncclResult_t error;
    NCCL_OK(ncclGetUniqueId(&id));
    NCCL_OK(ncclCommInitRank(&comm, 1, id, 0));
    NCCL_OK(ncclCommDestroy(comm));
    ncclCommGetAsyncError(comm, &error);
}
END_TEST

/* --- non-blocking --- */
static ncclResult_t poll_until(ncclComm_t comm, double seconds)
{
    ncclResult_t error = ncclInProgress;
    for (const double end = now() + seconds; error == ncclInProgress && now() < end; nap(1))
        NCCL_OK(ncclCommGetAsyncError(comm, &error));
    return error;
}

static ncclComm_t begin_non_blocking(struct rank *r)
{
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CUDA_OK(cudaSetDevice(r->rank));
    EXPECT(ncclCommInitRankConfig(&comm, r->size, id_of(r, 0), r->rank, &config) == ncclInProgress);
    return comm;
}

/* The last rank comes late: the others are in progress until then. */
static void late(struct rank *r)
{
    const bool last = r->rank == r->size - 1;
    int count;
    if (last) {
        wait_for(&r->board->came[0], r->size - 1);
        nap(50);
        atomic_store(&r->board->flag, 1);
    }
    r->comm = begin_non_blocking(r);
    if (!last) {
        EXPECT(ncclCommCount(r->comm, &count) == ncclInvalidArgument);
        EXPECT(poll_until(r->comm, 0.02) == ncclInProgress);
        atomic_fetch_add(&r->board->came[0], 1);
    }
    EXPECT(poll_until(r->comm, 20) == ncclSuccess);
    EXPECT(atomic_load(&r->board->flag) == 1);
    NCCL_OK(ncclCommCount(r->comm, &count));
    EXPECT(count == r->size);
    CUDA_OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    float *data = pattern_new(r, 10, 0), host[10];
    for (int repeat = 0; repeat < 3; repeat++) {
        EXPECT(ncclAllReduce(data, data, 10, ncclFloat, ncclMax, r->comm, r->stream) ==
               ncclInProgress);
        EXPECT(ncclAllReduce(data, data, 10, ncclFloat, ncclMax, r->comm, r->stream) ==
               ncclInvalidArgument); /* too early */
        EXPECT(poll_until(r->comm, 20) == ncclSuccess);
    }
    to_host(host, data, sizeof host, r->stream);
    for (size_t i = 0; i < 10; i++)
        EXPECT(host[i] == pattern(r->size - 1, i, 0));
    EXPECT(ncclCommFinalize(r->comm) == ncclInProgress);
    EXPECT(poll_until(r->comm, 20) == ncclSuccess);
    NCCL_OK(ncclCommDestroy(r->comm));
}

START_TEST(test_late)
{
    run_ranks(sizes[_i], late, NULL, 0);
}
END_TEST

/* A rank never comes: the others give up at their deadline. */
static void absent(struct rank *r)
{
    if (r->rank == r->size - 1) {
        meet(r, 0);
        return;
    }
    ncclComm_t comm = begin_non_blocking(r);
    EXPECT(poll_until(comm, 0.1) == ncclInProgress);
    meet(r, 0); /* rank 0, which made the id, stays until all have tried */
    NCCL_OK(ncclCommAbort(comm));
}

START_TEST(test_absent)
{
    run_ranks(sizes[_i], absent, NULL, 0);
}
END_TEST

/* --- death --- */
/* The last rank is killed inside a collective; the others find their streams busy, abort, and have
 * them back at once. */
static void death(struct rank *r)
{
    const bool blocking = *(bool *)r->arg;
    enum { COUNT = 1 << 20 };
    if (blocking) {
        rank_begin(r);
    } else {
        r->comm = begin_non_blocking(r);
        EXPECT(poll_until(r->comm, 20) == ncclSuccess);
        CUDA_OK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking));
    }
    float *data = pattern_new(r, COUNT, 0);
    meet(r, 0);
    if (r->rank == r->size - 1)
        raise(SIGKILL);
    ncclResult_t result = ncclAllReduce(data, data, COUNT, ncclFloat, ncclSum, r->comm, r->stream);
    EXPECT(result == (blocking ? ncclSuccess : ncclInProgress));
    EXPECT(poll_until(r->comm, 20) == ncclSuccess);
    for (int i = 0; i < 10; i++, nap(2))
        EXPECT(cudaStreamQuery(r->stream) == cudaErrorNotReady);
    EXPECT(poll_until(r->comm, 20) == ncclSuccess); /* nothing notices by itself */
    const double begin = now();
    NCCL_OK(ncclCommAbort(r->comm));
    CUDA_OK(cudaStreamSynchronize(r->stream));
    EXPECT(now() - begin < 5);
    CUDA_OK(cudaFree(data));
    CUDA_OK(cudaStreamDestroy(r->stream));
}

START_TEST(test_death)
{
    bool blocking = _i % 2;
    const int size = sizes[_i / 2];
    run_ranks(size, death, &blocking, 1u << (size - 1));
}
END_TEST

static void remote(struct rank *r)
{
    setenv("DDP_CUDASIM_NCCL_REMOTE", "1", 1);
    rank_begin(r);
    EXPECT(poll_until(r->comm, 20) == ncclSuccess);
    meet(r, 0);
    if (r->rank == 1)
        raise(SIGKILL);
    ncclResult_t error = ncclSuccess;
    for (const double end = now() + 20; error == ncclSuccess && now() < end; nap(1))
        NCCL_OK(ncclCommGetAsyncError(r->comm, &error));
    EXPECT(error == ncclRemoteError);
    NCCL_OK(ncclCommAbort(r->comm));
}

START_TEST(test_remote_error)
{
    run_ranks(3, remote, NULL, 1u << 1);
}
END_TEST

/* Memory goes while the communicator still knows it: NCCL would go on to map and use it. */
static void die(int number)
{
    (void)number;
    raise(SIGKILL); /* as run_ranks() wants its dead */
}

static void freed_early(struct rank *r)
{
    void *memory, *handle;
    signal(SIGABRT, die);
    rank_begin(r);
    NCCL_OK(ncclMemAlloc(&memory, 4096));
    NCCL_OK(ncclCommRegister(r->comm, memory, 4096, &handle));
    (void)ncclMemFree(memory);
    _exit(1); /* it has not been found */
}

START_TEST(test_freed_early)
{
    run_ranks(2, freed_early, NULL, 3);
}
END_TEST

/* DDP_CUDASIM_FAIL reaches NCCL's calls. */
START_TEST(test_fault)
{
    ncclUniqueId id;
    ncclComm_t comm;
    setenv("DDP_CUDASIM_FAIL", "ncclGetUniqueId:2,ncclAllReduce:1:6", 1);
    float *data = device_new(64);
    NCCL_OK(ncclGetUniqueId(&id));
    NCCL_OK(ncclCommInitRank(&comm, 1, id, 0));
    ck_assert_int_eq(ncclGetUniqueId(&id), ncclSystemError);
    ck_assert_int_eq(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, NULL), ncclRemoteError);
    NCCL_OK(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, NULL));
    CUDA_OK(cudaDeviceSynchronize());
    NCCL_OK(ncclCommDestroy(comm));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("cudasim_nccl_failures");
    TCase *failures = test_case(suite, "failures", 60);
    tcase_add_checked_fixture(failures, setup, NULL);
    tcase_add_loop_test(failures, test_mistakes, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_loop_test(failures, test_duplicate_device, 0, 2);
    tcase_add_test(failures, test_bad_init);
    tcase_add_test_raise_signal(failures, test_destroyed, SIGABRT);
    tcase_add_loop_test(failures, test_late, 0, SIZES);
    tcase_add_loop_test(failures, test_absent, 0, SIZES);
    tcase_add_loop_test(failures, test_death, 0, 2 * SIZES);
    tcase_add_test(failures, test_remote_error);
    tcase_add_test(failures, test_freed_early);
    tcase_add_test(failures, test_fault);
    return suite;
}
