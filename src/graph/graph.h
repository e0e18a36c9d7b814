/* SPDX-License-Identifier: MIT
 *
 * A model as a list of coarse operations on tensors, built once for a fixed shard shape with the
 * builders of ddp.h. Building order is execution order; backward runs it in reverse. The graph
 * holds shapes only: exec.h gives it memory on a device. Operations after the output form the loss
 * part, which DataParallel runs on its master. */
#ifndef DDP_GRAPH_GRAPH_H
#define DDP_GRAPH_GRAPH_H

#include "ddp.h"

#include "core/rng.h"
#include "kernels/preference.h"

enum ddp_status ddp_graph_create(ddp_graph **graph);

/* The type in which matrix products and convolutions take their operands, before they are built:
 * DDP_F32 (the default), DDP_BF16 or DDP_F16. They add up in float32 all the same. */
void ddp_graph_set_compute(ddp_graph *graph, enum ddp_dtype compute);

/* The type of results and their gradients in memory, before anything is built: DDP_F32 (the
 * default), or DDP_BF16 for devices whose kernels take it, with compute DDP_BF16 too. Float32
 * samples, input 0, are cast. Parameters, their gradients, statistics and the loss are always
 * float32. */
void ddp_graph_set_activations(ddp_graph *graph, enum ddp_dtype activations);

/* What a device's kernels offer. Names, shapes and counts do not change, nor do the bits. */
struct ddp_graph_offers {
    bool fuses_norms;        /* sums whose rows are normalised next are one operation */
    bool pads_classes;       /* where softmax cross-entropy reads a linear layer, zeros follow its
                                weight, bias and logits up to a round number of classes */
    bool reads_bf16_weights; /* products of float32 do, without scratch memory; and blocks */
};

/* Before anything is built. */
void ddp_graph_set_offers(ddp_graph *graph, const struct ddp_graph_offers *offers);

/* Before an exec is made: what the operations of a block leave for backward, except what later
 * blocks read, is dropped after forward and computed again before the block's backward. The same
 * bits. */
void ddp_graph_set_recompute(ddp_graph *graph, bool recompute);
int ddp_graph_block_count(const ddp_graph *graph);

void ddp_graph_destroy(ddp_graph *graph); /* with its tensors */

/* A line of text that is kept with the graph and its saved weights; "" until it is set. Copied. */
void ddp_graph_set_description(ddp_graph *graph, const char *text);
const char *ddp_graph_description(const ddp_graph *graph);

/* The same of the data that it learns from, of a finished graph; NULL: none. DDP_ERR_MEMORY. */
enum ddp_status ddp_graph_set_data(ddp_graph *graph, const char *text);
const char *ddp_graph_data(const ddp_graph *graph);

/* The builders of ddp.h, and: */

/* (count) float32 that is saved with the parameters but not learned: an operation writes what it
 * saw in a shard, and after each step the value moves towards the mean over the step's shards by
 * DDP_STATISTIC_MOMENTUM. */
ddp_tensor *ddp_graph_statistic(ddp_graph *graph, const char *name, int64_t count,
                                enum ddp_init_kind init);
#define DDP_STATISTIC_MOMENTUM 0.1f

/* The last of T positions, (B,T,C) to (B,1,C): for graphs that only run forward. */
ddp_tensor *ddp_graph_last(ddp_graph *graph, ddp_tensor *x);

/* ddp_graph_head_cross_entropy() with a loss of preferences in its place.
 *   labels  (B,3,T) as in kernels/preference.h */
ddp_tensor *ddp_graph_head_preference(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight,
                                      ddp_tensor *labels, const struct ddp_objective *objective);

/* Where texts begin once the padding behind them is left out, and where the last one ends.
 *   texts  (B,3,T) int32 as data/sentences.c has them; a length of 0, as in passes over zeros, is
 *          taken for 1
 * Returns (B+1) int32. For the CPU alone, as what follows. */
ddp_tensor *ddp_graph_text_bounds(ddp_graph *graph, ddp_tensor *texts);

