/* SPDX-License-Identifier: MIT
 *
 * config.json of models of the Llama kind: what is read from published and made-up ones, what is
 * refused, and what training them needs. Directories with weights are in check_hf_directory.c. */
#include "config.h"

#include "core/json.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "train/info.h"

#include <math.h>

static struct ddp_hf_llama config;

/* A config with some keys changed; a key whose value is "-" is left out. */
static char *text_of(const char *base, const char *changes)
{
    json_error_t error;
    const char *key;
    json_t *value, *root = json_loads(base, 0, &error), *more = json_loads(changes, 0, &error);
    ck_assert_msg(root && more, "%s in %s or %s", error.text, base, changes);
    json_object_foreach(more, key, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), "-") == 0)
            json_object_del(root, key);
        else
            json_object_set(root, key, value);
    }
    char *text = json_dumps(root, 0);
    json_decref(root);
    json_decref(more);
    return text;
}

static enum ddp_status parse(const char *base, const char *changes)
{
    char *text = text_of(base, changes);
    enum ddp_status status = ddp_hf_llama_parse(&config, "config.json", text, strlen(text));
    free(text);
    return status;
}

static void refused(const char *base, const char *changes, const char *key)
{
    capture_start();
    enum ddp_status status = parse(base, changes);
    const char *said = capture_stop();
    ck_assert_msg(status == DDP_ERR_FORMAT, "taken: %s", changes);
    one_message(said, "config.json", key);
}

#define LLAMA                                                                                      \
    "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 48, "                 \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 96}"
#define QWEN3                                                                                      \
    "{\"model_type\": \"qwen3\", \"hidden_size\": 32, \"intermediate_size\": 48, "                 \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"vocab_size\": 96}"
#define SMOLLM3                                                                                    \
    "{\"model_type\": \"smollm3\", \"hidden_size\": 32, \"intermediate_size\": 48, "               \
    "\"num_hidden_layers\": 8, \"num_attention_heads\": 4, \"vocab_size\": 96}"
#define MISTRAL                                                                                    \
    "{\"model_type\": \"mistral\", \"hidden_size\": 64, \"intermediate_size\": 48, "               \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 96}"
#define PHI3                                                                                       \
    "{\"model_type\": \"phi3\", \"hidden_size\": 32, \"intermediate_size\": 48, "                  \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 96}"
#define YARN                                                                                       \
    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "                                  \
    "\"original_max_position_embeddings\": 16"

static const struct {
    const char *name, *text;
    int64_t parameters;
} published[] = {
#define SHAPE(type, c, f, l, h, k, v)                                                              \
    "{\"model_type\": \"" type "\", \"hidden_size\": " #c ", \"intermediate_size\": " #f           \
    ", \"num_hidden_layers\": " #l ", \"num_attention_heads\": " #h                                \
    ", \"num_key_value_heads\": " #k ", \"vocab_size\": " #v
#define TIED   ", \"tie_word_embeddings\": true}"
#define UNTIED ", \"tie_word_embeddings\": false}"
    {"SmolLM2-135M", SHAPE("llama", 576, 1536, 30, 9, 3, 49152) TIED, 134515008},
    {"SmolLM2-360M", SHAPE("llama", 960, 2560, 32, 15, 5, 49152) TIED, 361821120},
    {"Qwen2.5-0.5B", SHAPE("qwen2", 896, 4864, 24, 14, 2, 151936) TIED, 494032768},
    {"Qwen3-0.6B", SHAPE("qwen3", 1024, 3072, 28, 16, 8, 151936) TIED, 596049920},
    {"Llama-3.2-1B", SHAPE("llama", 2048, 8192, 16, 32, 8, 128256) TIED, 1235814400},
    {"Qwen3-1.7B", SHAPE("qwen3", 2048, 6144, 28, 16, 8, 151936) TIED, 1720574976},
    {"SmolLM3-3B", SHAPE("smollm3", 2048, 11008, 36, 16, 4, 128256) "}", 3075098624},
    {"Phi-3-mini", SHAPE("phi3", 3072, 8192, 32, 32, 32, 32064) UNTIED, 3821079552},
    {"Llama-2-7B", SHAPE("llama", 4096, 11008, 32, 32, 32, 32000) UNTIED, 6738415616},
    {"Mistral-7B-v0.3", SHAPE("mistral", 4096, 14336, 32, 32, 8, 32768) UNTIED, 7248023552},
    {"Llama-3.1-8B", SHAPE("llama", 4096, 14336, 32, 32, 8, 128256) UNTIED, 8030261248},
    {"Qwen3-8B", SHAPE("qwen3", 4096, 12288, 36, 32, 8, 151936) UNTIED, 8190735360},
};

