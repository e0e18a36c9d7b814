/* SPDX-License-Identifier: MIT
 *
 * Directories with weights of the Llama kind: what is written reads back, in each dtype, whole and
 * in shards; what is wrong is refused; what a directory has beside weights is kept. */
#include "config.h"

#include "core/bf16.h"
#include "core/json.h"
#include "core/staged_directory.h"
#include "tests/weights/hf_formula.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "weights/safetensors_index.h"

#include <math.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define FILE_MODEL "a/model.safetensors"
#define FILE_INDEX "a/model.safetensors.index.json"

static const char *const families[] = {
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":20,\"attention_bias\":true,"
    "\"mlp_bias\":true}",
    "{\"model_type\":\"qwen3\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":20,\"head_dim\":4,"
    "\"tie_word_embeddings\":true}",
    "{\"model_type\":\"phi3\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":20}",
    "{\"model_type\":\"qwen2\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":1,\"vocab_size\":8200,"
    "\"tie_word_embeddings\":true}", /* an embedding of two pieces of 65536 values */
};
enum { LLAMA, QWEN3, PHI3, QWEN2 };

static struct ddp_hf_llama config;
static struct formula made, got;

static void remove_all(void)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'/*", scratch);
    ck_assert_int_eq(system(command), 0);
}

static void begin(int family)
{
    ck_assert_int_eq(
        ddp_hf_llama_parse(&config, "config", families[family], strlen(families[family])), DDP_OK);
    formula_make(&made, &config, DDP_F32, true);
    formula_make(&got, &config, DDP_F32, false);
}

static void end(void)
{
    formula_free(&made);
    formula_free(&got);
}

static enum ddp_status export_to(const char *name, const char *source, enum ddp_dtype dtype,
                                 uint64_t shard)
{
    const struct ddp_hf_export to = {.directory = scratch_path(name),
                                     .source = source ? scratch_path(source) : NULL,
                                     .dtype = dtype,
                                     .shard_bytes = shard};
    return ddp_hf_llama_export(&to, &config, made.values, made.count);
}

static enum ddp_status load(const char *name)
{
    return ddp_hf_llama_load(scratch_path(name), &config, got.values, got.count);
}

static bool is_bf16(const char *name)
{
    struct ddp_hf_llama_files files;
    ck_assert_int_eq(ddp_hf_llama_check(scratch_path(name), &config, &files), DDP_OK);
    return strcmp(files.dtype, "BF16") == 0;
}

/* --- kills: before the call of that number that changes a directory --------------------------- */

static int calls_left;

static void count_call(void)
{
    if (calls_left > 0 && --calls_left == 0)
        kill(getpid(), SIGKILL);
}

