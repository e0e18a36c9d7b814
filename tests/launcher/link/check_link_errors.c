/* SPDX-License-Identifier: MIT
 *
 * What can go wrong when the ddpruns of a job come together, and who is told what. */
#include "config.h"

#include "tests/launcher/link/link_nodes.h"
#include "tests/lib/messages.h"
#include "tests/launcher/link/munged.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>

/* --- nodes that do not fit together ----------------------------------------------------------- */

START_TEST(missing_nodes_are_named)
{
    make_nodes(6);
    for (int i = 0; i < 6; i++)
        nodes[i].setup.node_timeout = i == 0 ? 2 : 10;
    start_node(0);
    start_node(2);
    start_node(5);
    pthread_join(nodes[0].thread, NULL);
    pthread_join(nodes[2].thread, NULL);
    pthread_join(nodes[5].thread, NULL);
    expect_error(0, DDP_ERR_TIMEOUT, "nodes 1, 3-4 of 6 have not come within 2 s");
    /* All who have come print the same, and at once. */
    ck_assert_str_eq(nodes[2].error, nodes[0].error);
    ck_assert_str_eq(nodes[5].error, nodes[0].error);
    ck_assert(nodes[2].milliseconds < 5000);
}
END_TEST

START_TEST(one_missing_node)
{
    make_nodes(2);
    nodes[0].setup.node_timeout = 7;
    catch_messages();
    join_nodes(0, 0);
    expect_message("waiting for node 1 of 2: node 0 listens on 127.0.0.1:");
    expect_error(0, DDP_ERR_TIMEOUT,
                 "node 1 of 2 has not come within 7 s; node 0 listens on 127.0.0.1:");
    expect_error(0, DDP_ERR_TIMEOUT, ", on this machine only: is --master-addr right?");
}
END_TEST

START_TEST(node_0_missing)
{
    make_nodes(2);
    nodes[1].setup.node_timeout = 0.3;
    join_nodes(1, 1);
    expect_error(1, DDP_ERR_TIMEOUT, "node 1 of 2 cannot reach node 0 at 127.0.0.1 port ");
    expect_error(1, DDP_ERR_TIMEOUT,
                 "Connection refused; 127.0.0.1 is this machine itself: is "
                 "--master-addr right?");
}
END_TEST

/* Spoils node 2 of 3, and expects one text on all three. */
static void expect_same_error(int last, const char *part)
{
    join_nodes(0, last);
    expect_error(0, DDP_ERR_MISMATCH, part);
    for (int i = 1; i <= last; i++) {
        expect_error(i, DDP_ERR_MISMATCH, part);
        ck_assert_str_eq(nodes[i].error, nodes[0].error);
    }
}

START_TEST(two_nodes_with_one_rank)
{
    make_nodes(3);
    nodes[2].setup.node = 1;
    /* Which comes first is open. */
    join_nodes(0, 2);
    expect_error(0, DDP_ERR_MISMATCH, "two ddpruns are node 1, on host");
    ck_assert_ptr_nonnull(strstr(nodes[0].error, "host1"));
    ck_assert_ptr_nonnull(strstr(nodes[0].error, "host2"));
    ck_assert_ptr_nonnull(strstr(nodes[0].error, "--node-rank"));
    ck_assert_str_eq(nodes[1].error, nodes[0].error);
    ck_assert_str_eq(nodes[2].error, nodes[0].error);
}
END_TEST

START_TEST(too_many_workers)
{
    make_nodes(3);
    nodes[2].setup.nproc = 4093;
    expect_same_error(2, "the nodes have 4097: a job has at most 4096");
}
END_TEST

START_TEST(other_restarts)
{
    make_nodes(3);
    nodes[1].setup.max_restarts = 4;
    expect_same_error(1, "node 1 (host1) has --max-restarts 4, node 0 (host0) 0");
}
END_TEST

