/* SPDX-License-Identifier: MIT
 *
 * Causal attention by cuDNN; see cudnn.h. Its operation of that name takes no causal mask before
 * version 9.21, and in no version has a backward pass with one, so that attention is described by
 * its parts, in the order that cuDNN knows as flash attention; nothing of T x T leaves the chip in
 * the forward pass.
 *
 * The backward pass has two forms. One sums the queries' gradient in float32 by atomics, so that
 * its bits change from run to run, although no numerical note of its engines says so. The other,
 * asked for here by naming dq as the product's own result, keeps the scores' gradient in bf16 in
 * the workspace, so that it is done in pieces (pieces.h). For GPT-2's shapes cuDNN 9.19 has one
 * engine for pieces of all sizes, whose workspace is the 2 T T bytes of each head and 256 (asked
 * for compute capabilities 8.0 and 9.0 without a GPU).
 *
 * Kept beside mma.cu until "bench/gpu --only attention" has run on a GPU; the loser is then
 * deleted, in the change that commits the figures. */
#include "config.h"

#include "kernels/attention/cudnn.h"

#include "kernels/attention/pieces.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/cudnn_graph.h"

#include <float.h>
#include <math.h>

enum { FORWARD = 1, BACKWARD = 2 }; /* first word of a key */
enum { KEY_WHAT, KEY_BATCH, KEY_LENGTH, KEY_HEADS, KEY_ALL_HEADS, KEY_SIZE, KEY_STATS };

/* Backward with other lengths reads beyond the end in versions up to this. */
#define EVEN_LENGTHS_VERSION 91500
#define EVEN_LENGTH          128
#define ALIGNMENT            16

/* Tensors outside the graphs, in the order in which they are made; forward has those up to STATS.
 */
enum { Q = 1, K, V, SCALE, MASKED, Y, STATS, DY, DQ, DK, DV, ONE, SUMS };

/* --- shapes --------------------------------------------------------------------------------- */

struct shapes {
    struct ddp_cudnn_shape packed, packed_transposed; /* one of q, k, v: (B,H,T,D), (B,H,D,T) */
    struct ddp_cudnn_shape y;                         /* (B,H,T,D) */
    struct ddp_cudnn_shape scores, scores_transposed; /* (B,H,T,T) */
    struct ddp_cudnn_shape rows, stats;               /* (B,H,T,1), of these heads and of all */
};

static struct ddp_cudnn_shape transposed(struct ddp_cudnn_shape shape)
{
    const int64_t dim = shape.dims[2], stride = shape.strides[2];
    shape.dims[2] = shape.dims[3];
    shape.strides[2] = shape.strides[3];
    shape.dims[3] = dim;
    shape.strides[3] = stride;
    return shape;
}

static struct shapes shapes_of(const struct ddp_cudnn_key *key)
{
    const int64_t b = key->words[KEY_BATCH], t = key->words[KEY_LENGTH];
    const int64_t h = key->words[KEY_HEADS], d = key->words[KEY_SIZE];
    const int64_t all = key->words[KEY_ALL_HEADS], c = all * d;
    struct shapes shapes = {
        .packed = {{b, h, t, d}, {3 * t * c, d, 3 * c, 1}},
        .y = {{b, h, t, d}, {t * c, d, c, 1}},
        .scores = ddp_cudnn_dense(b, h, t, t),
        .rows = ddp_cudnn_dense(b, h, t, 1),
        .stats = {{b, h, t, 1}, {all * t, t, 1, 1}},
    };
    shapes.packed_transposed = transposed(shapes.packed);
    shapes.scores_transposed = transposed(shapes.scores);
    return shapes;
}

/* --- graphs --------------------------------------------------------------------------------- */

static int between(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_shape *shape,
                   cudnnDataType_t type)
{
    return ddp_cudnn_tensor(graph, shape, type, DDP_CUDNN_VIRTUAL);
}

static int memory(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_shape *shape,
                  cudnnDataType_t type)
{
    return ddp_cudnn_tensor(graph, shape, type, DDP_CUDNN_MEMORY);
}

