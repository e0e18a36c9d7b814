/* SPDX-License-Identifier: MIT
 *
 * See gemm.h. cublasLt is column-major, so that it is asked for the transposed product,
 * C^T = op(B)^T op(A)^T, on the same memory.
 *
 * Bits: an algorithm is chosen by the shape, the types and 16 bytes of alignment, not by where in
 * memory an operand lies, which differs between modes; the workspace is one, of one size; TF32 is
 * never asked for. One that cuts a sum into parts adds them in float32, of a bf16 result too. Some
 * round a bf16 product before they add a bias or C to it. */
#include "config.h"

#include "kernels/cuda/gemm.h"

#include "core/log.h"
#include "kernels/cuda/choices.h"
#include "kernels/cuda/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS    256 /* of the table of plans */
#define CANDIDATES 8   /* algorithms that cublasLt is asked for */

/* All that an algorithm depends on: whole words only, compared as memory; choices.c has their
 * names. */
struct key {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t transpose_a, transpose_b, type, result;
    int64_t align_a, align_b, align_c; /* bytes, at most 16 */
    int64_t bias, pre;                 /* likewise; 0: there is none */
    int64_t gelu;                      /* 1: it follows the product */
};

_Static_assert(sizeof(struct key) == DDP_CUDA_KEY_WORDS * sizeof(int64_t), "choices.c: words");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == DDP_CUDA_ALGORITHM_BYTES, "choices.h");
_Static_assert((int)CANDIDATES <= (int)DDP_CUDA_TIMED, "timing.h");

struct plan {
    struct key key;
    struct plan *next;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* op(B)^T, op(A)^T, C^T */
    cublasLtMatmulAlgo_t candidates[CANDIDATES];  /* in the order in which they are tried */
    int count, current;                           /* they are equal when none is left */
    bool chosen;                                  /* the first one was, by timing */
    bool proven;                                  /* the current one has run */
    bool warned;                                  /* of the plain kernel */
};

struct plans {
    bool plain; /* DDP_CUDA_PLAIN=1: no cublasLt, to find out where a wrong number comes from */
    bool tunes; /* not DDP_CUDA_TUNE=0 */
    struct plan *buckets[BUCKETS];
    struct ddp_cuda_choices choices;
    enum ddp_cuda_tuning tuning;
    int missing; /* products met while tuning that have no choice */
};

static enum ddp_status failed(cublasStatus_t status, const char *call)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return DDP_OK;
    return ddp_fail(DDP_ERR_SYSTEM, "matrix product: %s failed: cuBLAS status %d", call,
                    (int)status);
}

/* --- plans ---------------------------------------------------------------------------------- */

static int64_t alignment_of(const void *memory)
{
    int64_t bytes = 16;
    while (bytes > 1 && (uintptr_t)memory % (uintptr_t)bytes != 0)
        bytes /= 2;
    return bytes;
}

static struct key key_of(const struct ddp_cuda_gemm *gemm, bool gelu)
{
    const int64_t align_c = alignment_of(gemm->c), align_pre = alignment_of(gemm->pre);
    struct key key = {
        .m = gemm->m,
        .n = gemm->n,
        .k = gemm->k,
        .lda = gemm->lda,
        .ldb = gemm->ldb,
        .ldc = gemm->ldc,
        .transpose_a = gemm->transpose_a,
        .transpose_b = gemm->transpose_b,
        .type = gemm->type,
        .result = gemm->result,
        .align_a = alignment_of(gemm->a),
        .align_b = alignment_of(gemm->b),
        .align_c = gelu && gemm->pre && align_pre < align_c ? align_pre : align_c,
        .bias = gemm->bias ? alignment_of(gemm->bias) : 0,
        .pre = gelu && gemm->pre ? align_pre : 0,
        .gelu = gelu,
    };
    return key;
}

static size_t bucket_of(const struct key *key)
{
    uint64_t words[sizeof *key / sizeof(uint64_t)], hash = 0;
    memcpy(words, key, sizeof *key);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 32) % BUCKETS;
}

