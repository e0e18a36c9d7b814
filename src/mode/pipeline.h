/* SPDX-License-Identifier: MIT
 *
 * What the files of the pipeline share. A process has one stage, or, without other workers, all of
 * them, each with its own thread and device. Each file calls only those before it: pipeline_port.c,
 * pipeline_stage.c, pipeline_norm.c, pipeline_state.c, pipeline_network.c, pipeline.c. */
#ifndef DDP_MODE_PIPELINE_H
#define DDP_MODE_PIPELINE_H

#include "mode/share.h"

#include "comm/channel.h"
#include "mode/replica_threads.h"
#include "mode/passes.h"

#include <pthread.h>

/* One end of a channel, with memory of the device if the channel's is the host's. */
struct ddp_port {
    ddp_channel *channel; /* NULL: nothing passes */
    ddp_device *device;
    void *staging; /* or NULL */
    void *slot;    /* that is held */
    size_t bytes;
    bool sends;
    int64_t *waited_ns; /* counts the time it waits for messages; or NULL */
};

/* A step's batches, for all stages of the process. */
struct ddp_feed {
    pthread_mutex_t mutex;
    ddp_loader *loader;
    const struct ddp_batch **batches; /* of the step's shards */
    int *users;                       /* of each batch: stages that are not done with it */
    int64_t taken;
    int stages;
};

/* Consecutive operations of one stage. */
struct ddp_stage_piece {
    int number;                    /* in struct ddp_stages */
    ddp_graph *graph, *tail_graph; /* the second may be NULL */
    int in_flight;
    ddp_exec **execs, **tails; /* shard i has the (i % in_flight)th */
    struct ddp_port values_in, values_out, gradients_in, gradients_out;
    int64_t begin, end; /* elements of the flat array that its backward pass makes final */
};

struct ddp_pipeline_stage {
    struct ddp_pipeline *pipeline;
    struct ddp_mode *part;  /* a mode of one replica, whose graph is that of the last piece */
    struct ddp_share share; /* over the same stage of all replicas */
    int number;
    struct ddp_passes passes;
    struct ddp_stage_piece pieces[2]; /* in the order of the graph */
    int piece_count;
    int slots;       /* shards in flight in any of the pieces */
    int64_t front;   /* elements of the flat array that forward writes: loss, statistics */
    float *fronts;   /* (slots, front) */
    char *inputs[2]; /* (slots, bytes) on the device; NULL: it reads the host's memory */
    size_t input_bytes[2];
    struct ddp_soft_labels *soft; /* likewise */
    /* A parameter that both pieces read: its gradients of shards to which the second piece has
     * written and the first has not added. */
    int shared; /* in the stage's table; -1: none */
    int pending_count;
    float *pending; /* (pending_count, elements of the parameter) */
    int next_bucket;
    int64_t waited_ns, step_ns; /* for messages, and in all, in this step */
};

/* Elements that are consecutive both in the whole flat array and in a stage's. */
struct ddp_segment {
    int64_t begin, end; /* in the whole array */
    int64_t own;        /* the first, in the stage's */
    int stage;
};

struct ddp_thread_channel {
    ddp_channel *ends[2];
};

struct ddp_pipeline {
    struct ddp_mode mode;                /* also the part of the first stage here */
    ddp_comm *world;                     /* all workers */
    const ddp_graph *graph, *tail_graph; /* whole */
    struct ddp_stages stages;
    struct ddp_segment *segments; /* ascending */
    size_t segment_count;
    struct ddp_pipeline_stage *here; /* stages of this process */
    int here_count;
    struct ddp_pipeline_part {
        struct ddp_mode mode;
        struct ddp_replica replica;
    } * parts;       /* of the stages after the first */
    ddp_comm *comm;  /* the stages of this replica; NULL: all are here */
    ddp_comm *wire;  /* ... for messages: comm, or one for the device's memory */
    ddp_comm *peers; /* the same stage of all replicas; NULL: there is one */
    ddp_comm *peer_wire;
    ddp_replica_threads *team; /* with several stages here */
    _Atomic uint32_t stop;     /* one of them has failed: */
    enum ddp_status cause;
    struct ddp_thread_channel *channels; /* between them */
    size_t channel_count;
    struct ddp_feed feed;
    /* Blocks of the norm in which several segments lie, and their elements. */
    int64_t *split_blocks;
    size_t split_count;
    float *split; /* (split_count, DDP_NORM_BLOCK) */
    double *sums; /* of blocks; after them the loss, and the share of time spent waiting */
    double idle;  /* share of the last step; -1: not known */
    int64_t step;
    double rate;
    char phase[24]; /* for the board: which stage computes */
};

