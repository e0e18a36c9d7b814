/* SPDX-License-Identifier: MIT
 *
 * Hugging Face directories with a Llama-type model: config.json, the weights in
 * model.safetensors or in shards with an index, and files that we copy and do not read. */
#ifndef DDP_WEIGHTS_HF_LLAMA_H
#define DDP_WEIGHTS_HF_LLAMA_H

#include "core/pool.h"
#include "graph/graph.h"
#include "model/llama.h"
#include "weights/safetensors.h"

/* --- config.json ------------------------------------------------------------------------------ */

struct ddp_hf_llama {
    struct ddp_llama shape;
    int64_t vocabulary;
    const char *dtype; /* what config.json says, "F32", "F16" or "BF16"; NULL: nothing */
    bool nf4;          /* matrices of layers may be bitsandbytes' nf4 */
    double init_std;   /* initializer_range */
    int32_t bos, eos;  /* tokens that a config.json that is made names; -1: none, as when read */
};

/* Reads config.json of a directory, or the file of that name. A key that is left out has the
 * default of its model_type in transformers; the forms of versions 4 and 5 for rope and dtype are
 * read; what our model does not do is refused by name, and unknown keys are ignored.
 * DDP_ERR_IO, DDP_ERR_FORMAT (names the file and the key), DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_llama_read(struct ddp_hf_llama *config, const char *from);

/* The same for a text, or the file `name` where it is NULL. */
enum ddp_status ddp_hf_llama_parse(struct ddp_hf_llama *config, const char *name, const char *text,
                                   size_t bytes);

/* Whether the directory has a config.json, or the file is one, with a model_type other than gpt2
 * and bert.
 * True also if it cannot be read: whoever reads it then says why. Reports nothing. */
bool ddp_hf_llama_is(const char *from);

/* "llama", "qwen2", ...; and the class that architectures names. */
const char *ddp_hf_llama_family(int64_t family);
const char *ddp_hf_llama_class(int64_t family);

/* --- tensors ---------------------------------------------------------------------------------- */

#define DDP_HF_LLAMA_NAME 80

/* A tensor of the files, which is 1 to 3 parameters one under the other: phi3 stores those fused
 * that the graph has apart. */
struct ddp_hf_llama_tensor {
    char name[DDP_HF_LLAMA_NAME]; /* with "model." */
    int dim_count;
    int64_t dims[2];
    int part_count;
    struct {
        char name[DDP_HF_LLAMA_NAME]; /* as the graph's parameter has it */
        int64_t rows;
    } parts[3];
    bool linear; /* of a layer: what a LoRA on all linear layers adapts */
};

/* All tensors of a model, in the order of its layers.
 *   tensors [out]  freed with free()
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_llama_tensors(const struct ddp_hf_llama *config,
                                     struct ddp_hf_llama_tensor **tensors, size_t *count);

/* Which of a layer's matrices a parameter is; -1: none. */
int ddp_hf_llama_linear(const char *name, int64_t *layer);

/* Parameters of the model, and those of LoRA adapters of a rank on all its linear layers. */
enum ddp_status ddp_hf_llama_count(const struct ddp_hf_llama *config, int64_t rank,
                                   int64_t *parameters, int64_t *adapters);

/* --- weights ---------------------------------------------------------------------------------- */

/* The last rows that were read with their adapters, made by all threads at once. */
struct ddp_hf_merged {
    ddp_pool *pool;
    const struct ddp_hf_values *of;
    int64_t first; /* of them */
    float *rows;   /* freed with free(); NULL: no memory, each row is made when it is read */
};

/* Memory of a parameter, named as in the files: "model.layers.0.self_attn.q_proj.weight". */
struct ddp_hf_values {
    const char *name;
    int dim_count;
    int64_t dims[2];
    enum ddp_dtype dtype; /* DDP_F32, DDP_BF16 or blocks */
    void *memory;         /* row-major */
    /* An adapter to be merged, of float32: scale x up down is added where values are read. */
    const struct ddp_hf_values *up, *down; /* NULL: none */
    float scale;
    struct ddp_hf_merged *merged; /* NULL: each row is made when it is read */
};

/* The values of a graph's parameter. */
struct ddp_hf_values ddp_hf_values_of(struct ddp_parameter_place place);

