/* SPDX-License-Identifier: MIT
 *
 * What a mode holds and moves, from its setup alone: what is planned, refused and reported is
 * computed here, once. Follows what the modes allocate; check_mode and plan.sh compare. */
#include "config.h"

#include "mode/pipeline.h"

#include "comm/comm.h"
#include "core/memory.h"
#include "job/job.h"
#include "mode/lanes.h"
#include "mode/share.h"

static size_t flat_bytes(const struct ddp_mode_setup *setup)
{
    return (size_t)ddp_graph_flat_count(setup->graph) * sizeof(float);
}

static size_t weights_bytes(const struct ddp_mode_setup *setup)
{
    const size_t flat = flat_bytes(setup);
    return flat + (setup->compute == DDP_BF16 ? flat / 2 : 0);
}

static bool is_zero(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    return place->workers > 1 && setup->zero;
}

/* One copy of the weights for all workers of a machine. */
static bool is_shared(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    return is_zero(setup, place) && setup->shared_weights && place->host_memory;
}

/* Each worker has the state of its slices. */
static bool is_packed(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    return is_zero(setup, place) && (!is_shared(setup, place) || place->nodes > 1);
}

/* Each machine has the weights of its workers' slices. */
static bool is_thin(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    return is_shared(setup, place) && setup->thin_weights && place->nodes > 1;
}

/* Of all passes that any worker runs. */
static double thin_bytes(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    double held, moved = 0;
    int64_t passes = 0;
    (void)ddp_share_weights_held(setup, 1, &held, &moved);
    for (int r = 0; r < place->workers; r++) {
        const struct ddp_lanes_run run =
            ddp_lanes_run_of(setup->run.shards, setup->run.lanes, place->workers, r);
        passes = ddp_lanes_shards(&run) > passes ? ddp_lanes_shards(&run) : passes;
    }
    return (double)passes * moved;
}

/* What a worker gets of the weights that others have updated, if it gets all: once after an update,
 * or before each pass that reads them. */
static double collected_bytes(const struct ddp_mode_setup *setup,
                              const struct ddp_mode_place *place)
{
    const ddp_graph *graph = setup->graph;
    double bytes = 0;
    if (is_thin(setup, place))
        return thin_bytes(setup, place);
    if (setup->compute != DDP_BF16 || is_shared(setup, place)) /* the latter rounds them itself */
        return (double)flat_bytes(setup);
    if (place->host_memory)
        return (double)weights_bytes(setup);
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++)
        bytes += (double)ddp_graph_parameter_at(graph, i)->count *
                 (ddp_share_is_exact(graph, i) ? sizeof(float) : sizeof(uint16_t));
    return bytes;
}

/* The first worker on a machine. */
static int start_of(const struct ddp_mode_place *place, int node)
{
    return place->starts ? place->starts[node] : node * (place->workers / place->nodes);
}

/* What all workers hold once, for one of them. */
static size_t part_of(size_t bytes, int workers)
{
    return bytes / (size_t)workers + (bytes % (size_t)workers != 0);
}

/* Of both graphs, which an epoch's whole and short shards need side by side. */
static enum ddp_status add_arenas(const struct ddp_mode_setup *setup, unsigned parts, size_t *bytes)
{
    size_t arena = 0, tail = 0;
    enum ddp_status status = ddp_exec_arena_bytes(setup->graph, parts, &arena);
    if (status == DDP_OK && setup->tail_graph)
        status = ddp_exec_arena_bytes(setup->tail_graph, parts, &tail);
    *bytes += arena + tail;
    return status;
}

static size_t inputs_bytes(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place,
                           bool dp)
{
    const bool host = place->host_memory, ahead = setup->local_shards > 1;
    const size_t bytes =
        ddp_exec_graph_input_bytes(setup->graph, 0) + ddp_exec_graph_input_bytes(setup->graph, 1);
    if (host)
        return dp && setup->replicas > 1 ? bytes : 0;
    return ahead ? 2 * bytes : bytes;
}

