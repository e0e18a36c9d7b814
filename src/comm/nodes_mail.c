/* SPDX-License-Identifier: MIT
 *
 * Mail between machines, over the wire; see nodes.h. Within a machine it is in rings.
 *
 * Each pair of ranks has a line: slots at both ends, and a credit for each message that has been
 * read, without which no more than SLOTS are on their way. */
#include "config.h"

#include "comm/nodes.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS        4
#define SLOT_BYTES   ((size_t)64 << 10)
#define HELLO_MS     60000                /* all ranks are there */
#define LEAVE_MS     2000                 /* for the others to close theirs */
#define FIRST_NUMBER UINT32_C(0xe0000000) /* in keys: channels have lower numbers */

enum { DATA, CREDIT, GOODBYE, HELLO }; /* in keys */

/* To and from a rank of another machine. A message of `out` has left when its credit has come. */
struct line {
    int peer; /* the job's rank; -1: of this machine */
    bool connected;
    uint64_t written, read; /* messages */
    size_t taken;           /* bytes of message `read` */
    char *slots;            /* (2,SLOTS,SLOT_BYTES): out, in */
    struct ddp_wire_op out[SLOTS], credits[SLOTS], in[SLOTS], credits_out[SLOTS];
    struct ddp_wire_op hello, bye_in, bye_out;
};

struct nodes_mail {
    struct nodes *nodes;
    uint32_t number;
    pthread_mutex_t lock; /* of the lines, but for the states of their messages */
    struct line *lines;   /* (size) */
    char *memory;         /* of the slots */
    size_t memory_bytes;
};

static void post_send(struct nodes_mail *mail, struct line *line, struct ddp_wire_op *op,
                      uint32_t index, const void *data, size_t bytes)
{
    op->head = (struct ddp_wire_head){.key = nodes_key(mail->nodes, mail->number, index)};
    mail->nodes->ops->send(mail->nodes->wire, line->peer, op, data, bytes);
}

static void post_receive(struct nodes_mail *mail, struct line *line, struct ddp_wire_op *op,
                         uint32_t index, void *buffer, size_t room)
{
    op->head = (struct ddp_wire_head){.key = nodes_key(mail->nodes, mail->number, index)};
    mail->nodes->ops->receive(mail->nodes->wire, line->peer, op, buffer, room);
}

static bool is_over(const struct ddp_wire_op *op)
{
    return ddp_wire_state(op) == DDP_WIRE_OVER;
}

static bool is_free(const struct line *line, uint64_t message)
{
    return is_over(&line->out[message % SLOTS]) && is_over(&line->credits[message % SLOTS]);
}

/* --- moving --- */

size_t nodes_mail_write(struct nodes_mail *mail, int to, const void *data, size_t bytes)
{
    struct line *line = &mail->lines[to];
    size_t sent = 0;
    pthread_mutex_lock(&mail->lock);
    while (sent < bytes && is_free(line, line->written)) {
        const uint64_t i = line->written++ % SLOTS;
        const size_t count = bytes - sent < SLOT_BYTES ? bytes - sent : SLOT_BYTES;
        char *slot = line->slots + i * SLOT_BYTES;
        memcpy(slot, (const char *)data + sent, count);
        post_receive(mail, line, &line->credits[i], CREDIT, NULL, 0);
        post_send(mail, line, &line->out[i], DATA, slot, count);
        sent += count;
    }
    pthread_mutex_unlock(&mail->lock);
    mail->nodes->ops->progress(mail->nodes->wire);
    return sent;
}

/* Gives the slot of a message that has been read back. */
static void release(struct nodes_mail *mail, struct line *line)
{
    const uint64_t i = line->read++ % SLOTS;
    line->taken = 0;
    while (ddp_wire_state(&line->credits_out[i]) ==
           DDP_WIRE_GOING) /* it came before this message */
        mail->nodes->ops->progress(mail->nodes->wire);
    post_receive(mail, line, &line->in[i], DATA, line->slots + (SLOTS + i) * SLOT_BYTES,
                 SLOT_BYTES);
    post_send(mail, line, &line->credits_out[i], CREDIT, NULL, 0);
}

