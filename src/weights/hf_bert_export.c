/* SPDX-License-Identifier: MIT
 *
 * See hf_bert.h: writing. The directory has all that transformers needs: config.json, the weights
 * in float32, and the vocabulary; for embeddings also what sentence-transformers asks for. */
#include "config.h"

#include "weights/hf_bert.h"

#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/staged_directory.h"
#include "core/text.h"
#include "core/write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG  "config.json"
#define WEIGHTS "model.safetensors"
#define POOLING "1_Pooling"

/* --- texts ------------------------------------------------------------------------------------ */

static int set_labels(json_t *root, const struct ddp_hf_bert_export *to)
{
    json_t *names = json_object(), *ids = json_object();
    const int64_t count = to->classes ? to->classes : 1;
    int failed = json_object_set_new(root, "id2label", names);
    failed |= json_object_set_new(root, "label2id", ids);
    for (int64_t i = 0; !failed && i < count; i++) {
        char number[24], made[32];
        snprintf(number, sizeof number, "%lld", (long long)i);
        snprintf(made, sizeof made, "LABEL_%s", number);
        const char *name = to->class_names ? to->class_names[i] : made;
        failed |= json_object_set_new(names, number, json_string(name));
        failed |= json_object_set_new(ids, name, json_integer((json_int_t)i));
    }
    failed |= json_object_set_new(
        root, "problem_type",
        json_string(to->classes ? "single_label_classification" : "regression"));
    return failed;
}

static json_t *config_of(const struct ddp_hf_bert_export *to)
{
    const struct ddp_bert *bert = to->bert;
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:i, s:s}",
        "architectures", to->contrasts ? "BertModel" : "BertForSequenceClassification",
        "model_type", "bert", "hidden_act", "gelu", "vocab_size", (json_int_t)bert->vocabulary,
        "hidden_size", (json_int_t)bert->channels, "num_hidden_layers", (json_int_t)bert->layers,
        "num_attention_heads", (json_int_t)bert->heads, "intermediate_size",
        (json_int_t)bert->hidden, "max_position_embeddings", (json_int_t)bert->context,
        "type_vocab_size", (json_int_t)bert->types, "layer_norm_eps", bert->norm_eps,
        "initializer_range", DDP_BERT_INIT_STD, "hidden_dropout_prob", 0.1,
        "attention_probs_dropout_prob", 0.1, "pad_token_id", 0, "torch_dtype", "float32");
    if (root && !to->contrasts && set_labels(root, to) != 0) {
        json_decref(root);
        return NULL;
    }
    return root;
}

static json_t *tokenizer_of(const struct ddp_hf_bert_export *to)
{
    return json_pack("{s:s, s:b, s:I, s:s, s:s, s:s, s:s, s:s}", "tokenizer_class", "BertTokenizer",
                     "do_lower_case", to->lowers, "model_max_length", (json_int_t)to->bert->context,
                     "unk_token", "[UNK]", "sep_token", "[SEP]", "pad_token", "[PAD]", "cls_token",
                     "[CLS]", "mask_token", "[MASK]");
}