/* Elements of an array of state, of the worker that has most. */
static enum ddp_status state_count(const struct ddp_mode_setup *setup,
                                   const struct ddp_mode_place *place, int64_t *count)
{
    enum ddp_status status = DDP_OK;
    *count = ddp_graph_flat_count(setup->graph);
    if (!is_packed(setup, place))
        return DDP_OK;
    *count = 0;
    for (int rank = 0; status == DDP_OK && rank < place->workers; rank++) {
        int64_t own;
        status = ddp_share_packed_count(setup, rank, place->workers, &own);
        *count = status == DDP_OK && own > *count ? own : *count;
    }
    return status;
}

static enum ddp_status add_optimizer(const struct ddp_mode_setup *setup,
                                     const struct ddp_mode_place *place, size_t *bytes)
{
    int64_t count;
    int states;
    enum ddp_status status = ddp_optimizer_states(&setup->optimizer, &states);
    if (status == DDP_OK)
        status = state_count(setup, place, &count);
    if (status != DDP_OK)
        return status;
    const size_t all = (size_t)count * sizeof(float) * (size_t)states;
    const bool one_copy = is_shared(setup, place) && !is_packed(setup, place);
    *bytes += one_copy ? part_of(all, place->workers) : all;
    if (setup->local.every > 1 && setup->local.outer && setup->local.outer_momentum > 0)
        *bytes += flat_bytes(setup);
    *bytes += (size_t)ddp_updater_blocks(setup) * sizeof(double);
    return DDP_OK;
}

/*   sharers  of the one copy in a host's memory: all that are counted one by one there */
static void add_frozen(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place,
                       int sharers, struct ddp_mode_memory *memory)
{
    size_t bytes = ddp_frozen_host_bytes(setup->graph, setup->compute);
    if (is_thin(setup, place))
        bytes = (size_t)((double)bytes * place->node_workers / place->workers);
    memory->frozen += place->host_memory
                          ? part_of(bytes, sharers)
                          : ddp_frozen_device_bytes(setup->graph, setup->early, setup->compute);
}

/* Workers or replicas that share the lanes out. */
static int units_of(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    return place->kind == DDP_MODE_DP ? setup->replicas
           : place->kind == DDP_MODE_PIPELINE
               ? (place->workers > 1 ? place->workers / setup->stages : 1)
               : place->workers;
}

/* Adds a worker's part of its machine's weights, or its own; with thin weights, of what passes
 * bring together too, frozen ones included. */
static enum ddp_status add_weights(const struct ddp_mode_setup *setup,
                                   const struct ddp_mode_place *place, size_t *bytes)
{
    const size_t all = weights_bytes(setup);
    const size_t frozen = ddp_frozen_host_bytes(setup->graph, setup->compute);
    const double others = 1 - (double)place->node_workers / place->workers;
    double held = others * (double)(all + frozen), moved;
    enum ddp_status status = DDP_OK;
    if (!is_thin(setup, place)) {
        *bytes += is_shared(setup, place) ? part_of(all, place->node_workers) : all;
        return DDP_OK;
    }
    if (!setup->whole_weights)
        status = ddp_share_weights_held(setup, others, &held, &moved);
    *bytes += part_of((size_t)((1 - others) * (double)all + held), place->node_workers);
    return status;
}

static struct ddp_lanes_room lanes_room(const struct ddp_mode_setup *setup,
                                        const struct ddp_mode_place *place)
{
    return ddp_lanes_room(setup->run.shards, setup->run.lanes, units_of(setup, place));
}

