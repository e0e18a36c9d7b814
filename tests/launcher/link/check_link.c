/* SPDX-License-Identifier: MIT
 *
 * The link between the ddpruns of a job: joining, messages, signs of life, the end. */
#include "config.h"

#include "launcher/link/state.h"
#include "tests/launcher/link/link_nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

static void set_lost_seconds(int count, double seconds)
{
    for (int i = 0; i < count; i++)
        nodes[i].setup.lost_seconds = seconds;
}

START_TEST(all_nodes_join)
{
    static const int counts[] = {2, 3, 5, 33};
    const int count = counts[_i];
    char host[32];
    make_nodes(count);
    for (int i = 0; i < count; i++)
        nodes[i].setup.nproc = 1 + i % 3;
    join_all(count);
    for (int i = 0; i < count; i++) {
        const struct link *link = nodes[i].link;
        ck_assert_int_eq(link_meeting(link)->round.worker_port, 4711);
        ck_assert_str_eq(link_meeting(link)->address, "127.0.0.1");
        ck_assert_str_eq(link_meeting(link)->interface, "lo");
        for (int k = 0; k < count; k++) {
            snprintf(host, sizeof host, "host%d", k);
            ck_assert_str_eq(link_node_name(link, k), host);
            ck_assert_int_eq(link_node_workers(link, k), 1 + k % 3);
            ck_assert(link_node_alive(link, k));
        }
    }
    printf("%d nodes joined in %.1f ms\n", count, nodes[0].milliseconds);
    close_nodes(count);
}
END_TEST

/* They come in any order, node 0 last. */
START_TEST(node_0_may_come_last)
{
    make_nodes(3);
    start_node(2);
    usleep(120000);
    start_node(1);
    usleep(120000);
    start_node(0);
    for (int i = 0; i < 3; i++) {
        pthread_join(nodes[i].thread, NULL);
        ck_assert_msg(nodes[i].status == DDP_OK, "node %d: %s", i, nodes[i].error);
    }
    close_nodes(3);
}
END_TEST

START_TEST(ipv6_with_brackets)
{
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool there = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    if (!there)
        return;
    make_nodes(2);
    nodes[0].setup.address = nodes[1].setup.address = "[::1]";
    join_all(2);
    ck_assert_str_eq(link_meeting(nodes[0].link)->address, "::1");
    ck_assert_str_eq(link_meeting(nodes[1].link)->address, "::1");
    ck_assert_str_eq(link_meeting(nodes[1].link)->interface, "lo");
    close_nodes(2);
}
END_TEST

START_TEST(messages_go_both_ways)
{
    struct link_message message;
    struct link_step step = {.attempt = 1, .number = 2, .step = 3};
    struct link_posted id = {.number = 4, .data = "an id"};
    const size_t id_bytes = offsetof(struct link_posted, data) + 6;
    make_nodes(3);
    join_all(3);
    link_send(nodes[0].link, 0, LINK_HOLD, &step, sizeof step);
    for (int i = 1; i < 3; i++) {
        expect_kind(nodes[i].link, &message, LINK_HOLD);
        ck_assert_int_eq(message.node, 0);
        ck_assert_int_eq(memcmp(message.data, &step, sizeof step), 0);
        link_send(nodes[i].link, i, LINK_POSTED, &id, id_bytes);
    }
    bool seen[3] = {0};
    for (int i = 1; i < 3; i++) {
        expect_kind(nodes[0].link, &message, LINK_POSTED);
        ck_assert_uint_eq(message.bytes, id_bytes);
        ck_assert_int_eq(memcmp(message.data, &id, id_bytes), 0);
        seen[message.node] = true;
    }
    ck_assert(seen[1] && seen[2]);
    link_send_to(nodes[0].link, 2, LINK_STOP, &step, sizeof step);
    expect_kind(nodes[2].link, &message, LINK_STOP);
    link_send(nodes[0].link, 1, LINK_STOP, &step, sizeof step);
    expect_kind(nodes[2].link, &message, LINK_STOP);
    link_send(nodes[1].link, 0, LINK_STOP, &step, sizeof step);
    ck_assert(!wait_message(nodes[1].link, &message, 50));
    ck_assert(!wait_message(nodes[0].link, &message, 50));
    close_nodes(3);
}
END_TEST

