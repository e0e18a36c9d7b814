/* SPDX-License-Identifier: MIT
 *
 * SwiGLU: against the reference in double, gradients by differences, in place, accumulated, bits
 * over thread counts, numbers far out, bad arguments. */
#include "config.h"

#include "kernels/swiglu.h"
#include "tests/kernels/kernels_test.h"
#include "tests/kernels/reference/reference.h"

static const int64_t counts[] = {0, 1, 15, 16, 17, 16383, 16384, 16385, 100003};

/* Gates from -8 to 8. */
static float *gates_of(int64_t n)
{
    float *gate = array_of(n);
    for (int64_t i = 0; i < n; i++)
        gate[i] *= 8;
    return gate;
}

START_TEST(test_sizes)
{
    random_seed((uint64_t)_i);
    const int64_t n = counts[_i];
    float *gate = gates_of(n), *up = array_of(n), *dy = array_of(n), *expected = array_of(n);
    float *kept = array_of(n), *first[3] = {NULL};
    struct ddp_swiglu_forward forward = {n, DDP_F32, gate, up, expected};
    ck_assert_int_eq(ddp_swiglu_forward_reference(&forward, NULL), DDP_OK);
    for (int i = 0; i < 2 * POOLS; i++) {
        const bool add = i % 2;
        float *y = array_of(n), *dgate = array_copy(kept, n), *dup = array_copy(kept, n);
        float *expected_dgate = array_copy(kept, n), *expected_dup = array_copy(kept, n);
        for (int64_t j = 0; !add && j < n; j++)
            y[j] = dgate[j] = dup[j] = NAN;
        forward.y = y;
        ck_assert_int_eq(ddp_swiglu_forward(&forward, pools[i / 2]), DDP_OK);
        ck_assert(largest_difference(y, expected, n) <= 2e-6);
        struct ddp_swiglu_backward backward = {n, DDP_F32, gate, up, dy, dgate, dup, add, add};
        ck_assert_int_eq(ddp_swiglu_backward(&backward, pools[i / 2]), DDP_OK);
        backward.dgate = expected_dgate;
        backward.dup = expected_dup;
        ck_assert_int_eq(ddp_swiglu_backward_reference(&backward, NULL), DDP_OK);
        ck_assert(largest_difference(dgate, expected_dgate, n) <= 1e-6);
        ck_assert(largest_difference(dup, expected_dup, n) <= 2e-6);
        if (i == 0) {
            first[0] = array_copy(y, n);
            first[1] = array_copy(dgate, n);
            first[2] = array_copy(dup, n);
        }
        ck_assert(same_bits(y, first[0], n));
        ck_assert(add || (same_bits(dgate, first[1], n) && same_bits(dup, first[2], n)));
        float *const all[] = {y, dgate, dup, expected_dgate, expected_dup};
        for (int j = 0; j < 5; j++)
            array_free(all[j], n);
    }
    float *const all[] = {gate, up, dy, expected, kept, first[0], first[1], first[2]};
    for (int j = 0; j < 8; j++)
        array_free(all[j], n);
}
END_TEST

/* Gradients where the inputs are, either or both where dy is, one of them only; the sum of both. */
START_TEST(test_in_place)
{
    enum { N = 1003 };
    random_seed(3);
    float *gate = gates_of(N), *up = array_of(N), *dy = array_of(N);
    float *y = array_of(N), *dgate = array_of(N), *dup = array_of(N), *sum = array_of(N);
    struct ddp_swiglu_forward forward = {N, DDP_F32, gate, up, y};
    ck_assert_int_eq(ddp_swiglu_forward(&forward, NULL), DDP_OK);
    struct ddp_swiglu_backward backward = {N, DDP_F32, gate, up, dy, dgate, dup, false, false};
    ck_assert_int_eq(ddp_swiglu_backward(&backward, NULL), DDP_OK);
    for (int way = 0; way < 6; way++) {
        float *g = array_copy(gate, N), *u = array_copy(up, N), *d = array_copy(dy, N);
        forward = (struct ddp_swiglu_forward){N, DDP_F32, g, u, way % 2 ? g : u};
        ck_assert_int_eq(ddp_swiglu_forward(&forward, pools[2]), DDP_OK);
        ck_assert(same_bits(forward.y, y, N));
        memcpy(forward.y, way % 2 ? gate : up, N * sizeof *g);
        float *const dgates[] = {g, u, d, g, NULL, sum}, *const dups[] = {u, g, u, NULL, d, sum};
        backward = (struct ddp_swiglu_backward){N,           DDP_F32,   g,     u,       d,
                                                dgates[way], dups[way], false, way == 5};
        ck_assert_int_eq(ddp_swiglu_backward(&backward, pools[1]), DDP_OK);
        for (int64_t i = 0; way == 5 && i < N; i++)
            y[i] = dgate[i] + dup[i];
        ck_assert(!dgates[way] || same_bits(dgates[way], way == 5 ? y : dgate, N));
        ck_assert(!dups[way] || same_bits(dups[way], way == 5 ? y : dup, N));
        array_free(g, N);
        array_free(u, N);
        array_free(d, N);
    }
    float *const all[] = {gate, up, dy, y, dgate, dup, sum};
    for (int j = 0; j < 7; j++)
        array_free(all[j], N);
}
END_TEST