/* What a worker has and a replica that is not the master: all but the optimizer. */
static enum ddp_status add_arrays(const struct ddp_mode_setup *setup,
                                  const struct ddp_mode_place *place, struct ddp_lanes_room room,
                                  struct ddp_mode_memory *memory)
{
    const bool thin = is_zero(setup, place) && setup->thin_gradients && room.kept < room.roots;
    int64_t window = 0;
    enum ddp_status status = thin ? ddp_share_window(setup, place->workers, &window) : DDP_OK;
    const size_t flat = flat_bytes(setup), partials = flat * (size_t)room.partials;
    if (setup->local.every > 1) /* the worker's own beside the average, and the outer anchor */
        memory->weights += (setup->local.outer ? 2 : 1) * flat;
    if (status == DDP_OK)
        status = add_weights(setup, place, &memory->weights);
    memory->gradients += flat * (size_t)(thin ? room.kept : room.roots) +
                         (size_t)window * sizeof(float) + (place->host_memory ? partials : 0);
    memory->locked += place->host_memory ? 0 : partials;
    return status;
}

static enum ddp_status add_replica(const struct ddp_mode_setup *setup,
                                   const struct ddp_mode_place *place, int replica,
                                   struct ddp_mode_memory *memory)
{
    const struct ddp_lanes_run run = ddp_mode_replica_run(setup, replica);
    enum ddp_status status = add_arrays(setup, place, ddp_lanes_room_of(&run), memory);
    add_frozen(setup, place, setup->replicas, memory);
    if (ddp_dp_stages(setup, place->host_memory, replica))
        memory->gradients += flat_bytes(setup);
    memory->inputs += inputs_bytes(setup, place, true);
    if (status == DDP_OK)
        status = add_arenas(setup, DDP_MODE_REPLICA_PARTS, &memory->activations);
    if (status != DDP_OK || replica > 0)
        return status;
    if (!ddp_graph_outputs_loss(setup->graph)) { /* the replicas do not have it */
        memory->inputs += place->host_memory ? 0 : ddp_exec_graph_input_bytes(setup->graph, 1);
        status = add_arenas(setup, DDP_MODE_MASTER_PARTS, &memory->activations);
    }
    return status == DDP_OK ? add_optimizer(setup, place, &memory->optimizer) : status;
}

/* A piece's execs, one for each shard in flight, the messages that it receives, and inputs.
 *   slots  shards in flight in the stage */
static enum ddp_status add_piece(const struct ddp_mode_setup *setup,
                                 const struct ddp_mode_setup *part, const struct ddp_stages *stages,
                                 const struct ddp_stage_piece *piece,
                                 struct ddp_mode_memory *memory)
{
    const struct ddp_graph_range range = stages->pieces[piece->number].range;
    const int in_flight = ddp_passes_in_flight(stages, setup->local_shards, piece->number);
    struct ddp_mode_setup own = *part;
    size_t arenas = 0, messages = 0;
    own.graph = piece->graph;
    own.tail_graph = piece->tail_graph;
    enum ddp_status status = add_arenas(&own, DDP_MODE_WORKER_PARTS, &arenas);
    if (piece->number > 0)
        messages += ddp_graph_cut_values(setup->graph, range.first) *
                    (size_t)ddp_passes_in_flight(stages, setup->local_shards, piece->number - 1);
    if (piece->number < stages->piece_count - 1)
        messages += ddp_graph_cut_gradients(setup->graph, range.end) * (size_t)in_flight;
    memory->activations += (size_t)in_flight * arenas + messages;
    return status;
}

