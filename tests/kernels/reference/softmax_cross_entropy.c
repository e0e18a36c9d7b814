/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy in double precision; see softmax_cross_entropy.h. Labels are classes or
 * NONE. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#include <math.h>

/* The row's loss. */
static double reference_row(const struct ddp_softmax_cross_entropy *args, int64_t row,
                            int64_t divisor)
{
    const float *logits = args->logits;
    float *dlogits = args->dlogits;
    const float *x = logits + row * args->classes;
    const int32_t label = args->labels[row];
    int64_t best = 0;
    double sum = 0;
    for (int64_t i = 0; i < args->classes; i++)
        if (x[i] > x[best] || isnan(x[best]))
            best = i;
    double max = (double)x[best];
    for (int64_t i = 0; i < args->classes; i++)
        sum += exp((double)x[i] - max);
    double loss = label == DDP_LABEL_NONE ? 0 : log(sum) - ((double)x[label] - max);
    if (args->predictions)
        args->predictions[row] = isnan(x[best]) ? 0 : (int32_t)best;
    for (int64_t i = 0; dlogits && i < args->classes; i++) {
        double p = exp((double)x[i] - max) / sum;
        dlogits[row * args->classes + i] =
            label == DDP_LABEL_NONE ? 0 : (float)((p - (i == label)) / (double)divisor);
    }
    return loss;
}

enum ddp_status ddp_softmax_cross_entropy_reference(const struct ddp_softmax_cross_entropy *args,
                                                    void *stream)
{
    (void)stream;
    enum ddp_status status = ddp_softmax_cross_entropy_check(args);
    if (status)
        return status;
    int64_t counted = 0;
    for (int64_t row = 0; row < args->rows; row++)
        counted += args->labels[row] != DDP_LABEL_NONE;
    const int64_t divisor = counted > 0 && args->divisor > 0 ? args->divisor : counted;
    double loss = 0;
    for (int64_t row = 0; row < args->rows; row++)
        loss += reference_row(args, row, divisor);
    const float mean = divisor ? (float)(loss / (double)divisor) : 0;
    *args->loss = args->accumulate_loss ? *args->loss + mean : mean;
    if (args->uncounted)
        *args->uncounted =
            (args->accumulate_loss ? *args->uncounted : 0) + (float)(args->rows - counted);
    return DDP_OK;
}
