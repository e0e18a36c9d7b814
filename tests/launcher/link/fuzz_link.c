/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: what comes over a connection between ddpruns. The first byte is how far the
 * connection has come, the second in how large pieces the rest comes. */
#include "config.h"

#include "launcher/link_connection.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static union frame_data content;

/* Takes all frames that are whole. False: one is bad. */
static bool take_all(struct connection *connection, uint32_t *sum)
{
    struct frame frame;
    enum frame_result result;
    while ((result = connection_take(connection, &frame)) == FRAME_READY) {
        assert(frame.bytes <= sizeof content && frame_size_fits(frame.kind, frame.bytes));
        memset(&content, 0xa5, sizeof content);
        if (!frame_read(&frame, &content))
            return false;
        for (size_t i = 0; i < frame.bytes; i++)
            *sum += frame.data[i] ^ content.bytes[i];
        if (frame.kind == LINK_END || frame.kind == LINK_FAILED)
            *sum += (uint32_t)strlen(content.text.text);
        if (frame.kind == FRAME_JOIN)
            *sum += (uint32_t)strlen(content.join.host);
        if (frame.kind == FRAME_REFUSED)
            *sum += (uint32_t)strlen(content.refusal.text);
    }
    return result == FRAME_NONE;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct connection connection;
    int ends[2];
    uint32_t sum = 0;
    if (size < 2 || data[0] > PHASE_RUNNING ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return false;
    connection_open(&connection, ends[0], (enum frame_phase)data[0]);
    bool good = true;
    for (size_t at = 2; at < size && good;) {
        size_t piece = data[1] ? data[1] : 4096;
        piece = piece < size - at ? piece : size - at;
        good = write(ends[1], data + at, piece) == (ssize_t)piece;
        at += piece;
        /* A buffer that is too small for the piece takes it in several turns. */
        while (good && connection_receive(&connection) == CONNECTION_BYTES)
            good = take_all(&connection, &sum);
    }
    good = good && sum != 1 && connection.in_start == connection.in_end;
    assert(connection.in_size <= sizeof(struct frame_header) + FRAME_DATA_MAX);
    connection_close(&connection);
    close(ends[1]);
    return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
