/* SPDX-License-Identifier: MIT
 *
 * Llama-type models, their adapters and GPT-2 in GGUF files, llama.cpp's format: one file with the
 * config, the tokenizer and the weights, which may be quantised in blocks along their rows. */
#ifndef DDP_WEIGHTS_GGUF_H
#define DDP_WEIGHTS_GGUF_H

#include "core/gguf.h"
#include "weights/gpt2_tensors.h"
#include "weights/hf_llama.h"

/* --- blocks ----------------------------------------------------------------------------------- */

/* That of memory which holds values of a file's type as they are; DDP_F32 for others. */
enum ddp_dtype ddp_gguf_dtype(int type);

/* Whole blocks to floats. */
void ddp_gguf_decode(int type, const void *raw, int64_t count, float *values);

/* The reverse, for F32, F16, BF16, Q8_0 and Q4_0: the bytes of ggml's own reference. */
void ddp_gguf_encode(int type, const float *values, int64_t count, void *raw);

/* --- config ----------------------------------------------------------------------------------- */

/* The model in a file, as config.json would say it: what the format does not say has the default of
 * the architecture. DDP_ERR_FORMAT: names the file and the key. */
enum ddp_status ddp_gguf_config(struct ddp_hf_llama *config, const struct ddp_gguf *gguf);

/* Whether a file can say what a model is; warns of what gets other answers in llama.cpp.
 *   path  for messages
 * DDP_ERR_INVALID: llama.cpp would compute something else. */
enum ddp_status ddp_gguf_check_said(const char *path, const struct ddp_llama *shape);

/* Adds the keys of a model. DDP_ERR_MEMORY. */
enum ddp_status ddp_gguf_set_config(json_t *keys, const struct ddp_hf_llama *config);

/* "llama" for its family; the architecture. */
const char *ddp_gguf_architecture(int64_t family);

/* What llama3's positions divide frequencies by, size / 2 values; ones for other kinds. */
void ddp_gguf_rope_factors(const struct ddp_rope *rope, float *factors);
#define DDP_GGUF_ROPE_FACTORS "rope_freqs.weight"

/* The shortest number that is the same float32: 1e-5, where the file's is 9.99999975e-06. */
double ddp_gguf_shortest(double value);

/* --- tensors ---------------------------------------------------------------------------------- */

/* "blk.0.attn_q.weight" for "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_norm.bias" for
 * "h.0.ln_1.bias"; false: it has no place. */
bool ddp_gguf_name(char name[DDP_GGUF_NAME], const char *hf_name);

/* The features of a head, if this tensor's rows are permuted: a file has the rows 0, D/2, 1, D/2+1
 * ... of each head. 0: they are not. */
int64_t ddp_gguf_permuted(const struct ddp_llama *shape, const char *hf_name);

/* Which of our rows a row of the file is. */
static inline int64_t ddp_gguf_row(int64_t row, int64_t head_size)
{
    const int64_t in_head = head_size ? row % head_size : 0;
    return head_size ? row - in_head + in_head % 2 * (head_size / 2) + in_head / 2 : row;
}

/* --- files ------------------------------------------------------------------------------------ */

/* The same as for the directories of hf_llama.h. */
enum ddp_status ddp_gguf_read(struct ddp_hf_llama *config, const char *path);
enum ddp_status ddp_gguf_load(const char *path, const struct ddp_hf_llama *config,
                              const struct ddp_hf_values *values, size_t count);
enum ddp_status ddp_gguf_check(const char *path, const struct ddp_hf_llama *config,
                               struct ddp_hf_llama_files *files);

/* Reads parameters each of which is a tensor of its own, and nothing else: those of a gpt2, or of
 * adapters.
 *   shape  whose rows may be permuted
 * DDP_ERR_FORMAT: names the file and the tensor. */
enum ddp_status ddp_gguf_load_each(const char *path, const struct ddp_llama *shape,
                                   const struct ddp_hf_values *values, size_t count);

/* Whether a file has adapters. Says nothing. */
bool ddp_gguf_is_adapters(const char *path);

/* Rank, alpha and targets of the adapters in a file, for a base of that shape; the file does not
 * say whether they are rank-stabilised, which alpha includes. DDP_ERR_FORMAT: names the file and
 * the key or the tensor. */
enum ddp_status ddp_gguf_read_adapters(struct ddp_lora *lora, const char *path,
                                       const struct ddp_llama *base);

/* enum ddp_dtype of blocks of the linear layers' matrices as they lie in a file, in the order of
 * struct ddp_lora; 0 where they do not.
 *   types [out]  DDP_LLAMA_LINEARS for each layer */
enum ddp_status ddp_gguf_linear_types(const char *path, const struct ddp_hf_llama *config,
                                      uint8_t *types);

/* --- GPT-2 ------------------------------------------------------------------------------------ */

struct ddp_gguf_gpt2 {
    struct ddp_gpt2_shape shape;
    double norm_eps;
};

/* Whether a file has one. Says nothing. */
bool ddp_gguf_is_gpt2(const char *path);

/* Its keys. DDP_ERR_FORMAT: names the file and the key. */
enum ddp_status ddp_gguf_read_gpt2(struct ddp_gguf_gpt2 *gpt2, const char *path);

/* Adds its keys. DDP_ERR_MEMORY. */
enum ddp_status ddp_gguf_set_gpt2(json_t *keys, const struct ddp_gguf_gpt2 *gpt2);

/* As ddp_gguf_export(), which is below. */
enum ddp_status ddp_gguf_export_gpt2(const char *path, int type, const struct ddp_gguf_gpt2 *gpt2,
                                     json_t *keys, const struct ddp_hf_values *values,
                                     size_t count);

/* --- writing ---------------------------------------------------------------------------------- */

/* The types that are written: "f32", "f16", "bf16", "q8_0" or "q4_0"; -1: none of them. */
int ddp_gguf_type_named(const char *name);

/* Bytes that a file of a model takes in front of and in its tensors, about. */
uint64_t ddp_gguf_export_bytes(const struct ddp_hf_llama *config, int type);

/* Writes a model. Norms and biases are F32; matrices whose rows are not whole blocks are F16.
 *   type   of matrices
 *   keys   that the file gets too, of the tokenizer; taken over
 *   values of all parameters
 * DDP_ERR_IO, DDP_ERR_INVALID, DDP_ERR_MEMORY. */
enum ddp_status ddp_gguf_export(const char *path, int type, const struct ddp_hf_llama *config,
                                json_t *keys, const struct ddp_hf_values *values, size_t count);

/* Writes adapters, with float32 values, for a base of that shape. */
enum ddp_status ddp_gguf_export_adapters(const char *path, const struct ddp_llama *shape,
                                         const struct ddp_hf_values *values, size_t count);

#endif
