/* SPDX-License-Identifier: MIT
 *
 * Adapters in PEFT's form: what adapter_config.json says and what is refused, the value of --lora,
 * and directories that are written, read back, and damaged. */
#include "config.h"

#include "core/bf16.h"
#include "core/json.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "weights/peft.h"

#include <math.h>
#include <stdlib.h>
#define ALL    ((1 << DDP_LLAMA_LINEARS) - 1)
#define Q_V    (1 << DDP_LLAMA_Q | 1 << DDP_LLAMA_V)
#define LAYERS 2

static struct ddp_peft peft;

static enum ddp_status parse_for(const char *text, int64_t layers)
{
    ddp_peft_free(&peft);
    return ddp_peft_parse(&peft, "adapter_config.json", text, strlen(text), layers, NULL);
}

static enum ddp_status parse(const char *text)
{
    return parse_for(text, LAYERS);
}

/* --- adapter_config.json ---------------------------------------------------------------------- */

START_TEST(absent_keys_have_the_defaults_of_peft)
{
    ck_assert_int_eq(parse("{\"peft_type\":\"LORA\",\"target_modules\":[\"q_proj\",\"v_proj\"]}"),
                     DDP_OK);
    const struct ddp_lora *lora = &peft.lora;
    ck_assert(lora->rank == 8 && lora->alpha == 8 && lora->dropout == 0 && !lora->rslora);
    ck_assert(lora->targets == Q_V && !lora->frozen_bf16 && !peft.base);
    ck_assert_double_eq(ddp_lora_scale(lora), 1);
}
END_TEST

START_TEST(a_file_of_peft_is_read)
{
    ck_assert_int_eq(
        parse("{\"alora_invocation_tokens\":null,\"alpha_pattern\":{},\"arrow_config\":null,"
              "\"auto_mapping\":null,\"base_model_name_or_path\":\"org/base\",\"bias\":\"none\","
              "\"corda_config\":null,\"eva_config\":null,\"exclude_modules\":null,"
              "\"fan_in_fan_out\":false,\"inference_mode\":true,\"init_lora_weights\":true,"
              "\"layer_replication\":null,\"layers_pattern\":null,\"layers_to_transform\":null,"
              "\"loftq_config\":{},\"lora_alpha\":8.5,\"lora_bias\":false,\"lora_dropout\":0.05,"
              "\"megatron_config\":null,\"megatron_core\":\"megatron.core\","
              "\"modules_to_save\":[],\"peft_type\":\"LORA\",\"qalora_group_size\":16,\"r\":4,"
              "\"rank_pattern\":{},\"revision\":null,\"target_modules\":[\"up_proj\",\"k_proj\"],"
              "\"target_parameters\":null,\"task_type\":\"CAUSAL_LM\",\"use_dora\":false,"
              "\"use_rslora\":true,\"a_key_of_tomorrow\":{\"x\":1}}"),
        DDP_OK);
    const struct ddp_lora *lora = &peft.lora;
    ck_assert_str_eq(peft.base, "org/base");
    ck_assert(lora->rank == 4 && lora->alpha == 8.5 && lora->dropout == 0.05 && lora->rslora);
    ck_assert_int_eq(lora->targets, 1 << DDP_LLAMA_UP | 1 << DDP_LLAMA_K);
    ck_assert_double_eq_tol(ddp_lora_scale(lora), 8.5 / 2, 1e-15);
}
END_TEST

