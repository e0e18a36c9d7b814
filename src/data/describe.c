/* SPDX-License-Identifier: MIT
 *
 * See describe.h. */
#include "config.h"

#include "data/describe.h"

#include "core/json.h"
#include "core/log.h"

#include <stdlib.h>
#include <string.h>

enum ddp_status ddp_dataset_describe(const struct ddp_dataset_info *info, char **text)
{
    *text = NULL;
    if (!info->description && info->label_std == 0)
        return DDP_OK;
    json_t *root = info->description
                       ? NULL
                       : json_pack("{s:s, s:{s:f, s:f}}", "kind", info->source, "target", "mean",
                                   info->label_mean, "std", info->label_std);
    *text = root                ? ddp_json_text(root, JSON_COMPACT)
            : info->description ? strdup(info->description)
                                : NULL;
    json_decref(root);
    return *text ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

bool ddp_dataset_label_scale(const char *text, double *mean, double *std)
{
    json_t *root = NULL;
    json_error_t error;
    if (!text || ddp_json_parse(&root, text, strlen(text), &error) != DDP_OK)
        return false;
    const json_t *target = json_object_get(root, "target");
    *mean = json_number_value(json_object_get(target, "mean"));
    *std = json_number_value(json_object_get(target, "std"));
    json_decref(root);
    return *std > 0;
}