/* A new tensor of the shape: mode(x, b) in float32. */
static int apply(struct ddp_cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b,
                 const struct ddp_cudnn_shape *shape)
{
    const int y = between(graph, shape, CUDNN_DATA_FLOAT);
    ddp_cudnn_pointwise(graph, mode, CUDNN_DATA_FLOAT, x, b, 0, y);
    return y;
}

static int product(struct ddp_cudnn_graph *graph, int a, int b, const struct ddp_cudnn_shape *shape)
{
    const int c = between(graph, shape, CUDNN_DATA_FLOAT);
    ddp_cudnn_matmul(graph, a, b, c);
    return c;
}

/* Scores of later keys become `masked`. */
static int causal(struct ddp_cudnn_graph *graph, int scores, int masked,
                  const struct ddp_cudnn_shape *shape)
{
    const int query = between(graph, shape, CUDNN_DATA_INT32);
    const int key = between(graph, shape, CUDNN_DATA_INT32);
    const int seen = between(graph, shape, CUDNN_DATA_BOOLEAN);
    const int y = between(graph, shape, CUDNN_DATA_FLOAT);
    ddp_cudnn_index(graph, 2, scores, query);
    ddp_cudnn_index(graph, 3, scores, key);
    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, query, key, 0, seen);
    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, scores, masked,
                        seen, y);
    return y;
}

/* Probabilities of scores, and the logarithm of their denominators in `stats` (0: not needed). */
static int softmax(struct ddp_cudnn_graph *graph, int scores, int stats,
                   const struct shapes *shapes)
{
    const int max = between(graph, &shapes->rows, CUDNN_DATA_FLOAT);
    ddp_cudnn_reduction(graph, CUDNN_REDUCE_TENSOR_MAX, scores, max);
    const int below = apply(graph, CUDNN_POINTWISE_SUB, scores, max, &shapes->scores);
    const int powers = apply(graph, CUDNN_POINTWISE_EXP, below, 0, &shapes->scores);
    const int sum = between(graph, &shapes->rows, CUDNN_DATA_FLOAT);
    ddp_cudnn_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    if (stats) {
        const int log = apply(graph, CUDNN_POINTWISE_LOG, sum, 0, &shapes->rows);
        ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, max, log, 0, stats);
    }
    const int probabilities = between(graph, &shapes->scores, CUDNN_DATA_BFLOAT16);
    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, powers, sum, 0,
                        probabilities);
    return probabilities;
}

/* Those that both passes have. */
static void describe_inputs(struct ddp_cudnn_graph *graph, const struct shapes *shapes,
                            const struct ddp_cudnn_shape *v, bool stats)
{
    memory(graph, &shapes->packed, CUDNN_DATA_BFLOAT16);            /* Q */
    memory(graph, &shapes->packed_transposed, CUDNN_DATA_BFLOAT16); /* K */
    memory(graph, v, CUDNN_DATA_BFLOAT16);                          /* V */
    ddp_cudnn_value(graph);                                         /* SCALE */
    ddp_cudnn_value(graph);                                         /* MASKED */
    memory(graph, &shapes->y, CUDNN_DATA_BFLOAT16);                 /* Y */
    if (stats)
        memory(graph, &shapes->stats, CUDNN_DATA_FLOAT); /* STATS */
}

static void describe_forward(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_key *key)
{
    const struct shapes shapes = shapes_of(key);
    const bool stats = key->words[KEY_STATS];
    describe_inputs(graph, &shapes, &shapes.packed, stats);
    const int products = product(graph, Q, K, &shapes.scores);
    const int scaled = apply(graph, CUDNN_POINTWISE_MUL, products, SCALE, &shapes.scores);
    const int scores = causal(graph, scaled, MASKED, &shapes.scores);
    const int probabilities = softmax(graph, scores, stats ? STATS : 0, &shapes);
    ddp_cudnn_matmul(graph, probabilities, V, Y);
}

/* x with its last two axes exchanged, in bf16. */
static int turned(struct ddp_cudnn_graph *graph, int x, const struct ddp_cudnn_shape *shape)
{
    const int y = between(graph, shape, CUDNN_DATA_BFLOAT16);
    ddp_cudnn_reshape(graph, x, y);
    return y;
}

