/* SPDX-License-Identifier: MIT
 *
 * What the launchers of a job over several nodes carry from one board to the others: ids,
 * addresses, the rounds of the barrier, and the step before which all ranks stop. A launcher looks
 * here when the bell of its workers rings. What it reads may have been scribbled over: sizes are
 * bounded. */
#ifndef DDP_JOB_MIRROR_H
#define DDP_JOB_MIRROR_H

#include "job/board.h"

/* Makes the bell: an eventfd that does not block, close-on-exec. */
enum ddp_status ddp_bell_create(int *fd);

/* Makes it silent until a worker rings again. */
void ddp_bell_take(int fd);

/* What has been told of this board, or was heard: zeroed at first. */
struct ddp_mirror {
    uint32_t posted[DDP_ID_SLOTS + DDP_BOARD_MAX_WORLD]; /* states by number; of addresses this
                                                            node's */
    bool stop_request;
    bool abort;
};

/* Something that a worker has posted: an id, whose number is its slot, or an address, with
 * DDP_ID_SLOTS + rank. */
struct ddp_posted {
    int number;
    uint32_t edition;
    uint32_t bytes;
    unsigned char data[DDP_BOARD_ADDRESS_BYTES];
};

/* Copies an id, or an address of a rank of this node, that has not been told; false: there is none.
 */
bool ddp_mirror_next(struct ddp_mirror *mirror, const struct ddp_board *board,
                     struct ddp_posted *posted);

/* Writes one of another node to this board. False: there is no such slot or rank, or it is too
 * large. */
bool ddp_mirror_put(struct ddp_mirror *mirror, const struct ddp_board *board,
                    const struct ddp_posted *posted);

/* Whether all ranks of this node have arrived at a round of the barrier. Seals it then: from now on
 * it ends with one of the two below. False also when it is sealed already. */
bool ddp_mirror_seal_barrier(const struct ddp_board *board, uint32_t *round);

/* Whether a rank wants to leave the sealed round. */
bool ddp_mirror_barrier_asked(const struct ddp_board *board, uint32_t *round);

/* All nodes have arrived: its ranks go on. */
void ddp_mirror_open_barrier(const struct ddp_board *board, uint32_t round);

/* The other nodes have not arrived: ranks may leave the round. */
void ddp_mirror_unseal_barrier(const struct ddp_board *board, uint32_t round);

/* From now on no rank begins a step. Returns the last step that one may have begun; INT64_MIN:
 * none. */
int64_t ddp_mirror_hold(const struct ddp_board *board);

/* Ranks go on up to this step, and stop before it. */
void ddp_mirror_stop_before(const struct ddp_board *board, int64_t step);

#endif