/* A row as float32; of a vector one value. What is written into them is up to `dtype`. */
void ddp_hf_values_row(const struct ddp_hf_values *values, int64_t row, float *out);

/* The values of that name; NULL: there are none. */
const struct ddp_hf_values *ddp_hf_values_find(const struct ddp_hf_values *values, size_t count,
                                               const char *name);

/* `count` values that lie in `raw` in a dtype of the files; false: it is another than these. */
bool ddp_hf_values_convert(float *out, const void *raw, const char *dtype, size_t count);

/* Reads weights of F32, F16 or BF16 into a table, piece by piece: nothing else of their size is in
 * memory. The files are checked whole against the config, also where the table has some parameters
 * alone, as a stage of a pipeline does. Names may lack "model."; rotary_emb.inv_freq is ignored; so
 * is an lm_head that equals the embedding to which it is tied.
 * DDP_ERR_IO, DDP_ERR_FORMAT: names the file and the tensor; the memory may be partly written then.
 * DDP_ERR_INVALID: the table has a parameter that the model does not have. */
enum ddp_status ddp_hf_llama_load(const char *directory, const struct ddp_hf_llama *config,
                                  const struct ddp_hf_values *values, size_t count);

/* The file of a directory's weights, or the index of their files. A file that is whole wins over
 * shards beside it, as in transformers.
 *   path [out]  freed with free(); NULL: there are none */
enum ddp_status ddp_hf_find_weights(char **path, const char *directory);

/* What the files say, which ddp_hf_llama_check() compares with the config except the values. */
struct ddp_hf_llama_files {
    size_t count;
    const char *dtype; /* of the embedding: "F32", "F16" or "BF16" */
    uint64_t bytes;    /* of all tensors */
};

/* As ddp_gguf_linear_types(), of a directory whose matrices are bitsandbytes' nf4.
 *   types [out]  DDP_LLAMA_LINEARS for each layer, which are 0 */
enum ddp_status ddp_hf_llama_linear_types(const char *directory, const struct ddp_hf_llama *config,
                                          uint8_t *types);

/*   files [out]  count is 0: there are no weights in the directory, which is no error */
enum ddp_status ddp_hf_llama_check(const char *directory, const struct ddp_hf_llama *config,
                                   struct ddp_hf_llama_files *files);

/* --- export ----------------------------------------------------------------------------------- */

struct ddp_hf_export {
    const char *directory; /* to write; its parent must exist */
    const char *source;    /* whose other files are copied; NULL: none; may be `directory` */
    enum ddp_dtype dtype;  /* of the files: DDP_F32 or DDP_BF16 */
    uint64_t shard_bytes;  /* tensors of one file; a larger tensor has a file alone; 0: one file */
    /* Texts of tokenizer.json and tokenizer_config.json; NULL: they are not made. */
    const char *tokenizer, *tokenizer_config;
};

/* Whether that directory can be written, and what is copied be read, at the beginning of a run.
 * DDP_ERR_IO, DDP_ERR_INVALID, DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_llama_export_check(const struct ddp_hf_export *to);

/* Writes a directory that transformers and others load, by core/staged_directory. config.json is
 * the source's, byte for byte except rope in the forms of both versions, dtype, torch_dtype, and
 * architectures if it names none of ours; or is made from `config`. All other files of the source
 * but weights and subdirectories are copied. A directory that exists must be empty or have a
 * config.json: its weights are removed, and its other files stay where the source has none.
 *   config  of the model: the source's must have the same shape
 *   values  of all parameters; not written
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_INVALID (a parameter is missing or has another shape; the
 * model_type cannot have that shape), DDP_ERR_MEMORY. */
enum ddp_status ddp_hf_llama_export(const struct ddp_hf_export *to,
                                    const struct ddp_hf_llama *config,
                                    const struct ddp_hf_values *values, size_t count);

/* A whole config.json as exports have it, from that of a source; NULL: made from `config`. It is
 * freed with free().
 *   name  of the source, for messages
 *   dtype of the weights: "F32" or "BF16" */
enum ddp_status ddp_hf_llama_config_text(char **text, const struct ddp_hf_llama *config,
                                         const char *name, const char *source, size_t source_bytes,
                                         const char *dtype);

#endif