START_TEST(published_models_have_their_parameters)
{
    int64_t parameters, adapters;
    ck_assert_int_eq(parse(published[_i].text, "{}"), DDP_OK);
    ck_assert_int_eq(ddp_hf_llama_count(&config, 16, &parameters, &adapters), DDP_OK);
    ck_assert_msg(parameters == published[_i].parameters, "%s: %lld and not %lld",
                  published[_i].name, (long long)parameters, (long long)published[_i].parameters);
}
END_TEST

/* In GiB, for 2048 tokens of activations and 256 of logits. */
START_TEST(published_models_need_their_memory)
{
    static const struct {
        const char *name;
        int64_t adapters;
        double f32, bf16, lora, kept, inputs, block, logits;
    } rows[] = {
        {"Qwen3-0.6B", 10092544, 8.88, 9.99, 1.26, 4.81, 0.22, 0.17, 0.29},
        {"Llama-3.2-1B", 11272192, 18.42, 20.72, 2.47, 4.62, 0.25, 0.29, 0.245},
        {"Llama-3.1-8B", 41943040, 119.66, 134.62, 15.58, 17.0, 1.00, 0.53, 0.245},
    };
    const double gib = 1 << 30;
    struct ddp_train_needs needs;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        if (strcmp(published[i].name, rows[_i].name) == 0)
            ck_assert_int_eq(parse(published[i].text, "{}"), DDP_OK);
    ck_assert_int_eq(ddp_train_needs(&config, &needs), DDP_OK);
    ck_assert_int_eq(needs.adapters, rows[_i].adapters);
    ck_assert_double_eq_tol(needs.full_f32 / gib, rows[_i].f32, 0.0051);
    ck_assert_double_eq_tol(needs.full_bf16 / gib, rows[_i].bf16, 0.0051);
    ck_assert_double_eq_tol(needs.lora / gib, rows[_i].lora, 0.0051);
    ck_assert_double_eq_tol(needs.kept * 2048 / gib, rows[_i].kept, 0.0051);
    ck_assert_double_eq_tol(needs.recomputed * 2048 / gib, rows[_i].inputs, 0.0051);
    ck_assert_double_eq_tol(needs.block * 2048 / gib, rows[_i].block, 0.0051);
    ck_assert_double_eq_tol(needs.logits * 256 / gib, rows[_i].logits, 0.0051);
}
END_TEST

START_TEST(absent_keys_have_the_defaults_of_their_class)
{
    const struct ddp_llama *s = &config.shape;
    ck_assert_int_eq(parse(LLAMA, "{}"), DDP_OK);
    ck_assert(s->kv_heads == 4 && s->head_size == 8 && !s->tied && !s->qkv_bias && !s->qk_norm);
    ck_assert(s->rope.size == 8 && s->rope.kind == DDP_ROPE_DEFAULT && s->context == 2048);
    ck_assert_double_eq(s->rope.theta, 1e4);
    ck_assert_double_eq(s->rope.attention_factor, 1);
    ck_assert_double_eq(s->norm_eps, 1e-6);
    ck_assert_double_eq(config.init_std, 0.02);
    ck_assert(s->window == 0 && s->windowed.count == 0 && s->unrotated.count == 0);
    ck_assert_ptr_null(config.dtype);
    ck_assert_int_eq(parse(QWEN3, "{}"), DDP_OK);
    ck_assert(s->head_size == 128 && s->qk_norm && !s->qkv_bias && s->window == 0);
    ck_assert_int_eq(parse(QWEN3, "{\"model_type\": \"qwen2\"}"), DDP_OK);
    ck_assert(s->head_size == 8 && !s->qk_norm && s->qkv_bias && !s->o_bias);
    ck_assert_int_eq(parse(MISTRAL, "{}"), DDP_OK);
    ck_assert(s->kv_heads == 8 && s->window == 4096 && ddp_llama_has_layer(&s->windowed, 1));
    ck_assert_int_eq(parse(SMOLLM3, "{}"), DDP_OK);
    ck_assert(s->kv_heads == 4 && s->tied && s->window == 0);
    ck_assert_int_eq(s->unrotated.words[0], 0x88);
    ck_assert_double_eq(s->rope.theta, 2e6);
    ck_assert_int_eq(parse(PHI3, "{}"), DDP_OK);
    ck_assert(s->kv_heads == 4 && s->rope.size == 8 && s->window == 0);
    ck_assert_double_eq(s->norm_eps, 1e-5);
    ck_assert_int_eq(parse("{\"model_type\": \"qwen2\"}", "{}"), DDP_OK);
    ck_assert(s->channels == 4096 && s->hidden == 22016 && config.vocabulary == 151936);
}
END_TEST

