/* SPDX-License-Identifier: MIT
 *
 * See preference.h. There is little to do for each token: one thread adds in double, in the order
 * of the positions. */
#include "config.h"

#include "kernels/preference.h"

#include "core/log.h"
#include "core/portable_math.h"

#include <string.h>

struct sequence {
    double sum;       /* of the answer's log-probabilities */
    double all;       /* ... and the prompt's */
    double reference; /* 0 where there is none */
    int64_t count, all_count;
    bool bad;
    double weight;     /* of the answer's tokens, in the loss */
    double all_weight; /* ... and of all targets of the sequence */
};

/* A shard. */
struct pass {
    const struct ddp_preference *args;
    struct sequence *sequences;
    int64_t count; /* of these: two a pair */
    double kl, nll;
    double sums[DDP_PREFERENCE_SUMS];
};

size_t ddp_preference_scratch(int64_t samples, int64_t length)
{
    return (size_t)(samples * length) * sizeof(struct sequence);
}

static const int32_t *plane(const struct ddp_preference *args, int64_t sample, int which)
{
    return args->labels + (sample * DDP_ROLE_PLANES + which) * args->length;
}

/* Of ORPO the prompt of the chosen answer is learned too. */
static bool is_target(const struct ddp_preference *args, int32_t label, int32_t role)
{
    return label != DDP_LABEL_NONE &&
           ((role & DDP_ROLE_ANSWER) ||
            (args->objective.kind == DDP_OBJECTIVE_ORPO && !(role & DDP_ROLE_SECOND)));
}

enum ddp_status ddp_preference_targets(const struct ddp_preference *args, void *stream)
{
    (void)stream;
    for (int64_t b = 0; b < args->samples; b++) {
        const int32_t *labels = plane(args, b, 0), *roles = plane(args, b, 1);
        for (int64_t t = 0; t < args->length; t++)
            args->targets[b * args->length + t] =
                is_target(args, labels[t], roles[t]) ? labels[t] : DDP_LABEL_NONE;
    }
    return DDP_OK;
}

/* --- sequences -------------------------------------------------------------------------------- */

static void begin_sequence(struct pass *pass, int32_t role, int32_t bits)
{
    float reference;
    memcpy(&reference, &bits, sizeof reference);
    pass->sequences[pass->count++] = (struct sequence){
        .reference = ddp_objective_refers(&pass->args->objective) ? (double)reference : 0,
        .bad = role & DDP_ROLE_BAD,
    };
}

static enum ddp_status gather(struct pass *pass)
{
    const struct ddp_preference *args = pass->args;
    for (int64_t b = 0; b < args->samples; b++) {
        const int32_t *labels = plane(args, b, 0), *roles = plane(args, b, 1);
        const int32_t *reference = plane(args, b, 2);
        const float *losses = args->losses + b * args->length;
        for (int64_t t = 0; t < args->length && labels[t] != DDP_LABEL_NONE; t++) {
            if (roles[t] & DDP_ROLE_FIRST)
                begin_sequence(pass, roles[t], reference[t]);
            if (pass->count == 0) /* labels of nothing: a measurement of speed has such */
                continue;
            if ((pass->count % 2 == 0) != !!(roles[t] & DDP_ROLE_SECOND))
                return ddp_fail(DDP_ERR_INVALID, "preference: sample %lld is no row of pairs",
                                (long long)b);
            struct sequence *sequence = &pass->sequences[pass->count - 1];
            sequence->all -= (double)losses[t];
            sequence->all_count++;
            if (roles[t] & DDP_ROLE_ANSWER) {
                sequence->sum -= (double)losses[t];
                sequence->count++;
            }
        }
    }
    for (int64_t i = 0; i < pass->count; i++)
        if (pass->count % 2 != 0 || pass->sequences[i].count == 0)
            return ddp_fail(DDP_ERR_INVALID, "preference: a sequence has no answer");
    return DDP_OK;
}

/* --- losses of pairs -------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    const double e = ddp_math_exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/* -log sigmoid(x) */
static double softplus_minus(double x)
{
    return (x < 0 ? -x : 0) + ddp_math_log(1 + ddp_math_exp(-fabs(x)));
}

/* The reference was rounded too: at the first step the difference is 0. */
static double of_reference(const struct sequence *sequence)
{
    return (double)(float)sequence->sum - sequence->reference;
}

static double mean(const struct sequence *sequence)
{
    return sequence->sum / (double)sequence->count;
}

static double dpo(double beta, struct sequence *c, struct sequence *r)
{
    const double x = beta * (of_reference(c) - of_reference(r)), slope = beta * sigmoid(-x);
    c->weight = slope;
    r->weight = -slope;
    return softplus_minus(x);
}

static double ipo(double beta, struct sequence *c, struct sequence *r)
{
    const double c_count = (double)c->count, r_count = (double)r->count;
    const double x = of_reference(c) / c_count - of_reference(r) / r_count - 1 / (2 * beta);
    c->weight = -2 * x / c_count;
    r->weight = 2 * x / r_count;
    return x * x;
}

static double simpo(const struct ddp_objective *objective, struct sequence *c, struct sequence *r)
{
    const double x = objective->beta * (mean(c) - mean(r)) - objective->gamma;
    const double slope = objective->beta * sigmoid(-x);
    c->weight = slope / (double)c->count;
    r->weight = -slope / (double)r->count;
    return softplus_minus(x);
}

/* Without the likelihood of the chosen answers. */
static double orpo(double beta, struct sequence *c, struct sequence *r)
{
    const double c_rest = 1 - ddp_math_exp(mean(c)), r_rest = 1 - ddp_math_exp(mean(r));
    const double x = (mean(c) - mean(r)) - (ddp_math_log(c_rest) - ddp_math_log(r_rest));
    const double slope = beta * sigmoid(-x);
    c->weight = slope / c_rest / (double)c->count;
    r->weight = -slope / r_rest / (double)r->count;
    return beta * softplus_minus(x);
}

