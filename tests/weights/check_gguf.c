/* SPDX-License-Identifier: MIT
 *
 * GGUF: blocks beside gguf-py's, models of each family that are written and read back, and what the
 * format cannot say. */
#include "config.h"

#include "core/bf16.h"
#include "tests/lib/golden.h"
#include "tests/weights/hf_formula.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "weights/gguf.h"

#include <math.h>

/* --- blocks ----------------------------------------------------------------------------------- */

#define VALUES 256

static size_t from_hex(const char *text, uint8_t *bytes)
{
    size_t count = 0;
    for (unsigned byte; sscanf(text + 2 * count, "%2x", &byte) == 1; count++)
        bytes[count] = (uint8_t)byte;
    return count;
}

START_TEST(blocks_have_the_bytes_and_the_values_of_gguf_py)
{
    static char what[16], values_text[8 * VALUES + 1], bytes_text[8 * VALUES + 1];
    static float values[VALUES], got_values[VALUES];
    static uint8_t bytes[4 * VALUES], got_bytes[4 * VALUES];
    int type, encoded = 0, decoded = 0;
    FILE *file = golden_open("weights/golden/gguf_blocks.txt");
    while (fscanf(file, "%15s %d %2048s %2048s", what, &type, values_text, bytes_text) == 4) {
        const size_t count = from_hex(values_text, (uint8_t *)values) / sizeof *values;
        const size_t size = from_hex(bytes_text, bytes);
        if (strcmp(what, "encode") == 0) {
            ddp_gguf_encode(type, values, (int64_t)count, got_bytes);
            ck_assert_mem_eq(got_bytes, bytes, size);
            encoded++;
        } else {
            ddp_gguf_decode(type, bytes, (int64_t)count, got_values);
            ck_assert_mem_eq(got_values, values, count * sizeof *values);
            decoded++;
        }
    }
    fclose(file);
    ck_assert_int_eq(encoded, 24);
    ck_assert_int_eq(decoded, 10);
}
END_TEST

START_TEST(float16_is_the_nearest_one_that_reads_back)
{
    for (uint32_t half = 0; half < 0x10000; half++) {
        const float value = ddp_f16_to_f32((uint16_t)half);
        if (!isnan(value))
            ck_assert_uint_eq(ddp_f16_of(value), half);
        if (isfinite(value) &&
            half < 0x7bff) { /* the middle to the next one goes to the even one */
            const float middle = (value + ddp_f16_to_f32((uint16_t)(half + 1))) / 2;
            ck_assert_uint_eq(ddp_f16_of(middle), half + (half & 1));
            ck_assert_uint_eq(ddp_f16_of(nextafterf(middle, INFINITY)), half + 1);
        }
    }
    ck_assert_uint_eq(ddp_f16_of(65519.9f), 0x7bff);
    ck_assert_uint_eq(ddp_f16_of(65520), 0x7c00);
    ck_assert(isnan(ddp_f16_to_f32(ddp_f16_of(NAN))));
}
END_TEST

/* --- names ------------------------------------------------------------------------------------ */

