/* SPDX-License-Identifier: MIT
 *
 * Small plugins for check_plugin; TEST_PLUGIN tells which. */
#include "config.h"

#include "core/plugin.h"

#if TEST_PLUGIN == 0 /* without the symbol */
extern DDP_API const int ddp_other_symbol;
const int ddp_other_symbol = 1;
#else
extern DDP_API const struct ddp_plugin ddp_plugin;
const struct ddp_plugin ddp_plugin = {
#if TEST_PLUGIN == 1   /* one that fits */
    .abi = DDP_PLUGIN_ABI,
    .name = "testgood",
#elif TEST_PLUGIN == 2 /* of another version */
    .abi = DDP_PLUGIN_ABI + 1,
    .name = "testabi",
#else                  /* a copy under another name */
    .abi = DDP_PLUGIN_ABI,
    .name = "testgood",
#endif
};
#endif
