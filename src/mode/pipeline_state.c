/* SPDX-License-Identifier: MIT
 *
 * Flat arrays of the whole model, in and out of the stages: weights, gradients, the optimizer's
 * state. No process holds more than a piece of an array that it does not want. */
#include "config.h"

#include "mode/pipeline.h"

#include "comm/comm.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#define BOUNCE ((int64_t)1 << 18) /* elements that travel at once */

/* --- where they lie --- */

static int by_begin(const void *a, const void *b)
{
    const struct ddp_segment *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* A segment for each parameter of a stage. */
static enum ddp_status add_segments(struct ddp_pipeline *pipeline, int stage)
{
    struct ddp_stage_piece pieces[2] = {{0}};
    int count;
    enum ddp_status status =
        ddp_stage_make_graphs(pieces, &count, &pipeline->stages, pipeline->graph, NULL, stage);
    const ddp_graph *graph = pieces[0].graph;
    for (int i = 0; status == DDP_OK && i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *whole =
            ddp_graph_parameter_at(pipeline->graph, ddp_graph_stage_source(graph, i));
        const struct ddp_segment segment = {
            .begin = whole->offset,
            .end = ddp_parameter_end(whole),
            .own = ddp_graph_parameter_at(graph, i)->offset,
            .stage = stage,
        };
        status = ddp_array_append(&pipeline->segments, &pipeline->segment_count, &segment,
                                  sizeof segment);
    }
    ddp_stage_free_graphs(pieces, count);
    return status;
}

/* Statistics and parameters stay apart: the norm is of the latter alone. */
static bool follows(const struct ddp_pipeline *pipeline, const struct ddp_segment *segment,
                    const struct ddp_segment *next)
{
    const int64_t first = DDP_FLAT_ALIGN + ddp_graph_statistics_count(pipeline->graph);
    return segment->stage == next->stage && segment->end == next->begin &&
           segment->own + (segment->end - segment->begin) == next->own && next->begin != first;
}

enum ddp_status ddp_pipeline_find_segments(struct ddp_pipeline *pipeline)
{
    enum ddp_status status = DDP_OK;
    size_t joined = 0;
    for (int s = 0; status == DDP_OK && s < pipeline->stages.count; s++)
        status = add_segments(pipeline, s);
    if (status != DDP_OK)
        return status;
    struct ddp_segment *segments = pipeline->segments;
    qsort(segments, pipeline->segment_count, sizeof *segments, by_begin);
    for (size_t i = 0; i < pipeline->segment_count; i++) {
        if (joined > 0 && follows(pipeline, &segments[joined - 1], &segments[i]))
            segments[joined - 1].end = segments[i].end;
        else
            segments[joined++] = segments[i];
    }
    pipeline->segment_count = joined;
    return DDP_OK;
}

/* --- moving them --- */

/* Some elements of one segment. */
struct part {
    const struct ddp_segment *segment;
    int64_t begin, count; /* in the whole array */
};

/* The next elements of [*at, end) that lie in a stage; false: there are none. */
static bool next_part(const struct ddp_pipeline *pipeline, int64_t *at, int64_t end,
                      struct part *part)
{
    for (size_t i = 0; i < pipeline->segment_count; i++) {
        const struct ddp_segment *segment = &pipeline->segments[i];
        const int64_t begin = *at > segment->begin ? *at : segment->begin;
        int64_t last = end < segment->end ? end : segment->end;
        if (begin >= last)
            continue;
        last = last - begin < BOUNCE ? last : begin + BOUNCE;
        *part = (struct part){segment, begin, last - begin};
        *at = last;
        return true;
    }
    return false;
}

static struct ddp_pipeline_stage *stage_of(const struct ddp_pipeline *pipeline,
                                           const struct part *part)
{
    for (int s = 0; s < pipeline->here_count; s++)
        if (pipeline->here[s].number == part->segment->stage)
            return &pipeline->here[s];
    return NULL;
}

static float *array_of(const struct ddp_pipeline_stage *stage, enum ddp_flat which, int i)
{
    switch (which) {
    case DDP_FLAT_WEIGHTS:
        return ddp_stage_replica(stage)->weights;
    case DDP_FLAT_GRADIENTS:
        return ddp_stage_replica(stage)->gradients;
    case DDP_FLAT_STATE:
        break;
    }
    return ddp_mode_state(stage->part, i);
}

static int64_t own_of(const struct part *part)
{
    return part->segment->own + (part->begin - part->segment->begin);
}

/* All processes have the elements in `bounce` then; the stage of replica 0, whose rank is its
 * number, has brought them there. */
static enum ddp_status spread(struct ddp_pipeline *pipeline, const struct part *part, int root,
                              float *bounce)
{
    return pipeline->comm
               ? ddp_comm_broadcast(pipeline->world, bounce, (size_t)part->count, DDP_F32, root)
               : DDP_OK;
}

/* The same from rank 0, unless all have it. */
static enum ddp_status spread_first(struct ddp_pipeline *pipeline, const struct part *part,
                                    float *bounce)
{
    return pipeline->mode.everywhere ? DDP_OK : spread(pipeline, part, 0, bounce);
}

enum ddp_status ddp_pipeline_get(struct ddp_pipeline *pipeline, enum ddp_flat which, int i,
                                 int64_t begin, int64_t count, float *values)
{
    float *bounce = ddp_array_alloc((size_t)BOUNCE, sizeof *bounce);
    enum ddp_status status = bounce ? DDP_OK : DDP_ERR_MEMORY;
    struct part part;
    if (values)
        memset(values, 0, (size_t)count * sizeof *values);
    for (int64_t at = begin; status == DDP_OK && next_part(pipeline, &at, begin + count, &part);) {
        const struct ddp_pipeline_stage *stage = stage_of(pipeline, &part);
        const size_t bytes = (size_t)part.count * sizeof *values;
        if (stage) {
            ddp_device *device = ddp_stage_replica(stage)->device;
            status = ddp_device_copy_out(device, bounce, array_of(stage, which, i) + own_of(&part),
                                         bytes);
            if (status == DDP_OK)
                status = ddp_device_synchronize(device);
        }
        if (status == DDP_OK)
            status = spread(pipeline, &part, part.segment->stage, bounce);
        if (status == DDP_OK && values)
            memcpy(values + (part.begin - begin), bounce, bytes);
    }
    free(bounce);
    return status;
}

enum ddp_status ddp_pipeline_put(struct ddp_pipeline *pipeline, enum ddp_flat which, int i,
                                 int64_t begin, int64_t count, const float *values)
{
    float *bounce = ddp_array_alloc((size_t)BOUNCE, sizeof *bounce);
    enum ddp_status status = bounce ? DDP_OK : DDP_ERR_MEMORY;
    struct part part;
    for (int64_t at = begin; status == DDP_OK && next_part(pipeline, &at, begin + count, &part);) {
        struct ddp_pipeline_stage *stage = stage_of(pipeline, &part);
        const size_t bytes = (size_t)part.count * sizeof *values;
        if (values)
            memcpy(bounce, values + (part.begin - begin), bytes);
        status = spread_first(pipeline, &part, bounce);
        if (status != DDP_OK || !stage)
            continue;
        struct ddp_replica *replica = ddp_stage_replica(stage);
        status = ddp_device_copy_in(replica->device, array_of(stage, which, i) + own_of(&part),
                                    bounce, bytes);
        if (status == DDP_OK && which == DDP_FLAT_WEIGHTS)
            status = ddp_replica_round_weights(replica, own_of(&part), part.count);
        if (status == DDP_OK)
            status = ddp_device_synchronize(replica->device);
    }
    free(bounce);
    return status;
}

enum ddp_status ddp_pipeline_scatter(struct ddp_pipeline *pipeline, const float *flat,
                                     float **stages)
{
    const int64_t count = ddp_graph_flat_count(pipeline->graph);
    float *bounce = ddp_array_alloc((size_t)BOUNCE, sizeof *bounce);
    enum ddp_status status = bounce ? DDP_OK : DDP_ERR_MEMORY;
    struct part part;
    for (int s = 0; status == DDP_OK && s < pipeline->here_count; s++) {
        const ddp_graph *graph = pipeline->here[s].pieces[0].graph;
        stages[s] = ddp_array_alloc((size_t)ddp_graph_flat_count(graph), sizeof **stages);
        status = stages[s] ? DDP_OK : DDP_ERR_MEMORY;
    }
    for (int64_t at = 0; status == DDP_OK && next_part(pipeline, &at, count, &part);) {
        const struct ddp_pipeline_stage *stage = stage_of(pipeline, &part);
        const size_t bytes = (size_t)part.count * sizeof *flat;
        if (flat)
            memcpy(bounce, flat + part.begin, bytes);
        status = spread_first(pipeline, &part, bounce);
        if (status == DDP_OK && stage)
            memcpy(stages[stage - pipeline->here] + own_of(&part), bounce, bytes);
    }
    free(bounce);
    return status;
}

enum ddp_status ddp_pipeline_own(struct ddp_pipeline *pipeline, int64_t begin, int64_t count,
                                 float *values, bool *own)
{
    enum ddp_status status = DDP_OK;
    struct part part;
    *own = false;
    for (int64_t at = begin; status == DDP_OK && next_part(pipeline, &at, begin + count, &part);) {
        const struct ddp_pipeline_stage *stage = stage_of(pipeline, &part);
        if (!stage)
            return DDP_OK;
        const struct ddp_replica *replica = ddp_stage_replica(stage);
        *own = true;
        status = ddp_device_copy_out(replica->device, values + (part.begin - begin),
                                     replica->weights + own_of(&part),
                                     (size_t)part.count * sizeof *values);
        if (status == DDP_OK)
            status = ddp_device_synchronize(replica->device);
    }
    return status;
}
