/* SPDX-License-Identifier: MIT
 *
 * The board in words: where each rank is, and which rank the others wait for. */
#ifndef DDP_LAUNCHER_BOARD_TABLE_H
#define DDP_LAUNCHER_BOARD_TABLE_H

#include "job/board.h"

/* Writes a line for each rank, and a sentence that explains a hang, to `out`. */
void board_table_write(const struct ddp_board *board, FILE *out);

/* The same to standard error, each line as ddprun's. */
void board_table_log(const struct ddp_board *board);

/* Says which rank kept the others waiting over the run; needs DDP_BOARD_TIMES. */
void board_table_stragglers(const struct ddp_board *board);

/* A number that changes with any progress of any rank; 0 as long as no rank has joined. */
uint64_t board_table_progress(const struct ddp_board *board);

#endif