#define LAYER(n) "\"model.layers." #n "."
static const struct {
    const char *list;
    int64_t targets;
} targets[] = {
    {"\"all-linear\"", ALL},
    {"[\"down_proj\"]", 1 << DDP_LLAMA_DOWN},
    {"[\"self_attn.o_proj\", \"mlp.gate_proj\"]", 1 << DDP_LLAMA_O | 1 << DDP_LLAMA_GATE},
    {"[" LAYER(0) "self_attn.q_proj\"," LAYER(1) "self_attn.q_proj\"]", 1 << DDP_LLAMA_Q},
    {"[\"layers.0.mlp.up_proj\", \"1.mlp.up_proj\"]", 1 << DDP_LLAMA_UP},
    {"[\"q_proj\", \"q_proj\", " LAYER(0) "self_attn.q_proj\"]", 1 << DDP_LLAMA_Q},
    {"[" LAYER(0) "self_attn.q_proj\"," LAYER(0) "self_attn.v_proj\"," LAYER(
         1) "self_attn.v_proj\"," LAYER(1) "self_attn.q_proj\"]",
     Q_V},
};

START_TEST(targets_match_as_in_peft)
{
    char text[512];
    snprintf(text, sizeof text, "{\"target_modules\": %s}", targets[_i].list);
    ck_assert_int_eq(parse(text), DDP_OK);
    ck_assert_int_eq(peft.lora.targets, targets[_i].targets);
}
END_TEST

/* Layer 1 is not layer 11; the list of all names, as PEFT saves "all-linear". */
START_TEST(names_of_all_layers_are_all_linear)
{
    static char text[64 * 12 * DDP_LLAMA_LINEARS];
    size_t used = (size_t)sprintf(text, "{\"target_modules\": [");
    for (int l = 0; l < 12; l++)
        for (int i = 0; i < DDP_LLAMA_LINEARS; i++)
            used += (size_t)sprintf(text + used, "%s\"model.layers.%d.%s\"", l + i ? "," : "", l,
                                    ddp_llama_linear_names[i]);
    strcpy(text + used, "]}");
    ck_assert_int_eq(parse_for(text, 12), DDP_OK);
    ck_assert_int_eq(peft.lora.targets, ALL);
    capture_start();
    ck_assert_int_eq(parse_for(text, 13), DDP_ERR_FORMAT);
    one_message(capture_stop(), "adapter_config.json", "layer 12");
    capture_start();
    ck_assert_int_eq(parse_for(text, 11), DDP_ERR_FORMAT);
    one_message(capture_stop(), "adapter_config.json", "model.layers.11.self_attn.q_proj");
}
END_TEST