START_TEST(rows_of_a_head_alternate)
{
    static const int rows[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
    for (int64_t r = 0; r < 16; r++) {
        ck_assert_int_eq(ddp_gguf_row(r, 8), rows[r]);
        ck_assert_int_eq(ddp_gguf_row(r, 0), r);
    }
}
END_TEST

START_TEST(adapters_have_names_too)
{
    const struct ddp_llama llama = {.family = DDP_LLAMA_LLAMA, .head_size = 8};
    const struct ddp_llama qwen = {.family = DDP_LLAMA_QWEN3, .head_size = 8};
    char name[DDP_GGUF_NAME];
    ck_assert(ddp_gguf_name(name, "model.layers.11.self_attn.q_proj.lora_A.weight"));
    ck_assert_str_eq(name, "blk.11.attn_q.weight.lora_a");
    ck_assert(ddp_gguf_name(name, "model.layers.0.mlp.down_proj.lora_B.weight"));
    ck_assert_str_eq(name, "blk.0.ffn_down.weight.lora_b");
    ck_assert(!ddp_gguf_name(name, "model.layers.0.mlp.weight"));
    ck_assert(!ddp_gguf_name(name, "q_proj"));
    ck_assert_int_eq(ddp_gguf_permuted(&llama, "model.layers.0.self_attn.k_proj.lora_B.weight"), 8);
    ck_assert_int_eq(ddp_gguf_permuted(&llama, "model.layers.0.self_attn.k_proj.lora_A.weight"), 0);
    ck_assert_int_eq(ddp_gguf_permuted(&llama, "model.layers.0.self_attn.v_proj.weight"), 0);
    ck_assert_int_eq(ddp_gguf_permuted(&llama, "model.layers.0.self_attn.q_proj.bias"), 8);
    ck_assert_int_eq(ddp_gguf_permuted(&qwen, "model.layers.0.self_attn.q_proj.weight"), 0);
}
END_TEST

/* --- models ----------------------------------------------------------------------------------- */

#define SIZES                                                                                      \
    "\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":4,"                         \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":20,"                       \
    "\"rms_norm_eps\":1e-5,\"max_position_embeddings\":128,"
static const char *const families[] = {
    "{" SIZES "\"model_type\":\"llama\",\"attention_bias\":true,\"mlp_bias\":true,"
    "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.5}}",
    "{" SIZES "\"model_type\":\"llama\",\"tie_word_embeddings\":true,\"head_dim\":16,"
    "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
    "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":32}}",
    "{" SIZES "\"model_type\":\"qwen2\",\"tie_word_embeddings\":true}",
    "{" SIZES "\"model_type\":\"qwen3\",\"head_dim\":16,\"rope_theta\":1000000,\"rope_scaling\":"
    "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32}}",
    "{" SIZES "\"model_type\":\"mistral\",\"sliding_window\":null}",
    "{" SIZES "\"model_type\":\"smollm3\",\"tie_word_embeddings\":true}",
    "{" SIZES "\"model_type\":\"phi3\",\"head_dim\":10,\"partial_rotary_factor\":0.6,"
    "\"sliding_window\":7}",
};
#define FAMILIES (int)(sizeof families / sizeof families[0])

static struct ddp_hf_llama config;
static struct formula made, got;

static enum ddp_status parse(const char *text)
{
    return ddp_hf_llama_parse(&config, "config", text, strlen(text));
}

static void begin(int family)
{
    ck_assert_int_eq(parse(families[family]), DDP_OK);
    formula_make(&made, &config, DDP_F32, true);
    formula_make(&got, &config, DDP_F32, false);
}

static void end(void)
{
    formula_free(&made);
    formula_free(&got);
}

static const char *export(int type)
{
    const char *path = scratch_path("model.gguf");
    ck_assert_int_eq(ddp_gguf_export(path, type, &config, NULL, made.values, made.count), DDP_OK);
    return path;
}

START_TEST(a_model_reads_back)
{
    struct ddp_hf_llama read;
    struct ddp_hf_llama_files files;
    begin(_i);
    const char *path = export(DDP_GGUF_F32);
    ck_assert(ddp_gguf_is(path));
    ck_assert_int_eq(ddp_gguf_read(&read, path), DDP_OK);
    if (config.shape.family == DDP_LLAMA_MISTRAL)
        read.shape.family = DDP_LLAMA_MISTRAL; /* a file says llama */
    ck_assert_int_eq(read.vocabulary, config.vocabulary);
    ck_assert_str_eq(read.dtype, "F32");
    ck_assert_mem_eq(&read.shape, &config.shape, sizeof read.shape);
    ck_assert_int_eq(ddp_gguf_check(path, &read, &files), DDP_OK);
    ck_assert_str_eq(files.dtype, "f32");
    ck_assert_int_eq(ddp_gguf_load(path, &read, got.values, got.count), DDP_OK);
    for (size_t i = 0; i < made.count; i++)
        ck_assert_mem_eq(got.values[i].memory, made.values[i].memory,
                         (size_t)(made.values[i].dims[0] * made.values[i].dims[1]) * sizeof(float));
    end();
}
END_TEST

