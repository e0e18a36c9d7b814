/* SPDX-License-Identifier: MIT
 *
 * The norm of the gradient over all stages, with the bits that it has in one process: it is made of
 * blocks of the whole flat array (kernels/norm.h), and each stage measures those that are its own.
 * The few blocks that lie in several stages are brought together and summed by one. */
#include "config.h"

#include "mode/pipeline.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

/* Behind the sums of blocks. */
enum { IDLE, HEAD, EXTRAS = HEAD + DDP_FLAT_ALIGN }; /* the head of the flat array */

static size_t block_count(const struct ddp_pipeline *pipeline)
{
    return (size_t)pipeline->mode.updater.block_count;
}

/* Parameters of the segment: statistics do not count. */
static bool is_measured(const struct ddp_pipeline *pipeline, const struct ddp_segment *segment)
{
    return segment->begin >= DDP_FLAT_ALIGN + ddp_graph_statistics_count(pipeline->graph);
}

static enum ddp_status find_split_blocks(struct ddp_pipeline *pipeline)
{
    int64_t before = -1, last = -1; /* blocks: of the segment before, and found */
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < pipeline->segment_count; i++) {
        const struct ddp_segment *segment = &pipeline->segments[i];
        const int64_t block = segment->begin / DDP_NORM_BLOCK;
        if (!is_measured(pipeline, segment))
            continue;
        if (block == before && block != last) {
            status = ddp_array_append(&pipeline->split_blocks, &pipeline->split_count, &block,
                                      sizeof block);
            last = block;
        }
        before = (segment->end - 1) / DDP_NORM_BLOCK;
    }
    return status;
}

enum ddp_status ddp_pipeline_norm_open(struct ddp_pipeline *pipeline)
{
    enum ddp_status status = DDP_OK;
    if (block_count(pipeline) > 0)
        status = find_split_blocks(pipeline);
    if (status != DDP_OK)
        return status;
    pipeline->sums = ddp_array_alloc(block_count(pipeline) + EXTRAS, sizeof *pipeline->sums);
    pipeline->split =
        ddp_array_alloc((pipeline->split_count + 1) * DDP_NORM_BLOCK, sizeof *pipeline->split);
    return pipeline->sums && pipeline->split ? DDP_OK : DDP_ERR_MEMORY;
}

void ddp_pipeline_norm_close(struct ddp_pipeline *pipeline)
{
    free(pipeline->split_blocks);
    free(pipeline->split);
    free(pipeline->sums);
}

/* Which of the split blocks this is; -1: none. */
static int64_t split_of(const struct ddp_pipeline *pipeline, int64_t block)
{
    for (size_t i = 0; i < pipeline->split_count; i++)
        if (pipeline->split_blocks[i] == block)
            return (int64_t)i;
    return -1;
}

/* Elements [begin, end) of the whole array, of a segment of this stage: out to a split block. */
static enum ddp_status show(const struct ddp_pipeline_stage *stage,
                            const struct ddp_segment *segment, int64_t split, int64_t begin,
                            int64_t end)
{
    const struct ddp_replica *replica = ddp_stage_replica(stage);
    return ddp_device_copy_out(
        replica->device, stage->pipeline->split + split * DDP_NORM_BLOCK + begin % DDP_NORM_BLOCK,
        replica->gradients + segment->own + (begin - segment->begin),
        (size_t)(end - begin) * sizeof(float));
}

/* A segment's whole blocks are measured, and its parts of split ones shown. */
static enum ddp_status measure(struct ddp_pipeline_stage *stage, const struct ddp_segment *segment)
{
    const float *gradients = ddp_stage_replica(stage)->gradients + segment->own;
    int64_t begin = segment->begin, end = segment->end;
    const int64_t first = split_of(stage->pipeline, begin / DDP_NORM_BLOCK);
    enum ddp_status status = DDP_OK;
    if (first >= 0) {
        const int64_t block_end = (begin / DDP_NORM_BLOCK + 1) * DDP_NORM_BLOCK;
        const int64_t part_end = end < block_end ? end : block_end;
        status = show(stage, segment, first, begin, part_end);
        begin = part_end;
    }
    const int64_t last = begin < end ? split_of(stage->pipeline, (end - 1) / DDP_NORM_BLOCK) : -1;
    if (status == DDP_OK && last >= 0) {
        const int64_t part_begin = (end - 1) / DDP_NORM_BLOCK * DDP_NORM_BLOCK;
        status = show(stage, segment, last, part_begin, end);
        end = part_begin;
    }
    return status == DDP_OK
               ? ddp_updater_measure_at(&stage->part->updater, gradients + (begin - segment->begin),
                                        begin, end)
               : status;
}

