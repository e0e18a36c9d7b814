/* SPDX-License-Identifier: MIT
 *
 * Pipeline parallelism: the graph is cut into stages, each of which has its own parameters,
 * gradients, optimizer and activations; the shards of a step pass through them, forward and
 * backward (passes.h). Each shard computes what it computes in one process, elsewhere, and each
 * stage adds its shards up in the same lanes: the result has the same bits. Replicas of the whole
 * pipeline exchange gradients as DDP does, stage by stage. */
#include "config.h"

#include "mode/pipeline.h"

#include "comm/comm.h"
#include "core/memory.h"
#include "core/trace.h"
#include "mode/tuning.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* --- making it -------------------------------------------------------------------------------- */

static bool is_alone(const struct ddp_pipeline *pipeline)
{
    return ddp_comm_size(pipeline->world) == 1;
}

/* The stages of this process, with their graphs and devices. */
static enum ddp_status make_stages(struct ddp_pipeline *pipeline)
{
    const struct ddp_mode_setup whole = pipeline->mode.setup;
    const bool alone = is_alone(pipeline);
    enum ddp_status status = DDP_OK;
    pipeline->here_count = alone ? whole.stages : 1;
    pipeline->here = ddp_array_alloc((size_t)pipeline->here_count, sizeof *pipeline->here);
    pipeline->parts = ddp_array_alloc((size_t)pipeline->here_count, sizeof *pipeline->parts);
    if (!pipeline->here || !pipeline->parts)
        return DDP_ERR_MEMORY;
    for (int i = 0; status == DDP_OK && i < pipeline->here_count; i++) {
        struct ddp_pipeline_stage *stage = &pipeline->here[i];
        stage->pipeline = pipeline;
        stage->number = alone ? i : ddp_comm_rank(pipeline->world) % whole.stages;
        stage->part = i ? &pipeline->parts[i].mode : &pipeline->mode;
        stage->part->setup = whole;
        if (i)
            stage->part->replicas = &pipeline->parts[i].replica;
        status = ddp_stage_make_graphs(stage->pieces, &stage->piece_count, &pipeline->stages,
                                       pipeline->graph, pipeline->tail_graph, stage->number);
        stage->part->setup.whole = pipeline->graph;
        stage->part->setup.graph = ddp_stage_main(stage)->graph;
        stage->part->setup.early = stage->piece_count > 1 ? stage->pieces[0].graph : NULL;
        stage->part->setup.tail_graph = ddp_stage_main(stage)->tail_graph;
        if (status == DDP_OK)
            status = ddp_replica_open_device(stage->part->replicas, &stage->part->setup, i);
    }
    return status;
}

static enum ddp_status open_group(struct ddp_pipeline *pipeline, bool device_memory, bool peers,
                                  ddp_comm **comm)
{
    const struct ddp_mode_setup *setup = &pipeline->mode.setup;
    const int stages = pipeline->stages.count, size = ddp_comm_size(pipeline->world);
    const int rank = ddp_comm_rank(pipeline->world);
    const struct ddp_comm_group group =
        peers ? (struct ddp_comm_group){rank % stages, stages, size / stages}
              : (struct ddp_comm_group){rank / stages * stages, 1, stages};
    return ddp_comm_create_group(comm, setup->job, device_memory ? "nccl" : NULL,
                                 device_memory ? pipeline->mode.replicas->device : NULL, &group);
}

/* The communicators: those of one replica's stages, and of one stage's replicas, each also for the
 * memory of devices that have their own. */
static enum ddp_status open_comms(struct ddp_pipeline *pipeline)
{
    const bool host = ddp_device_host_memory(pipeline->mode.replicas->device);
    const bool replicas = ddp_comm_size(pipeline->world) > pipeline->stages.count;
    enum ddp_status status = DDP_OK;
    if (is_alone(pipeline))
        return DDP_OK;
    if (replicas)
        status = open_group(pipeline, false, false, &pipeline->comm);
    else
        pipeline->comm = pipeline->world;
    if (status == DDP_OK && replicas)
        status = open_group(pipeline, false, true, &pipeline->peers);
    if (status == DDP_OK && replicas)
        ddp_comm_set_beside(pipeline->comm, pipeline->peers);
    if (host) {
        pipeline->wire = pipeline->comm;
        pipeline->peer_wire = pipeline->peers;
        return status;
    }
    if (status == DDP_OK)
        status = open_group(pipeline, true, false, &pipeline->wire);
    if (status == DDP_OK && replicas)
        status = open_group(pipeline, true, true, &pipeline->peer_wire);
    if (status == DDP_OK && replicas)
        ddp_comm_set_fast(pipeline->peer_wire, pipeline->mode.setup.fast);
    return status;
}