static const struct {
    const char *keys, *says;
} refused[] = {
    {"\"use_dora\": true", "use_dora"},
    {"\"lora_bias\": true", "lora_bias"},
    {"\"rank_pattern\": {\"q_proj\": 4}", "rank_pattern"},
    {"\"alpha_pattern\": {\"q_proj\": 4}", "alpha_pattern"},
    {"\"modules_to_save\": [\"lm_head\"]", "modules_to_save"},
    {"\"bias\": \"all\"", "bias is \"all\""},
    {"\"bias\": \"lora_only\"", "bias is \"lora_only\""},
    {"\"fan_in_fan_out\": true", "fan_in_fan_out"},
    {"\"layers_to_transform\": [0]", "layers_to_transform"},
    {"\"layers_to_transform\": 0", "layers_to_transform"},
    {"\"layers_pattern\": \"h\"", "layers_pattern"},
    {"\"target_parameters\": [\"experts\"]", "target_parameters"},
    {"\"exclude_modules\": \"q_proj\"", "exclude_modules"},
    {"\"layer_replication\": [[0, 2]]", "layer_replication"},
    {"\"trainable_token_indices\": [3]", "trainable_token_indices"},
    {"\"use_qalora\": true", "use_qalora"},
    {"\"use_what_comes\": true", "use_what_comes"},
    {"\"use_bdlora\": {\"nblocks\": 2}", "use_bdlora"},
    {"\"alora_invocation_tokens\": [3]", "alora_invocation_tokens"},
    {"\"arrow_config\": {\"top_k\": 3}", "arrow_config"},
    {"\"kasa_config\": {\"beta\": 3}", "kasa_config"},
    {"\"velora_config\": {\"x\": 3}", "velora_config"},
    {"\"monteclora_config\": {\"x\": 3}", "monteclora_config"},
    {"\"init_lora_weights\": \"pissa_niter_4\"", "init_lora_weights is pissa_niter_4"},
    {"\"init_lora_weights\": \"loftq\"", "init_lora_weights is loftq"},
    {"\"init_lora_weights\": 7", "init_lora_weights"},
    {"\"peft_type\": \"IA3\"", "peft_type is \"IA3\""},
    {"\"peft_type\": 3", "peft_type"},
    {"\"r\": 0", " r is not"},
    {"\"r\": -4", " r is not"},
    {"\"r\": 4.5", " r is not"},
    {"\"r\": 100000", " r is not"},
    {"\"r\": null", " r is not"},
    {"\"lora_alpha\": 0", "lora_alpha"},
    {"\"lora_alpha\": \"8\"", "lora_alpha"},
    {"\"lora_dropout\": 1", "lora_dropout"},
    {"\"lora_dropout\": -0.1", "lora_dropout"},
    {"\"use_rslora\": 1", "use_rslora"},
    {"\"base_model_name_or_path\": 3", "base_model_name_or_path"},
    {"\"target_modules\": \".*_proj\"", "patterns are not supported"},
    {"\"target_modules\": \"q_proj\"", "patterns are not supported"},
    {"\"target_modules\": null", "must be a list"},
    {"\"target_modules\": []", "is empty"},
    {"\"target_modules\": [3]", "must be texts"},
    {"\"target_modules\": [\"\"]", "target_modules has "},
    {"\"target_modules\": [\"q_proj\", \"lm_head\"]", "target_modules has lm_head"},
    {"\"target_modules\": [\"embed_tokens\"]", "embed_tokens"},
    {"\"target_modules\": [\"proj\"]", "proj"},
    {"\"target_modules\": [\"mlp\"]", "mlp"},
    {"\"target_modules\": [\"xq_proj\"]", "xq_proj"},
    {"\"target_modules\": [\"xself_attn.q_proj\"]", "xself_attn"},
    {"\"target_modules\": [\"model.layers.2.self_attn.q_proj\"]", "layers.2"},
    {"\"target_modules\": [\"model.layers.00.self_attn.q_proj\"]", "layers.00"},
    {"\"target_modules\": [\"model.layers.0.mlp.q_proj\"]", "mlp.q_proj"},
    {"\"target_modules\": [" LAYER(0) "self_attn.q_proj\"]", "layer 1 than of layer 0"},
    {"\"target_modules\": [" LAYER(1) "self_attn.q_proj\"]", "layer 1 than of layer 0"},
    {"\"target_modules\": [" LAYER(0) "self_attn.q_proj\"," LAYER(0) "self_attn.q_proj\"]",
     "layer 1 than of layer 0"}, /* twice is not both */
    {"\"target_modules\": [" LAYER(0) "self_attn.q_proj\"," LAYER(1) "self_attn.k_proj\"]",
     "layer 1 than of layer 0"},
};

START_TEST(what_we_do_not_do_is_refused_by_name)
{
    char text[512];
    const bool own = strstr(refused[_i].keys, "target_modules") != NULL;
    snprintf(text, sizeof text, "{%s%s}", own ? "" : "\"target_modules\": [\"q_proj\"], ",
             refused[_i].keys);
    capture_start();
    enum ddp_status status = parse(text);
    const char *said = capture_stop();
    ck_assert_msg(status == DDP_ERR_FORMAT, "taken: %s", text);
    one_message(said, "adapter_config.json", refused[_i].says);
}
END_TEST

START_TEST(what_means_nothing_is_taken)
{
    static const char *const rows[] = {
        "\"use_dora\": null",
        "\"modules_to_save\": null",
        "\"layers_to_transform\": null",
        "\"alpha_pattern\": {}",
        "\"target_parameters\": []",
        "\"init_lora_weights\": false",
        "\"init_lora_weights\": \"gaussian\"",
        "\"init_lora_weights\": null",
        "\"bias\": null",
        "\"base_model_name_or_path\": null",
    };
    char text[256];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "{\"target_modules\": [\"q_proj\"], %s}", rows[i]);
        ck_assert_msg(parse(text) == DDP_OK, "refused: %s", text);
    }
}
END_TEST