/* Numbers of all tokens, without gaps: what is made of them is packed, that is, rows behind the
 * last bound are not there and nothing computes them. */
enum ddp_text_plane { DDP_TEXT_TOKENS, DDP_TEXT_TYPES, DDP_TEXT_POSITIONS };
ddp_tensor *ddp_graph_pack_texts(ddp_graph *graph, ddp_tensor *texts, ddp_tensor *bounds,
                                 enum ddp_text_plane plane);

/* Attention that is not causal: every query sees all keys of its text.
 *   q, k, v  (B,T,C), packed */
ddp_tensor *ddp_graph_full_attention(ddp_graph *graph, ddp_tensor *q, ddp_tensor *k, ddp_tensor *v,
                                     int64_t heads);

/* The mean of each text's tokens, or its first one, packed (B,T,C) to (B,C). */
ddp_tensor *ddp_graph_token_mean(ddp_graph *graph, ddp_tensor *x, bool first);

ddp_tensor *ddp_graph_tanh(ddp_graph *graph, ddp_tensor *x);

/* The loss of kernels/sentence.h.
 *   x       (B*texts,C), the texts of a sample one after another; of 1 text the loss is 0 and
 *           nothing is learned: embeddings are to be predicted
 *   labels  are not looked at, but a model that is evaluated has some */
ddp_tensor *ddp_graph_contrastive(ddp_graph *graph, ddp_tensor *x, ddp_tensor *labels,
                                  int64_t texts, double scale);

/* NULL: the loss is no such. Otherwise the flat array of gradients begins with all of enum
 * ddp_preference_sum, and a target is a sample. */
const struct ddp_objective *ddp_graph_objective(const ddp_graph *graph);

/* Elements of all keys and values of one position of a sample; see ddp_exec_set_cache(). */
int64_t ddp_graph_cache_width(const ddp_graph *graph);

/* Parameters and statistics, in the order in which they were made. */
struct ddp_parameter {
    const char *name;
    int dim_count;
    int64_t dims[DDP_TENSOR_DIMS];
    int64_t count;   /* elements */
    int64_t offset;  /* elements from the start of the flat array, a multiple of DDP_FLAT_ALIGN; of
                        a frozen one -1 */
    int64_t padding; /* zeros behind it that products read and write */
    bool statistic;  /* not learned */
    bool held;       /* not learned either: its gradient is zero, and it stays as it is */
    bool frozen;     /* neither, and not in the flat array */
    enum ddp_dtype dtype;
    size_t place; /* bytes from the start of the frozen parameters, a multiple of DDP_CACHE_LINE */
    struct ddp_init init;
};

/* Parameters and gradients are one flat array each, with equal offsets. Its first DDP_FLAT_ALIGN
 * elements are not parameters: element 0 of the gradients is the loss, so that it is summed over
 * shards with them, and element 1 how many of the shard's targets do not count. Float32 holds their
 * sum exactly up to 2^24; all targets together may be more. Then come the statistics: among the
 * weights their running values, among the gradients what was seen in a shard. Parameters follow in
 * the order in which backward finishes their gradients. All are aligned; gaps are zero. */
#define DDP_FLAT_ALIGN 16

/* Frozen parameters have a table of their own, and memory of their own, of
 * ddp_graph_frozen_bytes(): first those of float32, then those of bf16, each with its padding.
 * Graphs of one model have the same places, even stages, which have the whole graph's table. */
int ddp_graph_frozen_count(const ddp_graph *graph);
const struct ddp_parameter *ddp_graph_frozen_at(const ddp_graph *graph, int index);
int64_t ddp_graph_frozen_element_count(const ddp_graph *graph);
size_t ddp_graph_frozen_bytes(const ddp_graph *graph);
/* This many bytes at the beginning hold the float32 ones. If a graph computes in bf16 there may be
 * a bf16 copy of them, half as large, with half the places. */
size_t ddp_graph_frozen_f32_bytes(const ddp_graph *graph);
/* Bytes of one in memory, with its padding. */
size_t ddp_frozen_bytes(const struct ddp_parameter *frozen);
/* Whether an operation of this graph reads it; a stage does not read all. */
bool ddp_graph_reads_frozen(const ddp_graph *graph, int index);

