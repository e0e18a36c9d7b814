/* SPDX-License-Identifier: MIT
 *
 * Losses of preferences: their derivatives against differences, what is summed up, and what is
 * refused. Their values are TRL's: tests/train/preferences.sh. */
#include "config.h"

#include "tests/kernels/kernels_test.h"

#include "kernels/preference.h"

#include <string.h>

#define T     12
#define B     2
#define PAIRS 3
#define STEP  1e-2

/* Two pairs in the first row, one in the second: each sequence has a prompt of one target. */
struct shard {
    int32_t labels[B][DDP_ROLE_PLANES][T];
    float losses[B * T];
    char scratch[4096];
    float weights[B * T], sums[16], log_probabilities[B * T];
    int32_t targets[B * T];
};

static void put_sequence(struct shard *s, int row, int at, int count, int32_t role, float reference)
{
    for (int i = 0; i < count; i++) {
        s->labels[row][0][at + i] = i;
        s->labels[row][1][at + i] =
            role | (i > 0 ? DDP_ROLE_ANSWER : 0) | (i == 0 ? DDP_ROLE_FIRST : 0);
    }
    memcpy(&s->labels[row][2][at], &reference, sizeof reference);
}

static void fill(struct shard *s, bool bad)
{
    memset(s, 0, sizeof *s);
    for (int row = 0; row < B; row++)
        for (int t = 0; t < T; t++)
            s->labels[row][0][t] = DDP_LABEL_NONE;
    for (int i = 0; i < B * T; i++)
        s->losses[i] = 0.3f + 0.17f * (float)(i * 7 % 5);
    put_sequence(s, 0, 0, 3, 0, -1.5f);
    put_sequence(s, 0, 3, 2, DDP_ROLE_SECOND, -0.2f);
    put_sequence(s, 0, 5, 2, bad ? DDP_ROLE_BAD : 0, -0.7f);
    put_sequence(s, 0, 7, 4, DDP_ROLE_SECOND | (bad ? DDP_ROLE_BAD : 0), -2.0f);
    put_sequence(s, 1, 0, 5, 0, -1.0f);
    put_sequence(s, 1, 5, 3, DDP_ROLE_SECOND, -1.1f);
}

static enum ddp_status run(struct shard *s, enum ddp_objective_kind kind, bool accumulate)
{
    const struct ddp_preference args = {
        .objective = {kind, 0.5, 0.3, 1.5, 0.8},
        .samples = B,
        .length = T,
        .labels = &s->labels[0][0][0],
        .targets = s->targets,
        .losses = s->losses,
        .scratch = s->scratch,
        .weights = s->weights,
        .log_probabilities = s->log_probabilities,
        .sums = s->sums,
        .accumulate = accumulate,
    };
    ck_assert(ddp_preference_scratch(B, T) <= sizeof s->scratch);
    ck_assert_int_eq(ddp_preference_targets(&args, NULL), DDP_OK);
    return ddp_preference(&args, NULL);
}

static bool has_weight(const struct shard *s, int i, enum ddp_objective_kind kind)
{
    const int32_t label = s->labels[i / T][0][i % T], role = s->labels[i / T][1][i % T];
    if (kind == DDP_OBJECTIVE_KTO && (role & DDP_ROLE_SECOND))
        return false;
    return label != DDP_LABEL_NONE &&
           ((role & DDP_ROLE_ANSWER) || (kind == DDP_OBJECTIVE_ORPO && !(role & DDP_ROLE_SECOND)));
}

START_TEST(weights_are_derivatives)
{
    const enum ddp_objective_kind kind = (enum ddp_objective_kind)_i;
    struct shard s, other;
    fill(&s, kind == DDP_OBJECTIVE_KTO);
    ck_assert_int_eq(run(&s, kind, false), DDP_OK);
    for (int i = 0; i < B * T; i++) {
        double loss[2];
        if (!has_weight(&s, i, kind)) {
            ck_assert(s.weights[i] == 0);
            ck_assert(s.targets[i] == DDP_LABEL_NONE || kind == DDP_OBJECTIVE_KTO);
            continue;
        }
        ck_assert_int_eq(s.targets[i], s.labels[i / T][0][i % T]);
        for (int k = 0; k < 2; k++) {
            other = s;
            other.losses[i] += k ? (float)STEP : -(float)STEP;
            ck_assert_int_eq(run(&other, kind, false), DDP_OK);
            loss[k] = (double)other.sums[DDP_PREFERENCE_LOSS] * B;
        }
        ck_assert_double_eq_tol((double)s.weights[i], (loss[1] - loss[0]) / (2 * STEP), 2e-3);
    }
}
END_TEST

START_TEST(sums_and_means)
{
    struct shard s;
    double sums[DDP_PREFERENCE_SUMS];
    struct ddp_preferences means;
    fill(&s, false);
    ck_assert_int_eq(run(&s, DDP_OBJECTIVE_DPO, false), DDP_OK);
    const float once = s.sums[DDP_PREFERENCE_LOSS];
    ck_assert(s.sums[DDP_PREFERENCE_UNCOUNTED] == B - PAIRS);
    ck_assert(s.sums[DDP_PREFERENCE_CHOSEN_COUNT] == PAIRS);
    ck_assert_float_eq_tol(s.log_probabilities[0], -(s.losses[1] + s.losses[2]), 1e-6f);
    ck_assert(s.log_probabilities[1] == 0);
    ck_assert_int_eq(run(&s, DDP_OBJECTIVE_DPO, true), DDP_OK);
    ck_assert(s.sums[DDP_PREFERENCE_LOSS] == 2 * once);
    for (int i = 0; i < DDP_PREFERENCE_SUMS; i++)
        sums[i] = (double)s.sums[i];
    ddp_preferences_make(&means, &(struct ddp_objective){DDP_OBJECTIVE_DPO, 0.5, 0, 1, 1}, sums);
    ck_assert_double_eq_tol(means.margin, means.chosen - means.rejected, 1e-12);
    ck_assert(means.accuracy >= 0 && means.accuracy <= 1 && isnan(means.kl));
}
END_TEST

START_TEST(rows_without_order_are_refused)
{
    struct shard s;
    fill(&s, false);
    s.labels[0][1][3] &= ~DDP_ROLE_SECOND; /* two first ones */
    ck_assert_int_eq(run(&s, DDP_OBJECTIVE_DPO, false), DDP_ERR_INVALID);
    fill(&s, false);
    s.labels[1][1][6] = s.labels[1][1][7] = DDP_ROLE_SECOND; /* a prompt alone */
    ck_assert_int_eq(run(&s, DDP_OBJECTIVE_DPO, false), DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("preference");
    TCase *tc = test_case(suite, "preference", 60);
    tcase_add_loop_test(tc, weights_are_derivatives, DDP_OBJECTIVE_DPO, DDP_OBJECTIVE_KTO + 1);
    tcase_add_test(tc, sums_and_means);
    tcase_add_test(tc, rows_without_order_are_refused);
    return suite;
}