/* The last message before the end comes, however large, and is not a loss. */
START_TEST(the_end_reaches_all)
{
    static struct link_text end;
    struct link_message message;
    make_nodes(4);
    join_all(4);
    end = (struct link_text){.exit_code = 7, .node = 2, .rank = 5};
    memset(end.text, 'x', sizeof end.text - 1);
    link_send(nodes[0].link, 0, LINK_END, &end, sizeof end);
    /* What node 0 has not read must not reset the connection. */
    const struct link_step step = {0};
    for (int i = 1; i < 4; i++)
        link_send_to(nodes[i].link, 0, LINK_DONE, &step, sizeof step);
    ck_assert_int_eq(pthread_create(&nodes[0].thread, NULL, close_one, &nodes[0]), 0);
    usleep(20000);
    for (int i = 1; i < 4; i++) {
        expect_kind(nodes[i].link, &message, LINK_END);
        const struct link_text *text = message.data;
        ck_assert_int_eq(text->exit_code, 7);
        ck_assert_uint_eq(strlen(text->text), sizeof end.text - 1);
        expect_kind(nodes[i].link, &message, LINK_LEFT);
        ck_assert_int_eq(message.node, 0);
        ck_assert(!link_node_alive(nodes[i].link, 0));
        link_send_to(nodes[i].link, 0, LINK_DONE, &step, sizeof step);
    }
    pthread_join(nodes[0].thread, NULL);
    nodes[0].link = NULL;
    close_nodes(4);
}
END_TEST

START_TEST(status_travels_with_pings)
{
    struct link_message message;
    struct link_status status = {.running = 2, .lowest_step = 5, .highest_step = 6};
    make_nodes(2);
    set_lost_seconds(2, 0.5);
    join_all(2);
    ck_assert_int_eq(link_status(nodes[1].link, 1)->lowest_step, -1);
    memset(status.phase, 'p', sizeof status.phase - 1);
    link_set_status(nodes[1].link, &status);
    for (int i = 0; i < 100; i++) {
        ck_assert(!wait_message(nodes[0].link, &message, 10));
        ck_assert(!wait_message(nodes[1].link, &message, 10));
        if (link_status(nodes[0].link, 1)->running == 2)
            break;
    }
    ck_assert_int_eq((int)link_status(nodes[0].link, 1)->highest_step, 6);
    ck_assert_uint_eq(strlen(link_status(nodes[0].link, 1)->phase), sizeof status.phase - 1);
    ck_assert_int_eq(link_status(nodes[1].link, 0)->running, 0);
    close_nodes(2);
}
END_TEST

/* --- losses ----------------------------------------------------------------------------------- */

static pid_t child;

/* Node 1 of 2 in a process of its own, which does nothing but keep the link. */
static void join_with_child(double lost_seconds)
{
    make_nodes(2);
    set_lost_seconds(2, lost_seconds);
    fflush(NULL);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct link_message message;
        join_one(&nodes[1]);
        while (nodes[1].link && !(wait_message(nodes[1].link, &message, 1000) &&
                                  message.kind >= LINK_LOST && message.kind <= LINK_CUT))
            ;
        _exit(nodes[1].link ? (int)message.kind : 0);
    }
    join_nodes(0, 0);
    ck_assert_msg(nodes[0].status == DDP_OK, "%s", nodes[0].error);
}

static int end_child(void)
{
    int wait_status = 0;
    kill(child, SIGCONT);
    ck_assert_int_eq(waitpid(child, &wait_status, 0), child);
    return wait_status;
}

START_TEST(a_killed_node_is_lost)
{
    struct link_message message;
    join_with_child(0);
    const int64_t start_ns = ddp_clock_ns();
    kill(child, SIGKILL);
    expect_kind(nodes[0].link, &message, LINK_LOST);
    ck_assert_int_eq(message.node, 1);
    ck_assert_str_eq(message.data, "node 1 (host1) is lost: its ddprun has ended without a word");
    ck_assert_int_lt((int)((ddp_clock_ns() - start_ns) / 1000000), 2000);
    ck_assert(!wait_message(nodes[0].link, &message, 50));
    ck_assert(!link_node_alive(nodes[0].link, 1));
    end_child();
    link_close(nodes[0].link);
}
END_TEST

