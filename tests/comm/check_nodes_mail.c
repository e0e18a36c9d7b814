/* SPDX-License-Identifier: MIT
 *
 * Mail over several machines, which are one here. */
#include "config.h"

#include "comm/comm.h"
#include "job/job.h"
#include "tests/comm/comm_ranks.h"
#include "tests/lib/runner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Across the rails, and within a machine; machines of unequal size. */
static const int shapes[][4] = {{0, 1, 2}, {0, 2, 4}, {0, 3, 4}};

START_TEST(streams)
{
    run_starts(2, shapes[_i], row_mail, -1);
}
END_TEST

/* Two of them, beside collectives of their communicator; the last bytes are read late. */
static void beside_body(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_comm_rank(comm), peer = (rank + 2) % 4;
    ddp_mail *mails[2];
    (void)job;
    for (int i = 0; i < 2; i++)
        NEED(ddp_mail_open(&mails[i], comm) == DDP_OK);
    for (int i = 0; i < 2; i++) {
        const int32_t sent = rank * 10 + i;
        int32_t sum = 1;
        NEED(ddp_mail_write(mails[i], peer, &sent, sizeof sent) == sizeof sent);
        NEED(ddp_comm_allreduce(comm, &sum, 1, DDP_I32, DDP_SUM) == DDP_OK && sum == 4);
    }
    for (int i = 1; i >= 0; i--) {
        int32_t got = -1;
        uint32_t changes = ddp_mail_changes(mails[i]);
        while (ddp_mail_read(mails[i], peer, &got, sizeof got) == 0) {
            NEED(ddp_mail_wait(mails[i], changes, 20000) == DDP_OK);
            changes = ddp_mail_changes(mails[i]);
        }
        NEED(got == peer * 10 + i);
        NEED(ddp_mail_read(mails[i], peer, &got, 1) == 0);
    }
    for (int i = 0; i < 2; i++)
        ddp_mail_close(mails[i]);
}

START_TEST(beside)
{
    run_nodes(2, 2, beside_body, -1);
}
END_TEST

/* Who reads nothing is sent no more than its slots hold. */
static void full_body(ddp_comm *comm, ddp_job *job)
{
    enum { BYTES = 8 << 20 };
    char *data = calloc(1, BYTES);
    ddp_mail *mail;
    size_t sent, more;
    (void)job;
    NEED(data && ddp_mail_open(&mail, comm) == DDP_OK);
    sent = ddp_mail_write(mail, 1 - ddp_comm_rank(comm), data, BYTES);
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    more = ddp_mail_write(mail, 1 - ddp_comm_rank(comm), data, BYTES);
    NEED(sent > 0 && sent < BYTES && more == 0);
    ddp_mail_close(mail);
    free(data);
}

START_TEST(full)
{
    run_nodes(2, 1, full_body, -1);
}
END_TEST

/* Rank 1 dies, and another machine waits for it; the launchers say it, or do not. */
static void dies_body(ddp_comm *comm, ddp_job *job)
{
    ddp_mail *mail;
    enum ddp_status status = DDP_OK;
    NEED(ddp_mail_open(&mail, comm) == DDP_OK);
    ranks_come_last(job, NULL, 1); /* the others are through, too */
    if (ddp_comm_rank(comm) == 1)
        raise(SIGKILL);
    while (status == DDP_OK)
        status = ddp_mail_wait(mail, ddp_mail_changes(mail), 20000);
    NEED(status == DDP_ERR_ABORTED);
    ddp_mail_close(mail);
}

START_TEST(dies)
{
    ranks_untold = _i == 1;
    run_nodes(3, 1, dies_body, 1);
    ranks_untold = false;
}
END_TEST

Suite *test_suite(void)
{
    setenv("DDP_PLUGIN_PATH", ".libs", 0);
    Suite *suite = suite_create("nodes_mail");
    TCase *tc = test_case(suite, "mail", 60);
    tcase_add_loop_test(tc, streams, 0, 3);
    tcase_add_test(tc, beside);
    tcase_add_test(tc, full);
    tcase_add_loop_test(tc, dies, 0, 2);
    return suite;
}