/* --- --lora ----------------------------------------------------------------------------------- */

START_TEST(specs_are_read)
{
    static const struct {
        const char *text;
        struct ddp_lora lora;
    } rows[] = {
        {"r=16", {.rank = 16, .alpha = 8}},
        {"r=16,alpha=32", {.rank = 16, .alpha = 32}},
        {"rslora", {.rank = 8, .alpha = 8, .rslora = true}},
        {"alpha=0.5,r=4096", {.rank = 4096, .alpha = 0.5}},
        {"targets=q_proj,v_proj", {.rank = 8, .alpha = 8, .targets = Q_V}},
        {"targets=q_proj,v_proj,r=2", {.rank = 2, .alpha = 8, .targets = Q_V}},
        {"targets=v_proj,q_proj,rslora,dropout=0.05",
         {.rank = 8, .alpha = 8, .targets = Q_V, .rslora = true, .dropout = 0.05}},
        {"dropout=0,targets=all-linear", {.rank = 8, .alpha = 8, .targets = ALL}},
        {"targets=q_proj,targets=v_proj", {.rank = 8, .alpha = 8, .targets = Q_V}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddp_lora got = {.rank = 3, .targets = ALL, .dropout = 0.5}, want = rows[i].lora;
        const char *wrong = ddp_lora_read(&got, rows[i].text);
        ck_assert_msg(!wrong, "%s: %s", rows[i].text, wrong);
        ck_assert_msg(got.rank == want.rank && got.alpha == want.alpha &&
                          got.targets == want.targets && got.dropout == want.dropout &&
                          got.rslora == want.rslora,
                      "%s: r=%lld alpha=%g targets=%llx dropout=%g", rows[i].text,
                      (long long)got.rank, got.alpha, (long long)got.targets, got.dropout);
    }
}
END_TEST

START_TEST(wrong_specs_are_refused)
{
    static const char *const rows[] = {
        "",
        "r",
        "r=",
        "r=0",
        "r=-1",
        "r=4097",
        "r=1.5",
        "r=4,",
        ",r=4",
        "r=4,,alpha=8",
        "r =4",
        "R=4",
        "rank=4",
        "alpha=0",
        "alpha=-8",
        "alpha=nan",
        "alpha=inf",
        "alpha=8x",
        "dropout=1",
        "dropout=-0.1",
        "dropout=nan",
        "targets=",
        "targets",
        "targets=lm_head",
        "targets=q_proj,lm_head",
        "targets=self_attn.q_proj",
        "q_proj",
        "targets=q_proj,r=4,v_proj",
        "rslora=1",
        "rslora,v_proj",
    };
    static char longest[400];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddp_lora lora = {.rank = 3, .alpha = 5};
        ck_assert_msg(ddp_lora_read(&lora, rows[i]), "taken: %s", rows[i]);
        ck_assert_msg(lora.rank == 3 && lora.alpha == 5, "changed by %s", rows[i]);
    }
    memset(longest, '1', sizeof longest - 1);
    ck_assert_str_eq(ddp_lora_read(&(struct ddp_lora){0}, longest), "is too long");
}
END_TEST

/* --- directories ------------------------------------------------------------------------------ */

#define A_NAME "model.layers.0.self_attn.q_proj.lora_A.weight"
#define B_NAME "model.layers.0.self_attn.q_proj.lora_B.weight"
#define STEM   "base_model.model."