/* A node that comes a little later hears the same. */
START_TEST(late_nodes_hear_it_too)
{
    make_nodes(4);
    nodes[3].setup.max_restarts = 1;
    start_node(0);
    start_node(3);
    usleep(300000);
    start_node(1);
    start_node(2);
    for (int i = 0; i < 4; i++)
        pthread_join(nodes[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        expect_error(i, DDP_ERR_MISMATCH, "node 3 (host3) has --max-restarts 1, node 0 (host0) 0");
    ck_assert(nodes[0].milliseconds < 2500);
}
END_TEST

START_TEST(other_numbers_of_nodes)
{
    make_nodes(3);
    nodes[2].setup.node_count = 5;
    expect_same_error(2, "node 2 (host2) was told of 5 nodes, node 0 (host0) of 3");
}
END_TEST

/* Whoever has no proof cannot end the job: it goes on waiting, and says in the end who came. */
START_TEST(another_key)
{
    make_nodes(2);
    nodes[0].setup.node_timeout = 0.6;
    nodes[1].proof.key[0] ^= 1;
    catch_messages();
    join_nodes(0, 1);
    expect_error(1, DDP_ERR_MISMATCH, "refuses this node, 1: it has another key: give");
    expect_error(0, DDP_ERR_TIMEOUT,
                 "127.0.0.1 came as node 1 and was refused: it has another key");
    expect_message("warning: 127.0.0.1 came as node 1 and was refused: it has another key\n");
}
END_TEST

START_TEST(another_method)
{
    make_nodes(2);
    nodes[0].setup.node_timeout = 0.6;
    nodes[1].proof.method = PROOF_NONE;
    join_nodes(0, 1);
    expect_error(1, DDP_ERR_MISMATCH,
                 "has a key (--key-file or DDPRUN_KEY), this is node 1 and has no key "
                 "(--insecure-link)");
    expect_error(0, DDP_ERR_TIMEOUT, "it has no key (--insecure-link), node 0 has a key");
}
END_TEST

START_TEST(another_job)
{
    make_nodes(2);
    nodes[0].setup.node_timeout = 1.5;
    nodes[1].setup.node_timeout = 0.6;
    nodes[1].setup.job = "another";
    join_nodes(0, 1);
    expect_error(1, DDP_ERR_TIMEOUT, "that port is another job's");
    expect_error(0, DDP_ERR_TIMEOUT, "it belongs to another job");
}
END_TEST

START_TEST(no_key_at_all)
{
    make_nodes(2);
    nodes[0].proof.method = nodes[1].proof.method = PROOF_NONE;
    catch_messages();
    join_all(2);
    expect_message("warning: --insecure-link: whoever reaches port ");
    close_nodes(2);
}
END_TEST

START_TEST(a_port_that_is_taken)
{
    make_nodes(2);
    int port = 0, fd = take_port(&port);
    nodes[0].setup.port = port;
    join_nodes(0, 0);
    expect_error(0, DDP_ERR_IO, "Address already in use, by check_link_erro (pid ");
    expect_error(0, DDP_ERR_IO, "); give another port to all nodes with --master-port");
    close(fd);
}
END_TEST

/* The other nodes find another program there: one that says something, and one that says nothing.
 */
START_TEST(a_port_of_another_program)
{
    static const char greeting[] = "SSH-2.0-OpenSSH_9.2\r\n";
    int fd = -1;
    make_nodes(2);
    nodes[1].setup.node_timeout = 20;
    nodes[1].setup.lost_seconds = 0.2;
    int listener = take_port(&nodes[1].setup.port);
    start_node(1);
    if (_i == 0) {
        fd = accept(listener, NULL, NULL);
        ck_assert_int_eq(send(fd, greeting, strlen(greeting), 0), (ssize_t)strlen(greeting));
    }
    pthread_join(nodes[1].thread, NULL);
    if (_i == 0)
        expect_error(1, DDP_ERR_MISMATCH,
                     "is not ddprun: it says SSH-2.0-OpenSSH_9.2\\x0d\\x0a; give a port that is "
                     "free on node 0 to all nodes with --master-port");
    else
        expect_error(1, DDP_ERR_IO, "takes connections, but has not answered for 0.4 s: if");
    ck_assert(nodes[1].milliseconds < 10000);
    close(fd);
    close(listener);
}
END_TEST

/* Under Slurm the port follows from the job's number: both sides try the next ones. The first is
 * somebody's who does not answer, the second another job's. */
START_TEST(next_ports_are_tried)
{
    int port = 0, fd = take_port(&port), other = port + 1;
    int other_fd = take_port(&other);
    if (other_fd < 0) {
        close(fd);
        return;
    }
    close(other_fd);
    make_nodes(4);
    for (int i = 0; i < 4; i++) {
        nodes[i].setup.port = port;
        nodes[i].setup.port_count = 8;
        nodes[i].setup.node_count = 2;
        nodes[i].setup.node %= 2;
        nodes[i].setup.job = i < 2 ? "one" : "two";
    }
    start_node(0);
    usleep(50000);
    start_node(2);
    usleep(50000);
    start_node(3);
    usleep(50000);
    start_node(1);
    for (int i = 0; i < 4; i++) {
        pthread_join(nodes[i].thread, NULL);
        ck_assert_msg(nodes[i].status == DDP_OK, "node %d: %s", i, nodes[i].error);
    }
    ck_assert_str_eq(link_node_name(nodes[0].link, 1), "host1");
    ck_assert_str_eq(link_node_name(nodes[2].link, 1), "host3");
    close_nodes(4);
    close(fd);
}
END_TEST

START_TEST(ports_that_are_all_taken)
{
    int port = 0, fd = take_port(&port), other = port + 1;
    int other_fd = take_port(&other);
    make_nodes(2);
    nodes[0].setup.port = port;
    nodes[0].setup.port_count = 2;
    join_nodes(0, 0);
    if (nodes[0].status != DDP_OK && other_fd >= 0)
        expect_error(0, DDP_ERR_IO, "this port and the 1 before it are taken");
    close(fd);
    if (other_fd >= 0)
        close(other_fd);
}
END_TEST

START_TEST(addresses_that_cannot_be)
{
    static const struct {
        const char *address, *error;
        enum ddp_status status;
    } rows[] = {
        {"0.0.0.0", "--master-addr 0.0.0.0 names no machine", DDP_ERR_INVALID},
        {"::", "--master-addr :: names no machine", DDP_ERR_INVALID},
        {"192.0.2.77", "this machine does not have that address", DDP_ERR_INVALID},
        {"no.such.host.invalid", "no.such.host.invalid", DDP_ERR_IO},
    };
    make_nodes(2);
    nodes[0].setup.node_timeout = 0.2;
    nodes[0].setup.address = rows[_i].address;
    join_nodes(0, 0);
    expect_error(0, rows[_i].status, rows[_i].error);
}
END_TEST

/* --- PMIx ------------------------------------------------------------------------------------- */

static struct link_contact contact;
static int contact_event;

static enum ddp_status exchange(void *owner, struct link_contact *own)
{
    eventfd_t value;
    if (owner == &nodes[0]) {
        contact = *own;
        return eventfd_write(contact_event, 16) == 0 ? DDP_OK : DDP_ERR_SYSTEM;
    }
    if (eventfd_read(contact_event, &value) != 0)
        return DDP_ERR_SYSTEM;
    *own = contact;
    return DDP_OK;
}

/* Any port will do, also where all that nobody chose are taken. */
START_TEST(pmix_carries_address_and_key)
{
    int port = 0, fd = take_port(&port), next = port + 1, next_fd = take_port(&next);
    make_nodes(3);
    contact_event = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    for (int i = 0; i < 3; i++) {
        proof_close(&nodes[i].proof);
        nodes[i].proof.method = PROOF_PMIX;
        nodes[i].setup.address = i == 0 ? "127.0.0.1" : "";
        nodes[i].setup.port = _i ? port : 0;
        nodes[i].setup.port_count = _i ? 2 : 1;
        nodes[i].setup.exchange = exchange;
        nodes[i].setup.exchange_owner = &nodes[i];
    }
    join_all(3);
    ck_assert_uint_eq(nodes[0].proof.key_bytes, sizeof contact.key);
    ck_assert_int_eq(memcmp(nodes[0].proof.key, contact.key, sizeof contact.key), 0);
    close_nodes(3);
    close(contact_event);
    close(fd);
    close(next_fd);
}
END_TEST

START_TEST(munge_instead_of_a_key)
{
    char folder[] = "/tmp/check_link.XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    unsetenv(PROOF_KEY_VARIABLE);
    if (start_munged(folder)) {
        make_nodes(3);
        for (int i = 0; i < 3; i++) {
            proof_close(&nodes[i].proof);
            ck_assert_int_eq(proof_open(&nodes[i].proof, &(struct proof_setup){.munge = true}),
                             DDP_OK);
        }
        join_all(3);
        printf("with MUNGE 3 nodes joined in %.1f ms\n", nodes[0].milliseconds);
        close_nodes(3);
    }
    stop_munged(folder);
    rmdir(folder);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("link errors");
    TCase *tc = test_case(suite, "joining", 30);
    tcase_add_test(tc, missing_nodes_are_named);
    tcase_add_test(tc, one_missing_node);
    tcase_add_test(tc, node_0_missing);
    tcase_add_test(tc, two_nodes_with_one_rank);
    tcase_add_test(tc, too_many_workers);
    tcase_add_test(tc, other_restarts);
    tcase_add_test(tc, late_nodes_hear_it_too);
    tcase_add_test(tc, other_numbers_of_nodes);
    tcase_add_test(tc, another_key);
    tcase_add_test(tc, another_method);
    tcase_add_test(tc, another_job);
    tcase_add_test(tc, no_key_at_all);
    tcase_add_loop_test(tc, pmix_carries_address_and_key, 0, 2);
    tcase_add_test(tc, munge_instead_of_a_key);
    tc = test_case(suite, "addresses", 30);
    tcase_add_test(tc, a_port_that_is_taken);
    tcase_add_loop_test(tc, a_port_of_another_program, 0, 2);
    tcase_add_test(tc, next_ports_are_tried);
    tcase_add_test(tc, ports_that_are_all_taken);
    tcase_add_loop_test(tc, addresses_that_cannot_be, 0, 4);
    return suite;
}
