/* SPDX-License-Identifier: MIT
 *
 * Embedding: against the reference bit for bit, gradient, tokens out of range. */
#include "config.h"

#include "core/bf16.h"
#include "kernels/embedding.h"
#include "tests/kernels/kernels_test.h"
#include "tests/lib/scratch.h"
#include "tests/kernels/reference/reference.h"

/* B, T, C, V, P */
static const int64_t shapes[][5] = {
    {0, 4, 3, 5, 4},   {2, 0, 3, 5, 4},     {2, 3, 0, 5, 4},     {1, 1, 1, 1, 1},
    {2, 3, 63, 5, 3},  {3, 5, 64, 300, 9},  {4, 17, 65, 30, 17}, {1, 130, 129, 7, 130},
    {5, 8, 31, 2, 11}, {4, 64, 96, 50, 64},
};

static int32_t *tokens_of(int64_t count, int64_t vocabulary)
{
    int32_t *tokens = malloc((size_t)(count + 1) * sizeof *tokens);
    ck_assert_ptr_nonnull(tokens);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(vocabulary);
    return tokens;
}

/* Rounds an array, and makes a copy of bf16. */
static uint16_t *rounded_of(float *values, int64_t count)
{
    uint16_t *rounded = malloc((size_t)(count + 1) * sizeof *rounded);
    ck_assert_ptr_nonnull(rounded);
    for (int64_t i = 0; i < count; i++) {
        rounded[i] = ddp_bf16_of(values[i]);
        values[i] = ddp_bf16_to_f32(rounded[i]);
    }
    return rounded;
}

START_TEST(test_forward)
{
    const int64_t *s = shapes[_i], n = s[0] * s[1] * s[2];
    random_seed((uint64_t)_i);
    int32_t *tokens = tokens_of(s[0] * s[1], s[3]);
    float *wte = array_of(s[3] * s[2]), *wpe = array_of(s[4] * s[2]), *expected = array_of(n);
    uint16_t *wte_bf16 = rounded_of(wte, s[3] * s[2]), *wpe_bf16 = rounded_of(wpe, s[4] * s[2]);
    for (int way = 0; way < 5; way++) { /* without wpe, with it; tables of bf16 */
        const bool with = way & 1 || way == 4;
        struct ddp_embedding_forward args = {.batch = s[0],
                                             .length = s[1],
                                             .features = s[2],
                                             .vocabulary = s[3],
                                             .positions = s[4],
                                             .tokens = tokens,
                                             .wte = way & 2 ? NULL : wte,
                                             .wpe = with && way < 3 ? wpe : NULL,
                                             .wte_bf16 = way & 2 ? wte_bf16 : NULL,
                                             .wpe_bf16 = with && way >= 3 ? wpe_bf16 : NULL,
                                             .y = expected};
        args.first = with ? s[4] - s[1] : 0; /* the last positions that fit */
        ck_assert_int_eq(ddp_embedding_forward_reference(&args, NULL), DDP_OK);
        for (int64_t i = 0; with && i < n; i++) /* by its definition */
            ck_assert(expected[i] == wte[tokens[i / s[2]] * s[2] + i % s[2]] +
                                         wpe[(args.first + i / s[2] % s[1]) * s[2] + i % s[2]]);
        for (int pool = 0; pool < POOLS; pool++) {
            float *y = array_of(n);
            args.y = y;
            ck_assert_int_eq(ddp_embedding_forward(&args, pools[pool]), DDP_OK);
            ck_assert(same_bits(y, expected, n));
            array_free(y, n);
        }
    }
    free(wte_bf16);
    free(wpe_bf16);
    free(tokens);
    array_free(wte, s[3] * s[2]);
    array_free(wpe, s[4] * s[2]);
    array_free(expected, n);
}
END_TEST

START_TEST(test_backward)
{
    const int64_t *s = shapes[_i], n = s[0] * s[1] * s[2], wte = s[3] * s[2], wpe = s[4] * s[2];
    random_seed((uint64_t)_i);
    int32_t *tokens = tokens_of(s[0] * s[1], s[3]);
    float *dy = array_of(n), *before_e = array_of(wte), *before_p = array_of(wpe);
    for (int flags = 0; flags < 16; flags++) {
        float *expected_e = array_copy(before_e, wte), *expected_p = array_copy(before_p, wpe);
        struct ddp_embedding_backward args = {.batch = s[0],
                                              .length = s[1],
                                              .features = s[2],
                                              .vocabulary = s[3],
                                              .positions = s[4],
                                              .tokens = tokens,
                                              .dy = dy,
                                              .accumulate_dwte = flags & 1,
                                              .accumulate_dwpe = flags & 2};
        args.dwte = flags & 4 ? expected_e : NULL;
        args.dwpe = flags & 8 ? expected_p : NULL;
        ck_assert_int_eq(ddp_embedding_backward_reference(&args, NULL), DDP_OK);
        for (int pool = 0; pool < POOLS; pool++) {
            float *dwte = array_copy(before_e, wte), *dwpe = array_copy(before_p, wpe);
            args.dwte = flags & 4 ? dwte : NULL;
            args.dwpe = flags & 8 ? dwpe : NULL;
            ck_assert_int_eq(ddp_embedding_backward(&args, pools[pool]), DDP_OK);
            ck_assert(same_bits(dwte, expected_e, wte) && same_bits(dwpe, expected_p, wpe));
            array_free(dwte, wte);
            array_free(dwpe, wpe);
        }
        array_free(expected_e, wte);
        array_free(expected_p, wpe);
    }
    free(tokens);
    array_free(dy, n);
    array_free(before_e, wte);
    array_free(before_p, wpe);
}
END_TEST