/* What a stage's worker or thread has beside the memory of its execs. */
static enum ddp_status add_stage_arrays(const struct ddp_mode_setup *part,
                                        const struct ddp_mode_place *place,
                                        const struct ddp_stages *stages,
                                        const struct ddp_stage_piece *pieces, int count, int number,
                                        struct ddp_mode_memory *memory)
{
    const int64_t front = DDP_FLAT_ALIGN + ddp_graph_statistics_count(part->graph);
    const int64_t shards = part->local_shards;
    const ddp_graph *whole = part->whole;
    int slots = 0;
    size_t inputs[2] = {0, 0};
    for (int i = 0; i < count; i++) {
        const int in_flight = ddp_passes_in_flight(stages, shards, pieces[i].number);
        slots = in_flight > slots ? in_flight : slots;
        for (int j = 0; j < 2 && !place->host_memory; j++) {
            const size_t bytes = ddp_exec_graph_input_bytes(pieces[i].graph, j);
            inputs[j] = bytes > inputs[j] ? ddp_align_up(bytes, DDP_CACHE_LINE) : inputs[j];
        }
    }
    enum ddp_status status = add_arrays(part, place, lanes_room(part, place), memory);
    memory->gradients += (size_t)slots * (size_t)front * sizeof(float);
    memory->inputs += inputs_bytes(part, place, false) + (size_t)slots * (inputs[0] + inputs[1]);
    if (status == DDP_OK)
        status = add_optimizer(part, place, &memory->optimizer);
    if (status != DDP_OK || count < 2)
        return status;
    struct ddp_passes passes;
    const struct ddp_parameter *shared = ddp_graph_parameter_at(whole, stages->shared);
    status = ddp_passes_make(&passes, stages, shards, number);
    if (status == DDP_OK)
        memory->gradients += (size_t)ddp_passes_ahead(&passes, pieces[1].number, pieces[0].number) *
                             (size_t)(ddp_parameter_end(shared) - shared->offset) * sizeof(float);
    ddp_passes_free(&passes);
    return status;
}

static enum ddp_status add_stage(const struct ddp_mode_setup *setup,
                                 const struct ddp_mode_place *place, int number,
                                 struct ddp_mode_memory *memory)
{
    struct ddp_stage_piece pieces[2] = {{0}};
    struct ddp_mode_place alone = *place;
    struct ddp_mode_setup part = *setup;
    struct ddp_stages stages;
    int count = 0;
    enum ddp_status status = ddp_stages_make(&stages, setup->graph, setup->stages, setup->cuts);
    if (status == DDP_OK)
        status =
            ddp_stage_make_graphs(pieces, &count, &stages, setup->graph, setup->tail_graph, number);
    if (status == DDP_OK) {
        alone.kind = DDP_MODE_DDP; /* as its replicas are to each other */
        alone.workers = units_of(setup, place);
        alone.nodes = 1;
        alone.node_workers = alone.workers;
        alone.starts = NULL;
        part.whole = setup->graph;
        part.graph = pieces[count - 1].graph;
        part.tail_graph = pieces[count - 1].tail_graph;
        part.early = count > 1 ? pieces[0].graph : NULL;
        add_frozen(&part, place, place->workers > 1 ? place->node_workers : setup->stages, memory);
        status = add_stage_arrays(&part, &alone, &stages, pieces, count, number, memory);
    }
    for (int i = 0; status == DDP_OK && i < count; i++)
        status = add_piece(setup, &part, &stages, &pieces[i], memory);
    ddp_stage_free_graphs(pieces, count);
    return status;
}

enum ddp_status ddp_mode_plan_memory(const struct ddp_mode_setup *setup,
                                     const struct ddp_mode_place *place, int replica,
                                     struct ddp_mode_memory *memory)
{
    enum ddp_status status = DDP_OK;
    if (place->kind == DDP_MODE_PIPELINE) {
        for (int s = 0; status == DDP_OK && s < setup->stages; s++)
            if (replica < 0 || replica == s)
                status = add_stage(setup, place, s, memory);
        return status;
    }
    if (place->kind == DDP_MODE_DP) {
        for (int r = 0; status == DDP_OK && r < setup->replicas; r++)
            if (replica < 0 || replica == r)
                status = add_replica(setup, place, r, memory);
        return status;
    }
    status = add_arrays(setup, place, lanes_room(setup, place), memory);
    add_frozen(setup, place, place->node_workers, memory);
    memory->inputs += inputs_bytes(setup, place, false);
    if (status == DDP_OK)
        status = add_arenas(setup, DDP_MODE_WORKER_PARTS, &memory->activations);
    return status == DDP_OK ? add_optimizer(setup, place, &memory->optimizer) : status;
}