/* Weights go from rank 0 to the stages. */
static enum ddp_status open_stages(struct ddp_pipeline *pipeline)
{
    const float *weights = pipeline->mode.setup.weights;
    float *of_stages[DDP_STAGES_MAX] = {NULL};
    enum ddp_status status = ddp_pipeline_scatter(pipeline, weights, of_stages);
    for (int i = 0; status == DDP_OK && i < pipeline->here_count; i++) {
        struct ddp_pipeline_stage *stage = &pipeline->here[i];
        stage->part->setup.comm = pipeline->peers;
        status = ddp_stage_open(stage, of_stages[i]);
    }
    for (int i = 0; i < pipeline->here_count; i++)
        free(of_stages[i]);
    return status;
}

/* The end of a cut's ways that a piece has; one that is not here is left alone. */
static struct ddp_stage_piece *piece_here(struct ddp_pipeline *pipeline, int number,
                                          struct ddp_stage_piece *nobody)
{
    for (int s = 0; s < pipeline->here_count; s++)
        for (int i = 0; i < pipeline->here[s].piece_count; i++)
            if (pipeline->here[s].pieces[i].number == number)
                return &pipeline->here[s].pieces[i];
    return nobody;
}

/* Each cut has a way for values and one back for gradients, as long as the earlier piece has shards
 * in flight: nobody waits to send. */
static enum ddp_status connect_pieces(struct ddp_pipeline *pipeline)
{
    const struct ddp_stages *stages = &pipeline->stages;
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < stages->piece_count - 1; i++) {
        struct ddp_stage_piece none = {0}, *before = piece_here(pipeline, i, &none);
        struct ddp_stage_piece *behind = piece_here(pipeline, i + 1, &none);
        const int cut = stages->pieces[i].range.end;
        const int from = stages->pieces[i].stage, to = stages->pieces[i + 1].stage;
        const int slots = ddp_passes_in_flight(stages, pipeline->mode.setup.local_shards, i);
        status =
            ddp_pipeline_connect(pipeline, from, to, ddp_graph_cut_values(pipeline->graph, cut),
                                 slots, &before->values_out, &behind->values_in);
        if (status == DDP_OK)
            status = ddp_pipeline_connect(pipeline, to, from,
                                          ddp_graph_cut_gradients(pipeline->graph, cut), slots,
                                          &behind->gradients_out, &before->gradients_in);
    }
    for (int s = 0; s < pipeline->here_count; s++)
        for (int i = 0; i < pipeline->here[s].piece_count; i++) {
            pipeline->here[s].pieces[i].values_in.waited_ns = &pipeline->here[s].waited_ns;
            pipeline->here[s].pieces[i].gradients_in.waited_ns = &pipeline->here[s].waited_ns;
        }
    return status;
}

static enum ddp_status open_feed(struct ddp_pipeline *pipeline)
{
    struct ddp_feed *feed = &pipeline->feed;
    const size_t shards = (size_t)pipeline->mode.setup.local_shards;
    feed->stages = pipeline->here_count;
    feed->batches = ddp_array_alloc(shards, sizeof(const struct ddp_batch *));
    feed->users = ddp_array_alloc(shards, sizeof *feed->users);
    return feed->batches && feed->users ? DDP_OK : DDP_ERR_MEMORY;
}

/* The first exec of each piece has the shapes of the others. */
static enum ddp_status tune(struct ddp_pipeline *pipeline)
{
    struct ddp_tuning_unit *units =
        ddp_array_alloc(2 * (size_t)pipeline->here_count, sizeof *units);
    int count = 0;
    if (!units)
        return DDP_ERR_MEMORY;
    for (int s = 0; s < pipeline->here_count; s++)
        for (int i = 0; i < pipeline->here[s].piece_count; i++) {
            const struct ddp_stage_piece *piece = &pipeline->here[s].pieces[i];
            units[count] = ddp_tuning_unit_of(ddp_stage_replica(&pipeline->here[s]));
            units[count].execs[0] = piece->execs[0];
            units[count++].execs[1] = piece->tails[0];
        }
    enum ddp_status status = ddp_tuning_run(pipeline->world, units, count);
    free(units);
    return status;
}