int renameat(int from, const char *old, int to, const char *new)
{
    count_call();
    return (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int unlinkat(int directory, const char *name, int flags)
{
    count_call();
    return (int)syscall(SYS_unlinkat, directory, name, flags);
}

int mkdirat(int directory, const char *name, mode_t mode)
{
    count_call();
    return (int)syscall(SYS_mkdirat, directory, name, mode);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    count_call();
    return (int)syscall(SYS_linkat, from, old, to, new, flags);
}

/* Loading says one line with these two. */
static void load_fails(const char *this, const char *that)
{
    capture_start();
    enum ddp_status status = load("a");
    one_message(capture_stop(), this, that);
    ck_assert_int_lt(status, DDP_OK);
}

static void ck_same(enum ddp_dtype dtype)
{
    for (size_t v = 0; v < made.count; v++) {
        const float *a = made.values[v].memory, *b = got.values[v].memory;
        const int64_t count = made.values[v].dims[0] * made.values[v].dims[1];
        for (int64_t i = 0; i < count; i++) {
            const float wanted = dtype == DDP_F32 ? a[i] : ddp_bf16_to_f32(ddp_bf16_of(a[i]));
            ck_assert_msg(!(wanted < b[i]) && !(wanted > b[i]), "%s[%d]: %g is %g",
                          made.values[v].name, (int)i, (double)wanted, (double)b[i]);
        }
    }
}

/* Replaces tensors of FILE_MODEL; a NULL dtype leaves one out. */
static void rewrite(const struct ddp_safetensor *changes, size_t count, const char *unprefixed)
{
    struct ddp_safetensor tensors[64];
    ddp_safetensors *file;
    size_t used = 0;
    ck_assert_int_eq(ddp_safetensors_open(&file, scratch_path(FILE_MODEL)), DDP_OK);
    for (size_t i = 0; i < ddp_safetensors_count(file) + count; i++) {
        const bool old = i < ddp_safetensors_count(file);
        const struct ddp_safetensor *tensor =
            old ? ddp_safetensors_at(file, i) : &changes[i - ddp_safetensors_count(file)];
        bool changed = !old && !tensor->dtype;
        for (size_t c = 0; old && c < count; c++)
            changed = changed || strcmp(changes[c].name, tensor->name) == 0;
        if (changed)
            continue;
        tensors[used] = *tensor;
        if (unprefixed && strncmp(tensor->name, unprefixed, strlen(unprefixed)) == 0)
            tensors[used].name += strlen(unprefixed);
        used++;
    }
    const char *path = scratch_path(FILE_MODEL);
    ck_assert_int_eq(ddp_safetensors_write(path, NULL, NULL, tensors, used, NULL, 0), DDP_OK);
    ddp_safetensors_close(file);
}

START_TEST(what_is_written_reads_back)
{
    static const struct {
        enum ddp_dtype dtype;
        uint64_t shard;
    } rows[] = {{DDP_F32, 0}, {DDP_BF16, 0}, {DDP_F32, 1000}, {DDP_BF16, 1}, {DDP_F32, 1 << 30}};
    struct ddp_hf_llama_files files;
    struct ddp_hf_llama again;
    begin(_i % 4);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ck_assert_int_eq(export_to("a", r > 0 ? "a" : NULL, rows[r].dtype, rows[r].shard), DDP_OK);
        ck_assert_int_eq(load("a"), DDP_OK);
        ck_same(rows[r].dtype);
        ck_assert_int_eq(ddp_hf_llama_read(&again, scratch_path("a")), DDP_OK);
        ck_assert_str_eq(again.dtype, rows[r].dtype == DDP_F32 ? "F32" : "BF16");
        ck_assert_int_eq(ddp_hf_llama_check(scratch_path("a"), &config, &files), DDP_OK);
        ck_assert_str_eq(files.dtype, again.dtype);
        ck_assert((files.count == 1) == (rows[r].shard == 0 || rows[r].shard == 1 << 30));
        if (rows[r].shard == 1)
            ck_assert_uint_eq(files.count, made.tensor_count);
        ck_assert((access(scratch_path(FILE_MODEL), F_OK) == 0) == (files.count == 1));
        ck_assert((access(scratch_path(FILE_INDEX), F_OK) == 0) == (files.count > 1));
    }
    ck_assert_int_eq(scratch_entries(false), 1);
    end();
}
END_TEST

START_TEST(weights_are_read_and_written_as_bf16)
{
    begin(PHI3);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    formula_free(&got);
    formula_make(&got, &config, DDP_BF16, false);
    ck_assert_int_eq(load("a"), DDP_OK);
    for (size_t v = 0; v < made.count; v++)
        for (int64_t i = 0; i < made.values[v].dims[0] * made.values[v].dims[1]; i++)
            ck_assert_int_eq(((uint16_t *)got.values[v].memory)[i],
                             ddp_bf16_of(((float *)made.values[v].memory)[i]));
    /* ... and those bf16 ones are written in float32. */
    const struct formula kept = made;
    made = got;
    ck_assert_int_eq(export_to("b", NULL, DDP_F32, 0), DDP_OK);
    made = kept;
    formula_free(&got);
    formula_make(&got, &config, DDP_F32, false);
    ck_assert_int_eq(load("b"), DDP_OK);
    ck_same(DDP_BF16);
    end();
}
END_TEST

START_TEST(phi3_is_fused_in_files)
{
    ddp_safetensors *file;
    begin(PHI3);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    ck_assert_int_eq(ddp_safetensors_open(&file, scratch_path(FILE_MODEL)), DDP_OK);
    const struct ddp_safetensor *qkv =
        ddp_safetensors_find(file, "model.layers.1.self_attn.qkv_proj.weight");
    ck_assert(qkv && qkv->dims[0] == 16 && qkv->dims[1] == 8);
    ck_assert_ptr_null(ddp_safetensors_find(file, "model.layers.1.self_attn.q_proj.weight"));
    for (size_t v = 0; v < made.count; v++) {
        const float *values = made.values[v].memory;
        const struct {
            const char *name;
            size_t row;
        } rows[] = {{"q_proj", 0}, {"k_proj", 8}, {"v_proj", 12}};
        for (int r = 0; r < 3; r++)
            if (strstr(made.values[v].name, "layers.1.") &&
                strstr(made.values[v].name, rows[r].name))
                ck_assert_mem_eq((const float *)qkv->data + rows[r].row * 8, values, 32 * 4);
    }
    ddp_safetensors_close(file);
    end();
}
END_TEST

START_TEST(the_index_says_where_and_how_much)
{
    size_t bytes;
    json_error_t error;
    begin(QWEN3);
    ck_assert_int_eq(export_to("a", NULL, DDP_BF16, 600), DDP_OK);
    json_t *root = json_loads(scratch_read(FILE_INDEX, &bytes), JSON_DISABLE_EOF_CHECK, &error);
    const json_t *metadata = json_object_get(root, "metadata");
    int64_t parameters, adapters;
    ck_assert_int_eq(ddp_hf_llama_count(&config, 1, &parameters, &adapters), DDP_OK);
    ck_assert_int_eq(json_integer_value(json_object_get(metadata, "total_size")), 2 * parameters);
    ck_assert_int_eq(json_integer_value(json_object_get(metadata, "total_parameters")), parameters);
    ck_assert_uint_eq(json_object_size(json_object_get(root, "weight_map")), made.tensor_count);
    const char *first = json_string_value(
        json_object_get(json_object_get(root, "weight_map"), "model.embed_tokens.weight"));
    ck_assert_int_eq(strncmp(first, "model-00001-of-000", 18), 0);
    json_decref(root);
    end();
}
END_TEST

START_TEST(files_of_others_are_understood)
{
    static float other[8200 * 8];
    float ones[4] = {1, 1, 1, 1};
    uint16_t half[64];
    for (int i = 0; i < 64; i++)
        half[i] = 0x3e00; /* 1.5 */
    begin(QWEN2);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    /* Names without the prefix, frequencies, a head that is the embedding. */
    const struct ddp_safetensor more[] = {
        {"lm_head.weight", "F32", 2, {8200, 8}, made.values[0].memory, sizeof other},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 1, {4}, ones, 16},
    };
    rewrite(more, 2, "model.");
    ck_assert_int_eq(load("a"), DDP_OK);
    ck_same(DDP_F32);
    /* float16 */
    const struct ddp_safetensor norm = {"norm.weight", "F16", 1, {8}, half, 16};
    rewrite(&norm, 1, NULL);
    ck_assert_int_eq(load("a"), DDP_OK);
    ck_assert_double_eq((double)*(float *)got.values[got.count - 1].memory, 1.5);
    /* A head that differs. */
    memcpy(other, made.values[0].memory, sizeof other);
    other[8200 * 8 - 1] += 1;
    const struct ddp_safetensor head = {"lm_head.weight", "F32", 2, {8200, 8}, other, sizeof other};
    rewrite(&head, 1, NULL);
    load_fails("lm_head.weight", "tie_word_embeddings");
    end();
}
END_TEST

