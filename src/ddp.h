/* SPDX-License-Identifier: MIT
 *
 * libddp: data-parallel training in C. Programs include this header; it includes ddp_train.h, which
 * has the training runs.
 *
 * Conventions
 *   - Functions that can fail return enum ddp_status; DDP_OK is 0, errors are negative. The cause
 *     is logged once, to standard error, where it is first known.
 *   - Outputs are written on success only.
 *   - "Collective" functions must be called by every rank, in the same order; all others are local.
 *   - Sizes named *_count are elements, *_bytes bytes, *_ms milliseconds (-1: no limit).
 *   - Objects are created and destroyed by their own functions; destroy functions accept NULL.
 *   - No object may be used by two threads at a time, unless its comment says so.
 */
#ifndef DDP_H
#define DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DDP_API                   __attribute__((visibility("default")))
#define DDP_PRINTF(string, first) __attribute__((format(printf, string, first)))
#else
#define DDP_API
#define DDP_PRINTF(string, first)
#endif

/* --- Status ----------------------------------------------------------------------------------- */

enum ddp_status {
    DDP_OK = 0,
    DDP_ERR_INVALID = -1,     /* an argument, flag or combination is invalid */
    DDP_ERR_MEMORY = -2,      /* out of memory: host, shared or device memory */
    DDP_ERR_IO = -3,          /* a file that cannot be opened, read or written */
    DDP_ERR_FORMAT = -4,      /* a file whose contents are wrong */
    DDP_ERR_SYSTEM = -5,      /* a system call failed */
    DDP_ERR_TIMEOUT = -6,     /* a deadline passed while waiting for other ranks */
    DDP_ERR_ABORTED = -7,     /* the job is being aborted because another rank failed */
    DDP_ERR_MISMATCH = -8,    /* ranks called different collectives, or with different sizes */
    DDP_ERR_UNSUPPORTED = -9, /* not in this build, or not on this device */
    DDP_ERR_PREEMPTED = -10,  /* stopped on request, after finishing the step */
    DDP_ERR_DIVERGED = -11,   /* training was stopped: a loss or gradient is not finite; ranks other
                                 than the one that said so get DDP_ERR_ABORTED */
    DDP_ERR_DIFFERS = -12,    /* a run that was computed again has other weights; likewise */
};

/* One English phrase for a status; never NULL, even for unknown numbers. */
DDP_API const char *ddp_status_string(enum ddp_status status);

/* The process exit code that ddprun and trainer document for a status (0 for DDP_OK). */
DDP_API int ddp_status_exit_code(enum ddp_status status);

/* Logs an error as the library does, one line with the program's name, and returns the status:
 * `return ddp_fail(DDP_ERR_IO, "%s: cannot read", path)` in a function that the library calls. */
DDP_API enum ddp_status ddp_fail(enum ddp_status status, const char *format, ...) DDP_PRINTF(2, 3);

/* The library's version, "major.minor.patch". */
DDP_API const char *ddp_version(void);

/* --- Job: which worker this is, and the board shared with the launcher ------------------------ */

typedef struct ddp_job ddp_job;

/* Joins the job that ddprun started, found through the environment (DDPRUN_BOARD_FD, RANK,
 * WORLD_SIZE, LOCAL_RANK). Without a launcher the job is a world of one.
 *   job [out]  freed with ddp_job_close()
 * DDP_ERR_INVALID: the environment contradicts itself; DDP_ERR_UNSUPPORTED: RANK and WORLD_SIZE > 1
 * come from a launcher that provides no board; DDP_ERR_SYSTEM, DDP_ERR_MEMORY. */
DDP_API enum ddp_status ddp_job_open(ddp_job **job);
DDP_API void ddp_job_close(ddp_job *job);

DDP_API int ddp_job_rank(const ddp_job *job);       /* 0 .. world size - 1 */
DDP_API int ddp_job_world_size(const ddp_job *job); /* workers in the job, at least 1 */
DDP_API int ddp_job_local_rank(const ddp_job *job); /* LOCAL_RANK, as ddprun set it */

