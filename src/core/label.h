/* SPDX-License-Identifier: MIT
 *
 * The label that does not count: data give it, losses leave it out. And what is said of positions
 * in rows of preferences. */
#ifndef DDP_CORE_LABEL_H
#define DDP_CORE_LABEL_H

#define DDP_LABEL_NONE (-1) /* does not count, such as padding or what a user wrote in a chat */

/* Bits of a position. Sequences come in pairs: the chosen answer and the rejected one; or an answer
 * with its rating, and a mismatched one. */
#define DDP_ROLE_ANSWER 1 /* the next token is of an answer, not of a prompt */
#define DDP_ROLE_FIRST  2 /* a sequence begins */
#define DDP_ROLE_SECOND 4 /* it is the second one of a pair */
#define DDP_ROLE_BAD    8 /* the rating */
#define DDP_ROLE_PLANES 3 /* of labels: kernels/preference.h */

#endif