START_TEST(a_stopped_node_is_lost)
{
    struct link_message message;
    join_with_child(0.6);
    kill(child, SIGSTOP);
    expect_kind(nodes[0].link, &message, LINK_LOST);
    ck_assert_str_eq(message.data, "node 1 (host1) is lost: it has not answered for 0.6 s");
    /* When it goes on, it hears that. */
    const int wait_status = end_child();
    ck_assert(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == LINK_CUT);
    link_close(nodes[0].link);
}
END_TEST

/* Whoever was stopped himself has to listen again before he calls others lost. */
START_TEST(being_stopped_oneself_is_no_loss_of_others)
{
    struct link_message message;
    make_nodes(2);
    set_lost_seconds(1, 0.4);
    nodes[1].setup.lost_seconds = 0.4;
    join_all(2);
    const struct link_step step = {0};
    for (int i = 0; i < 3; i++) {
        usleep(600000);
        ck_assert(!link_next(nodes[0].link, &message));
        ck_assert(!link_next(nodes[1].link, &message));
    }
    link_send_to(nodes[1].link, 0, LINK_DONE, &step, sizeof step);
    expect_kind(nodes[0].link, &message, LINK_DONE);
    close_nodes(2);
}
END_TEST

START_TEST(pings_keep_an_idle_link)
{
    struct link_message message;
    make_nodes(2);
    set_lost_seconds(2, 0.4);
    join_all(2);
    for (int i = 0; i < 60; i++) {
        ck_assert(!wait_message(nodes[0].link, &message, 5));
        ck_assert(!wait_message(nodes[1].link, &message, 5));
    }
    close_nodes(2);
}
END_TEST

/* --- much at once ----------------------------------------------------------------------------- */

START_TEST(a_flood_keeps_its_order)
{
    enum { MESSAGES = 20000 };
    struct link_message message;
    struct link_step step = {0};
    int64_t received = 0;
    make_nodes(2);
    join_all(2);
    for (int i = 0; i < MESSAGES; i++) {
        step.step = i;
        link_send_to(nodes[1].link, 0, LINK_HELD, &step, sizeof step);
        for (int k = 0; i % 64 == 63 && k < 64; k++) {
            if (!link_next(nodes[0].link, &message))
                break;
            ck_assert_int_eq(((const struct link_step *)message.data)->step, received++);
            ck_assert(!link_next(nodes[1].link, &message));
        }
    }
    while (received < MESSAGES) {
        ck_assert(!link_next(nodes[1].link, &message));
        if (!link_next(nodes[0].link, &message))
            continue;
        ck_assert_int_eq(message.kind, LINK_HELD);
        ck_assert_int_eq(((const struct link_step *)message.data)->step, received++);
    }
    close_nodes(2);
}
END_TEST

/* Who never reads is lost, before he costs more memory. */
START_TEST(a_queue_has_an_end)
{
    static struct link_text text;
    struct link_message message;
    memset(text.text, 'x', sizeof text.text - 1);
    join_with_child(30);
    kill(child, SIGSTOP);
    int sent = 0;
    while (link_node_alive(nodes[0].link, 1) && sent++ < 100000)
        link_send(nodes[0].link, 0, LINK_FAILED, &text, sizeof text);
    ck_assert_int_lt(sent, 100000);
    expect_kind(nodes[0].link, &message, LINK_LOST);
    ck_assert_str_eq(message.data, "node 1 (host1) is lost: it does not take what is sent to it");
    kill(child, SIGKILL);
    end_child();
    link_close(nodes[0].link);
}
END_TEST

/* --- what workers must not inherit, and interrupts -------------------------------------------- */