#define DDP_ID_MAX_BYTES 256 /* the largest id; ncclUniqueId has 128 bytes */
#define DDP_ID_SLOTS     64  /* ids a job can hand over: one for each communicator */

/* Hands an opaque id (such as a ncclUniqueId) from the one rank that made it to all others, on all
 * nodes.
 *   slot   0 .. DDP_ID_SLOTS-1, each written once in a job
 *   bytes  at most DDP_ID_MAX_BYTES; the same on both sides (else DDP_ERR_MISMATCH)
 * ddp_job_get_id() waits until the id is there: DDP_ERR_TIMEOUT, DDP_ERR_ABORTED. */
DDP_API enum ddp_status ddp_job_put_id(ddp_job *job, int slot, const void *id, size_t bytes);
DDP_API enum ddp_status ddp_job_get_id(ddp_job *job, int slot, void *id, size_t bytes,
                                       int timeout_ms);

/* Waits until all ranks, on all nodes, have called it. Collective. DDP_ERR_TIMEOUT,
 * DDP_ERR_ABORTED. */
DDP_API enum ddp_status ddp_job_barrier(ddp_job *job, int timeout_ms);

/* Writes this worker's line on the board, which the launcher shows when the job fails or hangs.
 * Never blocks.
 *   phase  a word such as "forward", cut at 15 bytes
 *   step   the optimizer step, from 0 */
DDP_API void ddp_job_report(ddp_job *job, const char *phase, int64_t step);

/* From now on SIGTERM, SIGUSR1 and the first SIGINT ask the job to stop after a step, instead of
 * killing this process; ddprun forwards its own as such requests. A SIGINT that was ignored stays
 * ignored. A program that must not lose an early request, or be killed by a late one, blocks the
 * three at the beginning of main(): this call unblocks them, so that a pending one counts, and
 * ddp_job_close() undoes it all. Called by the thread that runs the steps.
 * DDP_ERR_INVALID: another job of this process has called it. */
DDP_API enum ddp_status ddp_job_accept_stop(ddp_job *job);

/* Called before each optimizer step, by every rank: true when the job is to stop before `step`. All
 * ranks get true for the same step, provided that no rank can begin step s + 1 before every rank
 * has begun step s, as is the case if each step reduces gradients. A program then saves its state
 * and exits with the code of DDP_ERR_PREEMPTED. Never blocks on one node. With several nodes it
 * waits, once a request has arrived, until node 0 has named the step: one message there and
 * back. */
DDP_API bool ddp_job_should_stop(ddp_job *job, int64_t step);

/* Aborts the whole job: every wait of every rank, on all nodes, ends with DDP_ERR_ABORTED. May be
 * called by any thread. */
DDP_API void ddp_job_abort(ddp_job *job);
DDP_API bool ddp_job_aborted(const ddp_job *job);

/* A job without ddprun, between processes of one machine: one hosts it as rank 0, hands the address
 * to the others by any means, and they join. Each process has a rank of its own; a process may be
 * in several such jobs.
 *   job      [out] freed with ddp_job_close()
 *   address  [out] text; the host's process must live until all have joined
 * DDP_ERR_UNSUPPORTED: the host is on another machine, in another container or another user's. */
#define DDP_JOB_ADDRESS_BYTES 64
DDP_API enum ddp_status ddp_job_host(ddp_job **job, int size, char address[DDP_JOB_ADDRESS_BYTES]);
DDP_API enum ddp_status ddp_job_join(ddp_job **job, const char *address, int rank);

/* Whether a rank of such a job that has joined is still there; otherwise it aborts the job and is
 * DDP_ERR_ABORTED. Collectives call it while they wait. May be called by any thread. */
DDP_API enum ddp_status ddp_job_check_rank(ddp_job *job, int rank);

/* The rank that an aborted job was aborted by, or because of; -1: none, or the launcher. */
DDP_API int ddp_job_culprit(const ddp_job *job);

/* --- Collectives ------------------------------------------------------------------------------ */

typedef struct ddp_comm ddp_comm;