/* The stages of this process. */
static enum ddp_status pipeline_memory(const ddp_mode *mode, struct ddp_mode_memory *memory)
{
    const struct ddp_pipeline *pipeline = (const struct ddp_pipeline *)mode;
    struct ddp_mode_setup setup = mode->setup;
    const struct ddp_mode_place place = {
        .kind = DDP_MODE_PIPELINE,
        .workers = ddp_comm_size(pipeline->world),
        .nodes = ddp_job_node_count(mode->setup.job),
        .node_workers = ddp_job_node_size(mode->setup.job),
        .starts = ddp_job_node_starts(mode->setup.job),
        .host_memory = ddp_device_host_memory(mode->replicas->device),
    };
    enum ddp_status status = DDP_OK;
    setup.graph = pipeline->graph;
    setup.tail_graph = pipeline->tail_graph;
    for (int i = 0; status == DDP_OK && i < pipeline->here_count; i++)
        status = ddp_mode_plan_memory(&setup, &place, pipeline->here[i].number, memory);
    return status;
}

enum ddp_status ddp_mode_memory(const ddp_mode *mode, struct ddp_mode_memory *memory)
{
    const bool dp = mode->ops == &ddp_mode_dp;
    if (mode->ops == &ddp_mode_pipeline)
        return pipeline_memory(mode, memory);
    const struct ddp_mode_place place = {
        .kind = dp ? DDP_MODE_DP : DDP_MODE_DDP,
        .workers = dp ? 1 : ddp_comm_size(mode->setup.comm),
        .nodes = ddp_job_node_count(mode->setup.job),
        .node_workers = ddp_job_node_size(mode->setup.job),
        .starts = ddp_job_node_starts(mode->setup.job),
        .host_memory = ddp_device_host_memory(mode->replicas->device),
    };
    return ddp_mode_plan_memory(&mode->setup, &place, -1, memory);
}

/* --- what a step moves --- */

/* Whether each worker brings one array: averages of weights, or what NCCL adds up in its order. */
static bool one_array(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    return setup->local.every > 1 || (place->fast && !place->host_memory);
}

/* Arrays that a unit brings into the sum over all: its roots, on average. */
static double arrays_of(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    return one_array(setup, place)
               ? 1
               : lanes_room(setup, place).exchanged / (double)units_of(setup, place);
}

/* Sums that a machine sends of each element: those of the largest subtrees in the lanes of its
 * workers, or where each brings one array, in its workers. */
static int node_sums(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place,
                     int node)
{
    const int workers = place->workers, last = start_of(place, node + 1) - 1;
    const int64_t lanes = one_array(setup, place) ? workers : setup->run.lanes;
    const int64_t first = ddp_lanes_run_of(lanes, lanes, workers, start_of(place, node)).first;
    const int64_t end = ddp_lanes_run_of(lanes, lanes, workers, last).end;
    int ends[DDP_REDUCE_ROOTS];
    return ddp_reduce_run_roots(0, (int)lanes, (int)first, (int)end, ends);
}

/* Two levels on the host: each machine sends the others its sums of their parts, then what all need
 * of its own. NCCL adds up in the tree over all ranks: so does each of its workers. Of the machine
 * that sends most. */
