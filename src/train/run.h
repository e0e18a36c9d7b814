/* SPDX-License-Identifier: MIT
 *
 * What a training run has open, besides what is planned: shared by the files that open it (open.c)
 * and run it (train.c). */
#ifndef DDP_TRAIN_RUN_H
#define DDP_TRAIN_RUN_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/copy.h"
#include "data/text/tokenizer.h"
#include "train/evaluate.h"
#include "train/guard.h"
#include "report/metrics.h"
#include "plan/planned.h"
#include "train/whole.h"

/* Everything a run opens; closed in reverse. */
struct ddp_run {
    struct ddp_planned planned;
    ddp_job *job;
    ddp_comm *comm;
    ddp_tokenizer *tokenizer;         /* NULL: none */
    struct ddp_train_tensor *tensors; /* for the program: one for each of its parameters */
    float *weights; /* flat, host: the initial ones, later what was fetched; NULL in between */
    struct ddp_frozen_host frozen;
    uint64_t frozen_hash;    /* of its values, on rank 0 */
    uint64_t reference_hash; /* --objective: of the weights that training began with, on rank 0 */
    ddp_mode *mode;
    ddp_loader *loader;
    ddp_train_evaluator *evaluator;
    json_t *record; /* for the metrics; NULL: nothing */
    ddp_train_metrics *metrics;
    struct ddp_continuation *continuation; /* rank 0 with --sample-every; else NULL */
    struct ddp_whole sampled;              /* ... the weights that it reads */
    FILE *out;                             /* NULL on all ranks but 0 */
    char *hosts; /* (world_size, DDP_TRAIN_HOST) names of the ranks' machines; NULL: of one only */
    struct ddp_train_guard guard;
    bool complete; /* all ranks have done their work */
    bool stopped;  /* ... up to a request */
    /* Checkpoints; rank 0 has the directory, the writer and what was read. */
    struct ddp_checkpoint_dir checkpoint_dir; /* path NULL: none */
    ddp_checkpoint_writer *checkpoints;
    struct ddp_flat_source parts; /* of weights and state, where no node has them all */
    struct ddp_checkpoint resumed;
    uint64_t data_fingerprint;
    bool is_resumed;
    struct ddp_mode_apart resumed_apart; /* what differed between the workers that wrote it */
    struct ddp_loss_scale resumed_scale; /* that it had; scale 0: none */
    bool is_extended;                    /* by this run; the checkpoint's plan was: */
    struct ddp_schedule schedule_before; /* ... where the rate depends on the number of steps */
    int64_t first_step, end_step;        /* the second may come down: an early end */
    int64_t step;                        /* done */
    double idle;                         /* ddp_mode_idle_share() of all steps of this run */
    bool own_loop;                       /* the caller's, who gets what a step gives */
    double own_rate;                     /* that the program has set; NaN: the schedule's */
    ddp_train *train;                    /* the whole, for: */
    const struct ddp_hooks *hooks;
    const char *hook; /* that is running; NULL: none */
    bool hook_alone;  /* ... on this rank */
    struct ddp_checkpoint_best best;
    uint64_t id;        /* among the job's, the same on all nodes */
    bool had_begun;     /* ... in earlier workers: what is in its directory is its own */
    ddp_copy *copy;     /* rank 0, for a restart; NULL: none */
    bool weights_due;   /* they are not made: perhaps a checkpoint or the copy has them */
    bool weights_later; /* they are read once the mode is made */
    bool from_copy;     /* `resumed` is it, without files, */
    ddp_copy *source;   /* ... and its arrays are read here; NULL: they are not on this rank */
    bool everywhere;    /* ... but on all others */
    int64_t copy_next;  /* after which step; INT64_MAX: never again */
    int64_t copied_step, copied_ns;          /* rank 0: after the last one, or when steps began */
    int64_t saved_step;                      /* of the newest checkpoint; -1: none */
    int64_t checkpoint_count, checkpoint_ns; /* written by this run, and the time they took it; */
    int64_t checkpoint_wait_ns;              /* of that, for the one before */
};

/* Opens what the options name, step by step; after a failure the caller still closes the run.
 *   run  options and out are set, the rest is zero */
enum ddp_status ddp_run_open(struct ddp_run *run);
void ddp_run_close(struct ddp_run *run);

/* The parts of opening that have to do with checkpoints, in their order: checks the options and
 * locks the directory; after the communicator exists, reads the weights and sends the first step
 * to all ranks; after the mode exists, gives it the optimizer's state. */
enum ddp_status ddp_run_checkpoint_open(struct ddp_run *run);
enum ddp_status ddp_run_resume(struct ddp_run *run);
enum ddp_status ddp_run_restore(struct ddp_run *run);
void ddp_run_resume_print(const struct ddp_run *run);

/* Everything that determines the bits of the weights, and nothing else: neither workers nor modes.
 * On rank 0, after ddp_run_resume(), which hashes the data if a fact is wanted. */
void ddp_run_collect_facts(const struct ddp_run *run, struct ddp_checkpoint_facts *facts);

