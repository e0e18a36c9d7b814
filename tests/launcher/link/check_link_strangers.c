/* SPDX-License-Identifier: MIT
 *
 * Who connects, or answers, without belonging to the job; nodes that say what no ddprun says. */
#include "config.h"

#include "launcher/link/hello.h"
#include "launcher/link/state.h"
#include "tests/launcher/link/link_nodes.h"
#include "tests/lib/messages.h"

#include <fcntl.h>

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
    expect_message("dropped a connection from 127.0.0.1, which is not a ddprun of this job: ");
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
    unsigned char secret[PROOF_SECRET_BYTES];
    ck_assert_int_eq(proof_make(&actor->proof, role, said, SAID_OPENLY, actor->proof_bytes,
                                &actor->proof_count, secret),
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
    hello_seal(&actor.connection, &actor.proof, &actor.said, false);
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

/* Begins as node 0 with a node that comes to this socket. */
static void act_node0(struct actor *actor, int fd, struct frame *frame)
{
    struct hello hello;
    make_actor(actor, 0);
    connection_open(&actor->connection, accept(fd, NULL, NULL), PHASE_HELLO);
    ck_assert(act_hear(actor, frame));
    actor->said.node = data.hello;
    ck_assert_int_eq(hello_make(&hello, &actor->setup), DDP_OK);
    actor->said.node0 = hello;
    connection_put(&actor->connection, FRAME_HELLO, &hello, sizeof hello);
    actor->connection.phase = PHASE_PROOF;
    ck_assert(act_hear(actor, frame));
    ck_assert_uint_eq(frame->kind, FRAME_PROOF);
}

/* A false node 0 learns nothing and is refused. */
START_TEST(a_false_node_0)
{
    struct frame frame;
    struct actor actor;
    make_nodes(2);
    int fd = take_port(&nodes[1].setup.port);
    start_node(1);
    act_node0(&actor, fd, &frame);
    /* It gives the node's own proof back. */
    connection_put(&actor.connection, FRAME_PROOF, frame.data, frame.bytes);
    pthread_join(nodes[1].thread, NULL);
    expect_error(1, DDP_ERR_MISMATCH, "is not node 0 of this job: it has another key");
    end_actor(&actor);
    close(fd);
}
END_TEST

/* Who has proved nothing cannot end the job either, nor choose what is printed. */
START_TEST(a_false_node_0_that_ends_the_job)
{
    const struct refusal refusal = {.reason = REFUSED_JOB_ENDS, .text = "words of a stranger"};
    make_nodes(2);
    nodes[1].setup.node_timeout = 0.5;
    int fd = take_port(&nodes[1].setup.port);
    start_node(1);
    struct actor actor;
    make_actor(&actor, 0);
    connection_open(&actor.connection, accept(fd, NULL, NULL), PHASE_HELLO);
    close(fd);
    connection_put(&actor.connection, FRAME_REFUSED, &refusal, sizeof refusal);
    pthread_join(nodes[1].thread, NULL);
    expect_error(1, DDP_ERR_TIMEOUT, "node 1 of 2 cannot reach node 0");
    ck_assert_ptr_null(strstr(nodes[1].error, "stranger"));
    end_actor(&actor);
}
END_TEST

/* What comes first to a port that the number of a Slurm job tells everybody. */
enum { OTHER_PROTOCOL, OTHER_METHOD, FALSE_PROOF, REFUSAL, TALK, DRIP, IMPOSTORS };

static struct impostor {
    int fd, kind;
} impostor;

static void pose(struct connection *connection)
{
    const struct refusal refusal = {impostor.kind == OTHER_METHOD ? REFUSED_METHOD : REFUSED_PROOF,
                                    PROOF_NONE, ""};
    const unsigned char proof[32] = {0};
    char waste[4096];
    struct hello hello;
    hello_make(&hello, &nodes[0].setup);
    hello.protocol += impostor.kind == OTHER_PROTOCOL;
    if (impostor.kind == DRIP) {
        const struct frame_header header = {sizeof hello, FRAME_HELLO};
        send(connection->fd, &header, sizeof header, MSG_NOSIGNAL);
        while (send(connection->fd, "d", 1, MSG_NOSIGNAL) == 1)
            usleep(200000);
        return;
    }
    if (impostor.kind == TALK)
        send(connection->fd, "220 mail.example.org", 20, MSG_NOSIGNAL);
    else
        connection_put(connection, FRAME_HELLO, &hello, sizeof hello);
    if (impostor.kind == FALSE_PROOF)
        connection_put(connection, FRAME_PROOF, proof, sizeof proof);
    if (impostor.kind == OTHER_METHOD || impostor.kind == REFUSAL)
        connection_put(connection, FRAME_REFUSED, &refusal, sizeof refusal);
    fcntl(connection->fd, F_SETFL, 0);
    while (recv(connection->fd, waste, sizeof waste, 0) > 0)
        continue;
}

static void *act_impostor(void *unused)
{
    struct connection connection;
    int fd;
    while ((fd = accept(impostor.fd, NULL, NULL)) >= 0) {
        connection_open(&connection, fd, PHASE_HELLO);
        pose(&connection);
        connection_close(&connection);
    }
    return unused;
}

/* It has node 0's port, but neither the job nor its nodes. */
START_TEST(an_impostor_on_the_first_port)
{
    pthread_t thread;
    int port = 0;
    make_nodes(2);
    impostor = (struct impostor){take_port(&port), _i};
    for (int i = 0; i < 2; i++) {
        nodes[i].setup.port = port;
        nodes[i].setup.port_count = 8;
        nodes[i].setup.node_timeout = 20;
    }
    ck_assert_int_eq(pthread_create(&thread, NULL, act_impostor, NULL), 0);
    start_node(1);
    usleep(300000);
    start_node(0);
    for (int i = 0; i < 2; i++) {
        pthread_join(nodes[i].thread, NULL);
        ck_assert_msg(nodes[i].status == DDP_OK, "node %d: %s", i, nodes[i].error);
    }
    ck_assert(nodes[1].milliseconds < 15000);
    shutdown(impostor.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(impostor.fd);
    close_nodes(2);
}
END_TEST

/* A node says why it ends, also when node 0 has sent nonsense. */
START_TEST(nonsense_of_node_0)
{
    struct frame frame;
    struct actor actor;
    struct link_status status = {.running = 1};
    memset(status.phase, 'x', sizeof status.phase);
    make_nodes(2);
    int fd = take_port(&nodes[1].setup.port);
    start_node(1);
    act_node0(&actor, fd, &frame);
    act_prove(&actor, &actor.said, ROLE_NODE0);
    hello_seal(&actor.connection, &actor.proof, &actor.said, true);
    actor.connection.phase = PHASE_JOIN;
    ck_assert(act_hear(&actor, &frame));
    connection_put(&actor.connection, FRAME_PING, &status, sizeof status);
    pthread_join(nodes[1].thread, NULL);
    expect_error(1, DDP_ERR_IO, "node 0 (?) is lost: what it sends arrives damaged");
    end_actor(&actor);
    close(fd);
}
END_TEST

/* Joins node 0 as node 1, with so many restarts. */
static void act_join(struct actor *actor, struct frame *frame, uint32_t restarts, int pause_ms)
{
    struct hello hello;
    struct join join = {.nproc = 2, .max_restarts = restarts, .host = "actor"};
    snprintf(join.version, sizeof join.version, "%s", ddp_version());
    make_actor(actor, 1);
    ck_assert_int_eq(hello_make(&hello, &actor->setup), DDP_OK);
    act_hello(actor, &hello, frame);
    act_prove(actor, &actor->said, ROLE_NODE);
    ck_assert(act_hear(actor, frame));
    hello_seal(&actor->connection, &actor->proof, &actor->said, false);
    actor->connection.phase = PHASE_WAITING;
    usleep((useconds_t)pause_ms * 1000);
    connection_put(&actor->connection, FRAME_JOIN, &join, sizeof join);
}

/* A node that the job ends because of gives signs of life until it hears it: it is no stranger. */
START_TEST(a_refused_node_may_ping)
{
    const struct link_status status = {.running = 1};
    struct frame frame;
    struct actor actor;
    make_nodes(3);
    catch_messages();
    start_node(0);
    act_join(&actor, &frame, 7, 0);
    ck_assert(act_hear(&actor, &frame));
    ck_assert_uint_eq(frame.kind, FRAME_REFUSED);
    connection_put(&actor.connection, FRAME_PING, &status, sizeof status);
    usleep(100000);
    ck_assert_int_eq(connection_receive(&actor.connection), CONNECTION_NOTHING);
    start_node(2);
    pthread_join(nodes[0].thread, NULL);
    pthread_join(nodes[2].thread, NULL);
    expect_error(2, DDP_ERR_MISMATCH, "node 1 (actor) has --max-restarts 7");
    ck_assert_ptr_null(strstr(take_messages(), "dropped"));
    end_actor(&actor);
}
END_TEST

/* The last node comes when the time is just over, before node 0 has looked: all are there. */
START_TEST(a_node_that_comes_with_the_deadline)
{
    struct frame frame;
    struct actor actor;
    make_nodes(2);
    nodes[0].setup.node_timeout = 0.4;
    nodes[0].setup.lost_seconds = 80; /* it looks every 4 seconds */
    start_node(0);
    act_join(&actor, &frame, 0, 800);
    pthread_join(nodes[0].thread, NULL);
    ck_assert_msg(nodes[0].status == DDP_OK, "%s", nodes[0].error);
    link_close(nodes[0].link);
    end_actor(&actor);
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
    ck_assert_str_eq(message.data, "node 1 (host1) is lost: what it sends arrives damaged");
    ck_assert(!wait_message(nodes[0].link, &message, 20));
    close_nodes(2);
}
END_TEST

/* The bytes of a frame that node 1 sends to node 0, which does not get them. */
static size_t take_frame(unsigned char *out, size_t size, enum link_kind kind, const void *message,
                         size_t bytes)
{
    struct connection *connection = &nodes[1].link->peers[0].connection;
    const int fd = connection->fd;
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    connection->fd = ends[0];
    link_send(nodes[1].link, 1, kind, message, bytes);
    connection->fd = fd;
    close(ends[0]);
    const ssize_t taken = read(ends[1], out, size);
    ck_assert_int_gt(taken, 0);
    close(ends[1]);
    return (size_t)taken;
}

/* What somebody between the nodes, or a broken machine, does to frames: the node is lost, and
 * nothing that has changed reaches the owner. */
START_TEST(damage_on_the_way)
{
    enum {
        FLIP_LENGTH,
        FLIP_KIND,
        FLIP_NUMBER,
        FLIP_DATA,
        FLIP_SEAL,
        CUT,
        INSERT,
        DROP,
        REPEAT,
        SWAP
    };
    static const size_t flipped[] = {0, 4, 8, 30, 60};
    unsigned char one[256], two[256];
    struct link_message message;
    const struct link_posted posted = {.number = 3,
                                       .data = "an address of 43 bytes, its 0 counted, yes"};
    const struct link_step step = {.number = 2};
    make_nodes(2);
    nodes[0].setup.lost_seconds = nodes[1].setup.lost_seconds = 2; /* of signs of life, too */
    join_all(2);
    const size_t posted_bytes = offsetof(struct link_posted, data) + 43;
    const size_t ones = take_frame(one, sizeof one, LINK_POSTED, &posted, posted_bytes);
    const size_t twos = take_frame(two, sizeof two, LINK_STOP, &step, sizeof step);
    ck_assert_uint_eq(ones, sizeof(struct frame_header) + posted_bytes + PROOF_SEAL_BYTES);
    const int fd = nodes[1].link->peers[0].connection.fd;
    if (_i <= FLIP_SEAL)
        one[flipped[_i]] ^= 1;
    if (_i == SWAP || _i == DROP)
        ck_assert_int_eq(send(fd, two, twos, 0), (ssize_t)twos);
    if (_i == INSERT)
        ck_assert_int_eq(send(fd, "", 1, 0), 1);
    if (_i != DROP)
        ck_assert_int_eq(send(fd, one, _i == CUT ? 20 : ones, 0), _i == CUT ? 20 : (ssize_t)ones);
    if (_i == REPEAT) {
        expect_kind(nodes[0].link, &message, LINK_POSTED);
        ck_assert_int_eq(send(fd, one, ones, 0), (ssize_t)ones);
    }
    if (_i < DROP)
        ck_assert_int_eq(send(fd, two, twos, 0), (ssize_t)twos);
    do { /* the length may have become that of what follows: signs of life */
        wait_message(nodes[1].link, &message, 10);
        memset(&message, 0, sizeof message);
    } while (!wait_message(nodes[0].link, &message, 10));
    ck_assert_int_eq(message.kind, LINK_LOST);
    ck_assert_str_eq(message.data, "node 1 (host1) is lost: what it sends arrives damaged");
    close_nodes(2);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("strangers");
    TCase *tc = test_case(suite, "strangers", 30);
    tcase_add_test(tc, other_versions);
    tcase_add_test(tc, strangers_are_dropped);
    tcase_add_loop_test(tc, replayed_proofs_are_refused, 0, 4);
    tcase_add_test(tc, a_false_node_0);
    tcase_add_test(tc, a_false_node_0_that_ends_the_job);
    tcase_add_loop_test(tc, an_impostor_on_the_first_port, 0, IMPOSTORS);
    tcase_add_test(tc, nonsense_of_node_0);
    tcase_add_test(tc, a_refused_node_may_ping);
    tcase_add_test(tc, a_node_that_comes_with_the_deadline);
    tcase_add_loop_test(tc, nonsense_of_a_node, 0, 3);
    tcase_add_loop_test(tc, damage_on_the_way, 0, 10);
    return suite;
}
