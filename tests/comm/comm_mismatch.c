/* SPDX-License-Identifier: MIT
 *
 * Ranks that call different collectives: what every communicator between processes must find. */
#include "config.h"

#include "core/log.h"
#include "tests/comm/comm_ranks.h"

#include <stdlib.h>
#include <string.h>

static void mismatch_count(ddp_comm *comm, ddp_job *job)
{
    float values[300] = {0};
    const size_t count = ddp_comm_rank(comm) == 1 ? 200 : 300;
    (void)job;
    NEED(ddp_comm_allreduce(comm, values, count, DDP_F32, DDP_SUM) == DDP_ERR_MISMATCH);
    NEED(ddp_comm_barrier(comm) == DDP_ERR_MISMATCH);
}

static void mismatch_kind(ddp_comm *comm, ddp_job *job)
{
    float value = 0;
    (void)job;
    if (ddp_comm_rank(comm) == 0)
        NEED(ddp_comm_barrier(comm) == DDP_ERR_MISMATCH);
    else
        NEED(ddp_comm_broadcast(comm, &value, 1, DDP_F32, 0) == DDP_ERR_MISMATCH);
}

static void mismatch_alloc(ddp_comm *comm, ddp_job *job)
{
    void *memory;
    (void)job;
    NEED(ddp_comm_alloc(comm, 4096u * (1u + (unsigned)ddp_comm_rank(comm)), &memory) ==
         DDP_ERR_MISMATCH);
}

/* Everything else is the same. */
static void mismatch_root(ddp_comm *comm, ddp_job *job)
{
    float values[300] = {0};
    (void)job;
    NEED(ddp_comm_broadcast(comm, values, 300, DDP_F32, ddp_comm_rank(comm)) == DDP_ERR_MISMATCH);
}

static void mismatch_dtype(ddp_comm *comm, ddp_job *job)
{
    float own[300] = {0}, all[1200];
    const enum ddp_dtype dtype = ddp_comm_rank(comm) ? DDP_I32 : DDP_F32;
    (void)job;
    NEED(ddp_comm_all_gather(comm, own, all, 300, dtype) == DDP_ERR_MISMATCH);
}

static void mismatch_op(ddp_comm *comm, ddp_job *job)
{
    float values[300] = {0};
    const enum ddp_redop op = ddp_comm_rank(comm) ? DDP_MAX : DDP_SUM;
    (void)job;
    NEED(ddp_comm_allreduce(comm, values, 300, DDP_F32, op) == DDP_ERR_MISMATCH);
}

ranks_body *const mismatch_rows[MISMATCH_ROWS] = {mismatch_count, mismatch_kind,  mismatch_alloc,
                                                  mismatch_root,  mismatch_dtype, mismatch_op};

/* --- what is said of calls that differ --- */

static float some[64];

static enum ddp_status call_barrier(ddp_comm *comm, float *registered)
{
    (void)registered;
    return ddp_comm_barrier(comm);
}

static enum ddp_status call_broadcast(ddp_comm *comm, float *registered)
{
    (void)registered;
    return ddp_comm_broadcast(comm, some, 3, DDP_F64, 1);
}

static enum ddp_status call_allreduce(ddp_comm *comm, float *registered)
{
    (void)registered;
    return ddp_comm_allreduce(comm, some, 5, DDP_I32, DDP_MIN);
}

static enum ddp_status call_reduce_scatter(ddp_comm *comm, float *registered)
{
    (void)registered;
    return ddp_comm_reduce_scatter(comm, some, some, 6, DDP_I64, DDP_MAX);
}

static enum ddp_status call_all_gather(ddp_comm *comm, float *registered)
{
    (void)registered;
    return ddp_comm_all_gather(comm, some, some, 7, DDP_BF16);
}

static enum ddp_status call_slices(ddp_comm *comm, float *registered)
{
    return ddp_comm_gather_slices(comm, registered, 8, 2, DDP_F32);
}

static enum ddp_status call_alloc(ddp_comm *comm, float *registered)
{
    void *memory = registered;
    return ddp_comm_alloc(comm, 9000, &memory);
}

static enum ddp_status call_shared(ddp_comm *comm, float *registered)
{
    void *memory = registered;
    return ddp_comm_alloc_shared(comm, 9000, &memory);
}

static enum ddp_status call_free(ddp_comm *comm, float *registered)
{
    return ddp_comm_free(comm, registered);
}

static enum ddp_status call_start(ddp_comm *comm, float *registered)
{
    enum ddp_status status = ddp_comm_allreduce_start(comm, registered, 10, DDP_F32, DDP_SUM);
    return status == DDP_OK ? ddp_comm_finish(comm) : status;
}

static enum ddp_status call_start_slices(ddp_comm *comm, float *registered)
{
    enum ddp_status status =
        ddp_comm_reduce_slices_start(comm, registered, 11, 4, DDP_F32, DDP_SUM);
    return status == DDP_OK ? ddp_comm_finish(comm) : status;
}

static const struct {
    enum ddp_status (*call)(ddp_comm *comm, float *registered);
    const char *words;
} calls[] = {
    {call_barrier, "barrier"},
    {call_broadcast, "broadcast of 3 f64 from rank 1"},
    {call_allreduce, "all-reduce (min) of 5 i32"},
    {call_reduce_scatter, "reduce-scatter (max) of 6 i64"},
    {call_all_gather, "all-gather of 7 bf16"},
    {call_slices, "all-gather of slices of 8 f32"},
    {call_alloc, "alloc of 9000 bytes"},
    {call_shared, "alloc of shared memory of 9000 bytes"},
    {call_free, "free"},
    {call_start, "all-reduce (started) (sum) of 10 f32"},
    {call_start_slices, "reduce-scatter (started) (sum) of 11 f32"},
};
_Static_assert(sizeof calls / sizeof calls[0] == WORDS_CALLS, "the header says how many");

int words_first_call;

void row_words(ddp_comm *comm, ddp_job *job)
{
    const int rank = ddp_comm_rank(comm);
    const int mine = (words_first_call + rank) % WORDS_CALLS,
              theirs = (words_first_call + 1 - rank) % WORDS_CALLS;
    char text[300] = "", want[200];
    void *registered;
    (void)job;
    NEED(ddp_comm_alloc(comm, sizeof some, &registered) == DDP_OK);
    ddp_log_hold(text, sizeof text);
    NEED(calls[mine].call(comm, registered) == DDP_ERR_MISMATCH);
    ddp_log_hold(NULL, 0);
    snprintf(want, sizeof want, ": rank %d calls %s, rank %d %s", rank, calls[mine].words, 1 - rank,
             calls[theirs].words);
    NEED(strncmp(text, "collective ", 11) == 0 && strstr(text, want));
}