START_TEST(wrong_tensors_are_refused)
{
    static const float zeros[400];
    static const float nans[8] = {0, 0, 0, 0, 0, 0, NAN, 0};
    static const struct {
        struct ddp_safetensor change;
        const char *says;
    } rows[] = {
        {{.name = "lm_head.weight"}, "without a head"},
        {{.name = "model.norm.weight"}, "model.norm.weight is missing"},
        {{.name = "model.embed_tokens.weight"}, "model.embed_tokens.weight is missing"},
        {{.name = "model.layers.1.mlp.up_proj.bias"}, "up_proj.bias is missing"},
        {{"model.embed_tokens.weight", "F32", 2, {24, 8}, zeros, 768}, "(24,8), by config.json"},
        {{"model.embed_tokens.weight", "F32", 1, {160}, zeros, 640}, "(160), by config.json"},
        {{"model.norm.weight", "I32", 1, {8}, zeros, 32}, "model.norm.weight is I32"},
        {{"model.norm.weight", "F32", 1, {8}, nans, 32}, "not finite, at index 6"},
        {{"model.layers.2.mlp.up_proj.bias", "F32", 1, {12}, zeros, 48},
         "no parameter for tensor model.layers.2.mlp.up_proj.bias"},
    };
    begin(LLAMA);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    rewrite(&rows[_i].change, 1, NULL);
    load_fails("model.safetensors", rows[_i].says);
    end();
}
END_TEST

