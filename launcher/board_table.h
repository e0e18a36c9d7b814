/* SPDX-License-Identifier: MIT
 *
 * The board in words: where each rank is, and which rank the others wait for. */
#ifndef DDP_LAUNCHER_BOARD_TABLE_H
#define DDP_LAUNCHER_BOARD_TABLE_H

#include "job/board.h"
#include "launcher/link/link.h"

/* Writes a line for each rank, and a sentence that explains a hang, to `out`. */
void board_table_write(const struct ddp_board *board, FILE *out);

/* On node 0 of several: a line for each node, as far as it is known. */
void board_table_nodes(const struct ddp_board *board, FILE *out);

/* The lines of the ranks, and the sentence, to standard error, each as ddprun's. */
void board_table_log(const struct ddp_board *board);

/* What the ranks of a board have waited in collectives; needs DDP_BOARD_TIMES. And together with
 * those of another. */
struct board_times board_table_times(const struct ddp_board *board);
void board_times_add(struct board_times *all, const struct board_times *some);

/* Says what each rank of the board has waited. And which rank kept the others waiting. */
void board_table_stragglers(const struct ddp_board *board);
void board_times_log(const struct board_times *times);

/* A number that changes with any progress of any rank; 0 as long as no rank has joined. */
uint64_t board_table_progress(const struct ddp_board *board);

/* Whether any rank has finished a step. */
bool board_table_stepped(const struct ddp_board *board);

#endif
