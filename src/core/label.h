/* SPDX-License-Identifier: MIT
 *
 * The label that does not count: data give it, losses leave it out. And what is said of positions
 * in rows of preferences; and what classes are learned in place of one label. */
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

/* What the rows of a batch learn instead of their labels alone: as torch.nn.CrossEntropyLoss with
 * label_smoothing, of targets as torchvision's RandomMixup() makes them. */
struct ddp_soft_labels {
    float share;  /* of a row's own label; the rest is of the label of the row before, and of the
                     last row before the first. 1: all */
    float smooth; /* what is spread evenly over all classes; 0: nothing */
};

#endif
