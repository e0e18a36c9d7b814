/* SPDX-License-Identifier: MIT
 *
 * For gguf.sh and gguf_live.py:
 *   gguf_tool values MODEL            all parameters as float32, in the order of config.json's
 *                                     tensors, on stdout
 *   gguf_tool answers MODEL ADAPTERS COUNT ID...   continues these tokens by COUNT likeliest ones:
 *                                     for each its logits, as float32, on stdout; ADAPTERS: "-"
 *   gguf_tool encode TYPE             float32 from stdin, in blocks on stdout
 *   gguf_tool decode TYPE             the reverse
 *   gguf_tool mix FILE OTHER          a copy of FILE whose layers' matrices are made up, of q6_k in
 *                                     ffn_down and else q4_k
 *   gguf_tool split FILE STEM COUNT   STEM-00001-of-COUNT.gguf, which has the keys, and the others
 * TYPE is ggml's number. */
#include "config.h"

#include "core/bf16.h"
#include "core/memory.h"
#include "generate/generate.h"
#include "model/llama.h"
#include "plan/load.h"
#include "plan/weights.h"
#include "tests/weights/hf_formula.h"
#include "weights/gguf.h"

#define MOST (1 << 24)

static int fail(enum ddp_status status)
{
    return ddp_status_exit_code(status);
}

static int values(const char *path)
{
    struct ddp_hf_llama config;
    struct formula formula;
    const bool gguf = ddp_gguf_is(path);
    enum ddp_status status = gguf ? ddp_gguf_read(&config, path) : ddp_hf_llama_read(&config, path);
    if (status != DDP_OK)
        return fail(status);
    formula_make(&formula, &config, DDP_F32, false);
    status = gguf ? ddp_gguf_load(path, &config, formula.values, formula.count)
                  : ddp_hf_llama_load(path, &config, formula.values, formula.count);
    for (size_t i = 0; status == DDP_OK && i < formula.count; i++)
        fwrite(formula.values[i].memory, sizeof(float),
               (size_t)(formula.values[i].dims[0] * formula.values[i].dims[1]), stdout);
    formula_free(&formula);
    return fail(status);
}

static enum ddp_status answer(const struct ddp_load *load, int64_t count, int32_t *prompt,
                              int64_t prompt_count)
{
    ddp_graph *graph = NULL;
    ddp_device *device = NULL;
    ddp_generator *generator = NULL;
    struct ddp_frozen_host host = {.values = NULL};
    struct ddp_frozen frozen = {.values = NULL};
    struct ddp_model_config config = load->config;
    config.batch = 1;
    enum ddp_status status = ddp_model_build(&graph, load->model, &config);
    if (status == DDP_OK)
        status = ddp_frozen_host_alloc(&host, graph, NULL, false, DDP_F32);
    float *weights = calloc((size_t)ddp_graph_flat_count(graph), sizeof *weights);
    if (status == DDP_OK)
        status = ddp_load_weights(load, load->model, &config, graph, weights, host.values);
    if (status == DDP_OK)
        status = ddp_frozen_host_complete(&host, graph, 1);
    if (status == DDP_OK)
        status = ddp_device_open(&device, "cpu", 0, 1);
    if (status == DDP_OK)
        status = ddp_frozen_open(&frozen, device, &host, graph, NULL, DDP_F32);
    const struct ddp_generator_config wanted = {.model = load->model,
                                                .model_config = &config,
                                                .device = device,
                                                .weights = weights,
                                                .frozen = &frozen,
                                                .samples = 1,
                                                .prompt_count = prompt_count,
                                                .length = count};
    if (status == DDP_OK)
        status = ddp_generator_create(&generator, &wanted);
    if (status == DDP_OK)
        ddp_generator_begin(generator, prompt);
    for (int64_t i = 0; status == DDP_OK && i < count; i++) {
        status = ddp_generator_next(generator);
        if (status == DDP_OK)
            fwrite(ddp_generator_logits(generator, 0), sizeof(float), (size_t)config.classes,
                   stdout);
    }
    ddp_generator_destroy(generator);
    ddp_frozen_close(&frozen);
    ddp_frozen_host_free(&host);
    ddp_device_close(device);
    ddp_graph_destroy(graph);
    free(weights);
    return status;
}

static int answers(int argc, char **argv)
{
    int32_t prompt[64];
    struct ddp_load load;
    static struct ddp_train_options options;
    options.load = argv[2];
    options.adapters = strcmp(argv[3], "-") == 0 ? NULL : argv[3];
    for (int i = 5; i < argc && i < 64; i++)
        prompt[i - 5] = atoi(argv[i]);
    enum ddp_status status = ddp_load_open(&load, &options, true);
    if (status == DDP_OK)
        status = answer(&load, atoi(argv[4]), prompt, argc - 5);
    ddp_load_close(&load);
    return fail(status);
}

/* All of stdin is one row. */
static int convert(bool encode, int type)
{
    char *in = malloc(MOST), *out = malloc(8 * MOST);
    const struct ddp_gguf_block *block = ddp_gguf_block(type);
    const int64_t bytes = (int64_t)fread(in, 1, MOST, stdin);
    const int64_t count = encode ? bytes / 4 : bytes / block->bytes * block->values;
    if (encode)
        ddp_gguf_encode(type, (const float *)(const void *)in, count, out);
    else
        ddp_gguf_decode(type, in, count, (float *)(void *)out);
    fwrite(out, 1, (size_t)(encode ? count / block->values * block->bytes : 4 * count), stdout);
    free(in);
    free(out);
    return 0;
}

