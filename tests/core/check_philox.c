/* SPDX-License-Identifier: MIT
 *
 * core/philox against the known answers of Random123 (kat_vectors, philox4x32 10). */
#include "config.h"

#include "core/philox.h"
#include "tests/lib/runner.h"

START_TEST(known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        ddp_philox(out, cases[i].counter, cases[i].key);
        for (int j = 0; j < 4; j++)
            ck_assert_msg(out[j] == cases[i].answer[j], "case %zu, number %d: %08x, not %08x", i, j,
                          out[j], cases[i].answer[j]);
    }
}
END_TEST

START_TEST(in_place)
{
    uint32_t c[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t key[2] = {0xa4093822, 0x299f31d0};
    ddp_philox(c, c, key);
    ck_assert_uint_eq(c[0], 0xd16cfe09);
    ck_assert_uint_eq(c[3], 0x24126ea1);
}
END_TEST

START_TEST(bounds)
{
    ck_assert_uint_eq(ddp_philox_below(0, 9), 0);
    ck_assert_uint_eq(ddp_philox_below(UINT32_MAX, 9), 8);
    ck_assert_uint_eq(ddp_philox_below(UINT32_MAX, 1), 0);
    ck_assert_float_eq(ddp_philox_uniform(0), 0);
    ck_assert_float_eq(ddp_philox_uniform(UINT32_MAX), 1 - 0x1p-24f);
}
END_TEST

/* Chi-squared of 9 cells over counters that differ in one word only: 8 degrees of freedom, of which
 * one in a thousand exceeds 26.1. The numbers are fixed, so the outcome is too. */
START_TEST(evenly_distributed)
{
    for (int word = 0; word < 4; word++) {
        int cells[9] = {0};
        const int draws = 90000;
        for (int i = 0; i < draws; i++) {
            uint32_t counter[4] = {1, 2, 3, 4}, out[4];
            counter[word] = (uint32_t)i;
            ddp_philox(out, counter, (const uint32_t[]){42, 7});
            cells[ddp_philox_below(out[word], 9)]++;
        }
        double chi = 0, expected = draws / 9.0;
        for (int i = 0; i < 9; i++)
            chi += (cells[i] - expected) * (cells[i] - expected) / expected;
        ck_assert_msg(chi < 26.1, "counter word %d: chi-squared %g", word, chi);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("philox");
    TCase *tc = test_case(suite, "philox", 10);
    tcase_add_test(tc, known_answers);
    tcase_add_test(tc, in_place);
    tcase_add_test(tc, bounds);
    tcase_add_test(tc, evenly_distributed);
    return suite;
}
