/* SPDX-License-Identifier: MIT
 *
 * The options of a training run, in one table, and the plan that follows from them: how many shards
 * of how many samples make a global batch, which worker runs them, how many steps there are. */
#ifndef DDP_PLAN_OPTIONS_H
#define DDP_PLAN_OPTIONS_H

#include "core/options.h"
#include "data/loader.h"
#include "mode/stages.h"
#include "model/model.h"
#include "optim/schedule.h"
#include "report/metrics.h"

/* What --dtype takes, in the order of its names. */
enum ddp_train_dtype { DDP_TRAIN_FP32, DDP_TRAIN_BF16, DDP_TRAIN_FP16 };

#define DDP_TRAIN_DEVICES 64 /* the most that --devices and --replicas take */

#define DDP_TRAIN_LANES 1024 /* the largest --lanes */

#define DDP_COUNT_MAX INT64_C(1000000000000000) /* steps, and what is counted in them */

/* The type of weights, in memory or in files, that may have either. */
enum ddp_train_file_dtype { DDP_TRAIN_AS_LOADED, DDP_TRAIN_FILE_FP32, DDP_TRAIN_FILE_BF16 };
enum ddp_train_frozen_dtype { /* the values above, and: */
                              DDP_TRAIN_FROZEN_NF4 = DDP_TRAIN_FILE_BF16 + 1,
                              DDP_TRAIN_FROZEN_Q8_0,
                              DDP_TRAIN_FROZEN_Q4_0,
                              DDP_TRAIN_FROZEN_Q4_K,
};
extern const char *const ddp_file_dtype_names[]; /* ends with NULL */

/* What to do after a loss that is not finite. */
enum ddp_nan_kind {
    DDP_NAN_STOP, /* end with DDP_ERR_DIVERGED */
    DDP_NAN_SKIP, /* skip the update and continue */
    DDP_NAN_WARN, /* continue, as PyTorch would */
};

extern const char *const ddp_nan_names[]; /* of the kinds, ending in NULL */

struct ddp_train_options {
    struct ddp_options_given given; /* see ddp_train_given() */
    const struct ddp_model *model;
    bool custom;                                /* the model is that of ddp_train_set_model() */
    const struct ddp_data *own_data, *own_test; /* of ddp_train_set_data(); NULL: none */
    /* The options of each model; the last: of the custom one. */
    union ddp_model_own models[DDP_MODELS];
    const char *size; /* for a model that has several; NULL: not given */
    int mode;         /* enum ddp_mode_kind */
    bool distributed;
    const char *data, *dataset, *val; /* NULL: not given */
    double val_split;                 /* 0: not given */
    bool normalize;
    const char *target, *columns, *ignore; /* of a table; NULL: not given */
    bool header;
    int tokens;                            /* enum ddp_token_kind */
    const char *tokenizer, *chat_template; /* NULL: not given */
    int packing, long_samples;             /* enum ddp_packing_kind, ddp_long_kind */
    struct ddp_objective objective;
    int64_t show_masks;                     /* samples */
    const char *tokenize_in, *tokenize_out; /* of ddp_train_tokenize() */
    int64_t seq_len, vocab_size;            /* vocab_size 0: as the data say */
    int64_t data_threads;
    struct ddp_augment augment;        /* its seed is the run's */
    int64_t image_height, image_width; /* 0: not given */
    bool image_reduced;
    int64_t data_size;
    uint64_t seed;
    bool shuffle, drop_last;
    const char *config;
    const char *export_path; /* in export_text; NULL: not given */
    char export_text[4096], trace_text[4096], load_text[4096];
    bool load_frozen;                              /* all but the head of what is loaded */
    const struct ddp_weight_format *export_format; /* NULL: as the path says */
    const char *adapters;                          /* llama: PEFT's directory; NULL: not given */
    bool adapted;       /* --load or --adapters has adapters; set with the model */
    int export_dtype;   /* llama: enum ddp_train_file_dtype */
    int frozen_dtype;   /* ... or enum ddp_train_frozen_dtype */
    int export_type;    /* of GGUF: enum ddp_gguf_type; -1: not given */
    double shard_bytes; /* llama: of one exported file; 0: not given */
    bool merge;         /* llama: export adapters in the weights */
    int64_t generate;   /* tokens; 0: train */
    const char *prompt;
    double temperature;
    int64_t top_k, samples;
    const char *stop;                    /* ends a sample; NULL: none */
    int64_t sample_every, sample_length; /* steps, 0: never; tokens */
    int dtype;                           /* enum ddp_train_dtype */
    int wire_dtype;                      /* of sums of gradients: one of the first two */
    double loss_scale;                   /* of fp16, and the steps after which it doubles: */
    int64_t scale_every;
    int64_t epochs, steps; /* steps 0: as the epochs say */
    int64_t batch_size, global_batch, acc_steps;
    int64_t lanes;
    int64_t replicas, threads;
    int64_t stages;  /* 0: not given */
    const char *cut; /* NULL: not given */
    const char *device;
    int64_t devices[DDP_TRAIN_DEVICES];
    int device_count; /* --devices; 0: not given */
    bool fast;
    int optimizer; /* index of ddp_optimizer_names */
    double rate, momentum, beta1, beta2, eps, average, weight_decay, clip_norm;
    int decay_on; /* index of ddp_train_decay_names */
    bool nesterov, scale_rate;
    int schedule; /* enum ddp_schedule_kind */
    int64_t warmup_steps;
    double min_rate, gamma;
    int64_t step_size; /* epochs */
    struct ddp_train_milestones {
        int count;
        int64_t epochs[DDP_SCHEDULE_MILESTONES];
    } milestones;
    double bucket_mb;
    int64_t zero; /* stage */
    bool sync_batch_norm, recompute;
    int64_t sync_every, local_from; /* steps */
    double outer_rate, outer_momentum;
    const char *save, *load;
    const char *checkpoint, *resume_from;
    int64_t checkpoint_every, keep; /* steps, 0: each epoch; checkpoints, 0: all */
    int64_t copy_every;             /* steps; 0: as the time says that a copy takes */
    int64_t eval_every, eval_steps; /* steps, 0: each epoch; batches, 0: the whole test set */
    int64_t patience;               /* evaluations, 0: without end */
    bool keep_best;
    bool eval_only;
    const char *predict; /* NULL: not asked for */
    int64_t verify_step; /* of ddp_train_verify(); 0: the last that can be */
    bool resume, extend, evaluate, quiet, plan;
    double plan_memory;        /* bytes; 0: not given */
    int64_t shape[4], classes; /* of samples that a plan is for; classes 0: not given */
    int shape_count;           /* 0: not given */
    struct ddp_report_options report;
    int nan; /* enum ddp_nan_kind */
};