static double between_nodes(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place)
{
    const double flat = (double)flat_bytes(setup), others = place->nodes - 1;
    const double sums = setup->wire_bf16 ? flat / 2 : flat; /* or nearly so */
    const double back = is_zero(setup, place) ? collected_bytes(setup, place) : sums;
    const double each = arrays_of(setup, place) * flat + back;
    double most = 0;
    for (int n = 0; n < place->nodes; n++) {
        const double here = start_of(place, n + 1) - start_of(place, n);
        const double share = here / place->workers;
        const double bytes =
            place->host_memory
                ? (1 - share) * node_sums(setup, place, n) * sums + share * others * back
                : (place->fast ? others / place->nodes : here * (1 - share)) * each;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The part of the flat array that is learned, and travels: all of it where gradients are thin. */
static double learned_part(const struct ddp_mode_setup *setup)
{
    return setup->thin_gradients ? 1
                                 : (double)ddp_graph_learned_end(setup->graph) /
                                       (double)ddp_graph_flat_count(setup->graph);
}

/* How many arrays are added up over the workers in a step, on average: with local steps weights in
 * the place of gradients, and not in each step. */
static double exchanges(const struct ddp_mode_setup *setup)
{
    const struct ddp_mode_local *local = &setup->local;
    if (local->every <= 1 || local->from >= local->steps)
        return 1;
    const int64_t steps = local->steps - local->from;
    const int64_t rounds = steps / local->every + (steps % local->every != 0);
    return ((double)local->from + (double)rounds) / (double)local->steps;
}

/* On average a worker: messages at each cut, and the gradients of a stage between its replicas. */
static void plan_pipeline_traffic(const struct ddp_mode_setup *setup,
                                  const struct ddp_mode_place *place,
                                  struct ddp_mode_traffic *traffic)
{
    const double stages = setup->stages;
    const double replicas = place->workers > 1 ? place->workers / stages : 1;
    struct ddp_stages cut;
    size_t bytes = 0;
    if (ddp_stages_make(&cut, setup->graph, setup->stages, setup->cuts) != DDP_OK)
        return;
    for (int i = 1; i < cut.piece_count; i++)
        bytes += ddp_graph_cut_values(setup->graph, cut.pieces[i].range.first) +
                 ddp_graph_cut_gradients(setup->graph, cut.pieces[i].range.first);
    traffic->scattered = (double)bytes * (double)setup->local_shards / stages;
    traffic->gradients = (1 + arrays_of(setup, place)) * (replicas - 1) / replicas *
                         (double)flat_bytes(setup) / stages;
}

/* Workers: each sends others their slices of its sums, and what of it all need. Replicas: the
 * master's weights and samples go out, outputs come in, their gradients go back, gradients come in.
 */
void ddp_mode_plan_traffic(const struct ddp_mode_setup *setup, const struct ddp_mode_place *place,
                           struct ddp_mode_traffic *traffic)
{
    const double flat = (double)flat_bytes(setup), weights = (double)weights_bytes(setup);
    *traffic = (struct ddp_mode_traffic){0};
    if (place->kind == DDP_MODE_DP) {
        const double others = setup->replicas - 1, shards = (double)setup->local_shards;
        const double samples = (double)ddp_exec_graph_input_bytes(setup->graph, 0);
        const double outputs = (double)ddp_exec_graph_output_bytes(setup->graph);
        traffic->weights = others * weights;
        traffic->gradients = others * arrays_of(setup, place) * flat;
        traffic->scattered = others * shards * (samples + 2 * outputs);
        return;
    }
    if (place->kind == DDP_MODE_PIPELINE) {
        plan_pipeline_traffic(setup, place, traffic);
        return;
    }
    const double share = (place->workers - 1) / (double)place->workers;
    const double part = learned_part(setup), times = exchanges(setup) * part;
    traffic->gradients =
        times * share * flat * (arrays_of(setup, place) + (is_zero(setup, place) ? 0 : 1));
    const double copies = is_shared(setup, place) ? place->nodes - 1 : place->workers - 1;
    traffic->weights =
        is_zero(setup, place) ? part * copies / place->workers * collected_bytes(setup, place) : 0;
    traffic->between = place->nodes > 1 ? times * between_nodes(setup, place) : 0;
}