struct probe {
    struct ddp_embedding_forward forward;
    const float *dy;
};

static double loss_of(void *arg)
{
    struct probe *probe = arg;
    ck_assert_int_eq(ddp_embedding_forward(&probe->forward, NULL), DDP_OK);
    double loss = 0;
    for (int64_t i = 0; i < 24; i++)
        loss += (double)probe->dy[i] * (double)((const float *)probe->forward.y)[i];
    return loss;
}

START_TEST(test_gradient)
{
    random_seed(7);
    int32_t tokens[6] = {4, 0, 4, 2, 4, 4};
    float *wte = array_of(20), *wpe = array_of(16), *y = array_of(24), *dy = array_of(24);
    float dwte[20], dwpe[16];
    struct probe probe = {.forward = {.batch = 2,
                                      .length = 3,
                                      .features = 4,
                                      .vocabulary = 5,
                                      .positions = 4,
                                      .tokens = tokens,
                                      .wte = wte,
                                      .wpe = wpe,
                                      .y = y},
                          .dy = dy};
    struct ddp_embedding_backward backward = {.batch = 2,
                                              .length = 3,
                                              .features = 4,
                                              .vocabulary = 5,
                                              .positions = 4,
                                              .tokens = tokens,
                                              .dy = dy,
                                              .dwte = dwte,
                                              .dwpe = dwpe};
    ck_assert_int_eq(ddp_embedding_backward(&backward, NULL), DDP_OK);
    check_gradient("wte", wte, dwte, 20, loss_of, &probe, 1e-4);
    check_gradient("wpe", wpe, dwpe, 16, loss_of, &probe, 1e-4);
    array_free(wte, 20);
    array_free(wpe, 16);
    array_free(y, 24);
    array_free(dy, 24);
}
END_TEST

/* Rows of tokens out of range are named, and nothing is touched. */
START_TEST(test_tokens)
{
    static const int32_t wrong[] = {-1, 3, INT32_MIN, INT32_MAX};
    float v[6] = {1, 2, 3, 4, 5, 6}, y[4] = {9, 9, 9, 9}, dwte[3] = {9, 9, 9};
    for (int i = 0; i < 4; i++) {
        int32_t tokens[4] = {0, 1, 2, wrong[i]};
        char token[40];
        snprintf(token, sizeof token, "token %d in row 1, place 1", (int)wrong[i]);
        const struct ddp_embedding_forward forward = {.batch = 2,
                                                      .length = 2,
                                                      .features = 1,
                                                      .vocabulary = 3,
                                                      .tokens = tokens,
                                                      .wte = v,
                                                      .y = y};
        const struct ddp_embedding_backward backward = {.batch = 2,
                                                        .length = 2,
                                                        .features = 1,
                                                        .vocabulary = 3,
                                                        .tokens = tokens,
                                                        .dy = v,
                                                        .dwte = dwte};
        for (int which = 0; which < 4; which++) {
            capture_start();
            enum ddp_status status = which == 0   ? ddp_embedding_forward(&forward, NULL)
                                     : which == 1 ? ddp_embedding_forward_reference(&forward, NULL)
                                     : which == 2
                                         ? ddp_embedding_backward(&backward, NULL)
                                         : ddp_embedding_backward_reference(&backward, NULL);
            one_message(capture_stop(), token, "the vocabulary has 3");
            ck_assert_int_eq(status, DDP_ERR_INVALID);
        }
        ck_assert(y[0] == 9 && dwte[0] == 9);
    }
}
END_TEST

START_TEST(test_arguments)
{
    int32_t tokens[2] = {0, 1};
    float v[4] = {1, 2, 3, 4}, y[4];
    const struct ddp_embedding_forward good = {.batch = 1,
                                               .length = 2,
                                               .features = 1,
                                               .vocabulary = 2,
                                               .positions = 2,
                                               .tokens = tokens,
                                               .wte = v,
                                               .wpe = v,
                                               .y = y};
    struct ddp_embedding_forward bad[] = {good, good, good, good, good, good, good, good},
                                 late = good;
    bad[0].batch = -1;
    bad[1].length = -1;
    bad[2].features = -1;
    bad[3].vocabulary = -1;
    bad[4].positions = 1;
    bad[5].tokens = NULL;
    bad[6].wte = NULL;
    bad[7].y = NULL;
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(ddp_embedding_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_embedding_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
        const struct ddp_embedding_backward backward = {.batch = bad[i].batch,
                                                        .length = bad[i].length,
                                                        .features = bad[i].features,
                                                        .vocabulary = bad[i].vocabulary,
                                                        .positions = bad[i].positions,
                                                        .tokens = bad[i].tokens,
                                                        .dy = i == 6 ? NULL : bad[i].y,
                                                        .dwte = y,
                                                        .dwpe = y};
        ck_assert_int_eq(ddp_embedding_backward(&backward, NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_embedding_backward_reference(&backward, NULL), DDP_ERR_INVALID);
    }
    late.first = 1;
    ck_assert_int_eq(ddp_embedding_forward(&late, NULL), DDP_ERR_INVALID);
    late.first = -1;
    ck_assert_int_eq(ddp_embedding_forward(&late, NULL), DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("embedding");
    TCase *tc = kernel_case(suite, "embedding");
    tcase_add_loop_test(tc, test_forward, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_loop_test(tc, test_backward, 0, sizeof shapes / sizeof shapes[0]);
    tcase_add_test(tc, test_gradient);
    tcase_add_test(tc, test_tokens);
    tcase_add_test(tc, test_arguments);
    return suite;
}
