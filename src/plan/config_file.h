/* SPDX-License-Identifier: MIT
 *
 * --config FILE.yaml: a file of options, by their names. */
#ifndef DDP_PLAN_CONFIG_FILE_H
#define DDP_PLAN_CONFIG_FILE_H

#include "plan/yaml.h"
#include "plan/options.h"

/* If --config names a file of options, sets those that were neither given yet nor exclude one that
 * was: the command line wins. --config itself is then as if it had not been given.
 *   words [out]  which the options point into; freed with ddp_config_words_free() after them
 * DDP_ERR_IO, DDP_ERR_MEMORY; DDP_ERR_FORMAT, DDP_ERR_INVALID: names the file and the line. */
struct ddp_config_words {
    char **at;
    size_t count;
};
enum ddp_status ddp_config_file_apply(struct ddp_train_options *options,
                                      struct ddp_config_words *words);
void ddp_config_words_free(struct ddp_config_words *words); /* also a zeroed one */

#endif
