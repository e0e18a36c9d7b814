/* SPDX-License-Identifier: MIT
 *
 * See preference.h. There is little to do for each token: one thread adds in double, in the order
 * of the positions. The formulas are in preference_pairs.h. */
#include "config.h"

#include "kernels/preference.h"

#include "core/log.h"
#include "kernels/preference_pairs.h"

#include <string.h>

/* A GPU has a number for each sample besides. */
size_t ddp_preference_scratch(int64_t samples, int64_t length)
{
    return (size_t)(samples * length) * sizeof(struct ddp_sequence) +
           (size_t)samples * sizeof(int64_t);
}

static const int32_t *plane(const struct ddp_preference *args, int64_t sample, int which)
{
    return args->labels + (sample * DDP_ROLE_PLANES + which) * args->length;
}

enum ddp_status ddp_preference_targets(const struct ddp_preference *args, void *stream)
{
    (void)stream;
    for (int64_t b = 0; b < args->samples; b++) {
        const int32_t *labels = plane(args, b, 0), *roles = plane(args, b, 1);
        for (int64_t t = 0; t < args->length; t++)
            args->targets[b * args->length + t] =
                ddp_pairs_target(args, labels[t], roles[t]) ? labels[t] : DDP_LABEL_NONE;
    }
    return DDP_OK;
}

/* --- sequences -------------------------------------------------------------------------------- */

static void begin_sequence(struct ddp_pairs *pairs, int32_t role, int32_t bits)
{
    float reference;
    memcpy(&reference, &bits, sizeof reference);
    pairs->sequences[pairs->count++] = (struct ddp_sequence){
        .reference = ddp_objective_refers(&pairs->args->objective) ? (double)reference : 0,
        .bad = role & DDP_ROLE_BAD,
    };
}

static enum ddp_status gather(struct ddp_pairs *pairs)
{
    const struct ddp_preference *args = pairs->args;
    for (int64_t b = 0; b < args->samples; b++) {
        const int32_t *labels = plane(args, b, 0), *roles = plane(args, b, 1);
        const int32_t *reference = plane(args, b, 2);
        const float *losses = args->losses + b * args->length;
        for (int64_t t = 0; t < args->length && labels[t] != DDP_LABEL_NONE; t++) {
            if (roles[t] & DDP_ROLE_FIRST)
                begin_sequence(pairs, roles[t], reference[t]);
            if (pairs->count == 0) /* labels of nothing: a measurement of speed has such */
                continue;
            if ((pairs->count % 2 == 0) != !!(roles[t] & DDP_ROLE_SECOND))
                return ddp_fail(DDP_ERR_INVALID, "preference: sample %lld is no row of pairs",
                                (long long)b);
            ddp_pairs_take(&pairs->sequences[pairs->count - 1], roles[t], (double)losses[t]);
        }
    }
    for (int64_t i = 0; i < pairs->count; i++)
        if (pairs->count % 2 != 0 || pairs->sequences[i].count == 0)
            return ddp_fail(DDP_ERR_INVALID, "preference: a sequence has no answer");
    return DDP_OK;
}

/* Hands each token its part, and the log-probability of its sequence. */
static void put_back(const struct ddp_pairs *pairs)
{
    const struct ddp_preference *args = pairs->args;
    int64_t next = 0;
    for (int64_t b = 0; b < args->samples; b++) {
        const int32_t *labels = plane(args, b, 0), *roles = plane(args, b, 1);
        for (int64_t t = 0, at = b * args->length; t < args->length; t++, at++) {
            const bool inside = labels[t] != DDP_LABEL_NONE;
            const bool first = inside && (roles[t] & DDP_ROLE_FIRST);
            next += first;
            const struct ddp_sequence *sequence =
                inside && next > 0 ? &pairs->sequences[next - 1] : NULL;
            if (args->weights)
                args->weights[at] = sequence ? ddp_pairs_weight(sequence, roles[t]) : 0;
            if (args->log_probabilities)
                args->log_probabilities[at] = first ? (float)sequence->sum : 0;
        }
    }
}

enum ddp_status ddp_preference(const struct ddp_preference *args, void *stream)
{
    struct ddp_pairs pairs = {.args = args, .sequences = args->scratch};
    (void)stream;
    enum ddp_status status = gather(&pairs);
    if (status != DDP_OK)
        return status;
    ddp_pairs_finish(&pairs);
    put_back(&pairs);
    return DDP_OK;
}

void ddp_preferences_make(struct ddp_preferences *preferences,
                          const struct ddp_objective *objective, const double *sums)
{
    const bool kto = objective->kind == DDP_OBJECTIVE_KTO;
    const double chosen = sums[DDP_PREFERENCE_CHOSEN_COUNT];
    const double rejected = sums[DDP_PREFERENCE_REJECTED_COUNT];
    *preferences = (struct ddp_preferences){
        .chosen = sums[DDP_PREFERENCE_CHOSEN] / chosen,
        .rejected = sums[DDP_PREFERENCE_REJECTED] / rejected,
        .accuracy = kto ? NAN : sums[DDP_PREFERENCE_RIGHT] / chosen,
        .chosen_logp = sums[DDP_PREFERENCE_CHOSEN_LOGP] / chosen,
        .rejected_logp = sums[DDP_PREFERENCE_REJECTED_LOGP] / rejected,
        .kl = kto ? sums[DDP_PREFERENCE_KL] / (chosen + rejected) : NAN,
    };
    preferences->margin = preferences->chosen - preferences->rejected;
}