/* The probabilities, and the gradient of v. */
static int describe_values(struct ddp_cudnn_graph *graph, const struct shapes *shapes)
{
    const int products = product(graph, Q, K, &shapes->scores);
    const int scaled = apply(graph, CUDNN_POINTWISE_MUL, products, SCALE, &shapes->scores);
    const int below = apply(graph, CUDNN_POINTWISE_SUB, scaled, STATS, &shapes->scores);
    const int scores = causal(graph, below, MASKED, &shapes->scores);
    const int probabilities = apply(graph, CUDNN_POINTWISE_EXP, scores, 0, &shapes->scores);
    const int columns = turned(graph, probabilities, &shapes->scores_transposed);
    ddp_cudnn_matmul(graph, columns, DY, DV);
    return probabilities;
}

static void describe_backward(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_key *key)
{
    const struct shapes shapes = shapes_of(key);
    const struct ddp_cudnn_shape *scores = &shapes.scores;
    const cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
    describe_inputs(graph, &shapes, &shapes.packed_transposed, true);
    memory(graph, &shapes.y, bf16);                /* DY */
    memory(graph, &shapes.packed, bf16);           /* DQ */
    memory(graph, &shapes.packed, bf16);           /* DK */
    memory(graph, &shapes.packed, bf16);           /* DV */
    ddp_cudnn_value(graph);                        /* ONE */
    memory(graph, &shapes.rows, CUDNN_DATA_FLOAT); /* SUMS */
    /* dy . y of each query */
    const int products = apply(graph, CUDNN_POINTWISE_MUL, DY, Y, &shapes.y);
    const int sums = between(graph, &shapes.rows, CUDNN_DATA_FLOAT);
    ddp_cudnn_reduction(graph, CUDNN_REDUCE_TENSOR_ADD, products, sums);
    ddp_cudnn_pointwise(graph, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, sums, ONE, 0, SUMS);
    const int probabilities = describe_values(graph, &shapes);
    /* the gradient of the scores */
    const int arriving = product(graph, DY, V, scores);
    const int centred = apply(graph, CUDNN_POINTWISE_SUB, arriving, SUMS, scores);
    const int unscaled = apply(graph, CUDNN_POINTWISE_MUL, centred, probabilities, scores);
    const int ds = apply(graph, CUDNN_POINTWISE_MUL, unscaled, SCALE, scores);
    const int columns = turned(graph, ds, &shapes.scores_transposed);
    ddp_cudnn_matmul(graph, columns, Q, DK);
    const int k = turned(graph, K, &shapes.packed);
    ddp_cudnn_matmul(graph, ds, k, DQ);
}

/* --- the operations ------------------------------------------------------------------------- */

/* What both passes take, in elements of bf16. */
struct attention {
    struct ddp_attention_sizes s;
    int64_t size;
    const uint16_t *qkv, *y; /* (B,T,3,H,D), (B,T,H,D) */
    const float *lse;
};

static struct ddp_cudnn_key key_of(int64_t what, const struct attention *a,
                                   const struct ddp_attention_piece *piece)
{
    return (struct ddp_cudnn_key){{
        [KEY_WHAT] = what,
        [KEY_BATCH] = piece->batches,
        [KEY_LENGTH] = a->s.length,
        [KEY_HEADS] = piece->heads,
        [KEY_ALL_HEADS] = a->s.heads,
        [KEY_SIZE] = a->size,
        [KEY_STATS] = a->lse != NULL,
    }};
}

/* Element of qkv, or of y, at which a piece begins. */
static int64_t qkv_at(const struct attention *a, const struct ddp_attention_piece *piece)
{
    return (piece->batch * a->s.length * 3 * a->s.heads + piece->head) * a->size;
}

static int64_t y_at(const struct attention *a, const struct ddp_attention_piece *piece)
{
    return (piece->batch * a->s.length * a->s.heads + piece->head) * a->size;
}

