/* SPDX-License-Identifier: MIT
 *
 * Where the shards of a global batch run. A mode owns the devices, the weights and the optimizer of
 * this worker, and turns one global batch into one update; all modes compute the same bits
 * (mode/lanes.h has the one formula). */
#ifndef DDP_MODE_MODE_H
#define DDP_MODE_MODE_H

#include "data/loader.h"
#include "graph/graph.h"
#include "kernels/clip.h"
#include "mode/frozen.h"
#include "mode/lanes.h"
#include "optim/optim.h"

typedef struct ddp_mode ddp_mode;

enum ddp_mode_kind {
    DDP_MODE_ACCUM,    /* one worker, one shard after another */
    DDP_MODE_DDP,      /* many workers, a block of shards each; gradients all-reduced in buckets */
    DDP_MODE_DP,       /* one worker, replicas in threads; a master scatters, gathers and updates */
    DDP_MODE_PIPELINE, /* the graph's operations over the workers, or threads: mode/stages.h */
};

/* Local steps: workers of DDP update weights of their own, and synchronise now and then. */
struct ddp_mode_local {
    int64_t every; /* steps between synchronisations; 0 or 1: no step is local */
    int64_t from;  /* steps before that are ordinary ones */
    int64_t steps; /* of the run, which ends with a synchronisation */
    bool outer;    /* Nesterov's SGD on the average instead of the average: */
    double outer_rate, outer_momentum;
};

/* Whether this step, from 0, is a local one. */
static inline bool ddp_mode_local_is(const struct ddp_mode_local *local, int64_t step)
{
    return local->every > 1 && step >= local->from;
}

/* Whether all workers have the same weights after `done` steps. */
static inline bool ddp_mode_local_synchronises(const struct ddp_mode_local *local, int64_t done)
{
    return local->every <= 1 || done <= local->from || done == local->steps ||
           (done - local->from) % local->every == 0;
}

/* What a mode is made from. Pointers are borrowed until it is destroyed, except `weights` and
 * `optimizer`. */
struct ddp_mode_setup {
    const ddp_graph *graph;      /* for a whole shard */
    const ddp_graph *tail_graph; /* for an epoch's shorter last shards; NULL: there are none */
    int64_t batch_rows, tail_rows;
    ddp_job *job;
    ddp_comm *comm;
    const char *device; /* kind, for ddp_device_open() */
    const int *devices; /* of this kind: the worker's, or each replica's; NULL: the first ones */
    bool fast;          /* DDP on devices: sums in the order that is fastest there */
    int threads;        /* host threads a worker (or replica) computes with */
    int replicas;       /* DataParallel; else 1 */
    int64_t
        local_shards; /* shards that this worker runs, or at most a replica, one after another */
    struct ddp_lanes_run run; /* the lanes that these are added up in; of replica 0 */
    int64_t global_shards;    /* W, of all workers and replicas */
    const float *weights;     /* flat initial weights (host), of rank 0: NULL in others; */
    bool everywhere;          /* ... or the same on all ranks */
    const struct ddp_frozen_host *frozen; /* of all ranks, complete; the graph's frozen parameters.
                            Not read after the mode is made where devices have memory of their own.
                            NULL: there are none */
    enum ddp_dtype compute; /* DDP_BF16: the graphs compute in it, and get such weights; DDP_F16:
                               they compute in it, and losses are scaled; else DDP_F32 */
    bool wire_bf16;         /* sums of gradients are rounded to bf16, at each node of their tree */
    double loss_scale;      /* of DDP_F16: the first one, */
    int64_t scale_every;    /* ... and the good steps after which it doubles, below 2^31 */
    uint64_t seed;          /* of random numbers in the graph: dropout */
    struct ddp_optimizer_config optimizer; /* its no_decay is not used: */
    bool decay_matrices_only; /* no weight decay for parameters of one dimension: biases, norms */
    double clip_norm;         /* the mean gradient is scaled down to this norm; 0: never */
    bool only_finite;         /* leave out an update when its loss or norm is not finite */
    bool gradient_norm;       /* compute its norm in each step, even without clipping */
    bool zero;                /* DDP: the update is shared out over the workers */
    bool thin_gradients;  /* ... and a worker keeps the sums of its slices alone (ZeRO, stage 2);
                            the communicator has thin memory */
    bool thin_weights;    /* ... over several machines, of which each keeps the weights of its
                            workers' slices alone (ZeRO, stage 3); with shared_weights */
    bool whole_weights;   /* ... who has them all between steps, for what the plan says */
    bool shared_weights;  /* ... which have one copy of the weights on each machine, where the
                            communicator has shared memory, and on one machine also of the state;
                            the device computes in the host's memory */
    bool sync_batch_norm; /* DDP with one local shard: batch norm over all workers' shards */
    struct ddp_mode_local local; /* DDP without zero */
    /* Pipeline: worker r has stage r % stages of replica r / stages; a single worker has all
     * stages, each on a device of `devices`. Shards and lanes are those of a replica; as many lanes
     * as shards where stages share a weight (mode/stages.h). */
    int stages;             /* else 1; 0: also 1 */
    const ddp_graph *whole; /* that `graph` is a stage of; set by the mode itself, else NULL */
    const ddp_graph *early; /* ... and the other graph of that stage; likewise */
    const int *cuts;     /* stages - 1 operations of the graph at which a stage begins, ascending */
    size_t bucket_bytes; /* DDP: gradients all-reduced together; the first at most 1 MiB */
};

