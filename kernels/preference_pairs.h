/* SPDX-License-Identifier: MIT
 *
 * What losses of preferences on the CPU and on a GPU share: the formulas, over the sequences of a
 * shard, which are few, in double, and in their order. */
#ifndef DDP_KERNELS_PREFERENCE_PAIRS_H
#define DDP_KERNELS_PREFERENCE_PAIRS_H

#include "core/portable_math.h"
#include "kernels/preference.h"

/* A GPU has functions of its own. */
#ifdef __cplusplus
#define DDP_PAIRS_EXP exp
#define DDP_PAIRS_LOG log
#else
#define DDP_PAIRS_EXP ddp_math_exp
#define DDP_PAIRS_LOG ddp_math_log
#endif

struct ddp_sequence {
    double sum;       /* of the answer's log-probabilities */
    double all;       /* ... and the prompt's */
    double reference; /* 0 where there is none */
    int64_t count, all_count;
    bool bad;
    double weight;     /* of the answer's tokens, in the loss */
    double all_weight; /* ... and of all targets of the sequence */
};

/* A shard. */
struct ddp_pairs {
    const struct ddp_preference *args;
    struct ddp_sequence *sequences;
    int64_t count; /* of these: two a pair */
    double kl, nll;
    double sums[DDP_PREFERENCE_SUMS];
};

/* Of ORPO the prompt of the chosen answer is learned too. */
DDP_PREFERENCE_DEVICE static inline bool ddp_pairs_target(const struct ddp_preference *args,
                                                          int32_t label, int32_t role)
{
    return label != DDP_LABEL_NONE &&
           ((role & DDP_ROLE_ANSWER) ||
            (args->objective.kind == DDP_OBJECTIVE_ORPO && !(role & DDP_ROLE_SECOND)));
}

/* The next token of a sequence. */
DDP_PREFERENCE_DEVICE static inline void ddp_pairs_take(struct ddp_sequence *sequence, int32_t role,
                                                        double loss)
{
    sequence->all -= loss;
    sequence->all_count++;
    if (role & DDP_ROLE_ANSWER) {
        sequence->sum -= loss;
        sequence->count++;
    }
}

/* What a token has of the losses. */
DDP_PREFERENCE_DEVICE static inline float ddp_pairs_weight(const struct ddp_sequence *sequence,
                                                           int32_t role)
{
    return (float)(sequence->all_weight + (role & DDP_ROLE_ANSWER ? sequence->weight : 0));
}

/* --- losses of pairs -------------------------------------------------------------------------- */