START_TEST(damaged_directories_are_refused)
{
    char name[PATH_MAX];
    begin(LLAMA);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 2000), DDP_OK);
    const char *shard = scratch_path("a/model-00002-of-00003.safetensors");
    snprintf(name, sizeof name, "%s", shard);
    ck_assert_msg(access(name, F_OK) == 0, "another number of shards");
    ck_assert_int_eq(truncate(name, 1000), 0);
    load_fails("model-00002-of-00003.safetensors", "truncated");
    ck_assert_int_eq(truncate(name, 4), 0);
    load_fails("model-00002-of-00003.safetensors", "not a safetensors file");
    ck_assert_int_eq(truncate(name, 0), 0);
    load_fails("model-00002-of-00003.safetensors", "it is empty");
    ck_assert_int_eq(unlink(name), 0);
    load_fails("model-00002-of-00003.safetensors", "cannot open");
    scratch_write(FILE_INDEX, "{\"weight_map\": {}}", 18);
    load_fails(FILE_INDEX, "weight_map");
    ck_assert_int_eq(unlink(scratch_path(FILE_INDEX)), 0);
    load_fails("no weights", "model.safetensors.index.json");
    scratch_write("a/pytorch_model.bin", "x", 1);
    load_fails("pytorch_model.bin", "safe_serialization");
    end();
}
END_TEST

/* A file that is whole wins over shards, as in transformers. */
START_TEST(the_whole_file_wins)
{
    begin(QWEN2);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    scratch_write(FILE_INDEX, "broken", 6);
    ck_assert_int_eq(load("a"), DDP_OK);
    ck_same(DDP_F32);
    end();
}
END_TEST

/* A stage of a pipeline has some parameters; a name that the files do not have is an error. */
START_TEST(a_table_may_have_some_parameters)
{
    begin(PHI3);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    ck_assert_int_eq(ddp_hf_llama_load(scratch_path("a"), &config, got.values + 3, 2), DDP_OK);
    ck_assert_mem_eq(got.values[3].memory, made.values[3].memory, 32 * 4);
    got.values[2].name = "lora";
    load_fails("nothing in it is for parameter lora", "a/");
    capture_start();
    made.values[2].name = "lora";
    ck_assert_int_eq(export_to("b", NULL, DDP_F32, 0), DDP_ERR_INVALID);
    one_message(capture_stop(), "/b", "q_proj.weight");
    ck_assert_int_eq(scratch_entries(false), 1);
    end();
}
END_TEST

/* Files beside the weights: copied, kept, removed. */
START_TEST(other_files_are_copied_and_kept)
{
    size_t bytes;
    begin(LLAMA);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    scratch_write("a/tokenizer.json", "{\"a\": \0x}", 9);
    scratch_write("a/adapter_config.json", "{}", 2);
    scratch_write("a/pytorch_model.bin", "old", 3);
    ck_assert_int_eq(mkdir(scratch_path("a/original"), 0777), 0);
    scratch_write("a/original/params.json", "p", 1);
    ck_assert_int_eq(export_to("b", "a", DDP_F32, 0), DDP_OK);
    ck_assert_mem_eq(scratch_read("b/tokenizer.json", &bytes), "{\"a\": \0x}", 9);
    ck_assert_uint_eq(bytes, 9);
    ck_assert_int_ne(access(scratch_path("b/original"), F_OK), 0);
    ck_assert_int_ne(access(scratch_path("b/adapter_config.json"), F_OK), 0);
    ck_assert_int_ne(access(scratch_path("b/pytorch_model.bin"), F_OK), 0);
    /* Again into b, which has files of its own. */
    scratch_write("b/README.md", "mine", 4);
    scratch_write("b/model-00001-of-00002.safetensors", "stale", 5);
    ck_assert_int_eq(export_to("b", "a", DDP_BF16, 0), DDP_OK);
    ck_assert_mem_eq(scratch_read("b/README.md", &bytes), "mine", 4);
    ck_assert_int_ne(access(scratch_path("b/model-00001-of-00002.safetensors"), F_OK), 0);
    /* Onto the source itself. */
    ck_assert_int_eq(export_to("a", "a", DDP_F32, 700), DDP_OK);
    ck_assert_int_eq(load("a"), DDP_OK);
    ck_same(DDP_F32);
    ck_assert_mem_eq(scratch_read("a/original/params.json", &bytes), "p", 1);
    ck_assert_mem_eq(scratch_read("a/tokenizer.json", &bytes), "{\"a\": \0x}", 9);
    ck_assert_int_ne(access(scratch_path(FILE_MODEL), F_OK), 0);
    ck_assert_int_eq(scratch_entries(false), 2);
    end();
}
END_TEST