START_TEST(keys_of_the_shape_are_read)
{
    const struct ddp_llama *s = &config.shape;
    ck_assert_int_eq(parse(LLAMA, "{\"num_key_value_heads\": null, \"head_dim\": null, "
                                  "\"attention_bias\": true, \"mlp_bias\": true, "
                                  "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-3, "
                                  "\"sliding_window\": 5, \"initializer_range\": 0.5, "
                                  "\"hidden_act\": \"swish\", \"attention_dropout\": 0.0, "
                                  "\"quantization_config\": null, \"surely\": [1]}"),
                     DDP_OK);
    ck_assert(s->kv_heads == 4 && s->head_size == 8 && s->qkv_bias && s->o_bias && s->mlp_bias);
    ck_assert(s->tied && s->window == 0);
    ck_assert_double_eq(s->norm_eps, 1e-3);
    ck_assert_double_eq(config.init_std, 0.5);
    ck_assert_int_eq(parse(MISTRAL, "{\"num_key_value_heads\": 2, \"head_dim\": 10, "
                                    "\"sliding_window\": null}"),
                     DDP_OK);
    ck_assert(s->kv_heads == 2 && s->head_size == 10 && s->window == 0);
    ck_assert_int_eq(parse(QWEN3, "{\"use_sliding_window\": true, \"sliding_window\": 7, "
                                  "\"max_window_layers\": 3}"),
                     DDP_OK);
    ck_assert(s->window == 7 && s->windowed.words[0] == 8);
    ck_assert_int_eq(parse(QWEN3,
                           "{\"use_sliding_window\": true, \"sliding_window\": 7, \"layer_types\": "
                           "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
                           "\"full_attention\"]}"),
                     DDP_OK);
    ck_assert(s->window == 7 && s->windowed.words[0] == 5);
    ck_assert_int_eq(parse(QWEN3, "{\"use_sliding_window\": true, \"max_window_layers\": 28}"),
                     DDP_OK);
    ck_assert(s->window == 0);
    ck_assert_int_eq(parse(SMOLLM3, "{\"no_rope_layers\": [1, 0, 1, 1, 1, 1, 1, 0], "
                                    "\"use_sliding_window\": true, \"sliding_window\": 6}"),
                     DDP_OK);
    ck_assert(s->unrotated.words[0] == 0x82 && s->windowed.words[0] == 0x82 && s->window == 6);
    ck_assert_int_eq(parse(PHI3, "{\"sliding_window\": 3}"), DDP_OK);
    ck_assert(s->window == 3 && s->windowed.words[0] == 3);
}
END_TEST