static enum ddp_status pipeline_open(ddp_mode *mode)
{
    struct ddp_pipeline *pipeline = (struct ddp_pipeline *)mode;
    const struct ddp_mode_setup *setup = &mode->setup;
    pipeline->graph = setup->graph;
    pipeline->tail_graph = setup->tail_graph;
    pipeline->world = setup->comm;
    pipeline->idle = -1;
    if (is_alone(pipeline))
        snprintf(pipeline->phase, sizeof pipeline->phase, "compute");
    else
        snprintf(pipeline->phase, sizeof pipeline->phase, "stage %d",
                 ddp_comm_rank(setup->comm) % setup->stages);
    pthread_mutex_init(&pipeline->feed.mutex, NULL);
    enum ddp_status status =
        ddp_stages_make(&pipeline->stages, setup->graph, setup->stages, setup->cuts);
    /* Two pieces of a stage exchange the gradient of a weight shard by shard, and lanes of several
     * shards would be added in another order. */
    assert(status != DDP_OK || pipeline->stages.shared < 0 ||
           setup->run.end - setup->run.first == setup->local_shards);
    if (status == DDP_OK)
        status = make_stages(pipeline);
    if (status == DDP_OK)
        status = open_comms(pipeline);
    if (status == DDP_OK)
        status = ddp_pipeline_find_segments(pipeline);
    if (status == DDP_OK)
        status = open_stages(pipeline);
    if (status == DDP_OK)
        status = ddp_pipeline_norm_open(pipeline);
    if (status == DDP_OK)
        status = connect_pieces(pipeline);
    if (status == DDP_OK)
        status = open_feed(pipeline);
    if (status == DDP_OK)
        status = tune(pipeline);
    return status == DDP_OK && pipeline->here_count > 1
               ? ddp_replica_threads_create(&pipeline->team, pipeline->here_count)
               : status;
}

static void pipeline_close(ddp_mode *mode)
{
    struct ddp_pipeline *pipeline = (struct ddp_pipeline *)mode;
    for (int i = 0; !mode->failed && i < pipeline->here_count; i++)
        (void)ddp_device_synchronize(ddp_stage_replica(&pipeline->here[i])->device);
    ddp_replica_threads_destroy(pipeline->team);
    /* Before the memory that they use, as DDP does. */
    if (pipeline->peer_wire != pipeline->peers)
        ddp_comm_destroy(pipeline->peer_wire);
    ddp_comm_destroy(pipeline->peers);
    if (pipeline->wire != pipeline->comm)
        ddp_comm_destroy(pipeline->wire);
    if (pipeline->comm != pipeline->world)
        ddp_comm_destroy(pipeline->comm);
    for (size_t i = 0; i < pipeline->channel_count; i++)
        ddp_channel_close_threads(pipeline->channels[i].ends);
    for (int i = pipeline->here_count - 1; pipeline->here && i >= 0; i--) {
        struct ddp_pipeline_stage *stage = &pipeline->here[i];
        if (!stage->part)
            continue;
        ddp_stage_close(stage);
        if (i) {
            ddp_updater_close(&stage->part->updater);
            ddp_replica_close(stage->part->replicas);
        }
        ddp_stage_free_graphs(stage->pieces, stage->piece_count);
    }
    ddp_pipeline_norm_close(pipeline);
    pthread_mutex_destroy(&pipeline->feed.mutex);
    free(pipeline->feed.batches);
    free(pipeline->feed.users);
    free(pipeline->channels);
    free(pipeline->segments);
    free(pipeline->parts);
    free(pipeline->here);
}

/* --- a step ----------------------------------------------------------------------------------- */

/* A trace, which keeps the name, shows a row a stage. */
static void name_row(int stage)
{
    static char names[DDP_STAGES_MAX][16];
    if (!*names[stage])
        snprintf(names[stage], sizeof names[stage], "stage %d", stage);
    ddp_trace_name_thread(names[stage]);
}

/* A phase of a step, of one stage. */
typedef enum ddp_status phase(struct ddp_pipeline_stage *stage);

struct phase_of_all {
    struct ddp_pipeline *pipeline;
    phase *run;
};

/* The first failure is the cause; stages that wait for this one end. */
static enum ddp_status run_member(void *arg, int member)
{
    const struct phase_of_all *all = arg;
    struct ddp_pipeline *pipeline = all->pipeline;
    name_row(member);
    enum ddp_status status = all->run(&pipeline->here[member]);
    if (status != DDP_OK && atomic_exchange(&pipeline->stop, 1) == 0)
        pipeline->cause = status;
    return status;
}

