/* SPDX-License-Identifier: MIT
 *
 * Optimizers over a flat array of weights on a device. An optimizer keeps arrays of state with the
 * flat array's offsets, and updates any part of it: workers that share the update out take a part
 * each. One optimizer is one file that ends in one const struct ddp_optimizer_ops, and one line in
 * optim.c. */
#ifndef DDP_OPTIM_OPTIM_H
#define DDP_OPTIM_OPTIM_H

#include "device/device.h"
#include "core/range.h"

#define DDP_OPTIMIZER_STATES 3 /* arrays of state that an optimizer has at most */

/* The last of them, where there is an average of the weights: that. While it is in the weights'
 * place, as in checkpoints, the array has the weights themselves, hence its name. */
#define DDP_OPTIMIZER_AVERAGE "training.weights"

typedef struct ddp_optimizer ddp_optimizer;

/* The names of the optimizers, ending in NULL: a list for a choice option. */
extern const char *const ddp_optimizer_names[];

struct ddp_optimizer_config {
    const char *name;         /* "sgd", "adam", "adamw" */
    double momentum;          /* sgd */
    bool nesterov;            /* sgd */
    double beta1, beta2, eps; /* adam, adamw */
    double weight_decay;      /* sgd, adam: added to the gradient; adamw: decoupled */
    double average; /* decay of the moving average of the weights, below 1; 0: there is none */
    const struct ddp_range *no_decay; /* parts of the flat array without it; copied */
    int no_decay_count;
};

/* The arguments of one step over elements [begin, end). */
struct ddp_optimizer_step {
    int64_t begin, end;
    int64_t state_begin;    /* where in the state arrays the state of element `begin` lies: `begin`
                               itself, unless they hold only parts of the flat array */
    float *weights;         /* flat, device memory, in, out */
    uint16_t *weights_bf16; /* flat, device memory, out: the weights rounded to bfloat16; NULL */
    const float *gradients; /* flat, device memory: a sum over shards */
    float scale;            /* 1 / shards, times the factor of gradient clipping */
    const struct ddp_clipped *clipped; /* device memory: in place of `scale`, and whether there is
                                          a step; or NULL */
    double rate;
    int64_t step; /* from 0 */
};

struct ddp_optimizer_ops {
    const char *name;
    /* How many arrays of state it keeps, with their names in PyTorch's optimizer. */
    int (*states)(const struct ddp_optimizer_config *config, const char **names);
    enum ddp_status (*step)(const struct ddp_optimizer_config *config, ddp_device *device,
                            float *const *state, const struct ddp_optimizer_step *args);
};

extern const struct ddp_optimizer_ops ddp_optimizer_sgd, ddp_optimizer_adam, ddp_optimizer_adamw;

/* Sets *count [out] to the number of state arrays that an optimizer of this configuration keeps,
 * 0 .. DDP_OPTIMIZER_STATES. DDP_ERR_INVALID: no optimizer has that name. */
enum ddp_status ddp_optimizer_states(const struct ddp_optimizer_config *config, int *count);

/* An optimizer with state arrays of `count` elements.
 *   state  that many arrays of device memory, zeroed, which must outlive it; NULL: it has its own
 *
 * DDP_ERR_INVALID: no optimizer of that name, or a number that makes no sense. */
enum ddp_status ddp_optimizer_create(ddp_optimizer **optimizer, ddp_device *device, int64_t count,
                                     const struct ddp_optimizer_config *config,
                                     float *const *state);
void ddp_optimizer_destroy(ddp_optimizer *optimizer);

/* Updates the weights of a part. What it does to an element depends on neither the part's borders
 * nor the number of threads. */
enum ddp_status ddp_optimizer_run(ddp_optimizer *optimizer, const struct ddp_optimizer_step *args);

/* The i-th state array (device memory) and its name, such as "momentum_buffer" or "exp_avg_sq";
 * NULL after the last. */
float *ddp_optimizer_state(const ddp_optimizer *optimizer, int i, const char **name);

#endif
