/* SPDX-License-Identifier: MIT
 *
 * GPT-2 weights in the files of other programs: Hugging Face's safetensors and llm.c's model files,
 * both ways, to and from the flat weights of a graph. */
#ifndef DDP_WEIGHTS_INTERCHANGE_H
#define DDP_WEIGHTS_INTERCHANGE_H

#include "core/input_file.h"
#include "weights/gpt2_tensors.h"
#include "weights/safetensors.h"

/* --- Hugging Face: GPT2LMHeadModel or GPT2Model ----------------------------------------------- */

/* Whether the file has a GPT-2's tensors in a form other than ours: with the prefix, with
 * transposed matrices, of another dtype, or with buffers that are not weights. */
bool ddp_hf_gpt2_is(const ddp_safetensors *file);

/* The shape of the GPT-2 in a file, from its tensors; heads 0, which they do not determine. false:
 * it is not a GPT-2. */
bool ddp_hf_gpt2_shape(struct ddp_gpt2_shape *shape, const ddp_safetensors *file);

/* Reads such a file. float32, float16 and bfloat16 are taken; matrices are turned where the file
 * has them (in, out); attention masks are left out, and an lm_head that is the embedding's equal.
 * DDP_ERR_FORMAT: names the file and the tensor; `flat` may be partly written then. */
enum ddp_status ddp_hf_gpt2_load(const ddp_safetensors *file, const char *path,
                                 const ddp_graph *graph, float *flat);

/* What a file of that shape holds, with what config.json beside it says. DDP_ERR_FORMAT: they
 * contradict each other. */
enum ddp_status ddp_hf_gpt2_describe(const struct ddp_gpt2_shape *shape, const char *path,
                                     const struct ddp_model **model,
                                     struct ddp_model_config *config);

/* --- llm.c: files such as gpt2_124M.bin, versions 3 (float32) and 5 (bfloat16) ---------------- */

#define DDP_LLMC_HEADER_BYTES 1024
#define DDP_LLMC_MODEL_MAGIC  20240326

/* What the header says. */
struct ddp_llmc_model {
    struct ddp_gpt2_shape shape;
    int64_t padded; /* rows of the embedding in the file, at least the vocabulary */
    bool bf16;
};

/* Whether a file that begins so looks like one, in any version and byte order. */
bool ddp_llmc_model_is(const void *bytes, size_t size);

/* Checks a header against itself and the size of its file.
 *   name   for messages
 *   bytes  the file's first, DDP_LLMC_HEADER_BYTES or fewer if it has no more */
enum ddp_status ddp_llmc_model_parse(struct ddp_llmc_model *model, const char *name,
                                     const void *bytes, size_t size, uint64_t file_bytes);

#endif