size_t nodes_mail_read(struct nodes_mail *mail, int from, void *data, size_t bytes)
{
    struct line *line = &mail->lines[from];
    size_t got = 0;
    mail->nodes->ops->progress(mail->nodes->wire);
    pthread_mutex_lock(&mail->lock);
    while (got < bytes && is_over(&line->in[line->read % SLOTS])) {
        const uint64_t i = line->read % SLOTS;
        const size_t left = line->in[i].bytes - line->taken;
        const size_t count = bytes - got < left ? bytes - got : left;
        memcpy((char *)data + got, line->slots + (SLOTS + i) * SLOT_BYTES + line->taken, count);
        line->taken += count;
        got += count;
        if (count == left)
            release(mail, line);
    }
    pthread_mutex_unlock(&mail->lock);
    return got;
}

/* What this rank does changes neither sum. */
static uint64_t changes_of(const struct line *line)
{
    uint64_t sendable = line->written, arrived = line->read;
    while (sendable < line->written + SLOTS && is_free(line, sendable))
        sendable++;
    while (arrived < line->read + SLOTS && is_over(&line->in[arrived % SLOTS]))
        arrived++;
    return sendable + arrived;
}

uint32_t nodes_mail_changes(struct nodes_mail *mail)
{
    uint64_t changes = 0;
    pthread_mutex_lock(&mail->lock);
    for (int r = 0; r < mail->nodes->place->size; r++)
        if (mail->lines[r].peer >= 0)
            changes += changes_of(&mail->lines[r]);
    pthread_mutex_unlock(&mail->lock);
    return (uint32_t)changes;
}

enum ddp_status nodes_mail_turn(struct nodes_mail *mail, int *idle)
{
    if (mail->nodes->ops->progress(mail->nodes->wire))
        return DDP_OK;
    for (int r = 0; r < mail->nodes->place->size; r++)
        if (mail->lines[r].peer >= 0 && ddp_wire_state(&mail->lines[r].bye_in) == DDP_WIRE_LOST)
            return nodes_lost(mail->nodes, mail->lines[r].peer);
    return nodes_nap(mail->nodes, idle, true);
}

/* --- opening --- */

/* The lower rank connects first: see connect_ends() of channels. */
static enum ddp_status connect_line(struct nodes_mail *mail, struct line *line)
{
    const bool first = line->peer > ddp_job_rank(mail->nodes->place->job);
    if (line->connected || (!first && !is_over(&line->hello)))
        return DDP_OK;
    enum ddp_status status = nodes_connect(mail->nodes, line->peer);
    if (status == DDP_OK && first)
        post_send(mail, line, &line->hello, HELLO, NULL, 0);
    line->connected = status == DDP_OK;
    return status;
}

/* Everybody with everybody of other machines. */
static enum ddp_status connect_lines(struct nodes_mail *mail)
{
    struct nodes *nodes = mail->nodes;
    const int64_t deadline = ddp_deadline_ns(HELLO_MS);
    enum ddp_status status = DDP_OK;
    int missing = -1, idle = 0;
    for (;;) {
        missing = -1;
        for (int r = 0; status == DDP_OK && r < nodes->place->size; r++) {
            struct line *line = &mail->lines[r];
            if (line->peer < 0)
                continue;
            status = connect_line(mail, line);
            if (ddp_wire_state(&line->hello) == DDP_WIRE_LOST)
                status = nodes_lost(nodes, line->peer);
            if (!line->connected || !is_over(&line->hello))
                missing = line->peer;
        }
        if (status != DDP_OK || (missing < 0 && nodes->ops->flushed(nodes->wire)))
            return status;
        if (ddp_deadline_passed(deadline))
            return ddp_fail(DDP_ERR_TIMEOUT, "waited %d ms for a connection with rank %d", HELLO_MS,
                            missing);
        if (!nodes->ops->progress(nodes->wire))
            status = nodes_nap(nodes, &idle, true);
    }
}