static float a_memory[2 * 3], b_memory[4 * 2], base_memory[4 * 3];
static const struct ddp_hf_values values[] = {
    {"model.layers.0.self_attn.q_proj.weight",
     2,
     {4, 3},
     DDP_F32,
     base_memory,
     NULL,
     NULL,
     0,
     NULL},
    {A_NAME, 2, {2, 3}, DDP_F32, a_memory, NULL, NULL, 0, NULL},
    {B_NAME, 2, {4, 2}, DDP_F32, b_memory, NULL, NULL, 0, NULL},
};
static const struct ddp_lora small = {
    .rank = 2, .alpha = 2.5, .targets = 1 << DDP_LLAMA_Q, .dropout = 0.25, .rslora = true};

static void fill(void)
{
    for (int i = 0; i < 6; i++)
        a_memory[i] = (float)(i - 2) / 4;
    for (int i = 0; i < 8; i++)
        b_memory[i] = (float)(i + 1) / 8;
}

static void clear(void)
{
    memset(a_memory, 0, sizeof a_memory);
    memset(b_memory, 0, sizeof b_memory);
    memset(base_memory, 0, sizeof base_memory);
}

static enum ddp_status load(void)
{
    clear();
    return ddp_peft_load(scratch_path("a"), values, 3);
}

static const struct ddp_peft_base of = {.linears = ddp_llama_linear_names,
                                        .linear_count = DDP_LLAMA_LINEARS,
                                        .task = "CAUSAL_LM",
                                        .within = ""};

static void save(const char *base)
{
    fill();
    ck_assert_int_eq(ddp_peft_save(scratch_path("a"), &of, &small, base, values, 3), DDP_OK);
}

static void remove_all(void)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'/*", scratch);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(what_is_saved_is_read)
{
    const char *directory = scratch_path("a");
    ck_assert(!ddp_peft_is(directory));
    ck_assert_int_eq(ddp_peft_save_check(directory), DDP_OK);
    save("some/base");
    ck_assert(ddp_peft_is(directory));
    ck_assert_int_eq(ddp_peft_read(&peft, directory, 1, NULL), DDP_OK);
    const struct ddp_lora *got = &peft.lora;
    ck_assert(got->rank == 2 && got->alpha == 2.5 && got->dropout == 0.25 && got->rslora);
    ck_assert_int_eq(got->targets, small.targets);
    ck_assert_str_eq(peft.base, "some/base");
    ddp_peft_free(&peft);
    ck_assert_int_eq(ddp_peft_read(&peft, directory, 0, NULL), DDP_OK);
    ck_assert_str_eq(peft.base, "some/base");
    ck_assert_int_eq(load(), DDP_OK);
    for (int i = 0; i < 6; i++)
        ck_assert(a_memory[i] == (float)(i - 2) / 4);
    for (int i = 0; i < 8; i++)
        ck_assert(b_memory[i] == (float)(i + 1) / 8);
    for (int i = 0; i < 12; i++)
        ck_assert(base_memory[i] == 0);
}
END_TEST

/* Files of the user beside the adapters stay. */
START_TEST(adapters_are_replaced)
{
    save("first");
    FILE *notes = fopen(scratch_path("a/README.md"), "w");
    ck_assert(notes && fputs("mine", notes) >= 0 && fclose(notes) == 0);
    ck_assert_int_eq(ddp_peft_save_check(scratch_path("a")), DDP_OK);
    save(NULL);
    ck_assert_int_eq(access(scratch_path("a/README.md"), F_OK), 0);
    ck_assert_int_eq(ddp_peft_read(&peft, scratch_path("a"), 0, NULL), DDP_OK);
    ck_assert(!peft.base);
    /* A path need not be text. */
    save("\xff\xfe");
    ck_assert_int_eq(ddp_peft_read(&peft, scratch_path("a"), 1, NULL), DDP_OK);
    ck_assert(!peft.base);
}
END_TEST

