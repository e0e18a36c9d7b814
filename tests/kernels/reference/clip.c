/* SPDX-License-Identifier: MIT
 *
 * As torch.nn.utils.clip_grad_norm_(); see clip.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <math.h>

enum ddp_status ddp_clip_reference(const struct ddp_clip *args, void *stream)
{
    double total = 0, factor = 1;
    struct ddp_clipped *clipped = args->clipped;
    (void)stream;
    enum ddp_status status = ddp_clip_check(args);
    if (status)
        return status;
    for (int64_t b = 0; b < args->blocks; b++)
        total += args->sums[b];
    const double each = args->targets > 0 ? (double)args->targets : 1;
    const double counted =
        (double)args->shards * each - (args->targets > 0 ? (double)args->loss[1] : 0);
    clipped->counted = (int64_t)counted;
    clipped->loss = (float)((double)args->loss[0] * each / counted);
    clipped->norm = args->blocks > 0 ? sqrt(total) * each / counted : -1;
    if (args->most > 0 && args->blocks > 0 && !(clipped->norm + 1e-6 <= args->most))
        factor = args->most / (clipped->norm + 1e-6);
    clipped->scale = (float)(factor * each / counted);
    clipped->left_out = counted == 0 || (args->only_finite &&
                                         (!isfinite(clipped->loss) || !isfinite(clipped->norm)));
    return DDP_OK;
}