/* Making a run longer than it was planned (extend.c), on rank 0, with a checkpoint that was read:
 * takes over how its rate was planned, or plans it anew for --extend; compares what decides the
 * bits, telling a different length from other differences; says what was planned anew. */
void ddp_run_take_schedule(struct ddp_run *run);
enum ddp_status ddp_run_match(const struct ddp_run *run, const struct ddp_checkpoint_facts *facts);
void ddp_run_extension_print(const struct ddp_run *run);

/* Facts of a checkpoint that extending deals with. */
#define DDP_FACT_RATE     "learning rate"
#define DDP_FACT_WARMUP   "warm-up steps"
#define DDP_FACT_SCHEDULE "schedule"
#define DDP_FACT_EXTENDED "extended"

/* Whether a checkpoint is to be written after `step` steps. The same on all ranks.
 *   last  the run ends here */
bool ddp_run_checkpoint_due(const struct ddp_run *run, int64_t step, bool last);

/* Copies the state and begins to write it. Collective. */
enum ddp_status ddp_run_checkpoint(struct ddp_run *run, int64_t step);

/* The failure of a finished write. Never blocks. */
enum ddp_status ddp_run_checkpoint_poll(const struct ddp_run *run);

/* Waits until the last one is durable, and says so.
 *   stopped  the run ends early, on request */
enum ddp_status ddp_run_checkpoint_finish(struct ddp_run *run, bool stopped);
void ddp_run_checkpoint_close(struct ddp_run *run);

/* Makes run->weights, on rank 0: those that training begins with. */
enum ddp_status ddp_run_begin_weights(struct ddp_run *run);

/* The state in memory that workers of a restarted job begin with (restart.c): opens what an earlier
 * process has left, on rank 0, before ddp_run_resume(); takes memory for copies, after
 * ddp_run_restore(). */
enum ddp_status ddp_run_copy_open(struct ddp_run *run);
enum ddp_status ddp_run_copy_reserve(struct ddp_run *run);

/* Whether other nodes can go on from the state of now: where they come and go, local steps are
 * waited for until all workers have the same weights. */
bool ddp_run_suits_others(const struct ddp_run *run);

/* Between steps, after a checkpoint that is due: makes a copy if one is due, or the run stops.
 * Collective. */
enum ddp_status ddp_run_copy(struct ddp_run *run, bool stop);

/* Of checkpoints and copies: how many arrays of weights and state there are; fills them.
 *   arrays  NULL on ranks that do not write */
int ddp_run_array_count(const struct ddp_run *run);
enum ddp_status ddp_run_fill_arrays(struct ddp_run *run, float *const *arrays);

/* Where each node has a part of them alone: rank 0 writes from run->parts, to which all other ranks
 * bring their part of each piece until it has ended that, also after a failure. Otherwise `fetch`
 * is NULL. */
void ddp_run_find_source(struct ddp_run *run);
enum ddp_status ddp_run_bring_pieces(struct ddp_run *run);
enum ddp_status ddp_run_end_pieces(struct ddp_run *run);

/* The weights from there as an array that lies in a file without a name beside `path`, of which as
 * much is in memory as fits. DDP_ERR_IO. */
enum ddp_status ddp_run_map_weights(struct ddp_run *run, const char *path, float **weights);
void ddp_run_unmap_weights(const struct ddp_run *run, float *weights);

/* What state.json says of them. On rank 0. */
void ddp_run_describe_state(const struct ddp_run *run, struct ddp_checkpoint_state *state);

/* Whether the loss compares with the model that training began with; and gives the data what that
 * one says of their answers (reference.c), before other weights are restored. Collective. */
bool ddp_run_refers(const struct ddp_run *run);
enum ddp_status ddp_run_make_reference(struct ddp_run *run);

/* What evaluators of these samples have in common. Borrows the run's configuration. */
static inline struct ddp_train_evaluator_setup
ddp_run_evaluator_setup(const struct ddp_run *run, const ddp_dataset *test, int64_t samples)
{
    return (struct ddp_train_evaluator_setup){
        .mode = run->mode,
        .comm = run->comm,
        .stages = ddp_train_plan_stage_workers(&run->planned.plan),
        .together = run->planned.plan.thin_weights,
        .model = run->planned.plan.model,
        .config = &run->planned.model_config,
        .test = test,
        .samples = samples,
    };
}

/* A loader of this rank's shards that begins with optimizer step `step`.
 *   depth  batches held at once; 0: the loader's default */
enum ddp_status ddp_run_open_loader(const struct ddp_run *run, int64_t step, int depth,
                                    ddp_loader **loader);

/* --sample-every: opens what it takes, after the mode; shows a text if one is due after `step`
 * steps, on rank 0. Collective in a pipeline. */
enum ddp_status ddp_run_sample_open(struct ddp_run *run);
enum ddp_status ddp_run_sample(struct ddp_run *run, int64_t step);
void ddp_run_sample_close(struct ddp_run *run);

/* Copies the mode's current weights into run->weights. Collective, as ddp_mode_get_weights() is.
 *   wanted  on this rank */
enum ddp_status ddp_run_fetch_weights(struct ddp_run *run, bool wanted);

#endif