enum ddp_dtype {
    DDP_F32 = 0,
    DDP_F64 = 1,
    DDP_I32 = 2,
    DDP_I64 = 3,
    DDP_BF16 = 4, /* the upper half of a float32; collectives copy it, but do not reduce it */
    DDP_F16 = 5,  /* IEEE's half precision: of the operands of products alone, no collective's */
    /* Blocks of small integers with a scale, of frozen matrices alone: see ddp_graph_frozen(). */
    DDP_NF4 = 6,
    DDP_NF4_BF16 = 7, /* each value is rounded to bf16 */
    DDP_Q8_0 = 8,
    DDP_Q4_0 = 9,
    DDP_Q4_K = 10,
    DDP_Q6_K = 11,
};

enum ddp_redop {
    DDP_SUM = 0, /* floating-point sums use one fixed binary tree over the ranks: the same bits
                    every time */
    DDP_MIN = 1,
    DDP_MAX = 2,
};

DDP_API size_t ddp_dtype_bytes(enum ddp_dtype dtype); /* 0 for an unknown dtype */

/* Makes a communicator over all ranks of the job. Collective.
 *   comm [out]  freed with ddp_comm_destroy(), before its job is closed
 *   backend     "self" (a world of one), "shm" (one machine), "nodes" (several), or NULL for the
 *               one that fits */
DDP_API enum ddp_status ddp_comm_create(ddp_comm **comm, ddp_job *job, const char *backend);
DDP_API void ddp_comm_destroy(ddp_comm *comm);

DDP_API int ddp_comm_rank(const ddp_comm *comm);
DDP_API int ddp_comm_size(const ddp_comm *comm);
DDP_API const char *ddp_comm_backend(const ddp_comm *comm);

/* Every wait of this communicator gives up after this time (default: -1, no limit). */
DDP_API void ddp_comm_set_timeout(ddp_comm *comm, int timeout_ms);

/* Registered memory: zeroed, page-aligned, and reachable by peers without a copy. Collective, with
 * the same size on all ranks (DDP_ERR_MISMATCH otherwise). DDP_ERR_MEMORY says what was needed and
 * what is available. ddp_comm_free() is collective too; memory that is left is freed with the
 * communicator. */
DDP_API enum ddp_status ddp_comm_alloc(ddp_comm *comm, size_t bytes, void **memory);
DDP_API enum ddp_status ddp_comm_free(ddp_comm *comm, void *memory);

/* The collectives accept any memory; registered memory is reduced in place.
 * count is elements per rank: of the whole vector for allreduce and broadcast, of one rank's part
 * for reduce_scatter (send: size x count) and all_gather (receive: size x count). send == receive
 * part is allowed (in place); other overlaps are not. count may be 0. All are collective; each can
 * return DDP_ERR_ABORTED, DDP_ERR_TIMEOUT, DDP_ERR_MISMATCH (ranks do not agree on the call), after
 * which the communicator is dead. */
DDP_API enum ddp_status ddp_comm_allreduce(ddp_comm *comm, void *buffer, size_t count,
                                           enum ddp_dtype dtype, enum ddp_redop op);
DDP_API enum ddp_status ddp_comm_reduce_scatter(ddp_comm *comm, const void *send, void *receive,
                                                size_t count, enum ddp_dtype dtype,
                                                enum ddp_redop op);
DDP_API enum ddp_status ddp_comm_all_gather(ddp_comm *comm, const void *send, void *receive,
                                            size_t count, enum ddp_dtype dtype);
DDP_API enum ddp_status ddp_comm_broadcast(ddp_comm *comm, void *buffer, size_t count,
                                           enum ddp_dtype dtype, int root);
DDP_API enum ddp_status ddp_comm_barrier(ddp_comm *comm);

/* All-reduce that overlaps with computing: start() returns at once, progress() does what can be
 * done without waiting, finish() waits until every started all-reduce is complete. The buffer must
 * be registered, and must not be touched between start and finish. Started in the same order on all
 * ranks; no other collective in between. */
DDP_API enum ddp_status ddp_comm_allreduce_start(ddp_comm *comm, void *buffer, size_t count,
                                                 enum ddp_dtype dtype, enum ddp_redop op);
DDP_API enum ddp_status ddp_comm_progress(ddp_comm *comm);
DDP_API enum ddp_status ddp_comm_finish(ddp_comm *comm);