/* Parameters made between the two are held. They have to be of the first operations, so that
 * backward ends behind them; they lie at the end of the flat array. */
void ddp_graph_begin_held(ddp_graph *graph);
void ddp_graph_end_held(ddp_graph *graph);
/* Where they begin in the flat array; and how many elements they have. */
int64_t ddp_graph_learned_end(const ddp_graph *graph);
int64_t ddp_graph_held_count(const ddp_graph *graph);

/* The element after a parameter and the gap behind it. */
static inline int64_t ddp_parameter_end(const struct ddp_parameter *parameter)
{
    return parameter->offset + (parameter->count + parameter->padding + DDP_FLAT_ALIGN - 1) /
                                   DDP_FLAT_ALIGN * DDP_FLAT_ALIGN;
}

/* Before input 0 or 1 is built: it must be `rows` rows of `values` numbers of this dtype.
 *   what  they are, for the message; borrowed */
void ddp_graph_expect_input(ddp_graph *graph, int input, const char *what, enum ddp_dtype dtype,
                            int64_t rows, int64_t values);
/* Samples (B,F), an input, whose last `words` numbers are the bits of int32: rows of the table
 * (V,C). -> (B,F - words + words * C): the other numbers, and the rows behind them. */
ddp_tensor *ddp_graph_words(ddp_graph *graph, ddp_tensor *x, int64_t words, ddp_tensor *table);

bool ddp_graph_is_finished(const ddp_graph *graph);

/* Labels of a shard, if the loss leaves out those that are DDP_LABEL_NONE. Its loss and gradients
 * are sums divided by this number; a global batch is divided by the number that counts in all of
 * it. 0: the loss is a mean that leaves out nothing. For a stage: as for the whole graph. */
int64_t ddp_graph_target_count(const ddp_graph *graph);
/* Whether the loss is the output, made of hidden states by an operation with parameters. An exec
 * that trains has it after backward. */
bool ddp_graph_takes_soft_labels(const ddp_graph *graph); /* core/label.h */
bool ddp_graph_outputs_loss(const ddp_graph *graph);

int ddp_graph_parameter_count(const ddp_graph *graph);
const struct ddp_parameter *ddp_graph_parameter_at(const ddp_graph *graph, int index);

/* Which values of a parameter operations read. */
struct ddp_graph_reads {
    bool f32;
    bool bf16; /* the copy that graphs that compute in bf16 have */
};
struct ddp_graph_reads ddp_graph_parameter_reads(const ddp_graph *graph, int index);
int64_t ddp_graph_element_count(const ddp_graph *graph); /* of parameters alone */
int64_t ddp_graph_flat_count(const ddp_graph *graph);    /* of the flat array */
int64_t ddp_graph_output_count(const ddp_graph *graph);  /* of the output, without padding */
/* Elements of the statistics, gaps included: they begin at DDP_FLAT_ALIGN, and parameters where
 * they end. */
int64_t ddp_graph_statistics_count(const ddp_graph *graph);
/* Floating-point operations of forward and backward over one shard. */
double ddp_graph_flops(const ddp_graph *graph);

/* Fills a flat array of weights, and the memory of frozen parameters, with initial values drawn
 * from the generator, in the order in which parameters were made: learned ones begin alike,
 * whatever is frozen.
 *   frozen  host memory of ddp_graph_frozen_bytes(); NULL: frozen ones are not drawn
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_graph_init_parameters(const ddp_graph *graph, struct ddp_rng *rng, float *flat,
                                          void *frozen);

/* Where a parameter of either table lies, for readers of files. */
struct ddp_parameter_place {
    const struct ddp_parameter *parameter;
    void *memory; /* for parameter->count elements of parameter->dtype */
};
int ddp_graph_place_count(const ddp_graph *graph);
/* In the order in which they were made, statistics among them.
 *   flat, frozen  as above */
struct ddp_parameter_place ddp_graph_place_at(const ddp_graph *graph, int index, float *flat,
                                              void *frozen);

#endif
