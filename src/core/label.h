/* SPDX-License-Identifier: MIT
 *
 * The label that does not count: data give it, losses leave it out. */
#ifndef DDP_CORE_LABEL_H
#define DDP_CORE_LABEL_H

#define DDP_LABEL_NONE (-1) /* does not count, such as padding or what a user wrote in a chat */

#endif