static inline struct ddp_replica *ddp_stage_replica(const struct ddp_pipeline_stage *stage)
{
    return stage->part->replicas;
}

/* The piece that ends the stage; others come before it in the graph. */
static inline struct ddp_stage_piece *ddp_stage_main(struct ddp_pipeline_stage *stage)
{
    return &stage->pieces[stage->piece_count - 1];
}

/* Whether this piece ends the graph. */
static inline bool ddp_piece_is_last(const struct ddp_pipeline *pipeline, int number)
{
    return number == pipeline->stages.piece_count - 1;
}

/* --- pipeline_port.c: messages to and from another stage --- */

/* The memory of the next message; *memory NULL: nothing passes. */
enum ddp_status ddp_port_acquire(struct ddp_port *port, void **memory);
/* Work already on the device's stream has read or written it by then. */
enum ddp_status ddp_port_release(struct ddp_port *port);

/* A path for messages from stage to stage. Opens the ends that are here; none for 0 bytes.
 * Collective over the stages of the replica. */
enum ddp_status ddp_pipeline_connect(struct ddp_pipeline *pipeline, int from, int to, size_t bytes,
                                     int slots, struct ddp_port *sender, struct ddp_port *receiver);
void ddp_port_close(struct ddp_port *port); /* takes a zeroed one */

/* --- pipeline_stage.c: one stage --- */

/* The graphs of a stage's pieces, without memory. */
enum ddp_status ddp_stage_make_graphs(struct ddp_stage_piece pieces[2], int *count,
                                      const struct ddp_stages *stages, const ddp_graph *graph,
                                      const ddp_graph *tail_graph, int number);
void ddp_stage_free_graphs(struct ddp_stage_piece pieces[2], int count);

/* Makes a stage with its pieces, part, and open device. Collective over its peers.
 *   weights  host, the stage's flat array; NULL: another replica has them */
enum ddp_status ddp_stage_open(struct ddp_pipeline_stage *stage, const float *weights);
void ddp_stage_close(struct ddp_pipeline_stage *stage);

/* Runs the stage's passes of a step, and the sum over its peers. */
enum ddp_status ddp_stage_run(struct ddp_pipeline_stage *stage);

/* --- pipeline_norm.c: the norm and the loss, which all stages must know --- */

enum ddp_status ddp_pipeline_norm_open(struct ddp_pipeline *pipeline);
void ddp_pipeline_norm_close(struct ddp_pipeline *pipeline);
/* A stage's blocks. */
enum ddp_status ddp_pipeline_measure(struct ddp_pipeline_stage *stage);
/* After all stages have measured theirs: adds them up, and decides what the update is. */
enum ddp_status ddp_pipeline_decide(struct ddp_pipeline *pipeline);

/* --- pipeline_state.c: flat arrays of the whole model --- */

enum ddp_flat { DDP_FLAT_WEIGHTS, DDP_FLAT_GRADIENTS, DDP_FLAT_STATE };

/* Finds which elements are where; needs the stages' graphs. */
enum ddp_status ddp_pipeline_find_segments(struct ddp_pipeline *pipeline);

/* The stage's elements of a whole flat array of rank 0, in its order. Collective.
 *   flat    host, of rank 0
 *   stages  [out] here_count arrays, to be freed */
enum ddp_status ddp_pipeline_scatter(struct ddp_pipeline *pipeline, const float *flat,
                                     float **stages);

/* Elements [begin, begin + count) of an array, i of the optimizer's state, out to `values` if that
 * is not NULL, or in from rank 0's. Collective. */
enum ddp_status ddp_pipeline_get(struct ddp_pipeline *pipeline, enum ddp_flat which, int i,
                                 int64_t begin, int64_t count, float *values);
enum ddp_status ddp_pipeline_put(struct ddp_pipeline *pipeline, enum ddp_flat which, int i,
                                 int64_t begin, int64_t count, const float *values);

/* Copies the elements [begin, begin + count) of the weights, all of one parameter, if a stage here
 * has them. */
enum ddp_status ddp_pipeline_own(struct ddp_pipeline *pipeline, int64_t begin, int64_t count,
                                 float *values, bool *own);

/* --- pipeline_network.c: forward passes alone --- */

extern const struct ddp_network_ops ddp_pipeline_network;

#endif
