/* SPDX-License-Identifier: MIT
 *
 * Jobs without a launcher, and mail between their ranks. */
#include "config.h"

#include "comm/comm.h"
#include "job/job.h"
#include "tests/comm/comm_ranks.h"
#include "tests/lib/runner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void body(ddp_job *job, ddp_comm *comm, int rank, int size);

static void join(const char *address, body *run, int rank, int size)
{
    ddp_job *job = NULL;
    ddp_comm *comm;
    if (ddp_job_join(&job, address, rank) != DDP_OK)
        _exit(2);
    NEED(ddp_job_rank(job) == rank && ddp_job_world_size(job) == size);
    NEED(ddp_comm_create(&comm, job, NULL) == DDP_OK);
    run(job, comm, rank, size);
    ddp_comm_destroy(comm);
    ddp_job_close(job);
    _exit(0);
}

/* This process hosts, and all ranks but 0 are others. Rank 0's body runs in a child too, so that
 * it ends as they do; the host is in it. */
static void run_hosted(int size, body *run)
{
    int pipe_fds[2], status;
    char address[DDP_JOB_ADDRESS_BYTES] = "";
    ck_assert_int_eq(pipe(pipe_fds), 0);
    for (int rank = 0; rank < size; rank++) {
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0 && rank > 0)
            join(address, run, rank, size);
        if (pid == 0) {
            ddp_job *job = NULL;
            ddp_comm *comm;
            NEED(ddp_job_host(&job, size, address) == DDP_OK);
            NEED(write(pipe_fds[1], address, sizeof address) == sizeof address);
            NEED(ddp_comm_create(&comm, job, NULL) == DDP_OK);
            run(job, comm, 0, size);
            ddp_comm_destroy(comm);
            ddp_job_close(job);
            _exit(0);
        }
        if (rank == 0)
            ck_assert_int_eq(read(pipe_fds[0], address, sizeof address), sizeof address);
    }
    for (int i = 0; i < size; i++) {
        ck_assert_int_gt(wait(&status), 0);
        ck_assert_msg(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL),
                      "a rank ended with %d", status);
    }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void mail_body(ddp_job *job, ddp_comm *comm, int rank, int size)
{
    (void)rank;
    (void)size;
    row_mail(comm, job);
}

START_TEST(streams)
{
    run_hosted(_i, mail_body);
}
END_TEST

static void many_comms(ddp_job *job, int rank, int size)
{
    for (int i = 0; i < 40; i++) {
        ddp_comm *other;
        int32_t value = rank + i;
        NEED(ddp_comm_create(&other, job, NULL) == DDP_OK);
        NEED(ddp_comm_allreduce(other, &value, 1, DDP_I32, DDP_SUM) == DDP_OK);
        NEED(value == size * i + size * (size - 1) / 2);
        ddp_comm_destroy(other);
    }
}

/* More communicators than one job has slots, in two jobs of a process. */
static void many_body(ddp_job *job, ddp_comm *comm, int rank, int size)
{
    char address[DDP_JOB_ADDRESS_BYTES] = "";
    ddp_job *second;
    (void)comm;
    many_comms(job, rank, size);
    if (rank == 0) {
        NEED(ddp_job_host(&second, size, address) == DDP_OK);
        NEED(ddp_job_put_id(job, DDP_ID_SLOTS - 1, address, sizeof address) == DDP_OK);
    } else {
        NEED(ddp_job_get_id(job, DDP_ID_SLOTS - 1, address, sizeof address, 20000) == DDP_OK);
        NEED(ddp_job_join(&second, address, rank) == DDP_OK);
    }
    many_comms(second, rank, size);
    ddp_job_close(second);
}

START_TEST(many)
{
    run_hosted(2, many_body);
}
END_TEST

/* Rank 1 dies, and the others, which wait for it, learn who it was. */
static void dies_body(ddp_job *job, ddp_comm *comm, int rank, int size)
{
    (void)size;
    NEED(ddp_job_culprit(job) == -1 && ddp_job_check_rank(job, 1) == DDP_OK);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    if (rank == 1)
        raise(SIGKILL);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_ABORTED);
    NEED(ddp_job_culprit(job) == 1 && ddp_job_check_rank(job, 0) == DDP_ERR_ABORTED);
}

START_TEST(dies)
{
    run_hosted(3, dies_body);
}
END_TEST

/* So do they when it has left in good order, and they still wait for it. */
static void leaves_body(ddp_job *job, ddp_comm *comm, int rank, int size)
{
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    if (rank == size - 1)
        return;
    NEED(ddp_comm_barrier(comm) == DDP_ERR_ABORTED);
    NEED(ddp_job_culprit(job) == size - 1);
}

START_TEST(leaves)
{
    run_hosted(3, leaves_body);
}
END_TEST

START_TEST(addresses)
{
    static const char *const bad[] = {"", "x", "1/2/3", "1/2/3/4/5", "-1/0/0/0", "1/99999/3/4"};
    char address[DDP_JOB_ADDRESS_BYTES];
    ddp_job *job, *other;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_ne(ddp_job_join(&job, bad[i], 1), DDP_OK);
    ck_assert_int_eq(ddp_job_host(&job, 0, address), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_job_host(&job, 2, address), DDP_OK);
    ck_assert_int_eq(ddp_job_join(&other, address, 2), DDP_ERR_INVALID);
    ddp_job_close(job);
    ck_assert_int_eq(ddp_job_host(&job, 1, address), DDP_OK);
    ddp_comm *comm;
    ddp_mail *mail;
    ck_assert_int_eq(ddp_comm_create(&comm, job, NULL), DDP_OK);
    ck_assert_int_eq(ddp_mail_open(&mail, comm), DDP_OK);
    ck_assert_uint_eq(ddp_mail_read(mail, 0, address, 1), 0);
    ddp_mail_close(mail);
    ddp_comm_destroy(comm);
    ddp_job_close(job);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("mail");
    TCase *tc = test_case(suite, "mail", 60);
    tcase_add_loop_test(tc, streams, 2, 5);
    tcase_add_test(tc, many);
    tcase_add_test(tc, dies);
    tcase_add_test(tc, leaves);
    tcase_add_test(tc, addresses);
    return suite;
}