/* The run of this replica of DataParallel. */
static inline struct ddp_lanes_run ddp_mode_replica_run(const struct ddp_mode_setup *setup,
                                                        int replica)
{
    const struct ddp_lanes_run *run = &setup->run;
    return setup->replicas > 1 ? ddp_lanes_run_of(run->shards, run->lanes, setup->replicas, replica)
                               : *run;
}

/* Bytes that a worker holds, by purpose; and page-locked host memory, where a device's partial sums
 * wait. */
struct ddp_mode_memory {
    size_t weights, frozen, gradients, optimizer, activations, locked;
    size_t inputs; /* copies of batches: on a device, or of a replica */
};

/* Without locked memory, which is not the device's. */
static inline double ddp_mode_memory_total(const struct ddp_mode_memory *memory)
{
    return (double)memory->weights + (double)memory->frozen + (double)memory->gradients +
           (double)memory->optimizer + (double)memory->activations + (double)memory->inputs;
}

/* What a mode runs on, as far as its memory depends on it. */
struct ddp_mode_place {
    enum ddp_mode_kind kind;
    int workers;       /* of DDP and pipeline; else 1 */
    int nodes;         /* machines that these are on */
    int node_workers;  /* of this machine */
    const int *starts; /* (nodes + 1): the first on each, and all; NULL: equally many on each */
    bool fast;         /* GPUs add up in NCCL's order */
    bool host_memory;  /* devices compute in the host's memory */
};

/* Bytes that one optimizer step moves between workers, or between replicas. */
struct ddp_mode_traffic {
    double gradients, weights; /* sent by each worker; DataParallel: by all replicas together */
    double scattered;          /* DataParallel: samples, outputs and their gradients; pipeline: what
                                  crosses its cuts, by each worker on average */
    double between;            /* sent by each machine to others; part of the former */
};

static inline double ddp_mode_traffic_total(const struct ddp_mode_traffic *traffic)
{
    return traffic->gradients + traffic->weights + traffic->scattered;
}

/* The names of the kinds, in their order, ending in NULL: a list for a choice option. */
extern const char *const ddp_mode_names[];

/* Collective in DDP: rank 0's weights go to all. */
enum ddp_status ddp_mode_create(ddp_mode **mode, enum ddp_mode_kind kind,
                                const struct ddp_mode_setup *setup);
void ddp_mode_destroy(ddp_mode *mode);

/* Runs one global batch: takes the batches of its shards from the loader (local_shards x replicas
 * of them), forward and backward, one exchange, one update. Collective in DDP.
 *   step        the optimizer step, from 0
 *   loss [out]  the mean over the global batch, the same on all ranks: over its targets that count,
 *               if the graph has targets (ddp_graph_target_count()), else over its shards
 * Without any target that counts the loss is NaN, and the step is left out. */
enum ddp_status ddp_mode_step(ddp_mode *mode, ddp_loader *loader, double rate, int64_t step,
                              float *loss);

/* The norm of the last step's mean gradient, before it was clipped: not finite if the gradient was
 * not; -1 if the setup does not ask for it. The same on all ranks, and in all modes. */
double ddp_mode_gradient_norm(const ddp_mode *mode);

/* What the last step says of the gradient, from the norms of two batch sizes: unbiased, but of one
 * step, so that either may be below 0. The mean of `noise` over steps, divided by that of `signal`,
 * is the batch, in samples, at which both weigh the same (McCandlish et al. 2018). */
struct ddp_mode_noise {
    double signal; /* the square of the norm of the true gradient */
    double noise;  /* the variance of a sample's, in all directions together */
};

/* On rank 0, where the setup asks for the gradient's norm; false: it is not known (mode/noise.h).
 * The same for any number of workers. */
bool ddp_mode_noise(const ddp_mode *mode, struct ddp_mode_noise *found);

/* What the next step's loss is multiplied by, as torch.amp.GradScaler does it: a step is left out
 * where that makes gradients infinite. Without a scale unless the mode computes in DDP_F16. The
 * same on all ranks. */
struct ddp_loss_scale ddp_mode_loss_scale(const ddp_mode *mode);
void ddp_mode_set_loss_scale(ddp_mode *mode, const struct ddp_loss_scale *scale);

/* Targets of the last step that count, on all ranks; for a loss that leaves out none, its shards.
 * 0: the step was left out. */
int64_t ddp_mode_counted(const ddp_mode *mode);