static enum ddp_status run_phase(struct ddp_pipeline *pipeline, phase *run)
{
    struct phase_of_all all = {pipeline, run};
    if (!pipeline->team) {
        name_row(pipeline->here[0].number);
        return run(&pipeline->here[0]);
    }
    return ddp_replica_threads_run(pipeline->team, run_member, &all) == DDP_OK ? DDP_OK
                                                                               : pipeline->cause;
}

static enum ddp_status run_shards(struct ddp_pipeline_stage *stage)
{
    enum ddp_status status = ddp_stage_run(stage);
    return status == DDP_OK ? ddp_pipeline_measure(stage) : status;
}

static enum ddp_status update(struct ddp_pipeline_stage *stage)
{
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ddp_share_update(&stage->share);
    if (status == DDP_OK && begin)
        status = ddp_device_synchronize(ddp_stage_replica(stage)->device);
    return status;
}

/* Those that a failure has left. */
static void release_batches(struct ddp_feed *feed)
{
    for (int64_t i = 0; i < feed->taken; i++)
        if (feed->users[i] > 0)
            ddp_loader_release(feed->loader, feed->batches[i]);
}

static enum ddp_status pipeline_step(ddp_mode *mode, ddp_loader *loader, double rate, int64_t step,
                                     float *loss)
{
    struct ddp_pipeline *pipeline = (struct ddp_pipeline *)mode;
    ddp_job *job = mode->setup.job;
    pipeline->rate = rate;
    pipeline->step = step;
    pipeline->feed.loader = loader;
    pipeline->feed.taken = 0;
    for (int i = 0; i < pipeline->here_count; i++) {
        ddp_stage_replica(&pipeline->here[i])->step = step;
        ddp_stage_replica(&pipeline->here[i])->loss_scale = mode->replicas->loss_scale;
    }
    ddp_job_report(job, pipeline->phase, step);
    enum ddp_status status = run_phase(pipeline, run_shards);
    if (status != DDP_OK) {
        release_batches(&pipeline->feed);
        return status; /* the board keeps the phase that failed */
    }
    ddp_job_report(job, "reduce", step);
    status = ddp_pipeline_decide(pipeline);
    if (status != DDP_OK)
        return status;
    ddp_job_report(job, "update", step);
    *loss = mode->updater.loss;
    return run_phase(pipeline, update);
}

/* --- arrays in and out ------------------------------------------------------------------------ */

static enum ddp_status save_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                  float *values)
{
    return ddp_pipeline_get((struct ddp_pipeline *)mode, DDP_FLAT_STATE, i, begin, count, values);
}

static enum ddp_status load_state(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                  const float *values)
{
    return ddp_pipeline_put((struct ddp_pipeline *)mode, DDP_FLAT_STATE, i, begin, count, values);
}

static enum ddp_status get_weights(ddp_mode *mode, int64_t begin, int64_t count, float *values)
{
    return ddp_pipeline_get((struct ddp_pipeline *)mode, DDP_FLAT_WEIGHTS, 0, begin, count, values);
}

static enum ddp_status put_weights(ddp_mode *mode, int64_t begin, int64_t count,
                                   const float *values)
{
    return ddp_pipeline_put((struct ddp_pipeline *)mode, DDP_FLAT_WEIGHTS, 0, begin, count, values);
}

static enum ddp_status get_gradients(ddp_mode *mode, int64_t begin, int64_t count, float *values)
{
    return ddp_pipeline_get((struct ddp_pipeline *)mode, DDP_FLAT_GRADIENTS, 0, begin, count,
                            values);
}

static enum ddp_status own_weights(ddp_mode *mode, int64_t begin, int64_t count, float *values,
                                   bool *own)
{
    return ddp_pipeline_own((struct ddp_pipeline *)mode, begin, count, values, own);
}

static double idle_share(const ddp_mode *mode)
{
    const struct ddp_pipeline *pipeline = (const struct ddp_pipeline *)mode;
    return ddp_device_host_memory(mode->replicas->device) ? pipeline->idle : -1;
}

const struct ddp_mode_ops ddp_mode_pipeline = {
    .bytes = sizeof(struct ddp_pipeline),
    .open = pipeline_open,
    .close = pipeline_close,
    .step = pipeline_step,
    .save_state = save_state,
    .load_state = load_state,
    .get_weights = get_weights,
    .own_weights = own_weights,
    .put_weights = put_weights,
    .get_gradients = get_gradients,
    .idle_share = idle_share,
    .network = &ddp_pipeline_network,
};