static json_t *modules_of(const struct ddp_hf_bert_export *to)
{
    json_t *list =
        json_pack("[{s:i, s:s, s:s, s:s}, {s:i, s:s, s:s, s:s}]", "idx", 0, "name", "0", "path", "",
                  "type", "sentence_transformers.models.Transformer", "idx", 1, "name", "1", "path",
                  POOLING, "type", "sentence_transformers.models.Pooling");
    if (!list || !to->bert->normalizes)
        return list;
    json_t *unit = json_pack("{s:i, s:s, s:s, s:s}", "idx", 2, "name", "2", "path", "2_Normalize",
                             "type", "sentence_transformers.models.Normalize");
    if (json_array_append_new(list, unit) == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *pooling_of(const struct ddp_hf_bert_export *to)
{
    const bool mean = to->bert->pooling == DDP_BERT_MEAN;
    return json_pack("{s:I, s:b, s:b, s:b, s:b}", "word_embedding_dimension",
                     (json_int_t)to->bert->channels, "pooling_mode_cls_token", !mean,
                     "pooling_mode_mean_tokens", mean, "pooling_mode_max_tokens", 0,
                     "pooling_mode_mean_sqrt_len_tokens", 0);
}

/* --- files ------------------------------------------------------------------------------------ */

/* Frees the value, of which NULL means that there was no memory. */
static enum ddp_status put(const ddp_staged_directory *directory, const char *name, json_t *root)
{
    char *text = root ? ddp_json_text(root, JSON_INDENT(2)) : NULL;
    enum ddp_status status = text ? ddp_staged_directory_put(directory, name, text)
                                  : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    free(text);
    json_decref(root);
    return status;
}

struct writing {
    const struct ddp_hf_values *values;
    float *row; /* room for two */
};

static enum ddp_status put_tensor(void *arg, size_t tensor, ddp_safetensors_sink *sink,
                                  void *sink_arg)
{
    const struct writing *writing = arg;
    const struct ddp_hf_values *values = &writing->values[tensor];
    const size_t columns = values->dim_count == 2 ? (size_t)values->dims[1] : 1;
    enum ddp_status status = DDP_OK;
    for (int64_t row = 0; status == DDP_OK && row < values->dims[0]; row++) {
        ddp_hf_values_row(values, row, writing->row);
        status = sink(sink_arg, writing->row, columns * sizeof(float));
    }
    return status;
}

static enum ddp_status write_tensors(const ddp_staged_directory *directory,
                                     struct ddp_safetensor *tensors, struct writing *writing,
                                     size_t count)
{
    const struct ddp_safetensors_pair metadata = {"format", "pt"}; /* transformers asks for it */
    ddp_atomic_file *file = NULL;
    char *path = NULL;
    enum ddp_status status = ddp_staged_directory_file(directory, WEIGHTS, &file, &path);
    if (status == DDP_OK)
        status = ddp_safetensors_write_file(file, path, put_tensor, writing, tensors, count,
                                            &metadata, 1);
    if (status == DDP_OK)
        status = ddp_atomic_file_commit(file);
    ddp_atomic_file_close(file);
    free(path);
    return status;
}

static enum ddp_status write_weights(const ddp_staged_directory *directory,
                                     const struct ddp_hf_bert_export *to,
                                     const struct ddp_hf_values *values, size_t count)
{
    struct ddp_safetensor *tensors = ddp_array_alloc(count, sizeof *tensors);
    char(*names)[160] = ddp_array_alloc(count, sizeof *names);
    struct writing writing = {.values = values};
    int64_t widest = 1;
    for (size_t i = 0; tensors && names && i < count; i++) {
        const bool matrix = values[i].dim_count == 2;
        const bool inside = !to->contrasts && strncmp(values[i].name, "classifier.", 11) != 0;
        snprintf(names[i], sizeof names[i], "%s%s", inside ? "bert." : "", values[i].name);
        tensors[i] = (struct ddp_safetensor){
            .name = names[i],
            .dtype = "F32",
            .dim_count = values[i].dim_count,
            .dims = {values[i].dims[0], values[i].dims[1]},
            .bytes = (size_t)(values[i].dims[0] * (matrix ? values[i].dims[1] : 1)) * sizeof(float),
        };
        widest = matrix && values[i].dims[1] > widest ? values[i].dims[1] : widest;
    }
    writing.row = ddp_array_alloc(2 * (size_t)widest, sizeof *writing.row);
    enum ddp_status status = tensors && names && writing.row
                                 ? write_tensors(directory, tensors, &writing, count)
                                 : DDP_ERR_MEMORY;
    free(writing.row);
    free(names);
    free(tensors);
    return status;
}

/* The vocabulary, and what stands beside it. */
static enum ddp_status copy_tokenizer(const ddp_staged_directory *directory,
                                      const struct ddp_hf_bert_export *to)
{
    const bool json = ddp_text_ends_with(to->tokenizer, ".json");
    enum ddp_status status =
        ddp_staged_directory_copy(directory, to->tokenizer, json ? "tokenizer.json" : "vocab.txt");
    return status == DDP_OK ? put(directory, "tokenizer_config.json", tokenizer_of(to)) : status;
}

static bool is_none(const char *name)
{
    return name == NULL;
}

/* A folder in the directory, with what it says of pooling. */
static enum ddp_status write_pooling(const struct ddp_hf_bert_export *to)
{
    ddp_staged_directory *folder = NULL;
    char *path = ddp_path_in(to->directory, POOLING);
    enum ddp_status status =
        path ? ddp_staged_directory_open(&folder, path, DDP_STAGED_WAIT_MS) : DDP_ERR_MEMORY;
    free(path);
    if (status != DDP_OK)
        return status;
    status = put(folder, CONFIG, pooling_of(to));
    if (status == DDP_OK)
        status = ddp_staged_directory_commit(folder, is_none);
    ddp_staged_directory_close(folder);
    return status;
}

static enum ddp_status write_modules(const ddp_staged_directory *directory,
                                     const struct ddp_hf_bert_export *to)
{
    enum ddp_status status = put(directory, "modules.json", modules_of(to));
    if (status == DDP_OK)
        status = put(
            directory, "sentence_bert_config.json",
            json_pack("{s:I, s:b}", "max_seq_length", (json_int_t)to->length, "do_lower_case", 0));
    return status;
}

/* --- whole ------------------------------------------------------------------------------------ */

static enum ddp_status open_target(ddp_staged_directory **directory, const char *path, int wait_ms)
{
    return ddp_staged_directory_open_of(
        directory, path, wait_ms, CONFIG,
        "it has files, but no config.json: it is not the directory of a model, so nothing is "
        "written there: name another, or empty it");
}

enum ddp_status ddp_hf_bert_export_check(const char *directory)
{
    ddp_staged_directory *open;
    enum ddp_status status = open_target(&open, directory, 0);
    if (status == DDP_OK)
        ddp_staged_directory_close(open);
    return status;
}

/* Those that another model may have left there. */
static bool is_old(const char *name)
{
    static const char *const names[] = {
        "modules.json", "sentence_bert_config.json",    "vocab.txt", "tokenizer.json",
        CONFIG,         "model.safetensors.index.json", WEIGHTS,     "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

enum ddp_status ddp_hf_bert_export(const struct ddp_hf_bert_export *to,
                                   const struct ddp_hf_values *values, size_t count)
{
    ddp_staged_directory *directory;
    enum ddp_status status = open_target(&directory, to->directory, DDP_STAGED_WAIT_MS);
    if (status != DDP_OK)
        return status;
    status = put(directory, CONFIG, config_of(to));
    if (status == DDP_OK)
        status = write_weights(directory, to, values, count);
    if (status == DDP_OK)
        status = copy_tokenizer(directory, to);
    if (status == DDP_OK && to->contrasts)
        status = write_modules(directory, to);
    if (status == DDP_OK)
        status = ddp_staged_directory_commit(directory, is_old);
    ddp_staged_directory_close(directory);
    return status == DDP_OK && to->contrasts ? write_pooling(to) : status;
}
