/* SPDX-License-Identifier: MIT
 *
 * Rows of communicators that have mail. */
#include "config.h"

#include "tests/comm/comm_ranks.h"

#include <stdlib.h>

static unsigned char byte_at(int from, int to, size_t at)
{
    return (unsigned char)(at * 7 + at / 251 + (size_t)(from * 16 + to));
}

enum { BYTES = 1000003 }; /* several times around a ring */

/* Everybody to everybody at once, in pieces of several sizes. */
void row_mail(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_comm_rank(comm), size = ddp_comm_size(comm);
    ddp_mail *mail;
    (void)job;
    size_t sent[8] = {0}, got[8] = {0}, left = 2 * (size_t)(size - 1) * BYTES;
    unsigned char piece[5000];
    NEED(ddp_mail_open(&mail, comm) == DDP_OK);
    NEED(ddp_mail_write(mail, size, piece, 1) == 0 && ddp_mail_read(mail, -1, piece, 1) == 0);
    while (left > 0) {
        const uint32_t changes = ddp_mail_changes(mail);
        size_t moved = 0;
        for (int peer = 0; peer < size; peer++) {
            size_t count = (size_t)(1 + (sent[peer] * 31 + (size_t)peer) % sizeof piece);
            if (peer == rank)
                continue;
            count = count < BYTES - sent[peer] ? count : BYTES - sent[peer];
            for (size_t i = 0; i < count; i++)
                piece[i] = byte_at(rank, peer, sent[peer] + i);
            count = ddp_mail_write(mail, peer, piece, count);
            sent[peer] += count;
            moved += count;
            count = ddp_mail_read(mail, peer, piece, sizeof piece);
            for (size_t i = 0; i < count; i++)
                NEED(piece[i] == byte_at(peer, rank, got[peer] + i));
            got[peer] += count;
            moved += count;
        }
        left -= moved;
        if (moved == 0)
            NEED(ddp_mail_wait(mail, changes, 20000) == DDP_OK);
    }
    NEED(ddp_comm_barrier(comm) == DDP_OK);
    NEED(ddp_mail_wait(mail, ddp_mail_changes(mail), 1) == DDP_ERR_TIMEOUT);
    ddp_mail_close(mail);
}