/* Later keys' scores: versions before 9.10 want a number. */
static float masked_by(const struct ddp_cudnn *cudnn)
{
    return cudnn->version < 91000 ? -FLT_MAX : -INFINITY;
}

static bool is_aligned(const void *memory)
{
    return (uintptr_t)memory % ALIGNMENT == 0;
}

/* Do q, k and v, or their gradients, lie side by side, and sees a query all before it? The graphs
 * here describe no more. */
static bool is_packed(const struct ddp_attention_shape *s, const void *q, const void *k,
                      const void *v)
{
    const int64_t c = s->heads * s->head_size;
    const uint16_t *first = q;
    return s->kv_heads == s->heads && s->window == 0 && !s->documents && s->q_stride == 3 * c &&
           s->k_stride == 3 * c && s->v_stride == 3 * c && first && k == first + c &&
           v == first + 2 * c;
}

static bool is_for_us(const struct ddp_cudnn *cudnn, const struct ddp_cuda *cuda,
                      const struct attention *a)
{
    return cudnn->usable && cuda->capability >= 80 && a->s.length > 1 && a->size % 8 == 0 &&
           is_aligned(a->qkv) && is_aligned(a->y);
}

static void bind_inputs(struct ddp_cudnn_binding *binding, const struct attention *a,
                        const struct ddp_attention_piece *piece, const float *scale,
                        const float *masked)
{
    const uint16_t *q = a->qkv + qkv_at(a, piece);
    const int64_t channels = a->s.heads * a->size;
    ddp_cudnn_bind(binding, Q, q);
    ddp_cudnn_bind(binding, K, q + channels);
    ddp_cudnn_bind(binding, V, q + 2 * channels);
    ddp_cudnn_bind(binding, SCALE, scale);
    ddp_cudnn_bind(binding, MASKED, masked);
    ddp_cudnn_bind(binding, Y, a->y + y_at(a, piece));
    if (a->lse)
        ddp_cudnn_bind(binding, STATS,
                       a->lse + (piece->batch * a->s.heads + piece->head) * a->s.length);
}

enum ddp_status ddp_cudnn_attention_forward(const struct ddp_attention_forward *args,
                                            struct ddp_cuda *cuda, bool *done)
{
    const struct ddp_attention_shape *s = &args->shape;
    const struct attention a = {
        {s->batch, s->heads, s->length}, s->head_size, args->q, args->y, args->lse};
    struct ddp_cudnn *cudnn = NULL;
    struct ddp_cudnn_plan *plan = NULL;
    *done = false;
    if (s->dtype != DDP_BF16 || !is_packed(s, args->q, args->k, args->v))
        return DDP_OK;
    enum ddp_status status = ddp_cudnn_of(cuda, &cudnn);
    if (status || !is_for_us(cudnn, cuda, &a))
        return status;
    const struct ddp_attention_piece all = {0, a.s.batch, 0, a.s.heads};
    const struct ddp_cudnn_key key = key_of(FORWARD, &a, &all);
    status = ddp_cudnn_plan_of(cudnn, &key, describe_forward, DDP_CUDA_WORKSPACE_BYTES, "attention",
                               &plan);
    if (status || !plan->plan)
        return status;
    const float scale = 1 / sqrtf((float)a.size), masked = masked_by(cudnn);
    struct ddp_cudnn_binding binding = {.count = 0};
    bind_inputs(&binding, &a, &all, &scale, &masked);
    *done = true;
    return ddp_cudnn_run(plan, &binding, cuda->workspace, cuda, "attention");
}

/* No heads: it cannot be done in pieces that fit, and whose statistics are aligned. */
static struct ddp_attention_piece first_piece(const struct attention *a,
                                              const struct ddp_cuda *cuda)
{
    struct ddp_attention_piece piece = ddp_attention_first_piece(&a->s, cuda->cudnn_bytes);
    const bool one = piece.batches == a->s.batch && piece.heads == a->s.heads;
    if (!one && a->s.length * (int64_t)sizeof(float) % ALIGNMENT != 0)
        piece.heads = 0;
    return piece;
}

