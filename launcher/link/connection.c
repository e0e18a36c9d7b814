/* SPDX-License-Identifier: MIT
 *
 * See connection.h. */
#include "config.h"

#include "launcher/link/connection.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_SIZE   4096 /* grows for a frame that needs more */
#define MAX_TURNS 512
#define FINISH_MS 500

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

void connection_open(struct connection *connection, int fd, enum frame_phase phase)
{
    *connection = (struct connection){.fd = fd, .phase = phase, .heard_ns = ddp_clock_ns()};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

void connection_close(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd);
    free(connection->in);
    free(connection->out);
    *connection = (struct connection){.fd = -1};
}

static bool reserve(unsigned char **buffer, size_t *size, size_t wanted)
{
    if (wanted <= *size)
        return true;
    unsigned char *larger = realloc(*buffer, wanted);
    if (!larger)
        return false;
    *buffer = larger;
    *size = wanted;
    return true;
}

static size_t seal_bytes(const struct proof_seal *seal)
{
    return seal->on ? PROOF_SEAL_BYTES : 0;
}

enum connection_result connection_receive(struct connection *connection)
{
    struct frame frame;
    size_t wanted = 0, used = connection->in_end - connection->in_start;
    if (used > 0)
        memmove(connection->in, connection->in + connection->in_start, used);
    connection->in_start = 0;
    connection->in_end = used;
    frame_take(connection->phase, connection->in, used, &frame, &wanted);
    wanted += seal_bytes(&connection->in_seal);
    if (!reserve(&connection->in, &connection->in_size, wanted > IN_SIZE ? wanted : IN_SIZE)) {
        errno = ENOMEM;
        return CONNECTION_FAILED;
    }
    ssize_t n = recv(connection->fd, connection->in + used, connection->in_size - used, 0);
    if (n > 0) {
        connection->in_end += (size_t)n;
        connection->heard_ns = ddp_clock_ns();
        return CONNECTION_BYTES;
    }
    if (n == 0)
        return CONNECTION_ENDED;
    return errno == EAGAIN || errno == EINTR ? CONNECTION_NOTHING : CONNECTION_FAILED;
}

enum frame_result connection_take(struct connection *connection, struct frame *frame)
{
    size_t wanted;
    unsigned char seal[PROOF_SEAL_BYTES];
    struct proof_seal *sealed = &connection->in_seal;
    const unsigned char *start = connection->in + connection->in_start;
    const size_t bytes = connection->in_end - connection->in_start;
    if (bytes == 0)
        return FRAME_NONE;
    enum frame_result result = frame_take(connection->phase, start, bytes, frame, &wanted);
    if (result != FRAME_READY)
        return result;
    if (bytes < wanted + seal_bytes(sealed))
        return FRAME_NONE;
    connection->in_start += wanted + seal_bytes(sealed);
    if (!sealed->on)
        return FRAME_READY;
    proof_seal_make(sealed, start, wanted, seal);
    return memcmp(seal, start + wanted, sizeof seal) == 0 ? FRAME_READY : FRAME_BAD;
}

bool connection_waits(const struct connection *connection)
{
    return connection->out_end > connection->out_start;
}

static void forget_queue(struct connection *connection)
{
    connection->unsendable = true;
    connection->out_start = connection->out_end = 0;
}

void connection_flush(struct connection *connection)
{
    while (connection_waits(connection)) {
        ssize_t n = send(connection->fd, connection->out + connection->out_start,
                         connection->out_end - connection->out_start, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            forget_queue(connection);
        if (n <= 0)
            return;
        connection->out_start += (size_t)n;
    }
    connection->out_start = connection->out_end = 0;
}

bool connection_put(struct connection *connection, uint32_t kind, const void *data, size_t bytes)
{
    const struct frame_header header = {.bytes = (uint32_t)bytes, .kind = kind};
    const size_t length = sizeof header + bytes + seal_bytes(&connection->out_seal);
    if (connection->fd < 0 || connection->unsendable)
        return true;
    size_t waiting = connection->out_end - connection->out_start;
    if (waiting + length > CONNECTION_QUEUE_MAX)
        return false;
    if (connection->out_end + length > connection->out_size && connection->out_start > 0) {
        memmove(connection->out, connection->out + connection->out_start, waiting);
        connection->out_start = 0;
        connection->out_end = waiting;
    }
    size_t size = connection->out_size ? connection->out_size : 1024;
    while (size < waiting + length)
        size *= 2;
    if (!reserve(&connection->out, &connection->out_size, size))
        return false;
    memcpy(connection->out + connection->out_end, &header, sizeof header);
    if (bytes > 0)
        memcpy(connection->out + connection->out_end + sizeof header, data, bytes);
    if (connection->out_seal.on)
        proof_seal_make(&connection->out_seal, connection->out + connection->out_end,
                        sizeof header + bytes,
                        connection->out + connection->out_end + sizeof header + bytes);
    connection->out_end += length;
    connection_flush(connection);
    return true;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Sends and throws away what comes, until the peer has closed or the deadline is over. One that
 * never stops sending is left. */
static void finish_one(struct connection *connection, int64_t deadline_ns)
{
    unsigned char waste[4096];
    for (int turn = 0; turn < MAX_TURNS && connection->fd >= 0; turn++) {
        const bool waits = connection_waits(connection);
        if (!waits && !connection->unsendable) {
            shutdown(connection->fd, SHUT_WR);
            connection->unsendable = true;
        }
        const int64_t left_ns = deadline_ns - ddp_clock_ns();
        struct pollfd fd = {connection->fd, (short)(waits ? POLLIN | POLLOUT : POLLIN), 0};
        if (poll(&fd, 1, left_ns > 0 ? (int)(left_ns / 1000000) : 0) <= 0)
            return;
        connection_flush(connection);
        ssize_t n = recv(connection->fd, waste, sizeof waste, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
    }
}

void connections_finish(struct connection *const *connections, int count)
{
    const int64_t deadline_ns = ddp_deadline_ns(FINISH_MS);
    /* All begin at once; then one after another, of which the first slow one costs time. */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            finish_one(connections[i], pass == 0 ? 0 : deadline_ns);
    for (int i = 0; i < count; i++)
        connection_close(connections[i]);
}