START_TEST(rope_is_read_in_both_forms)
{
    const struct ddp_rope *r = &config.shape.rope;
    ck_assert_int_eq(parse(LLAMA, "{\"rope_theta\": 500000, \"rope_scaling\": {\"type\": "
                                  "\"linear\", \"factor\": 2}}"),
                     DDP_OK);
    ck_assert_int_eq(r->kind, DDP_ROPE_LINEAR);
    ck_assert_double_eq(r->theta, 5e5);
    ck_assert_double_eq(r->factor, 2);
    ck_assert_int_eq(parse(LLAMA, "{\"rope_parameters\": {\"rope_type\": \"llama3\", "
                                  "\"rope_theta\": 5e5, \"factor\": 8, \"low_freq_factor\": 1, "
                                  "\"high_freq_factor\": 4}, \"max_position_embeddings\": 64}"),
                     DDP_OK);
    ck_assert(r->kind == DDP_ROPE_LLAMA3 && r->original == 64);
    ck_assert_double_eq(r->theta, 5e5);
    ck_assert_double_eq(r->high_factor, 4);
    /* rope_scaling wins, as in transformers; theta of the dict wins over the one beside it. */
    ck_assert_int_eq(parse(LLAMA, "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": "
                                  "2, \"rope_theta\": 7}, \"rope_theta\": 9, "
                                  "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 3}}"),
                     DDP_OK);
    ck_assert_double_eq(r->factor, 3);
    ck_assert_double_eq(r->theta, 9);
    ck_assert_int_eq(parse(LLAMA, "{\"rope_parameters\": {\"rope_theta\": 7}, \"rope_theta\": 9, "
                                  "\"rope_scaling\": null}"),
                     DDP_OK);
    ck_assert_double_eq(r->theta, 7);
    ck_assert_int_eq(parse(LLAMA, "{" YARN "}}"), DDP_OK);
    ck_assert(r->kind == DDP_ROPE_YARN && r->original == 16 && !r->untruncated);
    ck_assert_double_eq_tol(r->attention_factor, 0.1 * log(4) + 1, 1e-15);
    ck_assert_double_eq(r->beta_fast, 32);
    ck_assert_int_eq(parse(LLAMA, "{" YARN ", \"mscale\": 1, \"mscale_all_dim\": 0.5, "
                                  "\"truncate\": false}, "
                                  "\"original_max_position_embeddings\": 20}"),
                     DDP_OK);
    ck_assert_double_eq_tol(r->attention_factor, (0.1 * log(4) + 1) / (0.05 * log(4) + 1), 1e-15);
    ck_assert(r->untruncated && r->original == 20);
    ck_assert_int_eq(parse(LLAMA, "{" YARN ", \"attention_factor\": 0.5}}"), DDP_OK);
    ck_assert_double_eq(r->attention_factor, 0.5);
    ck_assert_int_eq(parse(PHI3, "{\"partial_rotary_factor\": 0.5}"), DDP_OK);
    ck_assert_int_eq(r->size, 4);
}
END_TEST

