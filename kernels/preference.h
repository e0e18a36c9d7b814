/* SPDX-License-Identifier: MIT
 *
 * Losses of preferences: from the log-probabilities of the tokens of answers to one loss, and how
 * much of it each token has. As TRL 1.16 has them: DPO (Rafailov et al., 2023), IPO (Azar et al.,
 * 2023; its sums are means per token), ORPO (Hong et al., 2024; its likelihood is that of the
 * prompt too), SimPO (Meng et al., 2024) and KTO (Ethayarajh et al., 2024). */
#ifndef DDP_KERNELS_PREFERENCE_H
#define DDP_KERNELS_PREFERENCE_H

#include "ddp.h"

#include "core/label.h"

#include <math.h>

enum ddp_objective_kind {
    DDP_OBJECTIVE_NONE, /* cross-entropy */
    DDP_OBJECTIVE_DPO,
    DDP_OBJECTIVE_IPO,
    DDP_OBJECTIVE_ORPO,
    DDP_OBJECTIVE_SIMPO,
    DDP_OBJECTIVE_KTO, /* of single answers; the second sequence of each is a mismatched one */
};

struct ddp_objective {
    enum ddp_objective_kind kind;
    double beta;
    double gamma;                  /* SimPO: the margin */
    double desirable, undesirable; /* KTO: weights of good and bad answers */
};

#ifdef __CUDACC__
#define DDP_PREFERENCE_DEVICE __host__ __device__
#else
#define DDP_PREFERENCE_DEVICE
#endif

/* Whether it compares with a reference. */
DDP_PREFERENCE_DEVICE static inline bool ddp_objective_refers(const struct ddp_objective *objective)
{
    return objective->kind == DDP_OBJECTIVE_DPO || objective->kind == DDP_OBJECTIVE_IPO ||
           objective->kind == DDP_OBJECTIVE_KTO;
}

/* What is added up over shards, as floats: the loss and what does not count come first, as of any
 * loss; then sums that metrics are made of. */
enum ddp_preference_sum {
    DDP_PREFERENCE_LOSS,
    DDP_PREFERENCE_UNCOUNTED, /* samples less pairs: negative where rows have several */
    DDP_PREFERENCE_CHOSEN,    /* rewards of chosen, or good, answers */
    DDP_PREFERENCE_REJECTED,
    DDP_PREFERENCE_RIGHT, /* pairs whose chosen answer has the larger reward */
    DDP_PREFERENCE_CHOSEN_LOGP,
    DDP_PREFERENCE_REJECTED_LOGP,
    DDP_PREFERENCE_CHOSEN_COUNT,
    DDP_PREFERENCE_REJECTED_COUNT,
    DDP_PREFERENCE_KL, /* of KTO, times its answers */
    DDP_PREFERENCE_SUMS,
};

/* What people watch; means. A count of 0 gives NaN. */
struct ddp_preferences {
    double chosen, rejected; /* rewards */
    double margin;           /* their difference */
    double accuracy;         /* share of pairs in order, 0 .. 1; NaN of KTO */
    double chosen_logp, rejected_logp;
    double kl; /* NaN: not KTO's */
};
void ddp_preferences_make(struct ddp_preferences *preferences,
                          const struct ddp_objective *objective, const double *sums);

/* Labels are planes of T numbers for each sample: the next tokens, of prompts too (NONE: padding);
 * DDP_ROLE_ bits (core/label.h); and, at a sequence's first position, the bits of the float that
 * the reference gives for its answer's log-probability. */
struct ddp_preference {
    struct ddp_objective objective;
    int64_t samples, length;  /* B, T */
    const int32_t *labels;    /* (B,3,T) */
    int32_t *targets;         /* (B,T) out of ddp_preference_targets(): the labels whose
                                log-probabilities are needed, else NONE */
    const float *losses;      /* (B,T) -log p of the targets */
    void *scratch;            /* ddp_preference_scratch() bytes */
    float *weights;           /* (B,T) out: derivative of the sum of all pairs' losses by each of
                                `losses`; NULL: not needed */
    float *log_probabilities; /* (B,T) out: at first positions, of the answer; NULL: not needed */
    float *sums;              /* (DDP_PREFERENCE_SUMS) out; the loss is divided by B */
    bool accumulate;          /* add to the sums */
};

size_t ddp_preference_scratch(int64_t samples, int64_t length);
enum ddp_status ddp_preference_targets(const struct ddp_preference *args, void *stream);
enum ddp_status ddp_preference(const struct ddp_preference *args, void *stream);

#endif