static enum ddp_status alloc_lines(struct nodes_mail *mail)
{
    const struct ddp_comm_place *place = mail->nodes->place;
    const size_t line_bytes = 2 * SLOTS * SLOT_BYTES, size = (size_t)place->size;
    mail->memory_bytes = size * line_bytes; /* of which only what is used becomes memory */
    mail->memory = ddp_pages_alloc(mail->memory_bytes);
    mail->lines = ddp_array_alloc(size, sizeof *mail->lines);
    if (!mail->memory || !mail->lines)
        return DDP_ERR_MEMORY;
    for (int r = 0; r < place->size; r++) {
        struct line *line = &mail->lines[r];
        const bool here = ddp_comm_node_of(place, r) == place->node;
        line->peer = here ? -1 : ddp_comm_job_rank(place, r);
        line->slots = mail->memory + (size_t)r * line_bytes;
        if (here)
            continue;
        if (line->peer < ddp_job_rank(place->job))
            post_receive(mail, line, &line->hello, HELLO, NULL, 0);
        post_receive(mail, line, &line->bye_in, GOODBYE, NULL, 0);
        for (size_t i = 0; i < SLOTS; i++)
            post_receive(mail, line, &line->in[i], DATA, line->slots + (SLOTS + i) * SLOT_BYTES,
                         SLOT_BYTES);
    }
    return DDP_OK;
}

enum ddp_status nodes_mail_open(struct nodes_mail **mail, struct nodes *nodes)
{
    struct nodes_mail *m = ddp_array_alloc(1, sizeof *m);
    const uint32_t number = FIRST_NUMBER + nodes->mails_opened++;
    if (!m)
        return DDP_ERR_MEMORY;
    *m = (struct nodes_mail){.nodes = nodes, .number = number};
    pthread_mutex_init(&m->lock, NULL);
    enum ddp_status status = alloc_lines(m);
    if (status == DDP_OK)
        status = connect_lines(m);
    *mail = status == DDP_OK ? m : NULL;
    if (status != DDP_OK)
        nodes_mail_close(m);
    return status;
}

/* --- closing --- */

/* A rank that leaves waits until the others do: they may have messages to read. */
static void say_goodbye(struct nodes_mail *mail)
{
    struct nodes *nodes = mail->nodes;
    const int64_t deadline = ddp_deadline_ns(LEAVE_MS);
    int idle = 0;
    for (int r = 0; r < nodes->place->size; r++)
        if (mail->lines[r].connected)
            post_send(mail, &mail->lines[r], &mail->lines[r].bye_out, GOODBYE, NULL, 0);
    for (int r = 0; r < nodes->place->size; r++) {
        const struct line *line = &mail->lines[r];
        while (line->connected && ddp_wire_state(&line->bye_in) == DDP_WIRE_GOING &&
               !ddp_deadline_passed(deadline))
            if (!nodes->ops->progress(nodes->wire) && nodes_nap(nodes, &idle, true) != DDP_OK)
                return;
    }
}

void nodes_mail_close(struct nodes_mail *mail)
{
    struct nodes *nodes = mail->nodes;
    if (mail->lines && !ddp_job_aborted(nodes->place->job))
        say_goodbye(mail);
    for (int r = 0; mail->lines && r < nodes->place->size; r++) {
        struct line *line = &mail->lines[r];
        for (size_t i = 0; i < SLOTS; i++) {
            nodes->ops->cancel(nodes->wire, &line->out[i]);
            nodes->ops->cancel(nodes->wire, &line->credits[i]);
            nodes->ops->cancel(nodes->wire, &line->in[i]);
            nodes->ops->cancel(nodes->wire, &line->credits_out[i]);
        }
        nodes->ops->cancel(nodes->wire, &line->hello);
        nodes->ops->cancel(nodes->wire, &line->bye_in);
        nodes->ops->cancel(nodes->wire, &line->bye_out);
    }
    if (mail->memory)
        ddp_pages_free(mail->memory, mail->memory_bytes);
    pthread_mutex_destroy(&mail->lock);
    free(mail->lines);
    free(mail);
}