/* Bytes from each rank to each other one, for programs that pass messages of their own. Between two
 * ranks bytes arrive in their order; a reader must know how many to expect.
 * Neither end waits: write takes as many bytes as there is room for, read gives as many as have
 * arrived, and both return that number. A program that can do nothing waits for a change: it reads
 * the count of changes before it tries.
 *   mail  [out] freed with ddp_mail_close(), before its communicator is destroyed. Several of them
 *         are independent of each other, and may be used by a thread each. Opening is collective
 * DDP_ERR_UNSUPPORTED: a device's communicator. ddp_mail_wait(): DDP_ERR_TIMEOUT, DDP_ERR_ABORTED.
 */
typedef struct ddp_mail ddp_mail;

DDP_API enum ddp_status ddp_mail_open(ddp_mail **mail, ddp_comm *comm);
DDP_API void ddp_mail_close(ddp_mail *mail);
DDP_API size_t ddp_mail_write(ddp_mail *mail, int to, const void *data, size_t bytes);
DDP_API size_t ddp_mail_read(ddp_mail *mail, int from, void *data, size_t bytes);
DDP_API uint32_t ddp_mail_changes(const ddp_mail *mail);
DDP_API enum ddp_status ddp_mail_wait(ddp_mail *mail, uint32_t changes, int timeout_ms);

/* --- Models ----------------------------------------------------------------------------------- */

/* A model is a list of operations on tensors, built once for a shard of fixed shape: building order
 * is execution order, and backward runs it in reverse. Once a builder has failed, all return NULL
 * and accept NULL; ddp_graph_finish() returns the first error, so a model is a page of
 * straight-line code. Tensors belong to their graph. */
typedef struct ddp_graph ddp_graph;
typedef struct ddp_tensor ddp_tensor;

#define DDP_TENSOR_DIMS 4

enum ddp_activation {
    DDP_ACTIVATION_NONE = 0,
    DDP_ACTIVATION_RELU = 1,
    DDP_ACTIVATION_GELU = 2,      /* z (1 + erf(z / sqrt 2)) / 2, PyTorch's default */
    DDP_ACTIVATION_GELU_TANH = 3, /* its approximation by tanh: GPT-2's "gelu_new" */
};

enum ddp_init_kind {
    DDP_INIT_ZEROS,
    DDP_INIT_ONES,
    DDP_INIT_LINEAR, /* uniform in +-1/sqrt(fan_in), as torch.nn.Linear and Conv2d draw their weight
                        and bias */
    DDP_INIT_NORMAL, /* mean 0, deviation std */
};

struct ddp_init {
    enum ddp_init_kind kind;
    int64_t fan_in; /* DDP_INIT_LINEAR: inputs of one output */
    double std;     /* DDP_INIT_NORMAL */
};

/* Tensors. Names are copied. dims are those of one shard; the first is the shard's number of
 * rows. */
DDP_API ddp_tensor *ddp_graph_input(ddp_graph *graph, const char *name, enum ddp_dtype dtype,
                                    int dim_count, const int64_t *dims);
/* Float32. Parameters draw their initial values in the order in which they are made. */
DDP_API ddp_tensor *ddp_graph_parameter(ddp_graph *graph, const char *name, int dim_count,
                                        const int64_t *dims, struct ddp_init init);
/* A parameter that is not learned: gradients pass through the operations that read it, but it has
 * neither a gradient nor optimizer state. Checkpoints do not hold it. The workers of a machine
 * share one copy on the CPU.
 *   dtype  it is held in: DDP_F32 or DDP_BF16, or on the CPU blocks, where linear layers alone read
 *          it. With one dimension, or more than two, it is always held in float32, and so are rows
 *          that are no whole blocks of a Q type. Q4_K and Q6_K are not made from other values */
DDP_API ddp_tensor *ddp_graph_frozen(ddp_graph *graph, const char *name, int dim_count,
                                     const int64_t *dims, struct ddp_init init,
                                     enum ddp_dtype dtype);