DDP_PREFERENCE_DEVICE static inline double sigmoid(double x)
{
    const double e = DDP_PAIRS_EXP(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* -log sigmoid(x) */
DDP_PREFERENCE_DEVICE static inline double softplus_minus(double x)
{
    return (x < 0 ? -x : 0) + DDP_PAIRS_LOG(1 + DDP_PAIRS_EXP(-fabs(x)));
}

/* The reference was rounded too: at the first step the difference is 0. */
DDP_PREFERENCE_DEVICE static inline double of_reference(const struct ddp_sequence *sequence)
{
    return (double)(float)sequence->sum - sequence->reference;
}

DDP_PREFERENCE_DEVICE static inline double mean(const struct ddp_sequence *sequence)
{
    return sequence->sum / (double)sequence->count;
}

DDP_PREFERENCE_DEVICE static inline double dpo(double beta, struct ddp_sequence *c,
                                               struct ddp_sequence *r)
{
    const double x = beta * (of_reference(c) - of_reference(r)), slope = beta * sigmoid(-x);
    c->weight = slope;
    r->weight = -slope;
    return softplus_minus(x);
}

DDP_PREFERENCE_DEVICE static inline double ipo(double beta, struct ddp_sequence *c,
                                               struct ddp_sequence *r)
{
    const double c_count = (double)c->count, r_count = (double)r->count;
    const double x = of_reference(c) / c_count - of_reference(r) / r_count - 1 / (2 * beta);
    c->weight = -2 * x / c_count;
    r->weight = 2 * x / r_count;
    return x * x;
}

DDP_PREFERENCE_DEVICE static inline double simpo(const struct ddp_objective *objective,
                                                 struct ddp_sequence *c, struct ddp_sequence *r)
{
    const double x = objective->beta * (mean(c) - mean(r)) - objective->gamma;
    const double slope = objective->beta * sigmoid(-x);
    c->weight = slope / (double)c->count;
    r->weight = -slope / (double)r->count;
    return softplus_minus(x);
}

/* Without the likelihood of the chosen answers. */
DDP_PREFERENCE_DEVICE static inline double orpo(double beta, struct ddp_sequence *c,
                                                struct ddp_sequence *r)
{
    const double c_rest = 1 - DDP_PAIRS_EXP(mean(c)), r_rest = 1 - DDP_PAIRS_EXP(mean(r));
    const double x = (mean(c) - mean(r)) - (DDP_PAIRS_LOG(c_rest) - DDP_PAIRS_LOG(r_rest));
    const double slope = beta * sigmoid(-x);
    c->weight = slope / c_rest / (double)c->count;
    r->weight = -slope / r_rest / (double)r->count;
    return beta * softplus_minus(x);
}

DDP_PREFERENCE_DEVICE static inline double kto(const struct ddp_objective *objective,
                                               struct ddp_sequence *answer, double kl)
{
    const double sign = answer->bad ? -1 : 1;
    const double factor = answer->bad ? objective->undesirable : objective->desirable;
    const double y = sigmoid(sign * objective->beta * (of_reference(answer) - kl));
    answer->weight = sign * factor * objective->beta * y * (1 - y);
    return factor * (1 - y);
}

DDP_PREFERENCE_DEVICE static inline double
loss_of(const struct ddp_pairs *pairs, struct ddp_sequence *first, struct ddp_sequence *second)
{
    const struct ddp_objective *objective = &pairs->args->objective;
    switch (objective->kind) {
    case DDP_OBJECTIVE_IPO:
        return ipo(objective->beta, first, second);
    case DDP_OBJECTIVE_ORPO:
        return orpo(objective->beta, first, second);
    case DDP_OBJECTIVE_SIMPO:
        return simpo(objective, first, second);
    case DDP_OBJECTIVE_KTO:
        return kto(objective, first, pairs->kl);
    case DDP_OBJECTIVE_DPO:
    case DDP_OBJECTIVE_NONE:
        break;
    }
    return dpo(objective->beta, first, second);
}

/* --- a shard ---------------------------------------------------------------------------------- */

/* What a pair's loss takes of the others of its shard: KTO how far mismatched answers have moved,
 * ORPO how many tokens there are. */
DDP_PREFERENCE_DEVICE static inline void look_around(struct ddp_pairs *pairs)
{
    double moved = 0, all = 0;
    int64_t tokens = 0;
    const double count = (double)(pairs->count / 2);
    for (int64_t i = 0; i < pairs->count; i += 2) {
        moved += of_reference(&pairs->sequences[i + 1]);
        all += pairs->sequences[i].all;
        tokens += pairs->sequences[i].all_count;
    }
    if (pairs->args->objective.kind == DDP_OBJECTIVE_KTO && moved > 0)
        pairs->kl = moved / count;
    if (pairs->args->objective.kind != DDP_OBJECTIVE_ORPO || tokens == 0)
        return;
    pairs->nll = -all / (double)tokens;
    for (int64_t i = 0; i < pairs->count; i += 2)
        pairs->sequences[i].all_weight = count / (double)tokens;
}

DDP_PREFERENCE_DEVICE static inline void measure(struct ddp_pairs *pairs,
                                                 const struct ddp_sequence *sequence, bool rejected)
{
    const struct ddp_objective *objective = &pairs->args->objective;
    const bool per_token = !ddp_objective_refers(objective);
    const double logp = per_token ? mean(sequence) : sequence->sum;
    const double reward = objective->beta * (per_token ? logp : of_reference(sequence));
    if (rejected) {
        pairs->sums[DDP_PREFERENCE_REJECTED] += reward;
        pairs->sums[DDP_PREFERENCE_REJECTED_LOGP] += logp;
        pairs->sums[DDP_PREFERENCE_REJECTED_COUNT] += 1;
    } else {
        pairs->sums[DDP_PREFERENCE_CHOSEN] += reward;
        pairs->sums[DDP_PREFERENCE_CHOSEN_LOGP] += logp;
        pairs->sums[DDP_PREFERENCE_CHOSEN_COUNT] += 1;
    }
}

DDP_PREFERENCE_DEVICE static inline void add_pairs(struct ddp_pairs *pairs)
{
    const struct ddp_objective *objective = &pairs->args->objective;
    const int64_t count = pairs->count / 2;
    double loss = pairs->nll * (double)count;
    for (int64_t i = 0; i < pairs->count; i += 2) {
        struct ddp_sequence *first = &pairs->sequences[i], *second = first + 1;
        const bool per_token = !ddp_objective_refers(objective);
        loss += loss_of(pairs, first, second);
        measure(pairs, first, first->bad);
        if (objective->kind == DDP_OBJECTIVE_KTO)
            continue;
        measure(pairs, second, true);
        pairs->sums[DDP_PREFERENCE_RIGHT] +=
            per_token ? mean(first) > mean(second) : of_reference(first) > of_reference(second);
    }
    pairs->sums[DDP_PREFERENCE_LOSS] = loss / (double)pairs->args->samples;
    pairs->sums[DDP_PREFERENCE_UNCOUNTED] = (double)(pairs->args->samples - count);
    pairs->sums[DDP_PREFERENCE_KL] = pairs->kl * (double)count;
}

/* The losses of the sequences, their weights, and the sums. */
DDP_PREFERENCE_DEVICE static inline void ddp_pairs_finish(struct ddp_pairs *pairs)
{
    const struct ddp_preference *args = pairs->args;
    look_around(pairs);
    add_pairs(pairs);
    for (int i = 0; i < DDP_PREFERENCE_SUMS; i++)
        args->sums[i] = (args->accumulate ? args->sums[i] : 0) + (float)pairs->sums[i];
}

#endif
