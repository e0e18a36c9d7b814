/* SPDX-License-Identifier: MIT
 *
 * How much memory a run takes, from its plan alone: for what --plan prints, what is refused before
 * anything is allocated, and which batch would fit. Modes (mode/memory.c), loaders and evaluators
 * say what they hold; here it is added up, for a worker and for the machine. */
#ifndef DDP_PLAN_MEMORY_H
#define DDP_PLAN_MEMORY_H

#include "mode/mode.h"
#include "plan/options.h"

struct ddp_planned;

enum ddp_memory_part {
    DDP_MEMORY_WEIGHTS,
    DDP_MEMORY_FROZEN, /* parameters that are not learned */
    DDP_MEMORY_GRADIENTS,
    DDP_MEMORY_OPTIMIZER,
    DDP_MEMORY_ACTIVATIONS,
    DDP_MEMORY_INPUTS,     /* copies of batches on a GPU, or of a replica */
    DDP_MEMORY_EVALUATION, /* activations of an evaluation, and its batches */
    DDP_MEMORY_EXCHANGE,   /* room for what other workers send */
    DDP_MEMORY_BATCHES,    /* read ahead, and the order of the samples */
    DDP_MEMORY_DATA,       /* samples that are kept in memory */
    DDP_MEMORY_COPIES,     /* of weights and state, while they are read or written */
    DDP_MEMORY_PROGRAM,    /* with its libraries; on a GPU what is in use before training */
    DDP_MEMORY_PARTS,
};

extern const char *const ddp_memory_part_names[];

/* Bytes. */
struct ddp_memory {
    double unit[DDP_MEMORY_PARTS]; /* of the GPU that holds most; on the CPU of rank 0's process */
    double host[DDP_MEMORY_PARTS]; /* of all processes on the machine together */
    double unit_total, host_total;
    struct ddp_mode_memory worker;                 /* what its mode reports */
    struct ddp_mode_memory stages[DDP_STAGES_MAX]; /* of a pipeline; else the first is `worker` */
    struct ddp_mode_traffic traffic;
};

/* The memory there is; infinite: not known, or not a limit. */
struct ddp_memory_limits {
    double unit; /* of a GPU */
    double host; /* of the machine */
};

/* The memory of this run, or of another one that differs in plan and config.
 *   plan    its mode, workers, batch, ...
 *   config  the model's, of this batch
 * DDP_ERR_MEMORY, DDP_ERR_INVALID (logged). */
enum ddp_status ddp_memory_plan(const struct ddp_planned *planned,
                                const struct ddp_train_plan *plan,
                                const struct ddp_model_config *config, struct ddp_memory *memory);

/* What the run's own mode holds: the members `worker`, of the worker that holds most, and `stages`.
 */
enum ddp_status ddp_memory_of_mode(const struct ddp_planned *planned, const ddp_mode *mode,
                                   struct ddp_memory *memory);

/* Changes a plan to batches of that size. */
void ddp_memory_set_batch(const struct ddp_planned *planned, struct ddp_train_plan *plan,
                          int64_t batch);

bool ddp_memory_fits(const struct ddp_train_plan *plan, const struct ddp_memory *memory,
                     const struct ddp_memory_limits *limits);

/* The largest batch of a shard that fits, with all else as it is; 0: none does. At most all samples
 * of a shard, if the data are known. The plan gets the batch, 1 where none fits.
 *   memory [out]  with that batch */
enum ddp_status ddp_memory_largest_batch(const struct ddp_planned *planned,
                                         struct ddp_train_plan *plan,
                                         const struct ddp_model_config *config,
                                         const struct ddp_memory_limits *limits,
                                         struct ddp_memory *memory, int64_t *batch);

/* Refuses a run that needs more memory than the machine has, with what would fit.
 *   exchange_bytes [out]  what a step moves, as planned */
enum ddp_status ddp_memory_check(const struct ddp_planned *planned, double *exchange_bytes);

/* Without --zero on GPUs: chooses 0, which moves less, if that leaves some of their memory. */
enum ddp_status ddp_memory_choose_zero(struct ddp_planned *planned,
                                       const struct ddp_memory_limits *limits);

/* After DDP_ERR_MEMORY while a run was opened: the message with what would fit.
 *   message  what was said where memory ran out */
enum ddp_status ddp_memory_explain(const struct ddp_planned *planned, const char *message);

/* Bytes of the copies in memory that a restart begins with. */
double ddp_memory_of_copies(const struct ddp_train_plan *plan, const ddp_graph *graph);

/* Limits of the device that a plan is for; what a GPU holds before training goes to *used [out].
 *   device  NULL: there is none, or it is not open */
void ddp_memory_of_device(ddp_device *device, struct ddp_memory_limits *limits, double *used);

#endif