/* Codes of any kind, with scales that are small numbers. */
static void make_up(const struct ddp_gguf_tensor *tensor, uint8_t *raw)
{
    const int64_t size = ddp_gguf_block(tensor->type)->bytes;
    const int first = tensor->type == DDP_GGUF_Q6_K ? 208 : 0;
    const uint16_t scale = ddp_f16_of(tensor->type == DDP_GGUF_Q6_K ? 3e-5f : 3e-4f);
    for (uint64_t i = 0; i < tensor->bytes; i++)
        raw[i] = (uint8_t)(i * 2654435761u >> 13);
    for (uint64_t at = 0; at < tensor->bytes; at += (uint64_t)size)
        for (int half = 0; half < (first ? 1 : 2); half++)
            memcpy(raw + at + first + 2 * half, &scale, sizeof scale);
}

static enum ddp_status put_padded(ddp_atomic_file *file, const struct ddp_gguf_tensor *tensor,
                                  uint8_t *raw)
{
    const size_t padded = ddp_align_up(tensor->bytes, DDP_GGUF_ALIGN);
    memset(raw + tensor->bytes, 0, padded - tensor->bytes);
    return ddp_atomic_file_write(file, raw, padded);
}

static int mix(const char *from, const char *to)
{
    struct ddp_gguf gguf;
    ddp_atomic_file *file = NULL;
    uint8_t *raw = calloc(1, MOST);
    enum ddp_status status = ddp_gguf_open(&gguf, from);
    if (status == DDP_OK)
        status = ddp_atomic_file_open(&file, to);
    for (size_t i = 0; status == DDP_OK && i < gguf.count; i++) {
        struct ddp_gguf_tensor *tensor = &gguf.tensors[i];
        if (tensor->dim_count == 2 && strncmp(tensor->name, "blk.", 4) == 0)
            tensor->type = strstr(tensor->name, "ffn_down") ? DDP_GGUF_Q6_K : DDP_GGUF_Q4_K;
        tensor->bytes = ddp_gguf_bytes(tensor);
    }
    if (status == DDP_OK)
        status = ddp_gguf_write_header(file, gguf.keys, gguf.tensors, gguf.count);
    for (size_t i = 0; status == DDP_OK && i < gguf.count; i++) {
        const struct ddp_gguf_tensor *tensor = &gguf.tensors[i];
        if (ddp_gguf_block(tensor->type)->values > 1)
            make_up(tensor, raw);
        else
            status = ddp_gguf_read_bytes(&gguf, tensor, 0, raw, tensor->bytes);
        if (status == DDP_OK)
            status = put_padded(file, tensor, raw);
    }
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    ddp_gguf_close(&gguf);
    free(raw);
    return fail(status);
}

/* A shard; the first one has all keys. */
static enum ddp_status put_shard(const struct ddp_gguf *gguf, const char *stem, int index,
                                 int count)
{
    char path[512];
    ddp_atomic_file *file = NULL;
    uint8_t *raw = calloc(1, MOST);
    json_t *keys = index ? json_object() : json_deep_copy(gguf->keys);
    const size_t first = gguf->count * (size_t)index / (size_t)count;
    const size_t end = gguf->count * (size_t)(index + 1) / (size_t)count;
    json_object_set_new(keys, "split.no", json_integer(index));
    json_object_set_new(keys, "split.count", json_integer(count));
    json_object_set_new(keys, "split.tensors.count", json_integer((json_int_t)gguf->count));
    snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", stem, index + 1, count);
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status == DDP_OK)
        status = ddp_gguf_write_header(file, keys, gguf->tensors + first, end - first);
    for (size_t i = first; status == DDP_OK && i < end; i++) {
        status = ddp_gguf_read_bytes(gguf, &gguf->tensors[i], 0, raw, gguf->tensors[i].bytes);
        if (status == DDP_OK)
            status = put_padded(file, &gguf->tensors[i], raw);
    }
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    json_decref(keys);
    free(raw);
    return status;
}

static int split(const char *from, const char *stem, int count)
{
    struct ddp_gguf gguf;
    enum ddp_status status = ddp_gguf_open(&gguf, from);
    for (int i = 0; status == DDP_OK && i < count; i++)
        status = put_shard(&gguf, stem, i, count);
    ddp_gguf_close(&gguf);
    return fail(status);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "values") == 0)
        return values(argv[2]);
    if (argc > 5 && strcmp(argv[1], "answers") == 0)
        return answers(argc, argv);
    if (argc == 4 && strcmp(argv[1], "mix") == 0)
        return mix(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "split") == 0)
        return split(argv[2], argv[3], atoi(argv[4]));
    if (argc == 3 && strcmp(argv[1], "encode") == 0)
        return convert(true, atoi(argv[2]));
    return argc == 3 && strcmp(argv[1], "decode") == 0 ? convert(false, atoi(argv[2])) : 2;
}