START_TEST(other_directories_are_not_written)
{
    ck_assert_int_eq(mkdir(scratch_path("a"), 0700), 0);
    ck_assert_int_eq(ddp_peft_save_check(scratch_path("a")), DDP_OK);
    ck_assert_int_eq(mkdir(scratch_path("a/b"), 0700), 0);
    capture_start();
    ck_assert_int_eq(ddp_peft_save_check(scratch_path("a")), DDP_ERR_INVALID);
    one_message(capture_stop(), "/a: ", "something other than adapters");
    capture_start();
    ck_assert_int_eq(ddp_peft_save_check(scratch_path("none/b")), DDP_ERR_IO);
    one_message(capture_stop(), "none/b", "No such file");
}
END_TEST

/* A file with these tensors: those of `small`, and one more if it has a name. */
static void write_tensors(const char *a, const char *b, const char *more, const char *dtype,
                          int64_t rank, const void *a_data, const void *b_data)
{
    const size_t size = strcmp(dtype, "F32") == 0 ? 4 : 2;
    const struct ddp_safetensor tensors[] = {
        {.name = a,
         .dtype = dtype,
         .dim_count = 2,
         .dims = {rank, 3},
         .data = a_data,
         .bytes = (size_t)rank * 3 * size},
        {.name = b,
         .dtype = dtype,
         .dim_count = 2,
         .dims = {4, 2},
         .data = b_data,
         .bytes = 8 * size},
        {.name = more, .dtype = dtype, .dim_count = 1, .dims = {1}, .data = a_data, .bytes = size},
    };
    save(NULL);
    ck_assert_int_eq(ddp_safetensors_write(scratch_path("a/adapter_model.safetensors"), NULL, NULL,
                                           tensors + (a == NULL), 3 - (a == NULL) - (more == NULL),
                                           NULL, 0),
                     DDP_OK);
}

START_TEST(half_precision_is_read)
{
    static const uint16_t halves[] = {0xb800, 0xb400, 0x0000, 0x3400,
                                      0x3800, 0x3a00, 0x3c00, 0x3c80};
    uint16_t narrow[8];
    fill();
    for (int i = 0; i < 6; i++)
        narrow[i] = ddp_bf16_of(a_memory[i]);
    narrow[6] = narrow[7] = 0;
    write_tensors(STEM A_NAME, STEM B_NAME, NULL, "BF16", 2, narrow, narrow);
    ck_assert_int_eq(load(), DDP_OK);
    for (int i = 0; i < 6; i++)
        ck_assert(a_memory[i] == (float)(i - 2) / 4 && b_memory[i] == a_memory[i]);
    write_tensors(STEM A_NAME, STEM B_NAME, NULL, "F16", 2, halves, halves);
    ck_assert_int_eq(load(), DDP_OK);
    ck_assert(a_memory[0] == -0.5f && a_memory[3] == 0.25f && b_memory[7] == 1.125f);
}
END_TEST

static const struct {
    const char *a, *b, *more, *dtype, *says;
    int64_t rank;
} damaged[] = {
    {A_NAME, B_NAME, NULL, "F32", STEM A_NAME " is missing", 2},
    {STEM STEM A_NAME, STEM B_NAME, NULL, "F32", STEM A_NAME " is missing", 2},
    {NULL, STEM B_NAME, NULL, "F32", STEM A_NAME " is missing", 2},
    {STEM A_NAME, STEM "model.layers.1.self_attn.q_proj.lora_B.weight", NULL, "F32",
     STEM B_NAME " is missing", 2},
    {STEM A_NAME, STEM B_NAME, NULL, "F32", STEM A_NAME " does not have the shape (2,3): are these",
     3},
    {STEM A_NAME, STEM B_NAME, NULL, "F32", "shape (2,3)", 1},
    {STEM A_NAME, STEM B_NAME, NULL, "I16", "I16; F32, F16 and BF16", 2},
    {STEM A_NAME, STEM B_NAME, STEM "lm_head.weight", "F32", "lm_head.weight belongs to no adapter",
     2},
    {STEM A_NAME, STEM B_NAME, STEM "model.layers.0.self_attn.q_proj.weight", "F32",
     "q_proj.weight belongs to no adapter", 2},
    {STEM A_NAME, STEM B_NAME, A_NAME, "F32", A_NAME " belongs to no adapter", 2},
    {STEM A_NAME, STEM B_NAME, STEM "model.embed_tokens.lora_embedding_A", "F32",
     "lora_embedding_A belongs to no adapter", 2},
    {STEM A_NAME, STEM B_NAME, STEM "model.layers.1.self_attn.q_proj.lora_A.weight", "F32",
     "layers.1.self_attn.q_proj.lora_A.weight belongs to no adapter", 2},
    {STEM A_NAME, STEM B_NAME, STEM "model.layers.0.self_attn.q_proj.lora_magnitude_vector.weight",
     "F32", "lora_magnitude_vector.weight belongs to no adapter", 2},
};

