/* SPDX-License-Identifier: MIT
 *
 * What can go wrong when the ddpruns of a job come together, and who is told what; strangers. */
#include "config.h"

#include "launcher/link_hello.h"
#include "launcher/link_state.h"
#include "tests/link_nodes.h"
#include "tests/messages.h"
#include "tests/munged.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>

/* --- nodes that do not fit together ----------------------------------------------------------- */

START_TEST(missing_nodes_are_named)
{
    make_nodes(6);
    for (int i = 0; i < 6; i++)
        nodes[i].setup.node_timeout = i == 0 ? 0.7 : 10;
    start_node(0);
    start_node(2);
    start_node(5);
    pthread_join(nodes[0].thread, NULL);
    pthread_join(nodes[2].thread, NULL);
    pthread_join(nodes[5].thread, NULL);
    expect_error(0, DDP_ERR_TIMEOUT, "nodes 1, 3-4 of 6 have not come within 0.7 s");
    /* All who have come print the same, and at once. */
    ck_assert_str_eq(nodes[2].error, nodes[0].error);
    ck_assert_str_eq(nodes[5].error, nodes[0].error);
    ck_assert(nodes[2].milliseconds < 5000);
}
END_TEST

START_TEST(one_missing_node)
{
    make_nodes(2);
    nodes[0].setup.node_timeout = 0.3;
    join_nodes(0, 0);
    expect_error(0, DDP_ERR_TIMEOUT, "node 1 of 2 has not come within 0.3 s");
    expect_error(0, DDP_ERR_TIMEOUT, "node 0 listens on this machine only");
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

START_TEST(other_numbers)
{
    make_nodes(3);
    nodes[2].setup.nproc = _i ? 2 : 3;
    nodes[2].setup.max_restarts = _i ? 4 : 0;
    expect_same_error(2, _i ? "node 2 (host2) has --max-restarts 4, node 0 (host0) 0"
                            : "node 2 (host2) has 3 workers, node 0 (host0) has 2");
}
END_TEST

/* A node that comes a little later hears the same. */
START_TEST(late_nodes_hear_it_too)
{
    make_nodes(4);
    nodes[3].setup.nproc = 1;
    start_node(0);
    start_node(3);
    usleep(300000);
    start_node(1);
    start_node(2);
    for (int i = 0; i < 4; i++)
        pthread_join(nodes[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        expect_error(i, DDP_ERR_MISMATCH, "node 3 (host3) has 1 workers, node 0 (host0) has 2");
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
    expect_error(1, DDP_ERR_MISMATCH, "refuses this node, 1: it does not accept its proof");
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
    nodes[0].setup.node_timeout = nodes[1].setup.node_timeout = 0.6;
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
    expect_error(0, DDP_ERR_IO,
                 "Address already in use; give another port to all nodes with "
                 "--master-port");
    close(fd);
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
    ck_assert_uint_ne(link_job_id(nodes[0].link), link_job_id(nodes[2].link));
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

static enum ddp_status exchange(void *owner, struct link_contact *own, bool publish)
{
    (void)owner;
    eventfd_t value;
    if (publish) {
        contact = *own;
        return eventfd_write(contact_event, 16) == 0 ? DDP_OK : DDP_ERR_SYSTEM;
    }
    if (eventfd_read(contact_event, &value) != 0)
        return DDP_ERR_SYSTEM;
    *own = contact;
    return DDP_OK;
}

START_TEST(pmix_carries_address_and_key)
{
    make_nodes(3);
    contact_event = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
    for (int i = 0; i < 3; i++) {
        proof_close(&nodes[i].proof);
        nodes[i].proof.method = PROOF_PMIX;
        nodes[i].setup.address = i == 0 ? "127.0.0.1" : "";
        nodes[i].setup.port = 0;
        nodes[i].setup.exchange = exchange;
    }
    join_all(3);
    ck_assert_uint_eq(nodes[0].proof.key_bytes, sizeof contact.key);
    ck_assert_int_eq(memcmp(nodes[0].proof.key, contact.key, sizeof contact.key), 0);
    close_nodes(3);
    close(contact_event);
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

/* --- strangers -------------------------------------------------------------------------------- */

static int stranger(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)nodes[0].setup.port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < 400; i++) {
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        usleep(5000);
    }
    return -1;
}

/* Sends without end, and says how much was taken. */
static void *send_much(void *argument)
{
    static char bytes[65536];
    size_t *sent = argument;
    int fd = stranger();
    ssize_t n;
    while ((n = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL)) > 0 && *sent < (size_t)1 << 32)
        *sent += (size_t)n;
    close(fd);
    return NULL;
}

/* Some say nothing, some send without end, some speak another language: none costs the others
 * time, all are dropped, one line says so. */
START_TEST(strangers_are_dropped)
{
    enum { SILENT = 200 };
    int silent[SILENT];
    size_t sent = 0;
    pthread_t thread;
    const char *http = "GET / HTTP/1.0\r\n\r\n";
    char byte;
    make_nodes(3);
    catch_messages();
    start_node(0);
    for (int i = 0; i < SILENT; i++)
        silent[i] = stranger();
    int other = stranger();
    ck_assert_int_eq(send(other, http, strlen(http), MSG_NOSIGNAL), (ssize_t)strlen(http));
    ck_assert_int_le(recv(other, &byte, 1, 0), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, send_much, &sent), 0);
    start_node(1);
    usleep(100000);
    start_node(2);
    for (int i = 0; i < 3; i++) {
        pthread_join(nodes[i].thread, NULL);
        ck_assert_msg(nodes[i].status == DDP_OK, "node %d: %s", i, nodes[i].error);
    }
    pthread_join(thread, NULL);
    ck_assert_uint_lt(sent, 64 << 20);
    ck_assert(nodes[1].milliseconds < 3000);
    ck_assert(nodes[2].milliseconds < 3000);
    expect_message("dropped a connection from 127.0.0.1, which is no ddprun of this job: ");
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    close(other);
    close_nodes(3);
}
END_TEST

/* A node whose beginning was heard, made by hand to say what no ddprun says. */
struct actor {
    struct connection connection;
    struct said said;
    struct link_setup setup;
    struct proof proof;
    unsigned char proof_bytes[PROOF_MAX]; /* that it has sent */
    size_t proof_count;
};

static union frame_data data; /* of the last frame */

static bool act_hear(struct actor *actor, struct frame *frame)
{
    for (int i = 0; i < 500; i++) {
        if (connection_take(&actor->connection, frame) == FRAME_READY)
            return frame_read(frame, &data);
        if (connection_receive(&actor->connection) == CONNECTION_ENDED)
            return false;
        usleep(5000);
    }
    return false;
}

static void act_hello(struct actor *actor, struct hello *hello, struct frame *frame)
{
    connection_open(&actor->connection, stranger(), PHASE_HELLO);
    actor->said.node = *hello;
    connection_put(&actor->connection, FRAME_HELLO, hello, sizeof *hello);
    ck_assert(act_hear(actor, frame));
    ck_assert_uint_eq(frame->kind, FRAME_HELLO);
    actor->said.node0 = data.hello;
    actor->connection.phase = PHASE_PROOF;
}

static void act_prove(struct actor *actor, const struct said *said, const char *role)
{
    ck_assert_int_eq(proof_make(&actor->proof, role, said, sizeof *said, actor->proof_bytes,
                                &actor->proof_count),
                     DDP_OK);
    connection_put(&actor->connection, FRAME_PROOF, actor->proof_bytes, actor->proof_count);
}

static void make_actor(struct actor *actor, int node)
{
    *actor = (struct actor){.setup = nodes[1].setup, .proof = {.method = PROOF_KEY}};
    proof_take_key(&actor->proof, KEY, strlen(KEY));
    actor->setup.node = node;
    actor->setup.proof = &actor->proof;
}

static void end_actor(struct actor *actor)
{
    connection_close(&actor->connection);
    proof_close(&actor->proof);
}

START_TEST(other_versions)
{
    struct frame frame;
    struct hello hello;
    struct join join = {.nproc = 2, .version = "0.0.1", .host = "old"};
    make_nodes(2);
    start_node(0);
    struct actor actor;
    make_actor(&actor, 1);
    /* Another protocol: no more than the beginning is understood. */
    ck_assert_int_eq(hello_make(&hello, &actor.setup), DDP_OK);
    hello.protocol = FRAME_PROTOCOL + 1;
    memset(hello.version, 'x', sizeof hello.version);
    act_hello(&actor, &hello, &frame);
    ck_assert(act_hear(&actor, &frame));
    ck_assert_uint_eq(frame.kind, FRAME_REFUSED);
    ck_assert_uint_eq(data.refusal.reason, REFUSED_PROTOCOL);
    connection_close(&actor.connection);
    /* The same protocol, but another ddprun. */
    ck_assert_int_eq(hello_make(&hello, &actor.setup), DDP_OK);
    act_hello(&actor, &hello, &frame);
    act_prove(&actor, &actor.said, ROLE_NODE);
    ck_assert(act_hear(&actor, &frame));
    ck_assert_uint_eq(frame.kind, FRAME_PROOF);
    actor.connection.phase = PHASE_WAITING;
    connection_put(&actor.connection, FRAME_JOIN, &join, sizeof join);
    ck_assert(act_hear(&actor, &frame));
    ck_assert_uint_eq(frame.kind, FRAME_REFUSED);
    ck_assert_ptr_nonnull(strstr(data.refusal.text, "node 1 (old) runs ddprun 0.0.1"));
    pthread_join(nodes[0].thread, NULL);
    expect_error(0, DDP_ERR_MISMATCH, data.refusal.text);
    end_actor(&actor);
}
END_TEST

/* What was recorded of another connection proves nothing in this one, and neither does what node 0
 * has said itself, nor a proof for another node. */
START_TEST(replayed_proofs_are_refused)
{
    enum { REPLAYED, OWN_ROLE, OTHER_NODE, TOO_SHORT };
    struct frame frame;
    struct hello hello;
    struct actor actor;
    make_nodes(3);
    make_actor(&actor, 1);
    nodes[0].setup.node_timeout = 5;
    start_node(0);
    ck_assert_int_eq(hello_make(&hello, &actor.setup), DDP_OK);
    act_hello(&actor, &hello, &frame);
    act_prove(&actor, &actor.said, ROLE_NODE);
    ck_assert(act_hear(&actor, &frame));
    ck_assert_uint_eq(frame.kind, FRAME_PROOF);
    unsigned char recorded[PROOF_MAX], node0[PROOF_MAX];
    const size_t count = actor.proof_count;
    memcpy(recorded, actor.proof_bytes, count);
    memcpy(node0, data.bytes, count);
    connection_close(&actor.connection);
    /* The same beginning again. */
    act_hello(&actor, &hello, &frame);
    struct said said = actor.said;
    if (_i == REPLAYED)
        connection_put(&actor.connection, FRAME_PROOF, recorded, count);
    else if (_i == OWN_ROLE)
        act_prove(&actor, &said, ROLE_NODE0);
    else if (_i == OTHER_NODE) {
        said.node.node = 2;
        act_prove(&actor, &said, ROLE_NODE);
    } else
        connection_put(&actor.connection, FRAME_PROOF, recorded, 0);
    ck_assert(act_hear(&actor, &frame));
    ck_assert_uint_eq(frame.kind, FRAME_REFUSED);
    ck_assert_uint_eq(data.refusal.reason, REFUSED_PROOF);
    ck_assert_mem_ne(recorded, node0, count);
    end_actor(&actor);
    /* The job goes on: the right nodes come. */
    join_nodes(1, 2);
    pthread_join(nodes[0].thread, NULL);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(nodes[i].status == DDP_OK, "node %d: %s", i, nodes[i].error);
    close_nodes(3);
}
END_TEST

/* A false node 0 learns nothing and is refused. */
START_TEST(a_false_node_0)
{
    struct frame frame;
    struct hello hello;
    make_nodes(2);
    int fd = take_port(&nodes[1].setup.port);
    start_node(1);
    struct actor actor;
    make_actor(&actor, 0);
    connection_open(&actor.connection, accept(fd, NULL, NULL), PHASE_HELLO);
    ck_assert(act_hear(&actor, &frame));
    actor.said.node = data.hello;
    ck_assert_int_eq(hello_make(&hello, &actor.setup), DDP_OK);
    actor.said.node0 = hello;
    connection_put(&actor.connection, FRAME_HELLO, &hello, sizeof hello);
    actor.connection.phase = PHASE_PROOF;
    ck_assert(act_hear(&actor, &frame));
    ck_assert_uint_eq(frame.kind, FRAME_PROOF);
    /* It gives the node's own proof back. */
    connection_put(&actor.connection, FRAME_PROOF, frame.data, frame.bytes);
    pthread_join(nodes[1].thread, NULL);
    expect_error(1, DDP_ERR_MISMATCH, "is not node 0 of this job: it has another key");
    end_actor(&actor);
    close(fd);
}
END_TEST

/* A node that has joined and says what none says is lost, and nothing else happens. */
START_TEST(nonsense_of_a_node)
{
    struct link_message message;
    const struct frame_header headers[] = {
        {UINT32_MAX, LINK_END}, {sizeof(struct link_step), 200}, {128, FRAME_HELLO}};
    make_nodes(2);
    join_all(2);
    struct connection *connection = &nodes[1].link->peers[0].connection;
    ck_assert_int_eq(send(connection->fd, &headers[_i], sizeof headers[_i], 0), sizeof headers[_i]);
    expect_kind(nodes[0].link, &message, LINK_LOST);
    ck_assert_str_eq(message.data, "node 1 (host1) is lost: it sends what no ddprun sends");
    ck_assert(!wait_message(nodes[0].link, &message, 20));
    close_nodes(2);
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
    tcase_add_loop_test(tc, other_numbers, 0, 2);
    tcase_add_test(tc, late_nodes_hear_it_too);
    tcase_add_test(tc, other_numbers_of_nodes);
    tcase_add_test(tc, another_key);
    tcase_add_test(tc, another_method);
    tcase_add_test(tc, another_job);
    tcase_add_test(tc, no_key_at_all);
    tcase_add_test(tc, other_versions);
    tcase_add_test(tc, pmix_carries_address_and_key);
    tcase_add_test(tc, munge_instead_of_a_key);
    tc = test_case(suite, "addresses", 30);
    tcase_add_test(tc, a_port_that_is_taken);
    tcase_add_test(tc, next_ports_are_tried);
    tcase_add_test(tc, ports_that_are_all_taken);
    tcase_add_loop_test(tc, addresses_that_cannot_be, 0, 4);
    tc = test_case(suite, "strangers", 30);
    tcase_add_test(tc, strangers_are_dropped);
    tcase_add_loop_test(tc, replayed_proofs_are_refused, 0, 4);
    tcase_add_test(tc, a_false_node_0);
    tcase_add_loop_test(tc, nonsense_of_a_node, 0, 3);
    return suite;
}
