/* SPDX-License-Identifier: MIT
 *
 * Directories of PEFT with LoRA adapters of a Llama-type model or an encoder: adapter_config.json
 * and adapter_model.safetensors. The base model is not in them. */
#ifndef DDP_WEIGHTS_PEFT_H
#define DDP_WEIGHTS_PEFT_H

#include "model/llama.h"
#include "weights/hf_llama.h"

struct ddp_peft {
    struct ddp_lora lora;
    char *base; /* base_model_name_or_path: a directory, or a name on a server; NULL: not said */
};

/* Whether the directory has an adapter_config.json. Reports nothing. */
bool ddp_peft_is(const char *directory);

/* What they are adapters of. */
struct ddp_peft_base {
    const char *const *linears; /* "self_attn.q_proj", ..., by the bits of the targets */
    int linear_count;
    const char *layers; /* what stands before the number of a layer: "model.layers." */
    const char *task;   /* PEFT's task_type */
    const char *within; /* what stands before the names of values: "", or "bert." */
    bool classifier;    /* values called "classifier." are trained too, and not `within` */
};

/* Reads adapter_config.json. What our adapters do not do is refused by name.
 *   layers  of the base: target_modules may name each layer's modules; 0: reads only which base
 *           they belong to
 *   of      its names; NULL: a model of the Llama family
 *   peft [out]  freed with ddp_peft_free(), also after a failure
 * DDP_ERR_IO, DDP_ERR_FORMAT (names the file and the key), DDP_ERR_MEMORY. */
enum ddp_status ddp_peft_read(struct ddp_peft *peft, const char *directory, int64_t layers,
                              const struct ddp_peft_base *of);

/* The same for a text, or the file `name` where it is NULL. */
enum ddp_status ddp_peft_parse(struct ddp_peft *peft, const char *name, const char *text,
                               size_t bytes, int64_t layers, const struct ddp_peft_base *of);
void ddp_peft_free(struct ddp_peft *peft);

/* Whether this is a parameter of an adapter, by its name. */
bool ddp_peft_owns(const char *name);

/* How many values the classifier gives that was trained with the adapters. 0: there is none.
 * DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
enum ddp_status ddp_peft_outputs(const char *directory, int64_t *outputs);

/* Reads adapter_model.safetensors into the adapters among the values, and into those of a
 * classifier if the file has one; they are float32. Each adapter must be there, of its shape, and
 * nothing else.
 * DDP_ERR_IO, DDP_ERR_FORMAT: names the file and the tensor; DDP_ERR_MEMORY. */
enum ddp_status ddp_peft_load(const char *directory, const struct ddp_hf_values *values,
                              size_t count);

/* What tells one base from another of its shape: a hash of the first values of its embeddings and
 * vectors in bf16: the same weights in float32, or quantised by bitsandbytes, are the same base.
 * That of a GGUF file begins with g, and is of its vectors alone, whatever its type.
 *   text [out]  "": `base` is no Hugging Face directory, no file of it and no GGUF file */
#define DDP_PEFT_BASE_HASH 17
void ddp_peft_base_hash(char text[DDP_PEFT_BASE_HASH], const char *base);

/* Warns if the adapters' file says, as ours do, that they were trained on other weights than the
 * base has. */
void ddp_peft_check_base(const char *directory, const char *base);

/* Whether that directory can be written: it must not exist, or be empty, or hold adapters.
 * DDP_ERR_INVALID, DDP_ERR_IO. */
enum ddp_status ddp_peft_save_check(const char *directory);

/* Writes the directory in float32, as PEFT does, by core/staged_directory. Of the values the
 * adapters are written, and the classifier.
 *   base  of the model, for base_model_name_or_path; NULL: not known */
enum ddp_status ddp_peft_save(const char *directory, const struct ddp_peft_base *of,
                              const struct ddp_lora *lora, const char *base,
                              const struct ddp_hf_values *values, size_t count);

#endif
