/* SPDX-License-Identifier: MIT
 *
 * What is known of a run before anything is made: all that plans, memory, tables and refusals read.
 * Only weights and data are opened for it, so that even a run that does not fit here can be
 * planned. */
#ifndef DDP_PLAN_PLANNED_H
#define DDP_PLAN_PLANNED_H

#include "data/text/wordpiece.h"
#include "plan/load.h"
#include "plan/memory.h"
#include "plan/options.h"
#include "weights/hf_config.h"

struct ddp_planned {
    struct ddp_train_options *options; /* the model is chosen when the weights are found */
    struct ddp_load load;
    struct ddp_train_plan plan;
    ddp_dataset *data, *test;
    ddp_wordpiece *wordpiece; /* of sentences; NULL: none */
    struct ddp_model_config model_config;
    struct ddp_hf_config hf_config; /* with --config */
    ddp_graph *graph, *tail_graph;
    size_t program_bytes;  /* of this process before its data is opened */
    double exchange_bytes; /* that a step moves */
    double device_bytes;   /* of the GPU, in use before it is trained on; 0: not known */
    double peak_flops;     /* a second, of all workers, where it is known; else 0 */
};

/* Closes everything except the options. */
void ddp_planned_close(struct ddp_planned *planned);

/* --- the model (plan_model.c) ----------------------------------------------------------------- */

/* --config: reads and checks it, before the data are opened, with what --export asks for. */
enum ddp_status ddp_planned_read_config(struct ddp_planned *planned);

/* What is known of a model before the data are, from --config, --load or --size: its classes, or
 * tokens of its vocabulary (0: they follow the data); and how long a sample of tokens is, as
 * --seq-len says, or by default no longer than its context. */
int64_t ddp_planned_model_classes(const struct ddp_planned *planned);
int64_t ddp_planned_sequence_length(const struct ddp_planned *planned);

/* Builds the graphs, once the data are known and the plan is complete. DDP_ERR_INVALID: options ask
 * for something that this model lacks. */
enum ddp_status ddp_planned_build(struct ddp_planned *planned);

/* --- the data --------------------------------------------------------------------------------- */

/* Checks that the model can learn from such data, that every option for the data means something
 * (plan_data.c), and that --val and the vocabulary fit the data and the model. */
enum ddp_status ddp_planned_check_fit(const struct ddp_planned *planned);
enum ddp_status ddp_planned_check_sets(const struct ddp_planned *planned);

/* The vocabulary of encoders: that of --tokenizer, or beside the weights. */
enum ddp_status ddp_planned_open_wordpiece(struct ddp_planned *planned);
/* Whether what --load names is an encoder without classes: its predictions are embeddings. */
bool ddp_planned_embeds(const struct ddp_planned *planned);
/* The numbers of an embedding that are to have the length 1 together; 0: they are left alone. */
int64_t ddp_planned_unit_width(const struct ddp_planned *planned);

/* Whether the plan is made without data. */
bool ddp_planned_lacks_data(const struct ddp_planned *planned);

/* In place of the data opens a set of samples that have a shape but no values (plan_shape.c). */
enum ddp_status ddp_planned_open_shape(struct ddp_planned *planned);

/* --- evaluations (evaluation.c) --------------------------------------------------------------- */

/* After the data are opened: DDP_ERR_INVALID when options need an evaluation and there is no data
 * for one. */
enum ddp_status ddp_planned_check_evaluation(const struct ddp_planned *planned);

/* A line of the plan, where a restart of the job begins with a copy in memory. */
void ddp_planned_print_copies(const struct ddp_planned *planned, FILE *out);

/* Steps from one evaluation to the next. */
int64_t ddp_planned_evaluation_steps(const struct ddp_planned *planned);

/* A line of the plan, if options ask for something unusual. */
void ddp_planned_print_evaluation(const struct ddp_planned *planned, FILE *out);

/* --- what it is made from (setup.c) ----------------------------------------------------------- */

/* The mode's setup, except what is open: for this plan or another, with its graphs. */
struct ddp_mode_setup ddp_planned_setup(const struct ddp_planned *planned,
                                        const struct ddp_train_plan *plan, const ddp_graph *graph,
                                        const ddp_graph *tail_graph, enum ddp_dtype compute);

/* Batches that training's loader holds at once; 0: the loader's default. */
int ddp_train_plan_loader_depth(const struct ddp_train_plan *plan);

/* --- a pipeline (plan_stages.c) --------------------------------------------------------------- */

/* Once the model is built: the cuts of --cut, or of stages with about the same amount of work. Does
 * nothing in other modes. */
enum ddp_status ddp_planned_cut(struct ddp_planned *planned);

/* --- printing --------------------------------------------------------------------------------- */

/* Floating-point operations of a whole step over all workers. */
double ddp_planned_step_flops(const struct ddp_planned *planned, const ddp_graph *graph);

/* Fills in the peak, in the type that the model computes in, if the device's description names one
 * that is known. */
void ddp_planned_know_peak(struct ddp_planned *planned, const char *description);

/* "1.23 GFLOP": three digits. */
const char *ddp_train_show_count(double value, const char *unit, char *text, size_t size);

/* Adds to the plan: the operations of a step, and with --plan --verbose each of them. */
void ddp_planned_print_compute(const struct ddp_planned *planned, FILE *out);

/* For --plan: looks at the device, chooses what its memory decides, and works out the memory.
 *   description [out]  of the device, if there is one */
#define DDP_PLANNED_DEVICE 320
enum ddp_status ddp_planned_look(struct ddp_planned *planned, struct ddp_memory_limits *limits,
                                 struct ddp_memory *memory, char description[DDP_PLANNED_DEVICE]);

/* What --plan prints besides the plan itself: stages, memory, traffic, what would fit. */
enum ddp_status ddp_planned_print_needs(const struct ddp_planned *planned,
                                        const struct ddp_memory *memory,
                                        const struct ddp_memory_limits *limits, FILE *out);

/* --plan-memory: which modes, workers and types fit, with the largest batch of each. */
enum ddp_status ddp_planned_print_table(const struct ddp_planned *planned,
                                        const struct ddp_memory_limits *limits, FILE *out);

#endif