START_TEST(both_keys_of_the_dtype_are_read)
{
    static const char *const rows[][2] = {
        {"{\"dtype\": \"bfloat16\"}", "BF16"},
        {"{\"torch_dtype\": \"float16\"}", "F16"},
        {"{\"torch_dtype\": \"torch.float32\"}", "F32"},
        {"{\"dtype\": \"float32\", \"torch_dtype\": \"float16\"}", "F32"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(parse(LLAMA, rows[i][0]), DDP_OK);
        ck_assert_str_eq(config.dtype, rows[i][1]);
    }
    ck_assert_int_eq(parse(LLAMA, "{\"torch_dtype\": null}"), DDP_OK);
    ck_assert_ptr_null(config.dtype);
}
END_TEST

static const struct {
    const char *base, *changes, *key;
} bad[] = {
    {LLAMA, "{\"model_type\": \"-\"}", "model_type"},
    {LLAMA, "{\"model_type\": 3}", "model_type"},
    {LLAMA, "{\"model_type\": \"gemma2\"}", "\"gemma2\""},
    {LLAMA, "{\"model_type\": \"qwen3_moe\"}", "\"qwen3_moe\""},
    {LLAMA, "{\"num_attention_heads\": 0}", "num_attention_heads"},
    {LLAMA, "{\"num_attention_heads\": -4}", "num_attention_heads"},
    {LLAMA, "{\"num_attention_heads\": \"4\"}", "num_attention_heads"},
    {LLAMA, "{\"num_attention_heads\": 5}", "hidden_size 32"},
    {LLAMA, "{\"num_key_value_heads\": 3}", "num_key_value_heads 3"},
    {LLAMA, "{\"num_key_value_heads\": 8}", "num_key_value_heads 8"},
    {LLAMA, "{\"num_hidden_layers\": 257}", "num_hidden_layers"},
    {LLAMA, "{\"num_hidden_layers\": 2.5}", "num_hidden_layers"},
    {LLAMA, "{\"hidden_size\": 1099511627776}", "hidden_size"},
    {LLAMA, "{\"intermediate_size\": 0}", "intermediate_size"},
    {LLAMA, "{\"vocab_size\": 1099511627776}", "vocab_size"},
    {LLAMA, "{\"vocab_size\": null}", "vocab_size"},
    {LLAMA, "{\"max_position_embeddings\": 0}", "max_position_embeddings"},
    {LLAMA, "{\"head_dim\": 7}", "head_dim"},
    {LLAMA, "{\"head_dim\": 1048576}", "head_dim"},
    {LLAMA, "{\"rms_norm_eps\": 0}", "rms_norm_eps"},
    {LLAMA, "{\"rms_norm_eps\": \"x\"}", "rms_norm_eps"},
    {LLAMA, "{\"initializer_range\": -1}", "initializer_range"},
    {LLAMA, "{\"tie_word_embeddings\": 1}", "tie_word_embeddings"},
    {LLAMA, "{\"attention_bias\": \"no\"}", "attention_bias"},
    {LLAMA, "{\"mlp_bias\": null}", "mlp_bias"},
    {LLAMA, "{\"attention_dropout\": 0.1}", "attention_dropout"},
    {LLAMA, "{\"attention_dropout\": \"x\"}", "attention_dropout"},
    {PHI3, "{\"resid_pdrop\": 0.1}", "resid_pdrop"},
    {LLAMA, "{\"hidden_act\": \"gelu\"}", "hidden_act"},
    {LLAMA, "{\"hidden_act\": 2}", "hidden_act"},
    {LLAMA, "{\"quantization_config\": {\"bits\": 4}}", "quantization_config"},
    {LLAMA, "{\"dtype\": \"float64\"}", "dtype"},
    {LLAMA, "{\"torch_dtype\": 16}", "torch_dtype"},
    {LLAMA, "{\"rope_theta\": 0}", "rope_theta"},
    {LLAMA, "{\"rope_theta\": 1}", "rope_theta"},
    {LLAMA, "{\"rope_theta\": \"1e4\"}", "rope_theta"},
    {LLAMA, "{\"rope_scaling\": 2}", "rope_scaling"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}", "\"dynamic\""},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"longrope\"}}", "\"longrope\""},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"ntk\"}}", "\"ntk\""},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": 1}}", "rope_type"},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"linear\"}}", "rope_scaling.factor"},
    {LLAMA, "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 0}}",
     "rope_parameters.factor"},
    {LLAMA, "{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}}",
     "rope_parameters.full_attention"},
    {LLAMA,
     "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
     "\"high_freq_factor\": 4}}",
     "high_freq_factor"},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}", "low_freq_factor"},
    {LLAMA, "{" YARN ", \"beta_fast\": \"x\"}}", "rope_scaling.beta_fast"},
    {LLAMA, "{" YARN ", \"truncate\": 1}}", "rope_scaling.truncate"},
    {LLAMA, "{" YARN "}, \"original_max_position_embeddings\": -1}",
     "original_max_position_embeddings"},
    {LLAMA, "{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
    {LLAMA, "{\"layer_types\": [\"full_attention\"]}", "layer_types"},
    {LLAMA, "{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}", "layer_types"},
    {QWEN3,
     "{\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
     "\"sliding_attention\"]}",
     "use_sliding_window"},
    {QWEN3,
     "{\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
     "\"linear_attention\"]}",
     "linear_attention"},
    {QWEN3, "{\"max_window_layers\": -1}", "max_window_layers"},
    {QWEN3, "{\"use_sliding_window\": 1}", "use_sliding_window"},
    {QWEN3, "{\"head_dim\": 1}", "head_dim"},
    {MISTRAL, "{\"sliding_window\": 0}", "sliding_window"},
    {MISTRAL, "{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}", "layer_types"},
    {SMOLLM3, "{\"no_rope_layers\": [1, 0]}", "no_rope_layers"},
    {SMOLLM3, "{\"no_rope_layers\": [1, 0, 1, 1, 1, 1, 1, 2]}", "no_rope_layers"},
    {SMOLLM3, "{\"no_rope_layer_interval\": 0}", "no_rope_layer_interval"},
    {PHI3, "{\"rope_scaling\": {\"type\": \"su\"}}", "longrope"},
    {PHI3, "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2}}", "longrope"},
    {PHI3, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}", "\"linear\""},
    {PHI3, "{\"partial_rotary_factor\": 0.4}", "partial_rotary_factor"},
    {PHI3, "{\"partial_rotary_factor\": 1.005}", "partial_rotary_factor"},
};