/* Vectors stay float32, and rows of 10 values cannot be blocks: they are float16. */
START_TEST(types_are_those_that_a_row_allows)
{
    struct ddp_gguf gguf;
    begin(FAMILIES - 1);
    ck_assert_int_eq(ddp_gguf_open(&gguf, export(DDP_GGUF_Q4_0)), DDP_OK);
    ck_assert_int_eq(ddp_gguf_find(&gguf, "token_embd.weight")->type, DDP_GGUF_Q4_0);
    ck_assert_int_eq(ddp_gguf_find(&gguf, "blk.3.ffn_down.weight")->type, DDP_GGUF_Q4_0);
    ck_assert_int_eq(ddp_gguf_find(&gguf, "blk.3.ffn_norm.weight")->type, DDP_GGUF_F32);
    ck_assert_int_eq(ddp_gguf_find(&gguf, "blk.3.attn_output.weight")->type, DDP_GGUF_F16);
    ck_assert_int_eq(ddp_gguf_find(&gguf, "blk.3.ffn_up.weight")->dims[1], 2 * 64);
    ck_assert_ptr_null(ddp_gguf_find(&gguf, "blk.3.ffn_gate.weight"));
    ck_assert_uint_ge(ddp_gguf_export_bytes(&config, DDP_GGUF_Q4_0),
                      gguf.file.bytes); /* the header is a guess from above */
    ddp_gguf_close(&gguf);
    end();
}
END_TEST

/* An adapter is added where a row is read. */
START_TEST(adapters_are_merged_row_by_row)
{
    float down[] = {1, 2, 3, 4, 5, 6}, up[] = {1, 0, 2, 0.5f}, base[] = {1, 1, 1, 2, 2, 2}, row[6];
    const struct ddp_hf_values a = {.dims = {2, 3}, .memory = down};
    const struct ddp_hf_values b = {.dims = {2, 2}, .memory = up};
    const struct ddp_hf_values w = {.dim_count = 2,
                                    .dims = {2, 3},
                                    .dtype = DDP_F32,
                                    .memory = base,
                                    .up = &b,
                                    .down = &a,
                                    .scale = 0.5f};
    ddp_hf_values_row(&w, 0, row);
    ck_assert(row[0] == 1.5f && row[1] == 2 && row[2] == 2.5f);
    ddp_hf_values_row(&w, 1, row);
    ck_assert(row[0] == 4 && row[1] == 5.25f && row[2] == 6.5f);
}
END_TEST

/* A reader divides alpha by the rank; rslora divides by its root. */
START_TEST(adapters_are_written_for_a_reader_that_divides_by_the_rank)
{
    static float values[4 * 16];
    const struct ddp_hf_values adapters[] = {{"model.layers.0.self_attn.q_proj.lora_A.weight",
                                              2,
                                              {4, 8},
                                              DDP_F32,
                                              values,
                                              NULL,
                                              NULL,
                                              0,
                                              NULL},
                                             {"model.layers.0.self_attn.q_proj.lora_B.weight",
                                              2,
                                              {16, 4},
                                              DDP_F32,
                                              values,
                                              NULL,
                                              NULL,
                                              0,
                                              NULL}};
    struct ddp_llama shape = {.head_size = 4, .lora = {.rank = 4, .alpha = 8}};
    struct ddp_gguf gguf;
    for (int i = 0; i < 64; i++)
        values[i] = (float)i;
    for (int rslora = 0; rslora < 2; rslora++) {
        float row[4];
        const char *path = scratch_path("adapters.gguf");
        shape.lora.rslora = rslora;
        ck_assert_int_eq(ddp_gguf_export_adapters(path, &shape, adapters, 2), DDP_OK);
        ck_assert_int_eq(ddp_gguf_open(&gguf, path), DDP_OK);
        const json_t *alpha = json_object_get(gguf.keys, "adapter.lora.alpha");
        ck_assert_double_eq(json_real_value(alpha), rslora ? 16 : 8);
        const struct ddp_gguf_tensor *up = ddp_gguf_find(&gguf, "blk.0.attn_q.weight.lora_b");
        ck_assert_int_eq(ddp_input_file_read(&gguf.file, up->offset + 16, row, 16), DDP_OK);
        ck_assert_float_eq(row[0], 8); /* row 1 of the file is our row 2 */
        ddp_gguf_close(&gguf);
    }
}
END_TEST

