/* SPDX-License-Identifier: MIT
 *
 * Nodes of a job as threads of one process, for the tests of the link. Checks stand in the main
 * thread only. */
#ifndef TESTS_LINK_NODES_H
#define TESTS_LINK_NODES_H

#include "core/clock.h"
#include "core/log.h"
#include "launcher/link/link.h"
#include "tests/lib/runner.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KEY       "a key of the test's own"
#define MAX_NODES 64

struct node {
    struct link_setup setup;
    struct proof proof;
    struct link *link;
    enum ddp_status status;
    char error[2048]; /* what it has logged as an error */
    char host[32];
    double milliseconds;
    pthread_t thread;
};

static struct node nodes[MAX_NODES];

/* A listening socket on a port of loopback that was free. */
static inline int take_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)*port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, 64) != 0 || getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

static inline int free_port(void)
{
    int port = 0, fd = take_port(&port);
    ck_assert_int_ge(fd, 0);
    close(fd);
    return port;
}

/* As they should be; a test then spoils some. */
static inline void make_nodes(int count)
{
    const int port = free_port();
    for (int i = 0; i < count; i++) {
        struct node *node = &nodes[i];
        *node = (struct node){.proof = {.method = PROOF_KEY}};
        snprintf(node->host, sizeof node->host, "host%d", i);
        ck_assert_int_eq(proof_take_key(&node->proof, KEY, strlen(KEY)), DDP_OK);
        node->setup = (struct link_setup){
            .node = i,
            .node_count = count,
            .job = "test",
            .host = node->host,
            .nproc = 2,
            .address = "127.0.0.1",
            .port = port,
            .port_count = 1,
            .worker_port = 4711,
            .command = "",
            .node_timeout = 10,
            .interrupt_fd = -1,
            .proof = &node->proof,
        };
    }
}

static inline void *join_one(void *argument)
{
    struct node *node = argument;
    const int64_t start_ns = ddp_clock_ns();
    ddp_log_hold(node->error, sizeof node->error);
    node->status = link_open(&node->link, &node->setup);
    ddp_log_hold(NULL, 0);
    node->milliseconds = (double)(ddp_clock_ns() - start_ns) * 1e-6;
    return NULL;
}

static inline void start_node(int i)
{
    ck_assert_int_eq(pthread_create(&nodes[i].thread, NULL, join_one, &nodes[i]), 0);
}

/* Joins nodes first to last and waits for all of them. */
static inline void join_nodes(int first, int last)
{
    for (int i = first; i <= last; i++)
        start_node(i);
    for (int i = first; i <= last; i++)
        pthread_join(nodes[i].thread, NULL);
}

static inline void join_all(int count)
{
    join_nodes(0, count - 1);
    for (int i = 0; i < count; i++)
        ck_assert_msg(nodes[i].status == DDP_OK, "node %d: %s", i, nodes[i].error);
}

static inline void expect_error(int node, enum ddp_status status, const char *part)
{
    ck_assert_msg(nodes[node].status == status && strstr(nodes[node].error, part),
                  "node %d: expected %d \"%s\", got %d \"%s\"", node, status, part,
                  nodes[node].status, nodes[node].error);
    ck_assert_ptr_null(nodes[node].link);
}

static inline void *close_one(void *argument)
{
    link_close(((struct node *)argument)->link);
    return NULL;
}

/* All at once, as ddpruns do. */
static inline void close_nodes(int count)
{
    for (int i = 0; i < count; i++)
        ck_assert_int_eq(pthread_create(&nodes[i].thread, NULL, close_one, &nodes[i]), 0);
    for (int i = 0; i < count; i++) {
        pthread_join(nodes[i].thread, NULL);
        proof_close(&nodes[i].proof);
    }
}

/* The next message within so long. */
static inline bool wait_message(struct link *link, struct link_message *message, int milliseconds)
{
    const int64_t deadline_ns = ddp_deadline_ns(milliseconds);
    do {
        struct pollfd fd = {link_fd(link), POLLIN, 0};
        if (link_next(link, message))
            return true;
        poll(&fd, 1, 10);
    } while (!ddp_deadline_passed(deadline_ns));
    return false;
}

#define expect_kind(link, message, wanted)                                                         \
    do {                                                                                           \
        ck_assert_msg(wait_message(link, message, 5000), "no message");                            \
        ck_assert_int_eq((message)->kind, wanted);                                                 \
    } while (0)

#endif