static cublasLtEpilogue_t epilogue_of(const struct key *key)
{
    if (key->gelu && key->pre)
        return key->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (key->gelu)
        return key->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    return key->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static cublasStatus_t set(struct plan *plan, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes)
{
    return cublasLtMatmulDescSetAttribute(plan->operation, attribute, value, bytes);
}

/* The arrays that an epilogue reads and writes. */
static cublasStatus_t set_pointers(struct plan *plan, const struct ddp_cuda_gemm *gemm)
{
    const void *bias = gemm->bias;
    void *pre = gemm->pre;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (plan->key.bias)
        status = set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (plan->key.pre && status == CUBLAS_STATUS_SUCCESS)
        status = set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &pre, sizeof pre);
    return status;
}

static cublasStatus_t describe_operation(struct plan *plan, const struct ddp_cuda_gemm *gemm)
{
    const struct key *key = &plan->key;
    const cublasOperation_t first = key->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = key->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = epilogue_of(key);
    const int64_t pre_stride = key->ldc;
    cublasStatus_t status =
        cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(plan, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(plan, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (status == CUBLAS_STATUS_SUCCESS && key->pre)
        status = set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &pre_stride, sizeof pre_stride);
    return status == CUBLAS_STATUS_SUCCESS ? set_pointers(plan, gemm) : status;
}

/* Row-major rows x columns with rows `stride` apart is column-major columns x rows. */
static cublasStatus_t layout(cublasLtMatrixLayout_t *out, int64_t type, int64_t rows,
                             int64_t columns, int64_t stride)
{
    const cudaDataType_t of = type == DDP_BF16  ? CUDA_R_16BF
                              : type == DDP_F16 ? CUDA_R_16F
                                                : CUDA_R_32F;
    return cublasLtMatrixLayoutCreate(out, of, (uint64_t)columns, (uint64_t)rows, stride);
}

static cublasStatus_t describe_matrices(struct plan *plan)
{
    const struct key *key = &plan->key;
    const bool ta = key->transpose_a, tb = key->transpose_b;
    cublasStatus_t status =
        layout(&plan->first, key->type, tb ? key->n : key->k, tb ? key->k : key->n, key->ldb);
    if (status == CUBLAS_STATUS_SUCCESS)
        status =
            layout(&plan->second, key->type, ta ? key->k : key->m, ta ? key->m : key->k, key->lda);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = layout(&plan->result, key->result, key->m, key->n, key->ldc);
    return status;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference, const struct key *key)
{
    static const cublasLtMatmulPreferenceAttributes_t names[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t bytes[] = {(uint32_t)key->align_b, (uint32_t)key->align_a,
                              (uint32_t)key->align_c, (uint32_t)key->align_c};
    const size_t workspace = DDP_CUDA_BLAS_BYTES;
    cublasStatus_t status = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    for (size_t i = 0; i < sizeof names / sizeof *names && status == CUBLAS_STATUS_SUCCESS; i++)
        status =
            cublasLtMatmulPreferenceSetAttribute(preference, names[i], &bytes[i], sizeof bytes[i]);
    /* the other ways add the parts in the type of the result */
    const uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (key->result == DDP_BF16 && status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
    return status;
}

static void take(struct plan *plan, const cublasLtMatmulHeuristicResult_t *found)
{
    if (found->state == CUBLAS_STATUS_SUCCESS && found->workspaceSize <= DDP_CUDA_BLAS_BYTES)
        plan->candidates[plan->count++] = found->algo;
}

/* The algorithms that the library proposes, the best first by its own estimate; none is not an
 * error. */
static enum ddp_status propose(struct plan *plan, struct ddp_cuda *cuda)
{
    cublasLtMatmulPreference_t preference;
    enum ddp_status status =
        failed(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    if (status)
        return status;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    memset(found, 0, sizeof found);
    cublasStatus_t answer = prefer(preference, &plan->key);
    status = failed(answer, "cublasLtMatmulPreferenceSetAttribute");
    if (status == DDP_OK) {
        answer = cublasLtMatmulAlgoGetHeuristic(cuda->blas, plan->operation, plan->first,
                                                plan->second, plan->result, plan->result,
                                                preference, CANDIDATES, found, &count);
        for (int i = 0; i < count && answer == CUBLAS_STATUS_SUCCESS; i++)
            take(plan, &found[i]);
        if (answer != CUBLAS_STATUS_NOT_SUPPORTED && answer != CUBLAS_STATUS_INVALID_VALUE)
            status = failed(answer, "cublasLtMatmulAlgoGetHeuristic");
    }
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static void plan_free(struct plan *plan)
{
    if (plan->operation)
        cublasLtMatmulDescDestroy(plan->operation);
    if (plan->first)
        cublasLtMatrixLayoutDestroy(plan->first);
    if (plan->second)
        cublasLtMatrixLayoutDestroy(plan->second);
    if (plan->result)
        cublasLtMatrixLayoutDestroy(plan->result);
    free(plan);
}

static enum ddp_status plan_create(struct plan **out, const struct key *key,
                                   const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda)
{
    struct plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return ddp_fail(DDP_ERR_MEMORY, "matrix product: out of memory");
    plan->key = *key;
    enum ddp_status status =
        failed(describe_operation(plan, gemm), "cublasLtMatmulDescSetAttribute");
    if (status == DDP_OK)
        status = failed(describe_matrices(plan), "cublasLtMatrixLayoutCreate");
    if (status == DDP_OK)
        status = propose(plan, cuda);
    if (status) {
        plan_free(plan);
        return status;
    }
    *out = plan;
    return DDP_OK;
}

static enum ddp_status plans_of(struct ddp_cuda *cuda, struct plans **out)
{
    if (!cuda->plans) {
        struct plans *plans = calloc(1, sizeof *plans);
        if (!plans)
            return ddp_fail(DDP_ERR_MEMORY, "matrix product: out of memory");
        plans->plain = ddp_cuda_is_set("DDP_CUDA_PLAIN", "1");
        plans->tunes = !plans->plain && !ddp_cuda_is_set("DDP_CUDA_TUNE", "0");
        cuda->plans = plans;
    }
    *out = cuda->plans;
    return DDP_OK;
}

/* Makes an algorithm the first candidate. */
static void put_first(struct plan *plan, const cublasLtMatmulAlgo_t *algorithm)
{
    int at = 0;
    while (at < plan->count && memcmp(&plan->candidates[at], algorithm, sizeof *algorithm) != 0)
        at++;
    if (at == plan->count && plan->count < CANDIDATES)
        plan->count++;
    if (at == CANDIDATES)
        at--;
    memmove(&plan->candidates[1], &plan->candidates[0], (size_t)at * sizeof *algorithm);
    plan->candidates[0] = *algorithm;
    plan->chosen = true;
}

/* An algorithm that was found by timing, here or elsewhere, if it is one of this product. */
static void prefer_choice(struct plan *plan, const struct plans *plans, struct ddp_cuda *cuda)
{
    int64_t words[DDP_CUDA_KEY_WORDS];
    memcpy(words, &plan->key, sizeof words);
    const struct ddp_cuda_choice *choice = ddp_cuda_choices_find(&plans->choices, words);
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulHeuristicResult_t result;
    if (!choice)
        return;
    plan->chosen = true; /* also if it is of no use: it would be found again */
    memcpy(&algorithm, choice->algorithm, sizeof algorithm);
    memset(&result, 0, sizeof result);
    if (cublasLtMatmulAlgoCheck(cuda->blas, plan->operation, plan->first, plan->second,
                                plan->result, plan->result, &algorithm,
                                &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= DDP_CUDA_BLAS_BYTES)
        put_first(plan, &algorithm);
}

static enum ddp_status plan_of(struct plan **out, const struct ddp_cuda_gemm *gemm, bool gelu,
                               struct ddp_cuda *cuda)
{
    struct plans *plans = NULL;
    enum ddp_status status = plans_of(cuda, &plans);
    if (status)
        return status;
    const struct key key = key_of(gemm, gelu);
    struct plan **bucket = &plans->buckets[bucket_of(&key)];
    for (struct plan *plan = *bucket; plan; plan = plan->next)
        if (memcmp(&plan->key, &key, sizeof key) == 0) {
            *out = plan;
            return failed(set_pointers(plan, gemm), "cublasLtMatmulDescSetAttribute");
        }
    struct plan *plan = NULL;
    status = plan_create(&plan, &key, gemm, cuda);
    if (status)
        return status;
    prefer_choice(plan, plans, cuda);
    plan->next = *bucket;
    *bucket = *out = plan;
    return DDP_OK;
}

bool ddp_cuda_gemm_is_plain(struct ddp_cuda *cuda)
{
    struct plans *plans = NULL;
    return plans_of(cuda, &plans) == DDP_OK && plans->plain;
}

static void drop_plans(struct plans *plans)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct plan *plan = plans->buckets[i], *next; plan; plan = next) {
            next = plan->next;
            plan_free(plan);
        }
        plans->buckets[i] = NULL;
    }
}

void ddp_cuda_gemm_forget(struct ddp_cuda *cuda)
{
    struct plans *plans = cuda->plans;
    if (!plans)
        return;
    drop_plans(plans);
    ddp_cuda_choices_free(&plans->choices);
    free(plans);
    cuda->plans = NULL;
}

/* --- products ------------------------------------------------------------------------------- */

/* For messages. */
static const char *describe(char text[160], const struct key *key)
{
    static const char *const names[] = {
        [DDP_F32] = "float32", [DDP_BF16] = "bf16", [DDP_F16] = "float16"};
    snprintf(text, 160, "matrix product %lld x %lld x %lld%s%s, %s to %s%s%s", (long long)key->m,
             (long long)key->n, (long long)key->k, key->transpose_a ? ", A transposed" : "",
             key->transpose_b ? ", B transposed" : "", names[key->type], names[key->result],
             key->bias ? ", bias" : "", key->gelu ? ", GELU" : "");
    return text;
}

/* What one algorithm may answer where another works. */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH || status == CUBLAS_STATUS_EXECUTION_FAILED ||
           status == CUBLAS_STATUS_INTERNAL_ERROR;
}

static cublasStatus_t run(const struct plan *plan, int candidate, const struct ddp_cuda_gemm *gemm,
                          struct ddp_cuda *cuda)
{
    const float one = 1, beta = gemm->add ? 1 : 0;
    return cublasLtMatmul(cuda->blas, plan->operation, &one, gemm->b, plan->first, gemm->a,
                          plan->second, &beta, gemm->c, plan->result, gemm->c, plan->result,
                          &plan->candidates[candidate], cuda->workspace, DDP_CUDA_BLAS_BYTES,
                          cuda->stream);
}

/* An algorithm that is refused when it is first run gives way to the next one, on every device of
 * the kind alike. */
static void next_candidate(struct plan *plan, cublasStatus_t answer)
{
    char text[160];
    ddp_log(DDP_LOG_DEBUG, "%s: algorithm %d of %d is refused: cuBLAS status %d",
            describe(text, &plan->key), plan->current + 1, plan->count, (int)answer);
    plan->current++;
}

static void has_run(struct plan *plan)
{
    char text[160];
    if (!plan->proven)
        ddp_log(DDP_LOG_DEBUG, "%s: algorithm %d of %d, %s", describe(text, &plan->key),
                plan->current + 1, plan->count,
                plan->chosen && plan->current == 0 ? "the fastest when it was chosen"
                                                   : "the first that works");
    plan->proven = true;
}

static void warn_plain(struct plan *plan, const struct ddp_cuda *cuda)
{
    char text[160];
    if (!plan->warned)
        ddp_log(DDP_LOG_WARNING,
                "GPU %d: cublasLt has no algorithm for the %s: it is computed by a plain kernel, "
                "which is slower (DDP_LOG=debug shows what was tried)",
                cuda->index, describe(text, &plan->key));
    plan->warned = true;
}

/* A product that is timed. */
struct timed {
    const struct plan *plan;
    const struct ddp_cuda_gemm *gemm;
    struct ddp_cuda *cuda;
};

static bool run_timed(void *arg, int candidate)
{
    const struct timed *timed = arg;
    return run(timed->plan, candidate, timed->gemm, timed->cuda) == CUBLAS_STATUS_SUCCESS;
}

/* Finds the fastest candidate, which is then the first, and the choice of this shape. */
static enum ddp_status choose(struct plan *plan, const struct ddp_cuda_gemm *gemm,
                              struct plans *plans, struct ddp_cuda *cuda)
{
    struct timed timed = {plan, gemm, cuda};
    struct ddp_cuda_choice choice;
    float ms[DDP_CUDA_TIMED];
    char text[160];
    int fastest = -1;
    enum ddp_status status = ddp_cuda_time(plan->count, run_timed, &timed, cuda, &fastest, ms);
    if (status || fastest < 0) {
        plan->current = plan->count;
        return status;
    }
    ddp_log(DDP_LOG_DEBUG, "%s: algorithm %d of %d is the fastest: %.4f ms, the first: %.4f ms",
            describe(text, &plan->key), fastest + 1, plan->count, (double)ms[fastest],
            (double)ms[0]);
    const cublasLtMatmulAlgo_t algorithm = plan->candidates[fastest];
    put_first(plan, &algorithm);
    memcpy(choice.key, &plan->key, sizeof choice.key);
    memcpy(choice.algorithm, &algorithm, sizeof choice.algorithm);
    return ddp_cuda_choices_add(&plans->choices, &choice);
}

/* While tuning nothing is computed for its result. *done: false without any algorithm. */
static enum ddp_status tune(struct plan *plan, const struct ddp_cuda_gemm *gemm, bool gelu,
                            struct ddp_cuda *cuda, bool *done)
{
    struct plans *plans = cuda->plans;
    enum ddp_status status = DDP_OK;
    const bool missing = !plan->chosen && plan->count > 1;
    plans->missing += missing;
    if (missing && plans->tuning == DDP_CUDA_TUNING_TIME)
        status = choose(plan, gemm, plans, cuda);
    *done = plan->current < plan->count || !gelu;
    return status;
}

/* *done: false when cublasLt has no algorithm for it.
 *   warn  of that */
static enum ddp_status library(const struct ddp_cuda_gemm *gemm, bool gelu, struct ddp_cuda *cuda,
                               bool *done, bool warn)
{
    struct plan *plan = NULL;
    *done = false;
    enum ddp_status status = plan_of(&plan, gemm, gelu, cuda);
    if (status == DDP_OK && ((const struct plans *)cuda->plans)->tuning != DDP_CUDA_TUNING_OFF)
        return tune(plan, gemm, gelu, cuda, done);
    while (status == DDP_OK && !*done && plan->current < plan->count) {
        const cublasStatus_t answer = run(plan, plan->current, gemm, cuda);
        *done = answer == CUBLAS_STATUS_SUCCESS;
        if (*done)
            has_run(plan);
        else if (!plan->proven && is_refusal(answer))
            next_candidate(plan, answer);
        else
            status = failed(answer, "cublasLtMatmul");
    }
    if (status == DDP_OK && !*done && warn)
        warn_plain(plan, cuda);
    return status;
}

enum ddp_status ddp_cuda_gemm_library(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                                      bool *done)
{
    return library(gemm, false, cuda, done, false);
}

enum ddp_status ddp_cuda_gemm_whole(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                                    bool *activated)
{
    bool done = false;
    enum ddp_status status = DDP_OK;
    if (gemm->gelu) {
        status = library(gemm, true, cuda, &done, false);
        *activated = done;
    }
    if (status == DDP_OK && !done)
        status = library(gemm, false, cuda, &done, true);
    return status == DDP_OK && !done ? ddp_cuda_gemm_plain(gemm, cuda) : status;
}

/* --- choosing by timing ----------------------------------------------------------------------- */

bool ddp_cuda_gemm_tunes(struct ddp_cuda *cuda)
{
    struct plans *plans = NULL;
    return plans_of(cuda, &plans) == DDP_OK && plans->tunes;
}

int ddp_cuda_gemm_tune(struct ddp_cuda *cuda, enum ddp_cuda_tuning tuning)
{
    struct plans *plans = NULL;
    if (plans_of(cuda, &plans) != DDP_OK || !plans->tunes)
        return 0;
    const int missing = plans->missing;
    plans->tuning = tuning;
    plans->missing = 0;
    return missing;
}

enum ddp_status ddp_cuda_gemm_import(struct ddp_cuda *cuda, const char *text, bool replace,
                                     size_t *damaged)
{
    struct plans *plans = NULL;
    enum ddp_status status = plans_of(cuda, &plans);
    if (status)
        return status;
    if (replace)
        ddp_cuda_choices_free(&plans->choices);
    drop_plans(plans);
    return ddp_cuda_choices_read(&plans->choices, text, strlen(text), damaged);
}

enum ddp_status ddp_cuda_gemm_export(struct ddp_cuda *cuda, char **text)
{
    struct plans *plans = NULL;
    enum ddp_status status = plans_of(cuda, &plans);
    return status ? status : ddp_cuda_choices_text(&plans->choices, text);
}
