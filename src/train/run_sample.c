/* SPDX-License-Identifier: MIT
 *
 * --sample-every: rank 0 lets the model in training write, between steps. It reads the current
 * weights where they are, or a copy that the stages of a pipeline have sent, and touches nothing
 * that training has; the other ranks wait for it in their next exchange. */
#include "config.h"

#include "train/run.h"

#include "core/log.h"
#include "core/memory.h"
#include "generate/continuation.h"

#include <inttypes.h>
#include <stdlib.h>

enum ddp_status ddp_run_sample_open(struct ddp_run *run)
{
    if (run->planned.options->sample_every == 0 || run->planned.plan.rank != 0 ||
        run->planned.options->plan)
        return DDP_OK;
    run->continuation = ddp_array_alloc(1, sizeof *run->continuation);
    if (!run->continuation)
        return DDP_ERR_MEMORY;
    enum ddp_status status = ddp_whole_open(&run->sampled, run, true);
    if (status == DDP_OK && !ddp_whole_is_there(run))
        status = ddp_fail(DDP_ERR_UNSUPPORTED,
                          "--sample-every: in a pipeline on GPUs no device has all parameters that "
                          "are frozen: leave it out, or use another --mode");
    if (status != DDP_OK)
        return status;
    return ddp_continuation_open(run->continuation, run->planned.options, run->tokenizer,
                                 run->planned.plan.model, &run->planned.model_config,
                                 ddp_mode_device(run->mode), run->sampled.weights,
                                 run->sampled.frozen, run->planned.options->sample_length);
}

void ddp_run_sample_close(struct ddp_run *run)
{
    if (run->continuation)
        ddp_continuation_close(run->continuation);
    free(run->continuation);
    ddp_whole_close(&run->sampled);
}

static enum ddp_status write_texts(struct ddp_run *run, int64_t step)
{
    struct ddp_continuation *c = run->continuation;
    enum ddp_status status = DDP_OK;
    ddp_continuation_begin(c);
    while (status == DDP_OK && ddp_continuation_goes_on(c)) {
        ddp_job_report(run->job, "sample", step - 1); /* a sign of life for each token */
        status = ddp_continuation_next(c);
    }
    return status;
}

enum ddp_status ddp_run_sample(struct ddp_run *run, int64_t step)
{
    struct ddp_continuation *c = run->continuation;
    const int64_t every = run->planned.options->sample_every;
    if (every == 0 || step % every != 0)
        return DDP_OK;
    enum ddp_status fetched = ddp_whole_fetch(&run->sampled, run);
    if (fetched != DDP_OK || !c)
        return fetched;
    char **texts = ddp_array_alloc((size_t)c->samples, sizeof *texts);
    if (!texts)
        return DDP_ERR_MEMORY;
    ddp_train_metrics_begin_aside(run->metrics);
    enum ddp_status status = write_texts(run, step);
    if (status == DDP_ERR_FORMAT) {
        ddp_log(DDP_LOG_WARNING,
                "--sample-every: no text after step %" PRId64
                ": the weights give numbers that are not finite; the training diverged",
                step);
        ddp_train_metrics_end_aside(run->metrics, "sample");
        free(texts);
        return DDP_OK;
    }
    for (int64_t i = 0; status == DDP_OK && i < c->samples; i++) {
        texts[i] = ddp_continuation_text(c, i);
        status = texts[i] ? DDP_OK : DDP_ERR_MEMORY;
    }
    if (status == DDP_OK)
        ddp_train_metrics_texts(run->metrics, step - 1, texts, c->samples);
    for (int64_t i = 0; i < c->samples; i++)
        free(texts[i]);
    free(texts);
    return status;
}
