/* SPDX-License-Identifier: MIT
 *
 * A YAML file that is one mapping of names to scalars or lists of scalars: what options need. What
 * makes other YAML dangerous or doubtful is refused: anchors, tags, names that come twice. */
#ifndef DDP_PLAN_YAML_H
#define DDP_PLAN_YAML_H

#include "ddp.h"

struct ddp_yaml_entry {
    const char *name;
    const char *value; /* of a list, its elements with commas between */
    int line;          /* of the name, from 1 */
    bool plain;        /* a scalar without quotes: true, null and 5 are no strings */
    bool list;
};

struct ddp_yaml {
    struct ddp_yaml_entry *entries;
    size_t count;
    char *text; /* what names and values are in */
    size_t used, room;
};

/* Parses a text.
 *   name        of the file, for messages
 *   yaml [out]  freed with ddp_yaml_free(), also after a failure
 * DDP_ERR_FORMAT: names the file and the line; DDP_ERR_MEMORY. */
enum ddp_status ddp_yaml_parse(struct ddp_yaml *yaml, const char *name, const char *text,
                               size_t bytes);
void ddp_yaml_free(struct ddp_yaml *yaml); /* also a zeroed one */

#endif
