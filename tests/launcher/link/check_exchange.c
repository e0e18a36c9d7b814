/* SPDX-License-Identifier: MIT
 *
 * Whether PMIx is used, what must be said where it cannot be, and what comes through it. The plugin
 * is pmix_module.c; the real one runs in cluster_slurm.sh and cluster_mpirun.sh. */
#include "config.h"

#include "launcher/exchange.h"
#include "core/clock.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static struct place place_of(enum place_kind kind, int node, const char *address)
{
    struct place place = {.kind = kind, .node = node, .node_count = 2, .pmix = true};
    snprintf(place.address, sizeof place.address, "%s", address);
    return place;
}

START_TEST(test_not_used)
{
    struct exchange exchange;
    struct place place = place_of(PLACE_OPTIONS, 0, "a");
    setenv("DDP_PLUGIN_PATH", "tests/launcher/link/.libs", 1);
    setenv("FAKE_PMIX", "unused", 1);
    ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_OK);
    ck_assert_ptr_null(exchange.pmix);
    place.kind = PLACE_HYDRA;
    ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_OK);
    ck_assert_ptr_null(exchange.pmix);
    place.kind = PLACE_SLURM;
    place.pmix = false;
    ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_OK);
    ck_assert_ptr_null(exchange.pmix);
    exchange_close(&exchange);
}
END_TEST

START_TEST(test_no_plugin)
{
    struct exchange exchange;
    struct place place = place_of(PLACE_SLURM, 1, "rack1");
    setenv("DDP_PLUGIN_PATH", scratch, 1);
    capture_start();
    ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_OK);
    ck_assert_str_eq(capture_stop(), "");
    ck_assert_ptr_null(exchange.pmix);
    place = place_of(PLACE_OPEN_MPI, 1, "");
    capture_start();
    ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_ERR_UNSUPPORTED);
    ck_assert_str_eq(capture_stop(),
                     "check_exchange: error: mpirun tells where node 0 is through PMIx only, and "
                     "the plugin libddp-pmix cannot be loaded: install the package ddprun-pmix, or "
                     "give --master-addr\n");
}
END_TEST

START_TEST(test_other_job)
{
    static const char *const jobs[] = {"0 2", "1 3"};
    struct exchange exchange;
    struct place place = place_of(PLACE_OPEN_MPI, 1, "");
    setenv("DDP_PLUGIN_PATH", "tests/launcher/link/.libs", 1);
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_PMIX", jobs[i], 1);
        capture_start();
        ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(capture_stop(), "the environment node 1 of 2: start one "));
        ck_assert_str_eq(getenv("FAKE_PMIX"), "closed");
        ck_assert_ptr_null(exchange.pmix);
    }
}
END_TEST

START_TEST(test_contact)
{
    struct exchange exchange;
    struct link_contact contact = {.address = "here", .port = 4};
    struct place place = place_of(PLACE_OPEN_MPI, 0, "");
    setenv("DDP_PLUGIN_PATH", "tests/launcher/link/.libs", 1);
    setenv("FAKE_PMIX", "0 2", 1);
    ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_OK);
    ck_assert_int_eq(exchange_contact(&exchange, &contact), DDP_OK);
    ck_assert_str_eq(contact.address, "here");
    exchange_close(&exchange);
    place.node = 1;
    setenv("FAKE_PMIX", "1 2", 1);
    ck_assert_int_eq(exchange_open(&exchange, &place, 2.5, 9), DDP_OK);
    ck_assert_int_eq(exchange_contact(&exchange, &contact), DDP_OK);
    ck_assert_str_eq(contact.address, "elsewhere");
    ck_assert_int_eq(contact.port, 7);
    exchange_close(&exchange);
    ck_assert_str_eq(getenv("FAKE_PMIX"), "closed");
    exchange_close(&exchange);
}
END_TEST

/* The real plugin, and a server that takes connections and never answers, as that of a stopped
 * daemon: PMIx waits for it without a limit. */
START_TEST(test_silent_server)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    struct exchange exchange;
    const struct place place = place_of(PLACE_SLURM, 1, "rack1");
    const int fd = socket(AF_INET, SOCK_STREAM, 0), interrupt = eventfd(_i, 0);
    const int64_t start_ns = ddp_clock_ns();
    char uri[64];
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 5) == 0);
    getsockname(fd, (struct sockaddr *)&address, &length);
    snprintf(uri, sizeof uri, "server.0;tcp4://127.0.0.1:%d", ntohs(address.sin_port));
    setenv("PMIX_SERVER_URI41", uri, 1);
    setenv("PMIX_NAMESPACE", "job", 1);
    setenv("PMIX_RANK", "1", 1);
    setenv("PMIX_SECURITY_MODE", "native", 1);
    setenv("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC", 1);
    setenv("PMIX_GDS_MODULE", "hash", 1);
    setenv("DDP_PLUGIN_PATH", ".libs", 1);
    capture_start();
    const enum ddp_status status = exchange_open(&exchange, &place, _i ? 20 : 0.5, interrupt);
    const char *said = capture_stop();
    if (access(".libs/libddp-pmix.so", F_OK) != 0) {
        printf("a server of PMIx that is silent is not tested: there is no libddp-pmix.so\n");
        return;
    }
    ck_assert_msg(status == (_i ? DDP_ERR_ABORTED : DDP_ERR_TIMEOUT), "%d: %s", status, said);
    ck_assert_str_eq(said, _i ? ""
                              : "check_exchange: error: PMIx: cannot connect to the server of this "
                                "node: the scheduler's server on this node has not answered for "
                                "0.5 s (--node-timeout): is its daemon stopped?\n");
    ck_assert(ddp_clock_ns() - start_ns < INT64_C(15000000000));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("exchange");
    TCase *tc = test_case(suite, "exchange", 20);
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, test_not_used);
    tcase_add_test(tc, test_no_plugin);
    tcase_add_test(tc, test_other_job);
    tcase_add_test(tc, test_contact);
    tcase_add_loop_test(tc, test_silent_server, 0, 2);
    return suite;
}