static enum ddp_status plan_backward(struct ddp_cudnn *cudnn, const struct attention *a,
                                     const struct ddp_attention_piece *piece,
                                     struct ddp_cudnn_plan **plan)
{
    const struct ddp_cudnn_key key = key_of(BACKWARD, a, piece);
    return ddp_cudnn_plan_of(cudnn, &key, describe_backward,
                             (size_t)ddp_attention_plan_bytes(&a->s, piece), "attention backward",
                             plan);
}

/* Are there plans for all pieces? */
static enum ddp_status has_plans(struct ddp_cudnn *cudnn, const struct ddp_cuda *cuda,
                                 const struct attention *a, bool *yes)
{
    struct ddp_cudnn_plan *plan = NULL;
    struct ddp_attention_piece piece = first_piece(a, cuda);
    *yes = piece.heads > 0;
    while (*yes && piece.batch < a->s.batch) {
        enum ddp_status status = plan_backward(cudnn, a, &piece, &plan);
        if (status)
            return status;
        *yes = plan->plan != NULL;
        piece = ddp_attention_next_piece(&a->s, piece);
    }
    return DDP_OK;
}

static enum ddp_status backward_piece(const struct ddp_attention_backward *args,
                                      const struct attention *a,
                                      const struct ddp_attention_piece *piece,
                                      struct ddp_cuda *cuda)
{
    struct ddp_cudnn *cudnn = cuda->cudnn;
    struct ddp_cudnn_plan *plan = NULL;
    enum ddp_status status = plan_backward(cudnn, a, piece, &plan);
    if (status)
        return status;
    const float scale = 1 / sqrtf((float)a->size), masked = masked_by(cudnn), one = 1;
    const int64_t channels = a->s.heads * a->size;
    const uint16_t *dy = args->dy;
    uint16_t *dq = args->dq;
    dq += qkv_at(a, piece);
    struct ddp_cudnn_binding binding = {.count = 0};
    bind_inputs(&binding, a, piece, &scale, &masked);
    ddp_cudnn_bind(&binding, DY, dy + y_at(a, piece));
    ddp_cudnn_bind(&binding, DQ, dq);
    ddp_cudnn_bind(&binding, DK, dq + channels);
    ddp_cudnn_bind(&binding, DV, dq + 2 * channels);
    ddp_cudnn_bind(&binding, ONE, &one);
    ddp_cudnn_bind(&binding, SUMS, cuda->workspace);
    return ddp_cudnn_run(plan, &binding,
                         (char *)cuda->workspace + ddp_attention_sums_bytes(&a->s, piece), cuda,
                         "attention backward");
}

enum ddp_status ddp_cudnn_attention_backward(const struct ddp_attention_backward *args,
                                             struct ddp_cuda *cuda, bool *done)
{
    const struct ddp_attention_shape *s = &args->shape;
    const struct attention a = {
        {s->batch, s->heads, s->length}, s->head_size, args->q, args->y, args->lse};
    struct ddp_cudnn *cudnn = NULL;
    *done = false;
    if (s->dtype != DDP_BF16 || args->accumulate_dq || args->accumulate_dk || args->accumulate_dv ||
        !is_packed(s, args->q, args->k, args->v) || !is_packed(s, args->dq, args->dk, args->dv) ||
        cuda->capability >= DDP_CUDNN_NAMED_ENGINES)
        return DDP_OK;
    enum ddp_status status = ddp_cudnn_of(cuda, &cudnn);
    if (status || !is_for_us(cudnn, cuda, &a) || !is_aligned(args->dy) || !is_aligned(args->dq))
        return status;
    if (cudnn->version <= EVEN_LENGTHS_VERSION && a.s.length % EVEN_LENGTH != 0)
        return DDP_OK;
    status = has_plans(cudnn, cuda, &a, done);
    for (struct ddp_attention_piece piece = first_piece(&a, cuda);
         *done && status == DDP_OK && piece.batch < a.s.batch;
         piece = ddp_attention_next_piece(&a.s, piece))
        status = backward_piece(args, &a, &piece, cuda);
    return status;
}
