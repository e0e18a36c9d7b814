/* SPDX-License-Identifier: MIT
 *
 * Losses of preferences of CUDA, and what softmax cross-entropy has for them: the CPU's numbers. */
#include "config.h"

#include "tests/cuda/cuda_pair.h"
#include "tests/lib/scratch.h"

#include "kernels/preference.h"
#include "kernels/softmax_cross_entropy.h"

#define B 3
#define T 77 /* positions: more than two warps */
#define N (B * T)

struct shard {
    int32_t labels[B][DDP_ROLE_PLANES][T];
    float losses[N];
    int32_t targets[N];
    float weights[N], log_probabilities[N], sums[DDP_PREFERENCE_SUMS];
};

/* A sequence with a prompt of one token, or more. Returns what is behind it. */
static int put_sequence(struct shard *s, int row, int at, int count, int32_t role)
{
    const int prompt = 1 + (int)random_below(count - 1);
    const float reference = -(float)(count - prompt) * 0.9f;
    for (int i = 0; i < count; i++, at++) {
        s->labels[row][0][at] = (int32_t)random_below(50);
        s->labels[row][1][at] =
            role | (i >= prompt ? DDP_ROLE_ANSWER : 0) | (i == 0 ? DDP_ROLE_FIRST : 0);
        if (i == 0)
            memcpy(&s->labels[row][2][at], &reference, sizeof reference);
    }
    return at;
}

/* Rows of several pairs, one that is full, and one without any: a batch's padding. */
static void fill(struct shard *s)
{
    memset(s, 0, sizeof *s);
    for (int row = 0; row < B; row++)
        for (int t = 0; t < T; t++)
            s->labels[row][0][t] = DDP_LABEL_NONE;
    for (int i = 0; i < N; i++)
        s->losses[i] = 0.2f + 0.1f * (float)random_below(20);
    for (int pair = 0, at = 0; pair < 3; pair++) {
        const int32_t rating = pair == 1 ? DDP_ROLE_BAD : 0;
        at = put_sequence(s, 0, at, 2 + (int)random_below(10), rating);
        at = put_sequence(s, 0, at, 2 + (int)random_below(10), rating | DDP_ROLE_SECOND);
    }
    put_sequence(s, 2, 0, 33, 0);
    put_sequence(s, 2, 33, T - 33, DDP_ROLE_SECOND);
}

static struct ddp_preference on_device(const struct shard *s, struct ddp_preference args)
{
    args.labels = cuda_copy(s->labels, sizeof s->labels, 0);
    args.losses = cuda_floats(s->losses, N, 0);
    args.targets = cuda_memory(sizeof s->targets, 0);
    args.weights = cuda_memory(sizeof s->weights, 0);
    args.log_probabilities = cuda_memory(sizeof s->log_probabilities, 0);
    args.sums = cuda_memory(sizeof s->sums, 0);
    args.scratch = cuda_memory(ddp_preference_scratch(B, T), 0);
    return args;
}

START_TEST(test_preferences)
{
    struct shard s;
    int32_t targets[N];
    float before[DDP_PREFERENCE_SUMS];
    void *room = malloc(ddp_preference_scratch(B, T));
    ck_assert_ptr_nonnull(room);
    random_seed(_i);
    fill(&s);
    struct ddp_preference args = {
        .objective = {(enum ddp_objective_kind)_i, 0.5, 0.3, 1.5, 0.8},
        .samples = B,
        .length = T,
        .labels = &s.labels[0][0][0],
        .targets = s.targets,
        .losses = s.losses,
        .scratch = room,
        .weights = s.weights,
        .log_probabilities = s.log_probabilities,
        .sums = s.sums,
    };
    ck_assert_int_eq(ddp_kernels_cpu.preference_targets(&args, NULL), DDP_OK);
    ck_assert_int_eq(ddp_kernels_cpu.preference(&args, NULL), DDP_OK);
    args = on_device(&s, args);
    ck_assert_int_eq(on_cuda->preference_targets(&args, cuda_stream), DDP_OK);
    ck_assert_int_eq(on_cuda->preference(&args, cuda_stream), DDP_OK);
    cuda_get(targets, args.targets, sizeof targets);
    ck_assert(memcmp(targets, s.targets, sizeof targets) == 0);
    cuda_expect_near("weights", args.weights, s.weights, N, 1e-12, 1e-6);
    cuda_expect_near("log-probabilities", args.log_probabilities, s.log_probabilities, N, 0, 0);
    cuda_expect_near("sums", args.sums, s.sums, DDP_PREFERENCE_SUMS, 1e-12, 1e-6);
    /* Added to, and nothing but the sums. */
    cuda_get(before, args.sums, sizeof before);
    for (int i = 0; i < DDP_PREFERENCE_SUMS; i++)
        before[i] *= 2;
    args.accumulate = true;
    args.weights = args.log_probabilities = NULL;
    ck_assert_int_eq(on_cuda->preference(&args, cuda_stream), DDP_OK);
    cuda_expect_bits("sums that are added to", args.sums, before, DDP_PREFERENCE_SUMS);
    free(room);
}
END_TEST