START_TEST(wrong_values_are_refused_with_their_key)
{
    refused(bad[_i].base, bad[_i].changes, bad[_i].key);
}
END_TEST

/* --- the config of an export ------------------------------------------------------------------ */

static char *exported(const char *source, const char *dtype)
{
    char *text = NULL;
    ck_assert_int_eq(ddp_hf_llama_parse(&config, "source", source, strlen(source)), DDP_OK);
    ck_assert_int_eq(
        ddp_hf_llama_config_text(&text, &config, "source", source, strlen(source), dtype), DDP_OK);
    return text;
}

START_TEST(only_keys_that_change_change)
{
    static const char source[] =
        "{\n  \"my key\" : [1e-5, {\"a\":\"}\\\",\"}],\n  \"architectures\": "
        "[\"LlamaForCausalLM\"],"
        "\n  \"model_type\": \"llama\",\n  \"rope_theta\":500000.0,\n  \"rope_scaling\":  "
        "{\"type\":"
        " \"linear\", \"factor\": 2.0},\n  \"torch_dtype\" :\t\"bfloat16\" ,\n  \"big\": "
        "1234567890123456789,\n  \"last\": 0.10\n}\n";
    static const char wanted[] =
        "{\n  \"my key\" : [1e-5, {\"a\":\"}\\\",\"}],\n  \"architectures\": "
        "[\"LlamaForCausalLM\"],"
        "\n  \"model_type\": \"llama\",\n  \"rope_theta\":500000.0,\n  \"rope_scaling\":  "
        "{\"type\":"
        " \"linear\", \"factor\": 2.0},\n  \"torch_dtype\" :\t\"float32\" ,\n  \"big\": "
        "1234567890123456789,\n  \"last\": 0.10,\n  \"dtype\": \"float32\",\n  "
        "\"rope_parameters\": "
        "{\"type\": \"linear\", \"factor\": 2.0, \"rope_theta\": 500000.0, \"rope_type\": "
        "\"linear\"}\n}\n";
    char *once = exported(source, "F32");
    ck_assert_str_eq(once, wanted);
    char *twice = exported(once, "F32");
    ck_assert_str_eq(twice, once);
    free(once);
    free(twice);
}
END_TEST

START_TEST(an_export_says_positions_in_both_forms)
{
    char *text = exported("{\"model_type\":\"phi3\",\"rope_parameters\":{\"rope_theta\":20000,"
                          "\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}}",
                          "BF16");
    ck_assert_str_eq(text, "{\"model_type\":\"phi3\",\"rope_parameters\":{\"rope_theta\":20000,"
                           "\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}, "
                           "\"architectures\": [\"Phi3ForCausalLM\"], \"dtype\": \"bfloat16\", "
                           "\"torch_dtype\": \"bfloat16\", \"rope_theta\": 20000, "
                           "\"rope_scaling\": null, \"partial_rotary_factor\": 0.5}");
    free(text);
    text = exported("{\"model_type\":\"llama\",\"architectures\":[\"LlamaModel\"],"
                    "\"rope_parameters\":{\"rope_theta\":7,\"rope_type\":\"linear\",\"factor\":2}}",
                    "BF16");
    ck_assert_ptr_nonnull(strstr(text, "[\"LlamaForCausalLM\"]"));
    ck_assert_ptr_nonnull(
        strstr(text, "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}"));
    free(text);
}
END_TEST