START_TEST(damaged_files_are_refused)
{
    static const float numbers[12];
    write_tensors(damaged[_i].a, damaged[_i].b, damaged[_i].more, damaged[_i].dtype,
                  damaged[_i].rank, numbers, numbers);
    capture_start();
    ck_assert_int_eq(load(), DDP_ERR_FORMAT);
    one_message(capture_stop(), "a/adapter_model.safetensors", damaged[_i].says);
}
END_TEST

START_TEST(what_is_not_finite_is_refused)
{
    static const float numbers[12] = {0, 0, 0, 0, -INFINITY};
    write_tensors(STEM A_NAME, STEM B_NAME, NULL, "F32", 2, numbers, numbers);
    capture_start();
    ck_assert_int_eq(load(), DDP_ERR_FORMAT);
    one_message(capture_stop(), "a/adapter_model.safetensors", "not finite, at index 4");
}
END_TEST

START_TEST(files_that_are_not_there)
{
    save(NULL);
    ck_assert_int_eq(unlink(scratch_path("a/adapter_model.safetensors")), 0);
    capture_start();
    ck_assert_int_eq(load(), DDP_ERR_IO);
    one_message(capture_stop(), "a/adapter_model.safetensors", "No such file");
    ck_assert_int_eq(unlink(scratch_path("a/adapter_config.json")), 0);
    capture_start();
    ck_assert_int_eq(ddp_peft_read(&peft, scratch_path("a"), 1, NULL), DDP_ERR_IO);
    one_message(capture_stop(), "a/adapter_config.json", "No such file");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("peft");
    TCase *configs = test_case(suite, "adapter_config.json", 60);
    tcase_add_test(configs, absent_keys_have_the_defaults_of_peft);
    tcase_add_test(configs, a_file_of_peft_is_read);
    tcase_add_loop_test(configs, targets_match_as_in_peft, 0, sizeof targets / sizeof targets[0]);
    tcase_add_test(configs, names_of_all_layers_are_all_linear);
    tcase_add_loop_test(configs, what_we_do_not_do_is_refused_by_name, 0,
                        sizeof refused / sizeof refused[0]);
    tcase_add_test(configs, what_means_nothing_is_taken);
    TCase *specs = test_case(suite, "--lora", 60);
    tcase_add_test(specs, specs_are_read);
    tcase_add_test(specs, wrong_specs_are_refused);
    TCase *directories = test_case(suite, "directories", 60);
    tcase_add_unchecked_fixture(directories, scratch_make, scratch_remove);
    tcase_add_checked_fixture(directories, remove_all, remove_all);
    tcase_add_test(directories, what_is_saved_is_read);
    tcase_add_test(directories, adapters_are_replaced);
    tcase_add_test(directories, other_directories_are_not_written);
    tcase_add_test(directories, half_precision_is_read);
    tcase_add_loop_test(directories, damaged_files_are_refused, 0,
                        sizeof damaged / sizeof damaged[0]);
    tcase_add_test(directories, what_is_not_finite_is_refused);
    tcase_add_test(directories, files_that_are_not_there);
    return suite;
}