/* fault: 0: two first ones; 1: a prompt alone; 2: a first one alone */
START_TEST(test_rows_without_order)
{
    struct shard s;
    struct ddp_preference args = {
        .objective = {DDP_OBJECTIVE_DPO, 0.5, 0, 1, 1}, .samples = B, .length = T};
    fill(&s);
    for (int t = 33; t < T; t++)
        if (_i == 2)
            s.labels[2][0][t] = DDP_LABEL_NONE;
        else
            s.labels[2][1][t] &= ~(_i ? DDP_ROLE_ANSWER : DDP_ROLE_SECOND);
    args = on_device(&s, args);
    ck_assert_int_eq(on_cuda->preference(&args, cuda_stream), DDP_OK);
    capture_start();
    ck_assert_int_eq(ddp_device_synchronize(cuda), DDP_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(capture_stop(), "sample 2 is no row of pairs of answers"));
}
END_TEST

/* Losses of rows, and factors of their gradients; rows at 3, 4 do not count. */
START_TEST(test_rows_of_entropy)
{
    enum { ROWS = 9, CLASSES = 1500 };
    int32_t labels[ROWS];
    float loss, losses[ROWS], weights[ROWS];
    struct pair logits = pair_of(ROWS * CLASSES, 0), d = pair_out(ROWS * CLASSES, 0, false);
    for (int i = 0; i < ROWS; i++) {
        labels[i] = i == 3 || i == 4 ? DDP_LABEL_NONE : (int32_t)random_below(CLASSES);
        weights[i] = 0.25f * (float)(i - 4);
    }
    struct ddp_softmax_cross_entropy args = {.rows = ROWS,
                                             .classes = CLASSES,
                                             .divisor = 2,
                                             .logits = logits.host,
                                             .labels = labels,
                                             .loss = &loss,
                                             .dlogits = d.host,
                                             .row_losses = losses,
                                             .row_weights = weights};
    ck_assert_int_eq(ddp_kernels_cpu.softmax_cross_entropy(&args, NULL), DDP_OK);
    args.logits = logits.device;
    args.labels = cuda_copy(labels, sizeof labels, 0);
    args.loss = cuda_memory(sizeof loss, 0);
    args.dlogits = d.device;
    args.row_losses = cuda_memory(sizeof losses, 0);
    args.row_weights = cuda_floats(weights, ROWS, 0);
    ck_assert_int_eq(on_cuda->softmax_cross_entropy(&args, cuda_stream), DDP_OK);
    cuda_expect_near("row losses", args.row_losses, losses, ROWS, 0, 1e-6);
    pair_near("weighted gradients", &d, 1e-7);
    pair_free(&logits);
    pair_free(&d);
}
END_TEST

void cuda_preference_cases(Suite *suite)
{
    TCase *tc = cuda_case(suite, "preferences");
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_loop_test(tc, test_preferences, DDP_OBJECTIVE_DPO, DDP_OBJECTIVE_KTO + 1);
    tcase_add_loop_test(tc, test_rows_without_order, 0, 3);
    tcase_add_test(tc, test_rows_of_entropy);
}