/* Parameters made between the two, by ddp_graph_parameter() and by layers, are frozen. */
DDP_API void ddp_graph_begin_frozen(ddp_graph *graph, enum ddp_dtype dtype);
DDP_API void ddp_graph_end_frozen(ddp_graph *graph);
/* The same numbers in another shape; no copy. One dimension may be -1: it follows from the
 * others. */
DDP_API ddp_tensor *ddp_graph_reshape(ddp_graph *graph, ddp_tensor *x, int dim_count,
                                      const int64_t *dims);

/* The dimensions of a tensor, DDP_TENSOR_DIMS of them, 0 beyond the last; all 0 for NULL. */
DDP_API const int64_t *ddp_graph_dims(const ddp_tensor *tensor);

/* Operations. Each returns a new tensor; shapes are checked. A tensor may be read by several: its
 * gradient is the sum of theirs. */

/* (...,C) x (O,C)^T + (O) -> (...,O); bias may be NULL. */
DDP_API ddp_tensor *ddp_graph_linear(ddp_graph *graph, ddp_tensor *x, ddp_tensor *weight,
                                     ddp_tensor *bias, enum ddp_activation activation);
/* (...,V) float32 and (...) int32 -> (1): the mean over rows. In a global batch the mean is over
 * all rows whose label counts, wherever they are. */
DDP_API ddp_tensor *ddp_graph_softmax_cross_entropy(ddp_graph *graph, ddp_tensor *logits,
                                                    ddp_tensor *labels);
/* (...,C), (V,C) and (...) int32 -> (1): the same for the logits x weight^T, which never exist as a
 * whole. It is both output and loss: ddp_graph_finish(graph, loss, loss). */
DDP_API ddp_tensor *ddp_graph_head_cross_entropy(ddp_graph *graph, ddp_tensor *x,
                                                 ddp_tensor *weight, ddp_tensor *labels);
/* Any float32 and as many targets, input 1 of float32 -> (1): the mean of (output - target)^2 over
 * all elements. */
DDP_API ddp_tensor *ddp_graph_mse(ddp_graph *graph, ddp_tensor *output, ddp_tensor *targets);
/* (B,T) int32, (V,C), (P,C) -> (B,T,C): rows of wte by token plus rows of wpe by position; wpe may
 * be NULL. */
DDP_API ddp_tensor *ddp_graph_embedding(ddp_graph *graph, ddp_tensor *tokens, ddp_tensor *wte,
                                        ddp_tensor *wpe);
/* (B,T,3C) -> (B,T,C): causal attention of several heads on packed queries, keys and values. */
DDP_API ddp_tensor *ddp_graph_attention(ddp_graph *graph, ddp_tensor *qkv, int64_t heads);
/* (B,T,H*D), (B,T,K*D) twice -> (B,T,H*D): causal attention, in which H / K heads of queries share
 * a head of keys and values; its cache holds K heads. Query i sees key j <= i if j > i - window,
 * and if j is not before the beginning of i's document.
 *   documents  (B,T) int32, the first position of each one's document, which never decreases within
 *              a row; NULL: a row is one document. Not with a cache
 *   window     0: none */
DDP_API ddp_tensor *ddp_graph_grouped_attention(ddp_graph *graph, ddp_tensor *q, ddp_tensor *k,
                                                ddp_tensor *v, ddp_tensor *documents, int64_t heads,
                                                int64_t kv_heads, int64_t window);
/* (B,N,T) int32 -> (B,T): row `index` of each sample's N. */
DDP_API ddp_tensor *ddp_graph_select(ddp_graph *graph, ddp_tensor *x, int64_t index);
/* Rotary positions (RoPE). The table has cosines and sines of position * frequency, times `factor`,
 * for positions 0 .. positions-1 and size/2 frequencies; all layers may share it. It is not
 * learned.
 *   size         R, the leading features of a head that are rotated: even
 *   frequencies  (R/2), radians; copied */
DDP_API ddp_tensor *ddp_graph_rope_table(ddp_graph *graph, int64_t positions, int64_t size,
                                         const float *frequencies, float factor);
/* (B,T,C) of several heads, or (B,T,H,D) -> the same shape: in each head of row t, feature i and
 * feature i + R/2 are rotated by the angles of position t. */