static double kto(const struct ddp_objective *objective, struct sequence *answer, double kl)
{
    const double sign = answer->bad ? -1 : 1;
    const double factor = answer->bad ? objective->undesirable : objective->desirable;
    const double y = sigmoid(sign * objective->beta * (of_reference(answer) - kl));
    answer->weight = sign * factor * objective->beta * y * (1 - y);
    return factor * (1 - y);
}

static double loss_of(const struct pass *pass, struct sequence *first, struct sequence *second)
{
    const struct ddp_objective *objective = &pass->args->objective;
    switch (objective->kind) {
    case DDP_OBJECTIVE_IPO:
        return ipo(objective->beta, first, second);
    case DDP_OBJECTIVE_ORPO:
        return orpo(objective->beta, first, second);
    case DDP_OBJECTIVE_SIMPO:
        return simpo(objective, first, second);
    case DDP_OBJECTIVE_KTO:
        return kto(objective, first, pass->kl);
    case DDP_OBJECTIVE_DPO:
    case DDP_OBJECTIVE_NONE:
        break;
    }
    return dpo(objective->beta, first, second);
}

/* --- a shard ---------------------------------------------------------------------------------- */

/* What a pair's loss takes of the others of its shard: KTO how far mismatched answers have moved,
 * ORPO how many tokens there are. */
static void look_around(struct pass *pass)
{
    double moved = 0, all = 0;
    int64_t tokens = 0;
    const double pairs = (double)(pass->count / 2);
    for (int64_t i = 0; i < pass->count; i += 2) {
        moved += of_reference(&pass->sequences[i + 1]);
        all += pass->sequences[i].all;
        tokens += pass->sequences[i].all_count;
    }
    if (pass->args->objective.kind == DDP_OBJECTIVE_KTO && moved > 0)
        pass->kl = moved / pairs;
    if (pass->args->objective.kind != DDP_OBJECTIVE_ORPO || tokens == 0)
        return;
    pass->nll = -all / (double)tokens;
    for (int64_t i = 0; i < pass->count; i += 2)
        pass->sequences[i].all_weight = pairs / (double)tokens;
}

static void measure(struct pass *pass, const struct sequence *sequence, bool rejected)
{
    const struct ddp_objective *objective = &pass->args->objective;
    const bool per_token = !ddp_objective_refers(objective);
    const double logp = per_token ? mean(sequence) : sequence->sum;
    const double reward = objective->beta * (per_token ? logp : of_reference(sequence));
    pass->sums[rejected ? DDP_PREFERENCE_REJECTED : DDP_PREFERENCE_CHOSEN] += reward;
    pass->sums[rejected ? DDP_PREFERENCE_REJECTED_LOGP : DDP_PREFERENCE_CHOSEN_LOGP] += logp;
    pass->sums[rejected ? DDP_PREFERENCE_REJECTED_COUNT : DDP_PREFERENCE_CHOSEN_COUNT] += 1;
}

static void add_pairs(struct pass *pass)
{
    const struct ddp_objective *objective = &pass->args->objective;
    const int64_t pairs = pass->count / 2;
    double loss = pass->nll * (double)pairs;
    for (int64_t i = 0; i < pass->count; i += 2) {
        struct sequence *first = &pass->sequences[i], *second = first + 1;
        const bool per_token = !ddp_objective_refers(objective);
        loss += loss_of(pass, first, second);
        measure(pass, first, first->bad);
        if (objective->kind == DDP_OBJECTIVE_KTO)
            continue;
        measure(pass, second, true);
        pass->sums[DDP_PREFERENCE_RIGHT] +=
            per_token ? mean(first) > mean(second) : of_reference(first) > of_reference(second);
    }
    pass->sums[DDP_PREFERENCE_LOSS] = loss / (double)pass->args->samples;
    pass->sums[DDP_PREFERENCE_UNCOUNTED] = (double)(pass->args->samples - pairs);
    pass->sums[DDP_PREFERENCE_KL] = pass->kl * (double)pairs;
}

/* Hands each token its part, and the log-probability of its sequence. */
static void put_back(const struct pass *pass)
{
    const struct ddp_preference *args = pass->args;
    int64_t next = 0;
    for (int64_t b = 0; b < args->samples; b++) {
        const int32_t *labels = plane(args, b, 0), *roles = plane(args, b, 1);
        for (int64_t t = 0, at = b * args->length; t < args->length; t++, at++) {
            const bool inside = labels[t] != DDP_LABEL_NONE;
            const bool first = inside && (roles[t] & DDP_ROLE_FIRST);
            next += first;
            const struct sequence *sequence =
                inside && next > 0 ? &pass->sequences[next - 1] : NULL;
            if (args->weights)
                args->weights[at] =
                    sequence ? (float)(sequence->all_weight +
                                       (roles[t] & DDP_ROLE_ANSWER ? sequence->weight : 0))
                             : 0;
            if (args->log_probabilities)
                args->log_probabilities[at] = first ? (float)sequence->sum : 0;
        }
    }
}

enum ddp_status ddp_preference(const struct ddp_preference *args, void *stream)
{
    struct pass pass = {.args = args, .sequences = args->scratch};
    (void)stream;
    enum ddp_status status = gather(&pass);
    if (status != DDP_OK)
        return status;
    look_around(&pass);
    add_pairs(&pass);
    put_back(&pass);
    for (int i = 0; i < DDP_PREFERENCE_SUMS; i++)
        args->sums[i] = (args->accumulate ? args->sums[i] : 0) + (float)pass.sums[i];
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