/* What weight decay applies to, ending in NULL. */
enum ddp_train_decay { DDP_DECAY_ALL, DDP_DECAY_MATRICES };
extern const char *const ddp_train_decay_names[];

/* Scopes of the table's rows. */
enum {
    DDP_OF_TEXT = 1 << 0,          /* generating, alone or in between training, takes it */
    DDP_WITH_TEXT = 1 << 1,        /* so do generating and training */
    DDP_OF_TRAINING = 1 << 2,      /* has no effect where nothing is trained */
    DDP_OF_EVALUATION = 1 << 3,    /* needs evaluations, or is one */
    DDP_OF_DATA = 1 << 4,          /* where the data are, or what */
    DDP_OF_TOKENS = 1 << 5,        /* of data that are tokens alone */
    DDP_OF_PLAN = 1 << 6,          /* --plan takes it instead of data */
    DDP_OF_NODE = 1 << 7,          /* may differ from node to node */
    DDP_OF_UPDATE = 1 << 8,        /* how workers share an update: nothing where none is made */
    DDP_OF_LOCAL = 1 << 9,         /* needs --sync-every H, with H above 1 */
    DDP_WITH_CONVERSION = 1 << 10, /* of exports without training too */
    DDP_OF_TABLE = 1 << 12,        /* of data that are tables alone */
    DDP_OF_MACHINE = 1 << 11       /* how to compute: nothing where nothing is computed */
};
#define DDP_OF_MODE(mode) (1 << (16 + (mode))) /* belongs to this --mode; to all without any */

/* The table of all options, with those of the models. Ends in a row without a name. */
const struct ddp_option *ddp_train_option_table(void);

/* Whether the option of this name, which must exist, was given. */
bool ddp_train_given(const struct ddp_train_options *options, const char *name);

/* The first given option with one of these scopes; NULL: none is. */
const char *ddp_train_given_of(const struct ddp_train_options *options, unsigned scope);

/* Whether these options ask for an evaluation or predictions of a model, instead of training. */
bool ddp_train_evaluates_only(const struct ddp_train_options *options);

/* The options of the chosen model. */
const union ddp_model_own *ddp_train_model_own(const struct ddp_train_options *options);