START_TEST(a_directory_that_is_no_model_is_not_replaced)
{
    size_t bytes;
    begin(LLAMA);
    ck_assert_int_eq(mkdir(scratch_path("a"), 0750), 0);
    scratch_write("a/thesis.tex", "t", 1);
    capture_start();
    enum ddp_status status = export_to("a", NULL, DDP_F32, 0);
    one_message(capture_stop(), "/a: ", "no config.json");
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    ck_assert_mem_eq(scratch_read("a/thesis.tex", &bytes), "t", 1);
    ck_assert_int_eq(unlink(scratch_path("a/thesis.tex")), 0);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    struct stat info;
    ck_assert_int_eq(stat(scratch_path("a"), &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0750);
    scratch_write("f", "x", 1);
    capture_start();
    status = export_to("f", NULL, DDP_F32, 0);
    one_message(capture_stop(), "/f: ", "not a directory");
    capture_start();
    status = export_to("none/a", NULL, DDP_F32, 0);
    one_message(capture_stop(), "none/a", "No such file");
    ck_assert_int_eq(status, DDP_ERR_IO);
    ck_assert_int_eq(scratch_entries(false), 2);
    end();
}
END_TEST

/* What is there under names that only look like ours is the user's. */
START_TEST(names_like_ours_are_the_users)
{
    begin(LLAMA);
    ck_assert_int_eq(mkdir(scratch_path("a.20260101.tmp"), 0777), 0);
    scratch_write("a.20260101.tmp/model.safetensors", "x", 1);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    ck_assert_int_eq(access(scratch_path("a.20260101.tmp/model.safetensors"), F_OK), 0);
    ck_assert_int_eq(mkdir(scratch_path("a/.ddprun-export"), 0777), 0);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK); /* empty: not even a mark */
    ck_assert_int_eq(mkdir(scratch_path("a/.ddprun-export"), 0777), 0);
    scratch_write("a/.ddprun-export/mine", "x", 1);
    capture_start();
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_ERR_IO);
    one_message(capture_stop(), "a/.ddprun-export: ", "not ddprun's");
    ck_assert_int_eq(rename(scratch_path("a/.ddprun-export"), scratch_path("a/x")), 0);
    ck_assert_int_eq(mkdir(scratch_path("a/.ddprun-export-complete"), 0777), 0);
    scratch_write("a/.ddprun-export-complete/config.json", "x", 1);
    capture_start();
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_ERR_IO);
    one_message(capture_stop(), "a/.ddprun-export-complete: ", "not ddprun's");
    ck_assert_int_eq(load("a"), DDP_OK);
    end();
}
END_TEST

/* Another writer, of whatever machine or PID namespace, has the lock. */
START_TEST(two_writers_do_not_meet)
{
    ddp_staged_directory *other;
    begin(LLAMA);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    ck_assert_int_eq(ddp_staged_directory_open(&other, scratch_path("a"), 0), DDP_OK);
    const struct ddp_hf_export to = {.directory = scratch_path("a")};
    capture_start();
    ck_assert_int_eq(ddp_hf_llama_export_check(&to), DDP_ERR_IO);
    one_message(capture_stop(), "/a: ", "another trainer");
    ddp_staged_directory_close(other);
    ck_assert_int_eq(ddp_hf_llama_export_check(&to), DDP_OK);
    ck_assert_int_eq(scratch_entries(false), 1);
    ck_assert_int_eq(load("a"), DDP_OK);
    end();
}
END_TEST

/* Killed before any change of the directory, an export leaves the old model or the new one, at the
 * latest when somebody looks. Without shards, before each change; else before every second. */