/* A config that is made is read as what it was made from. */
START_TEST(a_new_config_says_the_same)
{
    static const char *const rows[][2] = {
        {LLAMA, "{\"attention_bias\": true, \"mlp_bias\": true, \"rope_theta\": 1234.5}"},
        {LLAMA, "{" YARN ", \"truncate\": false, \"beta_slow\": 2}, \"head_dim\": 6}"},
        {LLAMA, "{\"tie_word_embeddings\": true, \"rope_scaling\": {\"rope_type\": \"llama3\", "
                "\"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4}}"},
        {QWEN3, "{\"use_sliding_window\": true, \"max_window_layers\": 2}"},
        {QWEN3, "{\"model_type\": \"qwen2\"}"},
        {MISTRAL, "{}"},
        {MISTRAL, "{\"sliding_window\": null, \"num_key_value_heads\": 2}"},
        {SMOLLM3, "{\"use_sliding_window\": true, \"sliding_window\": 9}"},
        {PHI3, "{\"partial_rotary_factor\": 0.75, \"hidden_size\": 32, \"sliding_window\": 9}"},
        {PHI3, "{}"},
    };
    char *text = NULL;
    ck_assert_int_eq(parse(rows[_i][0], rows[_i][1]), DDP_OK);
    const struct ddp_hf_llama first = config;
    ck_assert_int_eq(ddp_hf_llama_config_text(&text, &first, NULL, NULL, 0, "F32"), DDP_OK);
    ck_assert_int_eq(ddp_hf_llama_parse(&config, "made", text, strlen(text)), DDP_OK);
    ck_assert_str_eq(config.dtype, "F32");
    config.dtype = first.dtype;
    ck_assert_mem_eq(&config.shape.windowed, &first.shape.windowed, sizeof first.shape.windowed);
    ck_assert_mem_eq(&config.shape.unrotated, &first.shape.unrotated, sizeof first.shape.unrotated);
    ck_assert_int_eq(config.vocabulary, first.vocabulary);
    ck_assert_int_eq(config.shape.rope.size, first.shape.rope.size);
    free(text);
}
END_TEST

START_TEST(a_shape_that_a_family_cannot_have_is_not_written)
{
    char *text = NULL;
    ck_assert_int_eq(parse(MISTRAL, "{}"), DDP_OK);
    config.shape.qkv_bias = true;
    capture_start();
    enum ddp_status status = ddp_hf_llama_config_text(&text, &config, NULL, NULL, 0, "F32");
    one_message(capture_stop(), "mistral", "cannot have the model's shape");
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    ck_assert_int_eq(parse(LLAMA, "{}"), DDP_OK);
    config.shape.rope.theta = 3;
    capture_start();
    status = ddp_hf_llama_config_text(&text, &config, "there", LLAMA, sizeof LLAMA - 1, "F32");
    one_message(capture_stop(), "there", "another model");
    ck_assert_int_eq(status, DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("hf_llama");
    TCase *tc = test_case(suite, "config", 30);
    tcase_add_loop_test(tc, published_models_have_their_parameters, 0,
                        sizeof published / sizeof published[0]);
    tcase_add_loop_test(tc, published_models_need_their_memory, 0, 3);
    tcase_add_test(tc, absent_keys_have_the_defaults_of_their_class);
    tcase_add_test(tc, keys_of_the_shape_are_read);
    tcase_add_test(tc, rope_is_read_in_both_forms);
    tcase_add_test(tc, both_keys_of_the_dtype_are_read);
    tcase_add_loop_test(tc, wrong_values_are_refused_with_their_key, 0, sizeof bad / sizeof bad[0]);
    tcase_add_test(tc, only_keys_that_change_change);
    tcase_add_test(tc, an_export_says_positions_in_both_forms);
    tcase_add_loop_test(tc, a_new_config_says_the_same, 0, 10);
    tcase_add_test(tc, a_shape_that_a_family_cannot_have_is_not_written);
    return suite;
}
