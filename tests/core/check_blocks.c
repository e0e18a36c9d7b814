/* SPDX-License-Identifier: MIT
 *
 * Values in blocks: NF4 beside bitsandbytes, parts of blocks, and what is not finite. The bytes of
 * ggml's blocks are compared by check_gguf. */
#include "config.h"

#include "core/bf16.h"
#include "core/blocks.h"
#include "tests/lib/golden.h"
#include "tests/lib/runner.h"

#include <math.h>

#define VALUES 192

static size_t from_hex(const char *text, void *bytes)
{
    size_t count = 0;
    for (unsigned byte; sscanf(text + 2 * count, "%2x", &byte) == 1; count++)
        ((uint8_t *)bytes)[count] = (uint8_t)byte;
    return count;
}

START_TEST(nf4_has_the_bytes_and_the_values_of_bitsandbytes)
{
    static char dtype[8], texts[3][8 * VALUES + 1];
    static float values[VALUES], back[VALUES], got_back[VALUES];
    static uint8_t blocks[VALUES], got_blocks[VALUES];
    int lines = 0;
    FILE *file = golden_open("core/golden/nf4.txt");
    while (fscanf(file, "%7s %1536s %1536s %1536s", dtype, texts[0], texts[1], texts[2]) == 4) {
        const enum ddp_dtype type = strcmp(dtype, "bf16") == 0 ? DDP_NF4_BF16 : DDP_NF4;
        ck_assert_uint_eq(from_hex(texts[0], values), sizeof values);
        const size_t bytes = from_hex(texts[1], blocks);
        ck_assert_uint_eq(bytes, ddp_values_bytes(type, VALUES));
        ck_assert_uint_eq(from_hex(texts[2], back), sizeof back);
        ddp_values_pack(type, values, VALUES, got_blocks);
        ck_assert_mem_eq(got_blocks, blocks, bytes);
        ddp_values_unpack(type, blocks, 0, VALUES, got_back);
        ck_assert_mem_eq(got_back, back, sizeof back);
        lines++;
    }
    fclose(file);
    ck_assert_int_eq(lines, 8);
}
END_TEST

static const enum ddp_dtype packed[] = {DDP_BF16, DDP_NF4, DDP_NF4_BF16, DDP_Q8_0, DDP_Q4_0};
#define PACKED (int)(sizeof packed / sizeof packed[0])

static const enum ddp_dtype blocks[] = {DDP_NF4,  DDP_NF4_BF16, DDP_Q8_0,
                                        DDP_Q4_0, DDP_Q4_K,     DDP_Q6_K};

/* Wherever they begin and end; of types that are flat the last block may be a part. */
START_TEST(a_part_is_unpacked_as_in_the_whole)
{
    enum { MOST = 320 };
    const struct ddp_block *block = ddp_block_of(packed[_i]);
    const int64_t count = block && block->flat ? MOST - 7 : MOST;
    float values[MOST], whole[MOST], part[MOST];
    uint8_t memory[4 * MOST];
    for (int i = 0; i < MOST; i++)
        values[i] = (float)((i * i * 37 + 11 * i) % 509 - 254) / 64;
    ddp_values_pack(packed[_i], values, count, memory);
    ddp_values_unpack(packed[_i], memory, 0, count, whole);
    for (int64_t first = 0; first < count; first += 13)
        for (int64_t some = 0; some <= count - first; some += 29) {
            ddp_values_unpack(packed[_i], memory, first, some, part);
            ck_assert_mem_eq(part, whole + first, (size_t)some * sizeof *part);
        }
    for (int64_t i = 0; i < count; i++)
        ck_assert(fabsf(whole[i] - values[i]) <= 0.2f * 4);
}
END_TEST

START_TEST(what_is_not_finite_stays_so)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        float values[64] = {1, 2, bad[b], 3}, back[64];
        uint8_t memory[256];
        ddp_values_pack(packed[_i], values, 64, memory);
        ddp_values_unpack(packed[_i], memory, 0, 64, back);
        ck_assert(!isfinite(back[2]));
    }
}
END_TEST

/* Any bytes: scales of every size, denormal, infinite or not a number. */
START_TEST(values_are_rounded_as_one_by_one)
{
    enum { BLOCKS = 64 };
    static float values[BLOCKS * DDP_BLOCK_MOST];
    static uint16_t halves[BLOCKS * DDP_BLOCK_MOST], part[DDP_BLOCK_MOST + 40];
    static uint8_t memory[BLOCKS * DDP_BLOCK_MOST];
    const struct ddp_block *block = ddp_block_of(blocks[_i]);
    const int64_t count = BLOCKS * block->values;
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
    for (int i = 0; i < 4; i++) /* a block of NF4 that is not a number, and an infinite one */
        memory[i] = memory[36 + i] = (uint8_t)(0x7f800000 >> 8 * i);
    memory[0] = 1;
    ddp_blocks_unpack(block, memory, 0, count, values);
    ddp_blocks_round(block, memory, 0, count, halves);
    for (int64_t i = 0; i < count; i++)
        ck_assert(isnan(values[i]) ? isnan(ddp_bf16_to_f32(halves[i]))
                                   : halves[i] == ddp_bf16_of(values[i]));
    for (int64_t first = 0; first < block->values; first += 7) {
        ddp_blocks_round(block, memory, first, block->values + 39 - first, part);
        ck_assert_mem_eq(part, halves + first, (size_t)(block->values + 39 - first) * 2);
    }
}
END_TEST

START_TEST(sizes_are_those_of_whole_blocks)
{
    ck_assert_uint_eq(ddp_values_bytes(DDP_F32, 7), 28);
    ck_assert_uint_eq(ddp_values_bytes(DDP_NF4, 0), 0);
    ck_assert_uint_eq(ddp_values_bytes(DDP_NF4, 64), 36);
    ck_assert_uint_eq(ddp_values_bytes(DDP_NF4_BF16, 65), 72);
    ck_assert_uint_eq(ddp_values_bytes(DDP_Q4_K, 512), 288);
    ck_assert_ptr_null(ddp_block_of(DDP_BF16));
    ck_assert_ptr_null(ddp_block_of((enum ddp_dtype)77));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("blocks");
    TCase *tc = tcase_create("blocks");
    tcase_add_test(tc, nf4_has_the_bytes_and_the_values_of_bitsandbytes);
    tcase_add_loop_test(tc, a_part_is_unpacked_as_in_the_whole, 0, PACKED);
    tcase_add_loop_test(tc, what_is_not_finite_stays_so, 0, PACKED);
    tcase_add_loop_test(tc, values_are_rounded_as_one_by_one, 0,
                        (int)(sizeof blocks / sizeof blocks[0]));
    tcase_add_test(tc, sizes_are_those_of_whole_blocks);
    suite_add_tcase(suite, tc);
    return suite;
}