START_TEST(kills_leave_one_model)
{
    const uint64_t from = _i & 1 ? 700 : 0, to = _i & 2 ? 700 : 0; /* bytes of a shard */
    size_t bytes;
    int completed = 0;
    begin(QWEN2);
    for (int calls = 1 + _i % 2, ended = 0; !ended; calls += _i ? 2 : 1) {
        remove_all();
        ck_assert_int_eq(export_to("a", NULL, DDP_F32, from), DDP_OK);
        scratch_write("a/mine.txt", "m", 1);
        capture_start();
        const pid_t child = fork();
        if (child == 0) {
            calls_left = calls;
            _exit(export_to("a", NULL, DDP_BF16, to) == DDP_OK ? 0 : 1);
        }
        waitpid(child, &ended, 0);
        ended = WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
        if (load("a") == DDP_OK) /* a reader in between finds one model or none */
            ck_same(is_bf16("a") ? DDP_BF16 : DDP_F32);
        const pid_t second = fork(); /* which is killed too while it cleans up */
        if (second == 0) {
            calls_left = 1 + calls % 5;
            ddp_staged_directory_recover(scratch_path("a"));
            _exit(export_to("a", NULL, DDP_F32, from) == DDP_OK ? 0 : 1);
        }
        waitpid(second, NULL, 0);
        ddp_staged_directory_recover(scratch_path("a"));
        completed += strstr(capture_stop(), "completing") != NULL;
        ck_assert_int_eq(load("a"), DDP_OK);
        ck_same(is_bf16("a") ? DDP_BF16 : DDP_F32);
        ck_assert_mem_eq(scratch_read("a/mine.txt", &bytes), "m", 1);
        ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
        ck_assert_int_ne(access(scratch_path("a/.ddprun-export"), F_OK), 0);
        ck_assert_int_ne(access(scratch_path("a/.ddprun-export-complete"), F_OK), 0);
        ck_assert_int_ne(access(scratch_path(FILE_INDEX), F_OK), 0);
        ck_assert_int_eq(scratch_entries(false), 1);
    }
    ck_assert_int_gt(completed, _i ? 2 : 5);
    end();
}
END_TEST

START_TEST(a_link_to_a_directory_stays_a_link)
{
    struct stat info;
    begin(LLAMA);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    ck_assert_int_eq(symlink("a", scratch_path("l")), 0);
    ck_assert_int_eq(symlink("/etc/hostname", scratch_path("a/link.txt")), 0);
    ck_assert_int_eq(export_to("l", NULL, DDP_BF16, 0), DDP_OK);
    ck_assert_int_eq(lstat(scratch_path("l"), &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    ck_assert_int_eq(lstat(scratch_path("a/link.txt"), &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    ck_assert_int_eq(load("a"), DDP_OK);
    ck_same(DDP_BF16);
    end();
}
END_TEST

START_TEST(a_model_is_told_from_a_gpt2)
{
    begin(LLAMA);
    ck_assert_int_eq(export_to("a", NULL, DDP_F32, 0), DDP_OK);
    ck_assert(ddp_hf_llama_is(scratch_path("a")));
    scratch_write("a/config.json", "{\"model_type\": \"gpt2\"}", 22);
    ck_assert(!ddp_hf_llama_is(scratch_path("a")));
    scratch_write("a/config.json", "{}", 2);
    ck_assert(!ddp_hf_llama_is(scratch_path("a")) && !ddp_hf_llama_is(scratch_path("none")));
    scratch_write("a/config.json", "{", 1); /* what is wrong with it is said when it is read */
    ck_assert(ddp_hf_llama_is(scratch_path("a")));
    end();
}
END_TEST

START_TEST(the_formula_is_the_one_that_is_written_down)
{
    const char *name = "model.embed_tokens.weight";
    ck_assert_uint_eq(formula_hash(name), 0xa88fd795d5c6d156u);
    ck_assert_double_eq((double)formula_value(name, formula_hash(name), 0), -0.2574462890625 / 2);
    ck_assert_double_eq((double)formula_value(name, formula_hash(name), 2), 0.02655029296875 / 2);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("hf_directory");
    TCase *tc = test_case(suite, "directories", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, remove_all, remove_all);
    tcase_add_test(tc, the_formula_is_the_one_that_is_written_down);
    tcase_add_loop_test(tc, what_is_written_reads_back, 0, 4);
    tcase_add_test(tc, weights_are_read_and_written_as_bf16);
    tcase_add_test(tc, phi3_is_fused_in_files);
    tcase_add_test(tc, the_index_says_where_and_how_much);
    tcase_add_test(tc, files_of_others_are_understood);
    tcase_add_loop_test(tc, wrong_tensors_are_refused, 0, 9);
    tcase_add_test(tc, damaged_directories_are_refused);
    tcase_add_test(tc, the_whole_file_wins);
    tcase_add_test(tc, a_table_may_have_some_parameters);
    tcase_add_test(tc, other_files_are_copied_and_kept);
    tcase_add_test(tc, a_directory_that_is_no_model_is_not_replaced);
    tcase_add_test(tc, names_like_ours_are_the_users);
    tcase_add_test(tc, two_writers_do_not_meet);
    tcase_add_loop_test(tc, kills_leave_one_model, 0, 4);
    tcase_add_test(tc, a_link_to_a_directory_stays_a_link);
    tcase_add_test(tc, a_model_is_told_from_a_gpt2);
    return suite;
}