START_TEST(descriptors_close_on_exec)
{
    int found = 0;
    make_nodes(2);
    int before[256] = {0};
    for (int fd = 0; fd < 256; fd++)
        before[fd] = fcntl(fd, F_GETFD);
    join_all(2);
    for (int fd = 0; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags < 0 || before[fd] >= 0)
            continue;
        found++;
        ck_assert_msg(flags & FD_CLOEXEC, "descriptor %d would be inherited", fd);
    }
    ck_assert_int_ge(found, 6);
    close_nodes(2);
    for (int fd = 0; fd < 256; fd++)
        ck_assert_msg(before[fd] >= 0 || fcntl(fd, F_GETFD) < 0, "descriptor %d is left", fd);
}
END_TEST

START_TEST(joining_can_be_interrupted)
{
    const int node = _i;
    make_nodes(3);
    int fd = eventfd(0, EFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    nodes[node].setup.interrupt_fd = fd;
    start_node(node);
    if (node == 2) /* this time it waits for node 1 */
        start_node(0);
    usleep(150000);
    ck_assert_int_eq(eventfd_write(fd, 1), 0);
    pthread_join(nodes[node].thread, NULL);
    ck_assert_int_eq(nodes[node].status, DDP_ERR_ABORTED);
    ck_assert_str_eq(nodes[node].error, "");
    if (node == 2) {
        nodes[0].setup.interrupt_fd = -1;
        nodes[1].setup.node_count = 3;
        start_node(1);
        start_node(2); /* it comes again, and is interrupted again */
        pthread_join(nodes[2].thread, NULL);
        nodes[2].setup.interrupt_fd = -1;
        start_node(2);
        for (int i = 0; i < 3; i++)
            pthread_join(nodes[i].thread, NULL);
        for (int i = 0; i < 3; i++)
            ck_assert_msg(nodes[i].status == DDP_OK, "node %d: %s", i, nodes[i].error);
        close_nodes(3);
    }
    close(fd);
}
END_TEST

/* Node 0 looks until so many nodes wait. */
static void await_waiting(int count)
{
    struct link_message message;
    for (int tries = 0; link_waiting(nodes[0].link, 0) != count && tries < 1000; tries++)
        ck_assert(!wait_message(nodes[0].link, &message, 10));
    ck_assert_int_eq(link_waiting(nodes[0].link, 0), count);
}

static void is_member(const struct link *link, int node, const char *const hosts[], int count)
{
    ck_assert_int_eq(link_node(link), node);
    ck_assert_int_eq(link_count(link), count);
    for (int i = 0; i < count; i++)
        ck_assert_str_eq(link_node_name(link, i), hosts[i]);
}

/* One that has to wait keeps its connection when another is taken before it. */
START_TEST(one_is_taken_before_another)
{
    static const char *const after[] = {"host0", "host2", "host1"};
    const struct link_round round = {.worker_port = 4712, .restart = 5};
    const struct link_limits narrow = {.nodes = 3, .workers = 4}, wide = {.nodes = 3};
    make_nodes(3);
    for (int i = 0; i < 3; i++)
        nodes[i].setup.least_nodes = 1;
    nodes[1].setup.nproc = 3;
    join_all(1);
    for (int i = 1; i < 3; i++) {
        start_node(i);
        await_waiting(i);
    }
    link_form(nodes[0].link, &narrow, &round);
    pthread_join(nodes[2].thread, NULL);
    is_member(nodes[2].link, 1, after, 2);
    ck_assert_int_eq(link_waiting(nodes[0].link, 0), 1);
    link_form(nodes[0].link, &wide, &round);
    pthread_join(nodes[1].thread, NULL);
    is_member(nodes[1].link, 2, after, 3);
    close_nodes(3);
}
END_TEST

/* One waits at the door while the others work, and takes the place of one that leaves. */
START_TEST(members_change)
{
    static const char *const before[] = {"host0", "host1", "host2"}, *const after[] = {
                                                                         "host0", "host2", "host3"};
    const struct link_round round = {.worker_port = 4712, .restart = 5, .failures = 2, .begun = 7};
    const struct link_step step = {0, 7, 0};
    struct link_message message;
    make_nodes(4);
    for (int i = 0; i < 4; i++) {
        nodes[i].setup.least_nodes = 2;
        nodes[i].setup.node_count = 3;
    }
    nodes[3].setup.node = 2; /* its wish */
    join_all(3);
    for (int i = 0; i < 3; i++)
        is_member(nodes[i].link, i, before, 3);
    start_node(3);
    await_waiting(1);
    link_close(nodes[1].link);
    nodes[1].link = NULL;
    expect_kind(nodes[0].link, &message, LINK_LEFT);
    ck_assert_int_eq(message.node, 1);
    const struct link_limits patient = {.nodes = 3, .waited_ns = INT64_C(600000000000)};
    const struct link_limits narrow = {.nodes = 3, .workers = 5}, wide = {.nodes = 3, .workers = 6};
    ck_assert_int_eq(link_fitting(nodes[0].link, &narrow), 2);
    ck_assert_int_eq(link_fitting(nodes[0].link, &wide), 3);
    link_form(nodes[0].link, &patient, &round); /* it has not waited so long */
    expect_kind(nodes[2].link, &message, LINK_FORMED);
    is_member(nodes[2].link, 1, after, 2);
    link_form(nodes[0].link, &wide, &round);
    pthread_join(nodes[3].thread, NULL);
    ck_assert_msg(nodes[3].status == DDP_OK, "%s", nodes[3].error);
    expect_kind(nodes[2].link, &message, LINK_FORMED);
    is_member(nodes[0].link, 0, after, 3);
    is_member(nodes[2].link, 1, after, 3);
    is_member(nodes[3].link, 2, after, 3);
    ck_assert_mem_eq(&link_meeting(nodes[3].link)->round, &round, sizeof round);
    /* Messages find their way by the new numbers. */
    link_send_to(nodes[0].link, 2, LINK_STOP, &step, sizeof step);
    expect_kind(nodes[3].link, &message, LINK_STOP);
    link_send(nodes[2].link, 1, LINK_DONE, &step, sizeof step);
    expect_kind(nodes[0].link, &message, LINK_DONE);
    ck_assert_int_eq(message.node, 1);
    close_nodes(4);
}
END_TEST

static void *succeed(void *argument)
{
    struct node *node = argument;
    struct link_succession succession;
    node->status = link_succeed(&node->link, &node->setup, &succession);
    return NULL;
}

/* Node 0 ends without a word: the next becomes node 0, the other one comes back to it. */
START_TEST(node_0_is_lost)
{
    static const char *const names[] = {"host1", "host2"};
    const struct link_round round = {.worker_port = 4712, .restart = 1};
    struct link_succession succession;
    struct link_message message;
    make_nodes(3);
    for (int i = 0; i < 3; i++)
        nodes[i].setup.least_nodes = 2;
    join_all(3);
    link_free(nodes[0].link);
    nodes[0].link = NULL;
    for (int i = 1; i < 3; i++) {
        expect_kind(nodes[i].link, &message, LINK_LOST);
        ck_assert(link_has_ended(nodes[i].link, 0));
        nodes[i].setup.epoch = 1;
    }
    ck_assert_int_eq(pthread_create(&nodes[2].thread, NULL, succeed, &nodes[2]), 0);
    ck_assert_int_eq(link_succeed(&nodes[1].link, &nodes[1].setup, &succession), DDP_OK);
    ck_assert_int_eq(succession.voters, 2);
    ck_assert_int_eq(succession.reached, 2);
    ck_assert(!succession.tie_is_lost);
    ck_assert_int_eq(link_node(nodes[1].link), 0);
    while (link_votes(nodes[1].link, 1) == 0)
        ck_assert(!wait_message(nodes[1].link, &message, 10));
    ck_assert_int_eq(link_votes(nodes[1].link, 2), 0);
    link_form(nodes[1].link, &(struct link_limits){.nodes = 3}, &round);
    pthread_join(nodes[2].thread, NULL);
    ck_assert_int_eq(nodes[2].status, DDP_OK);
    is_member(nodes[1].link, 0, names, 2);
    is_member(nodes[2].link, 1, names, 2);
    ck_assert_mem_eq(&link_meeting(nodes[2].link)->round, &round, sizeof round);
    /* It ends in its turn, and the last one is alone. */
    link_free(nodes[1].link);
    nodes[1].link = NULL;
    expect_kind(nodes[2].link, &message, LINK_LOST);
    ck_assert_int_eq(link_succeed(&nodes[2].link, &nodes[2].setup, &succession), DDP_OK);
    ck_assert_int_eq(succession.voters, 1);
    close_nodes(3);
}
END_TEST

/* It has closed the connection, and runs: whoever was dropped is out. */
START_TEST(node_0_that_runs)
{
    struct link_succession succession;
    struct link_message message;
    make_nodes(3);
    for (int i = 0; i < 3; i++)
        nodes[i].setup.least_nodes = 2;
    join_all(3);
    connection_close(&nodes[0].link->peers[2].connection);
    expect_kind(nodes[2].link, &message, LINK_LOST);
    nodes[2].setup.epoch = 1;
    const struct link *before = nodes[2].link;
    ck_assert_int_eq(link_succeed(&nodes[2].link, &nodes[2].setup, &succession), DDP_ERR_IO);
    ck_assert_ptr_eq(nodes[2].link, before);
    close_nodes(3);
}
END_TEST

/* It is turned away with the difference; the others do without it. */
START_TEST(a_node_that_does_not_fit)
{
    static const struct {
        int nproc, least, most;
        const char *command, *says;
    } rows[] = {{4093, 2, 3, "a b", "the nodes have 4097: a job has at most 4096"},
                {2, 1, 3, "a b", "was told of at least 1 nodes, node 0 (host0) of 2"},
                {2, 2, 4, "a b", "was told of 4 nodes, node 0 (host0) of 3"},
                {2, 2, 3, "a bc", "runs: bc, where node 0 runs: b;"}};
    struct link_message message;
    make_nodes(3);
    for (int i = 0; i < 3; i++) {
        nodes[i].setup.least_nodes = 2;
        nodes[i].setup.node_count = 3;
        nodes[i].setup.command = "a b";
    }
    join_nodes(0, 1);
    nodes[2].setup.nproc = rows[_i].nproc;
    nodes[2].setup.least_nodes = rows[_i].least;
    nodes[2].setup.node_count = rows[_i].most;
    nodes[2].setup.command = rows[_i].command;
    start_node(2);
    while (pthread_tryjoin_np(nodes[2].thread, NULL) != 0)
        ck_assert(!wait_message(nodes[0].link, &message, 10));
    expect_error(2, DDP_ERR_MISMATCH, rows[_i].says);
    ck_assert_int_eq(link_waiting(nodes[0].link, 0), 0);
    ck_assert(link_node_alive(nodes[0].link, 1));
    close_nodes(3);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("link");
    TCase *tc = test_case(suite, "join", 30);
    signal(SIGPIPE, SIG_IGN);
    tcase_add_loop_test(tc, all_nodes_join, 0, 4);
    tcase_add_test(tc, node_0_may_come_last);
    tcase_add_test(tc, ipv6_with_brackets);
    tcase_add_test(tc, descriptors_close_on_exec);
    tcase_add_loop_test(tc, joining_can_be_interrupted, 0, 3);
    tc = test_case(suite, "messages", 30);
    tcase_add_test(tc, messages_go_both_ways);
    tcase_add_test(tc, the_end_reaches_all);
    tcase_add_test(tc, status_travels_with_pings);
    tcase_add_test(tc, a_flood_keeps_its_order);
    tcase_add_test(tc, a_queue_has_an_end);
    tc = test_case(suite, "members", 30);
    tcase_add_test(tc, members_change);
    tcase_add_test(tc, one_is_taken_before_another);
    tcase_add_loop_test(tc, a_node_that_does_not_fit, 0, 4);
    tcase_add_test(tc, node_0_is_lost);
    tcase_add_test(tc, node_0_that_runs);
    tc = test_case(suite, "losses", 30);
    tcase_add_test(tc, a_killed_node_is_lost);
    tcase_add_test(tc, a_stopped_node_is_lost);
    tcase_add_test(tc, being_stopped_oneself_is_no_loss_of_others);
    tcase_add_test(tc, pings_keep_an_idle_link);
    return suite;
}