struct subject {
    float *gate, *up, *dy, *y;
    int64_t n;
};

static double loss_of(void *arg)
{
    const struct subject *s = arg;
    const struct ddp_swiglu_forward forward = {s->n, DDP_F32, s->gate, s->up, s->y};
    double loss = 0;
    ck_assert_int_eq(ddp_swiglu_forward(&forward, NULL), DDP_OK);
    for (int64_t i = 0; i < s->n; i++)
        loss += (double)s->dy[i] * (double)s->y[i];
    return loss;
}

START_TEST(test_gradient)
{
    enum { N = 37 };
    random_seed(8);
    struct subject s = {array_of(N), array_of(N), array_of(N), array_of(N), N};
    float *dgate = array_of(N), *dup = array_of(N);
    const struct ddp_swiglu_backward backward = {N,     DDP_F32, s.gate, s.up, s.dy,
                                                 dgate, dup,     false,  false};
    ck_assert_int_eq(ddp_swiglu_backward(&backward, NULL), DDP_OK);
    check_gradient("gate", s.gate, dgate, N, loss_of, &s, 2e-4);
    check_gradient("up", s.up, dup, N, loss_of, &s, 2e-4);
    float *const all[] = {s.gate, s.up, s.dy, s.y, dgate, dup};
    for (int j = 0; j < 6; j++)
        array_free(all[j], N);
}
END_TEST

/* No overflow on the way; NaN stays. */
START_TEST(test_far_out)
{
    const float gate[] = {-1e4f, 1e4f, -88, 88, -0.0f, NAN, INFINITY, 3};
    const float up[] = {1, 1, 1, 1, 1, 1, 1, NAN}, ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    float y[8], dgate[8], dup[8];
    const struct ddp_swiglu_forward forward = {8, DDP_F32, gate, up, y};
    const struct ddp_swiglu_backward backward = {8,     DDP_F32, gate,  up,   ones,
                                                 dgate, dup,     false, false};
    ck_assert_int_eq(ddp_swiglu_forward(&forward, NULL), DDP_OK);
    ck_assert_int_eq(ddp_swiglu_backward(&backward, NULL), DDP_OK);
    ck_assert(y[0] == 0 && y[1] == 1e4f && fabsf(y[2]) < 1e-35f && y[3] == 88 && y[4] == 0);
    ck_assert(isnan(y[5]) && y[6] == INFINITY && isnan(y[7]));
    ck_assert(dgate[0] == 0 && dgate[1] == 1 && dgate[4] == 0.5f && isnan(dgate[5]));
    ck_assert(dup[0] == 0 && dup[1] == 1e4f && isnan(dup[5]) && !isnan(dup[7]));
}
END_TEST

START_TEST(test_arguments)
{
    float v[4] = {0};
    const struct ddp_swiglu_forward bad[] = {{-1, DDP_F32, v, v, v},
                                             {1, DDP_F32, NULL, v, v},
                                             {1, DDP_F32, v, NULL, v},
                                             {1, DDP_F32, v, v, NULL}};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ddp_swiglu_forward(&bad[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_swiglu_forward_reference(&bad[i], NULL), DDP_ERR_INVALID);
    }
    const struct ddp_swiglu_backward wrong[] = {{-1, DDP_F32, v, v, v, v, v, false, false},
                                                {1, DDP_F32, NULL, v, v, v, v, false, false},
                                                {1, DDP_F32, v, NULL, v, v, v, false, false},
                                                {1, DDP_F32, v, v, NULL, v, v, false, false}};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ddp_swiglu_backward(&wrong[i], NULL), DDP_ERR_INVALID);
        ck_assert_int_eq(ddp_swiglu_backward_reference(&wrong[i], NULL), DDP_ERR_INVALID);
    }
    const struct ddp_swiglu_forward bf16 = {1, DDP_BF16, v, v, v};
    ck_assert_int_eq(ddp_swiglu_forward(&bf16, NULL), DDP_ERR_UNSUPPORTED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("swiglu");
    TCase *tc = kernel_case(suite, "swiglu");
    tcase_add_loop_test(tc, test_sizes, 0, (int)(sizeof counts / sizeof *counts));
    tcase_add_test(tc, test_in_place);
    tcase_add_test(tc, test_gradient);
    tcase_add_test(tc, test_far_out);
    tcase_add_test(tc, test_arguments);
    return suite;
}