enum ddp_status ddp_pipeline_measure(struct ddp_pipeline_stage *stage)
{
    const struct ddp_pipeline *pipeline = stage->pipeline;
    struct ddp_updater *updater = &stage->part->updater;
    enum ddp_status status = ddp_updater_begin(updater);
    for (size_t i = 0; updater->block_count > 0 && status == DDP_OK && i < pipeline->segment_count;
         i++) {
        const struct ddp_segment *segment = &pipeline->segments[i];
        if (segment->stage == stage->number && is_measured(pipeline, segment))
            status = measure(stage, segment);
    }
    return status == DDP_OK ? ddp_updater_wait(updater) : status;
}

/* One stage of a replica sums the split blocks: on the host, which has the bits of any device. */
static enum ddp_status sum_split_blocks(struct ddp_pipeline *pipeline)
{
    enum ddp_status status = DDP_OK;
    if (pipeline->split_count > 0 && pipeline->comm)
        status = ddp_comm_allreduce(pipeline->comm, pipeline->split,
                                    pipeline->split_count * DDP_NORM_BLOCK, DDP_F32, DDP_SUM);
    for (size_t i = 0;
         status == DDP_OK && pipeline->here[0].number == 0 && i < pipeline->split_count; i++) {
        const struct ddp_norm norm = {
            .end = DDP_NORM_BLOCK,
            .x = pipeline->split + i * DDP_NORM_BLOCK,
            .sums = &pipeline->sums[pipeline->split_blocks[i]],
        };
        status = ddp_norm(&norm, NULL);
    }
    return status;
}

enum ddp_status ddp_pipeline_decide(struct ddp_pipeline *pipeline)
{
    const size_t blocks = block_count(pipeline);
    double *sums = pipeline->sums, *extras = sums + blocks;
    for (size_t i = 0; i < blocks + EXTRAS; i++)
        sums[i] = -0.0; /* a sum with it has the bits of the one stage that knows */
    for (int s = 0; s < pipeline->here_count; s++) {
        const struct ddp_pipeline_stage *stage = &pipeline->here[s];
        const struct ddp_updater *updater = &stage->part->updater;
        for (size_t i = 0; i < blocks; i++)
            sums[i] += updater->sums[i];
        if (stage->number == pipeline->stages.count - 1) {
            for (int i = 0; i < DDP_FLAT_ALIGN; i++)
                extras[HEAD + i] = (double)updater->loss_sum[i];
        }
        extras[IDLE] += (double)stage->waited_ns / (double)(stage->step_ns + 1);
    }
    enum ddp_status status = sum_split_blocks(pipeline);
    if (status == DDP_OK && pipeline->comm)
        status = ddp_comm_allreduce(pipeline->comm, sums, blocks + EXTRAS, DDP_F64, DDP_SUM);
    for (int s = 0; s < pipeline->here_count; s++) {
        struct ddp_updater *updater = &pipeline->here[s].part->updater;
        if (blocks > 0)
            memcpy(updater->sums, sums, blocks * sizeof *sums);
        for (int i = 0; i < DDP_FLAT_ALIGN; i++)
            updater->loss_sum[i] = (float)extras[HEAD + i];
        ddp_updater_take_head(updater);
        ddp_updater_decide(updater, pipeline->rate, pipeline->step);
    }
    pipeline->idle = extras[IDLE] / pipeline->stages.count;
    memset(pipeline->split, 0, pipeline->split_count * DDP_NORM_BLOCK * sizeof *pipeline->split);
    return status;
}