/* What a loss of preferences has measured in the last step, the same on all ranks. Returns false
 * for another loss. Not with local steps. */
bool ddp_mode_preferences(const ddp_mode *mode, struct ddp_preferences *preferences);

/* What the mode's worker holds. */
enum ddp_status ddp_mode_memory(const ddp_mode *mode, struct ddp_mode_memory *memory);

/* The same from a setup alone, without making anything: no job, communicator or weights are needed.
 * With several workers, for the one that holds most.
 *   replica  adds what this one, or this stage, holds, to zeroed or earlier parts; negative: all of
 *            them
 * DDP_ERR_MEMORY, DDP_ERR_INVALID. */
enum ddp_status ddp_mode_plan_memory(const struct ddp_mode_setup *setup,
                                     const struct ddp_mode_place *place, int replica,
                                     struct ddp_mode_memory *memory);
void ddp_mode_plan_traffic(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place,
                           struct ddp_mode_traffic *traffic);
ddp_device *ddp_mode_device(const ddp_mode *mode);

/* State for checkpoints: the name of array i, NULL after the last: "exp_avg", the optimizer's;
 * then, with local steps, those of the outer optimizer ("outer.anchor"), and each worker's own
 * ("worker.1.exp_avg", "worker.1.weights"). */
const char *ddp_mode_state_name(const ddp_mode *mode, int i);

/* What differs between workers because of local steps: the optimizer's arrays are the mean then. */
struct ddp_mode_apart {
    int workers;         /* 0: no step is local */
    bool weights, state; /* each has its own */
};
struct ddp_mode_apart ddp_mode_apart_now(const ddp_mode *mode);

/* Whether array i means anything, if workers differ like this; other workers' arrays do not. */
bool ddp_mode_has_state(const ddp_mode *mode, int i, const struct ddp_mode_apart *apart);

/* Copies `count` elements of state array i, from `begin`, to or from host memory. Collective in DDP
 * and pipelines.
 *   begin, count  with local steps: all of it
 *   values        NULL: this rank does not want them, or takes those of rank 0
 *   everywhere    all ranks have them: nothing is sent */
enum ddp_status ddp_mode_save_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                    float *values);
enum ddp_status ddp_mode_load_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                    const float *values, bool everywhere);

/* Replaces `count` elements of the flat weights, from `begin`. Collective in DDP, with the same
 * elements on all ranks.
 *   values  host; rank 0's are used */
enum ddp_status ddp_mode_put_weights(ddp_mode *mode, int64_t begin, int64_t count,
                                     const float *values);

/* Copies this much of the last step's mean gradient to host memory, as it was before clipping. A
 * step must have been made. Collective in DDP. */
enum ddp_status ddp_mode_get_gradients(ddp_mode *mode, int64_t begin, int64_t count, float *values);

/* Between synchronisations of local steps: replaces the weights by the average of all workers', up
 * to the next step. With a moving average (ddp_optimizer_config.average): by that, and it by them,
 * so that checkpoints have both. Otherwise does nothing. The same average is not computed twice.
 * Collective, except the second time. */
enum ddp_status ddp_mode_average(ddp_mode *mode);

/* With zero in bf16 on devices each worker has, after a step, the new float32 values of its own
 * slices and of what operations read in float32; of all else it has the bf16 copy. With thin
 * weights a machine has those of its workers' slices. Returns whether that is so now. */
bool ddp_mode_lacks_weights(const ddp_mode *mode);
/* Then gathers the others, until the next step; otherwise does nothing. Collective. */
enum ddp_status ddp_mode_complete_weights(ddp_mode *mode);

/* Copies `count` elements of the current weights, from `begin` of the flat array, to host memory.
 * Collective in a pipeline, and if weights are missing: a rank that does not want them passes
 * NULL. */
enum ddp_status ddp_mode_get_weights(ddp_mode *mode, int64_t begin, int64_t count, float *values);

/* The same without others, for a part of one parameter; weights must not be missing.
 *   own [out]  false: another stage of a pipeline has them, and nothing is copied */
enum ddp_status ddp_mode_own_weights(ddp_mode *mode, int64_t begin, int64_t count, float *values,
                                     bool *own);

/* Pipeline: the share of the last step that its stages, on average, waited for others; -1: not
 * measured. */
double ddp_mode_idle_share(const ddp_mode *mode);

/* The current weights, flat, on ddp_mode_device(), valid until the next step; NULL in a pipeline,
 * where no device has them all. */
const float *ddp_mode_weights(const ddp_mode *mode);
/* Their bf16 copy; NULL unless the graphs compute in bf16, and in a pipeline. */
const uint16_t *ddp_mode_weights_bf16(const ddp_mode *mode);
/* The frozen parameters on that device: all of them, except in a pipeline on devices with their own
 * memory, where they are those of its stage. */
const struct ddp_frozen *ddp_mode_frozen(const ddp_mode *mode);

#endif