DDP_API ddp_tensor *ddp_graph_rope(ddp_graph *graph, ddp_tensor *x, int64_t heads,
                                   ddp_tensor *table);
/* silu(gate) * up of two tensors of the same shape, silu(z) = z / (1 + exp(-z)). */
DDP_API ddp_tensor *ddp_graph_swiglu(ddp_graph *graph, ddp_tensor *gate, ddp_tensor *up);
/* The sum of two tensors of the same shape. */
DDP_API ddp_tensor *ddp_graph_add(ddp_graph *graph, ddp_tensor *a, ddp_tensor *b);
/* Zeroes elements with this probability in training and divides the others by (1 - probability). */
DDP_API ddp_tensor *ddp_graph_dropout(ddp_graph *graph, ddp_tensor *x, double probability);
/* Each element times the factor, which is finite and not 0. */
DDP_API ddp_tensor *ddp_graph_scale(ddp_graph *graph, ddp_tensor *x, double factor);
/* Image operations take channels-last images. (B,C,H,W) -> (B,H,W,C), and back. */
DDP_API ddp_tensor *ddp_graph_channels_last(ddp_graph *graph, ddp_tensor *x);
DDP_API ddp_tensor *ddp_graph_channels_first(ddp_graph *graph, ddp_tensor *x);
/* (B,H,W,C) -> (B,OH,OW,C): the largest of each kernel x kernel window. */
DDP_API ddp_tensor *ddp_graph_max_pool2d(ddp_graph *graph, ddp_tensor *x, int64_t kernel,
                                         int64_t stride, int64_t padding);
/* (B,H,W,C) -> (B,C): the mean of each channel. */
DDP_API ddp_tensor *ddp_graph_global_avg_pool2d(ddp_graph *graph, ddp_tensor *x);
/* Any float32 -> (1). */
DDP_API ddp_tensor *ddp_graph_sum(ddp_graph *graph, ddp_tensor *x);

#define DDP_CUSTOM_INPUTS 4

/* An input of a program's own operation, in host memory. */
struct ddp_custom_tensor {
    enum ddp_dtype dtype; /* DDP_F32; of tokens and labels DDP_I32, of frozen parameters perhaps
                             DDP_BF16 */
    int dim_count;
    int64_t dims[DDP_TENSOR_DIMS];
    int64_t count;      /* elements */
    const void *values; /* row-major */
    float *gradients;   /* backward: zeros, to write or to add to; NULL: not needed */
};

/* What its callbacks work on: one shard. New members are added at its end. */
struct ddp_custom_pass {
    struct ddp_custom_tensor inputs[DDP_CUSTOM_INPUTS];
    float *output; /* forward: to write; backward: NULL */
    int64_t output_count;
    const float *output_gradients; /* backward */
    void *saved;                   /* forward may write it for backward; NULL: nothing is trained */
    void *scratch;                 /* gone after the callback */
    bool trains;                   /* false: an evaluation */
};

/* A program's own operation, on the CPU. The callbacks are called for one shard at a time,
 * by the thread that computes it: with --mode dp several at once, so what `arg` points to may only
 * be read. If their result depends only on their inputs, the weights have the same bits in all
 * modes. A status other than DDP_OK ends the run. Begin with DDP_CUSTOM_OP_INIT. */
struct ddp_custom_op {
    size_t struct_bytes; /* sizeof(struct ddp_custom_op) */
    const char *name;    /* for messages and traces; copied, cut at 63 bytes */
    void *arg;           /* for the callbacks; must outlive the run */
    int input_count;
    ddp_tensor *inputs[DDP_CUSTOM_INPUTS]; /* results, parameters, inputs of the model */
    int dim_count;                         /* of the output, float32 */
    int64_t dims[DDP_TENSOR_DIMS];
    size_t saved_bytes, scratch_bytes;
    enum ddp_status (*forward)(void *arg, const struct ddp_custom_pass *pass);
    /* NULL only if no input needs a gradient; refused otherwise */
    enum ddp_status (*backward)(void *arg, const struct ddp_custom_pass *pass);
};
#define DDP_CUSTOM_OP_INIT                                                                         \
    {                                                                                              \
        sizeof(struct ddp_custom_op), NULL, NULL, 0, {NULL}, 0, {0}, 0, 0, NULL, NULL              \
    }