/* --- what cannot be said ---------------------------------------------------------------------- */

static const struct {
    const char *keys, *says;
} unsaid[] = {
    {"\"model_type\":\"smollm3\",\"no_rope_layers\":[1,0,1,1]", "each fourth layer"},
    {"\"model_type\":\"smollm3\",\"no_rope_layers\":[1,1,1,1]", "each fourth layer"},
    {"\"model_type\":\"qwen3\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
     "\"beta_fast\":16,\"original_max_position_embeddings\":32}",
     "beta_fast"},
    {"\"model_type\":\"qwen3\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
     "\"attention_factor\":1.5,\"original_max_position_embeddings\":32}",
     "attention_factor"},
};

START_TEST(what_llama_cpp_would_compute_otherwise_is_refused)
{
    char text[1024];
    snprintf(text, sizeof text, "{" SIZES "%s}", unsaid[_i].keys);
    ck_assert_int_eq(parse(text), DDP_OK);
    capture_start();
    ck_assert_int_eq(ddp_gguf_check_said("x.gguf", &config.shape), DDP_ERR_INVALID);
    one_message(capture_stop(), "x.gguf", unsaid[_i].says);
}
END_TEST

START_TEST(a_window_is_warned_of)
{
    ck_assert_int_eq(parse("{" SIZES "\"model_type\":\"mistral\",\"sliding_window\":7}"), DDP_OK);
    capture_start();
    ck_assert_int_eq(ddp_gguf_check_said("x.gguf", &config.shape), DDP_OK);
    one_message(capture_stop(), "x.gguf", "window of 7 tokens of a mistral");
}
END_TEST

START_TEST(a_value_that_float16_cannot_hold_is_refused)
{
    begin(0);
    ((float *)made.values[0].memory)[3] = 70000;
    const char *path = scratch_path("huge.gguf");
    capture_start();
    ck_assert_int_eq(ddp_gguf_export(path, DDP_GGUF_F16, &config, NULL, made.values, made.count),
                     DDP_ERR_INVALID);
    one_message(capture_stop(), "huge.gguf", "token_embd.weight has the value 70000");
    ck_assert_int_ne(access(path, F_OK), 0);
    end();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("gguf");
    TCase *tc = test_case(suite, "gguf", 20);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, blocks_have_the_bytes_and_the_values_of_gguf_py);
    tcase_add_test(tc, float16_is_the_nearest_one_that_reads_back);
    tcase_add_test(tc, rows_of_a_head_alternate);
    tcase_add_test(tc, adapters_have_names_too);
    tcase_add_loop_test(tc, a_model_reads_back, 0, FAMILIES);
    tcase_add_test(tc, types_are_those_that_a_row_allows);
    tcase_add_test(tc, adapters_are_merged_row_by_row);
    tcase_add_test(tc, adapters_are_written_for_a_reader_that_divides_by_the_rank);
    tcase_add_loop_test(tc, what_llama_cpp_would_compute_otherwise_is_refused, 0,
                        (int)(sizeof unsaid / sizeof unsaid[0]));
    tcase_add_test(tc, a_window_is_warned_of);
    tcase_add_test(tc, a_value_that_float16_cannot_hold_is_refused);
    return suite;
}