void ddp_train_options_default(struct ddp_train_options *options);

/* Whether a run with these options stops on request, with a checkpoint. */
bool ddp_train_options_accept_stop(const struct ddp_train_options *options);

/* What a run will do. */
struct ddp_train_plan {
    const struct ddp_model *model;
    enum ddp_mode_kind mode;
    int rank, world_size;
    int nodes;         /* machines, in the order of the ranks */
    int node_workers;  /* of this machine */
    const int *starts; /* (nodes + 1): the first rank of each machine, and the number of all; the
                          job's. NULL: equally many on each */
    int replicas;      /* of DataParallel; else 1 */
    int stages; /* of a pipeline, else 1: each a worker, or a thread where there is one worker */
    int cuts[DDP_STAGES_MAX]; /* stages - 1 operations at which they begin */
    struct ddp_device_kind device;
    int devices[DDP_TRAIN_DEVICES]; /* of this worker, or of each replica or stage in it */
    int gpu_workers;                /* workers on one GPU, where they share it; else 0 or 1 */
    int threads;                    /* of a worker, or a replica or stage in it */
    int64_t local_shards;           /* of this worker, or a replica */
    int64_t global_shards;          /* W */
    int64_t wanted_lanes, lanes;    /* asked for, and those of the global batch (mode/lanes.h) */
    struct ddp_lanes_run run;       /* of this worker, or of the first replica */
    int64_t batch_size;             /* b, samples of a shard */
    int64_t tail_rows; /* samples of a shard in an epoch's last batch; batch_size when there is no
                          shorter one */
    struct ddp_sampler_config sampler;
    int64_t steps_per_epoch, total_steps;
    int64_t epochs;            /* unless --steps is given */
    int64_t eval_samples;      /* of the test set, at most */
    bool zero, shared_weights; /* how workers share the update out */
    bool copies;               /* of the state in memory, for a restart of the job */
    bool thin_gradients;       /* --zero 2: a worker keeps those of its part alone */
    bool thin_weights;         /* --zero 3: a node keeps those of its workers' parts alone */
    bool zero_open;            /* on GPUs, without --zero: memory decides */
    bool sync_batch_norm;
    struct ddp_mode_local local;
    struct ddp_optimizer_config optimizer;
    bool decay_matrices_only;
    double clip_norm;
    struct ddp_schedule schedule;
};

/* What the options alone decide: model, mode, shards. Before the data is opened, so that a wrong
 * flag is reported at once.
 *   launched  the worker was started by ddprun
 * DDP_ERR_INVALID: says which numbers would fit. */
enum ddp_status ddp_train_plan_workers(struct ddp_train_plan *plan,
                                       const struct ddp_train_options *options, const ddp_job *job,
                                       bool launched);

/* Whether the run has a shorter last batch in an epoch. */
bool ddp_train_plan_has_tail(const struct ddp_train_plan *plan);

/* What --dtype and the device's kernels mean for the model. */
void ddp_train_config_dtype(struct ddp_model_config *config, const struct ddp_train_plan *plan,
                            enum ddp_train_dtype dtype);

/* The units that shards are divided among: workers, or replicas, of DataParallel or of
 * pipelines. */
int ddp_train_plan_units(const struct ddp_train_plan *plan);
const char *ddp_train_plan_unit_name(const struct ddp_train_plan *plan); /* "worker", "replica" */

/* Workers that together are a replica: the stages of a pipeline, unless one worker has them all. */
static inline int ddp_train_plan_stage_workers(const struct ddp_train_plan *plan)
{
    return plan->world_size > 1 ? plan->stages : 1;
}

/* Whether no node has all weights: files are then written from pieces. */
static inline bool ddp_train_plan_in_parts(const struct ddp_train_plan *plan)
{
    return plan->thin_weights || (plan->nodes > 1 && ddp_train_plan_stage_workers(plan) > 1);
}

/* Replicas or stages that are threads of this worker, with a device each. */
static inline int ddp_train_plan_local_devices(const struct ddp_train_plan *plan)
{
    return plan->world_size > 1 ? 1 : plan->replicas * plan->stages;
}

/* " on 2 nodes"; nothing for one. */
#define DDP_TRAIN_NODES 24
const char *ddp_train_show_nodes(const struct ddp_train_plan *plan, char text[DDP_TRAIN_NODES]);

/* For a pipeline that fills and drains once in a step: the share of its time that a stage waits. */
static inline double ddp_train_plan_bubble(const struct ddp_train_plan *plan)
{
    return (double)(plan->stages - 1) / (double)(plan->local_shards + plan->stages - 1);
}