/* The struct is copied. On a GPU a run with such an operation is DDP_ERR_UNSUPPORTED. */
DDP_API ddp_tensor *ddp_graph_custom(ddp_graph *graph, const struct ddp_custom_op *op);

/* A whole torch.nn.Linear: makes "NAME.weight" (out,C) and, with_bias, "NAME.bias" (out). */
DDP_API ddp_tensor *ddp_graph_linear_layer(ddp_graph *graph, const char *name, ddp_tensor *x,
                                           int64_t out, bool with_bias,
                                           enum ddp_activation activation);

/* A whole torch.nn.LayerNorm over the last dimension: makes "NAME.weight" and "NAME.bias" (C). */
DDP_API ddp_tensor *ddp_graph_layer_norm_layer(ddp_graph *graph, const char *name, ddp_tensor *x,
                                               float eps);

/* A whole torch.nn.RMSNorm over the last dimension: makes "NAME.weight" (C). */
DDP_API ddp_tensor *ddp_graph_rms_norm_layer(ddp_graph *graph, const char *name, ddp_tensor *x,
                                             float eps);

/* A whole torch.nn.Conv2d with a square window, (B,H,W,C) -> (B,OH,OW,O): makes "NAME.weight"
 * (O,C,K,K) and, with_bias, "NAME.bias" (O). */
struct ddp_conv2d_options {
    int64_t out, kernel, stride, padding; /* stride 0: 1 */
    bool with_bias;
    enum ddp_activation activation; /* none or ReLU */
};
DDP_API ddp_tensor *ddp_graph_conv2d_layer(ddp_graph *graph, const char *name, ddp_tensor *x,
                                           const struct ddp_conv2d_options *options);

/* A whole torch.nn.BatchNorm over the last dimension, then residual (may be NULL) added, then the
 * activation (none or ReLU): makes "NAME.weight", "NAME.bias" and the statistics
 * "NAME.running_mean" and "NAME.running_var" (C). */
DDP_API ddp_tensor *ddp_graph_batch_norm_layer(ddp_graph *graph, const char *name, ddp_tensor *x,
                                               ddp_tensor *residual,
                                               enum ddp_activation activation);

/* The operations built between the two are a block, such as a transformer's, which --recompute
 * drops and computes again together. */
DDP_API void ddp_graph_begin_block(ddp_graph *graph);
DDP_API void ddp_graph_end_block(ddp_graph *graph);

/* Ends building: marks output and loss, lays out parameters, plans nothing yet.
 * DDP_ERR_UNSUPPORTED: parameters in the loss part. */
DDP_API enum ddp_status ddp_graph_finish(ddp_graph *graph, ddp_tensor *output, ddp_tensor *loss);

/* What a model is built for. */
struct ddp_model_shape {
    int64_t batch;                 /* samples of a shard */
    enum ddp_dtype dtype;          /* of a sample: DDP_F32, or DDP_I32 for tokens */
    int dim_count;                 /* of one sample */
    int64_t dims[DDP_TENSOR_DIMS]; /* (C,H,W) of images, (T) of tokens */
    int64_t classes;            /* labels are 0 .. classes-1; of tokens the vocabulary; 0: they are
                            numbers, or there are none */
    int64_t label_count;        /* labels of one sample: 1, or T of tokens; 0: none */
    enum ddp_dtype label_dtype; /* DDP_I32 of classes, DDP_F32 of targets that are numbers */
};

/* Builds a model: input 0 is the samples (batch, dims...), input 1 the labels (batch) of
 * label_dtype, or (batch, label_count), if there are any. Ends with ddp_graph_finish() and returns
 * its result. Called for several batch sizes and by every worker: it must make the same parameters
 * each time.
 *   arg  as given to ddp_train_set_model() */
typedef enum ddp_status ddp_model_builder(ddp_graph *graph, const struct ddp_model_shape *shape,
                                          void *arg);

#ifdef __cplusplus
}
#endif

#include "ddp_train.h"

#endif