/* Sets the number of stages, once the mode is known, and checks that --stages and --cut belong to
 * it (plan_stages.c). DDP_ERR_INVALID: names what would fit. */
enum ddp_status ddp_train_plan_stages(struct ddp_train_plan *plan,
                                      const struct ddp_train_options *options);

/* Lanes of the global batch, and this worker's shards of it (plan_lanes.c). */
void ddp_train_plan_lanes(struct ddp_train_plan *plan, int64_t wanted);

/* Whether each worker or replica can have a lane of those that were asked for: any number of them
 * then gives the same bits. DDP_ERR_INVALID: names what would. */
enum ddp_status ddp_train_plan_check_lanes(const struct ddp_train_plan *plan);

/* Workers that the run has a use for, so that each has shards: its global batch stays. */
int ddp_train_plan_most_workers(const struct ddp_train_plan *plan);

int64_t ddp_train_plan_process_shards(const struct ddp_train_plan *plan); /* of all its replicas */
int ddp_train_plan_arrays(const struct ddp_train_plan *plan); /* of all gradients, of a unit */

/* "3", or "2 to 4": shards of a unit. And the line of the plan. */
#define DDP_TRAIN_SHARDS 48
const char *ddp_train_plan_show_shards(const struct ddp_train_plan *plan,
                                       char text[DDP_TRAIN_SHARDS]);
void ddp_train_plan_print_lanes(const struct ddp_train_plan *plan, FILE *out);

/* Threads of one of `replicas` in this process: --threads, or OMP_NUM_THREADS, which ddprun sets,
 * or its share of the cores that the process may use. */
int ddp_train_threads(const struct ddp_train_options *options, int replicas);

/* What depends on the data: steps, schedule. */
enum ddp_status ddp_train_plan_steps(struct ddp_train_plan *plan,
                                     const struct ddp_train_options *options,
                                     const struct ddp_dataset_info *data);

/* The parts of these two about the optimizer and its learning rate (plan_optimizer.c). */
enum ddp_status ddp_train_plan_optimizer(struct ddp_train_plan *plan,
                                         const struct ddp_train_options *options);
enum ddp_status ddp_train_plan_schedule(struct ddp_train_plan *plan,
                                        const struct ddp_train_options *options);

/* Reads the value of --objective into a struct ddp_objective. NULL, or what is wrong with it. */
const char *ddp_train_read_objective(void *member, const char *value);
/* "dpo, beta 0.1" */
#define DDP_TRAIN_OBJECTIVE 128
const char *ddp_train_show_objective(const struct ddp_objective *objective,
                                     char text[DDP_TRAIN_OBJECTIVE]);
/* Once the plan is made: DDP_ERR_INVALID names what it does not go with. */
enum ddp_status ddp_train_check_objective(const struct ddp_train_options *options,
                                          const struct ddp_train_plan *plan);

/* Reads the value of --export into the options at `destination`. NULL, or what is wrong with it. */
const char *ddp_train_read_load(void *destination, const char *value);
const char *ddp_train_read_export(void *destination, const char *value);

/* Options that have no effect with the others: a misunderstanding (options_check.c). Refuses those
 * meant for another task, and warns of the rest, with one line each, on rank 0.
 *   plan  as left by ddp_train_plan_workers(); NULL: text is generated */
enum ddp_status ddp_train_check_options(const struct ddp_train_options *options,
                                        const struct ddp_train_plan *plan);

/* Before anything is opened: DDP_ERR_INVALID names options that exclude or need each other. */
enum ddp_status ddp_train_check_pairs(const struct ddp_train_options *options);

/* For an export without training (plan/weights.h): refuses and warns in the same way. */
enum ddp_status ddp_train_check_conversion(const struct ddp_train_options *options);

/* The same for those that depend on the number of steps, once the plan is complete. */
void ddp_train_check_length(const struct ddp_train_options *options,
                            const struct ddp_train_plan *plan);

void ddp_train_plan_print_optimizer(const struct ddp_train_plan *plan, FILE *out);

/* Prints the plan, a few lines.
 *   memory  of a worker; of a pipeline, of each stage */
void ddp_train_plan_print(const struct ddp_train_plan *plan,
                          const struct ddp_train_options *options,
                          const struct ddp_dataset_info *data, const ddp_graph *graph,
                          const struct ddp_mode_memory *memory, const char *device, FILE *out);

#endif
