/* SPDX-License-Identifier: MIT
 *
 * See gemm.h. cublasLt is column-major, so that it is asked for the transposed product,
 * C^T = op(B)^T op(A)^T, on the same memory.
 *
 * Bits: an algorithm is chosen by the shape, the types and 16 bytes of alignment, not by where in
 * memory an operand lies, which differs between modes; the workspace is one, of one size; TF32 is
 * never asked for. One that cuts a sum into parts adds them in float32, of a bf16 result too. */
#include "config.h"

#include "kernels/cuda/gemm.h"

#include "core/log.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 256 /* of the table of plans */

/* All that an algorithm depends on: whole words only, compared as memory. */
struct key {
    int64_t m, n, k, lda, ldb, ldc;
    int64_t transpose_a, transpose_b, type, result;
    int64_t align_a, align_b, align_c; /* bytes, at most 16 */
    int64_t bias, pre;                 /* likewise; 0: there is none */
    int64_t gelu;                      /* what follows the product: enum */
};

enum { GELU_NONE, GELU_FORWARD, GELU_BACKWARD };

struct plan {
    struct key key;
    struct plan *next;
    bool usable; /* false: cublasLt has no algorithm */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* op(B)^T, op(A)^T, C^T */
    cublasLtMatmulAlgo_t algorithm;
};

struct plans {
    bool plain; /* DDP_CUDA_PLAIN=1: no cublasLt, to find out where a wrong number comes from */
    bool dgelu; /* DDP_CUDA_DGELU=1 */
    struct plan *buckets[BUCKETS];
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
        .gelu = !gelu         ? GELU_NONE
                : gemm->dgelu ? GELU_BACKWARD
                              : GELU_FORWARD,
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
    if (key->gelu == GELU_BACKWARD)
        return CUBLASLT_EPILOGUE_DGELU;
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
    return cublasLtMatrixLayoutCreate(out, type == DDP_BF16 ? CUDA_R_16BF : CUDA_R_32F,
                                      (uint64_t)columns, (uint64_t)rows, stride);
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

/* The first algorithm that the library proposes; none is not an error. */
static enum ddp_status choose(struct plan *plan, struct ddp_cuda *cuda)
{
    cublasLtMatmulPreference_t preference;
    enum ddp_status status =
        failed(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    if (status)
        return status;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    memset(&found, 0, sizeof found);
    cublasStatus_t answer = prefer(preference, &plan->key);
    status = failed(answer, "cublasLtMatmulPreferenceSetAttribute");
    if (status == DDP_OK) {
        answer = cublasLtMatmulAlgoGetHeuristic(cuda->blas, plan->operation, plan->first,
                                                plan->second, plan->result, plan->result,
                                                preference, 1, &found, &count);
        plan->usable =
            answer == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
        plan->algorithm = found.algo;
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
        status = choose(plan, cuda);
    if (status) {
        plan_free(plan);
        return status;
    }
    *out = plan;
    return DDP_OK;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && strcmp(value, "1") == 0;
}

static enum ddp_status plans_of(struct ddp_cuda *cuda, struct plans **out)
{
    if (!cuda->plans) {
        struct plans *plans = calloc(1, sizeof *plans);
        if (!plans)
            return ddp_fail(DDP_ERR_MEMORY, "matrix product: out of memory");
        plans->plain = is_set("DDP_CUDA_PLAIN");
        plans->dgelu = is_set("DDP_CUDA_DGELU");
        cuda->plans = plans;
    }
    *out = cuda->plans;
    return DDP_OK;
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
    plan->next = *bucket;
    *bucket = *out = plan;
    return DDP_OK;
}

bool ddp_cuda_gemm_is_plain(struct ddp_cuda *cuda)
{
    struct plans *plans = NULL;
    return plans_of(cuda, &plans) == DDP_OK && plans->plain;
}

bool ddp_cuda_gemm_dgelu(struct ddp_cuda *cuda)
{
    struct plans *plans = NULL;
    return plans_of(cuda, &plans) == DDP_OK && plans->dgelu;
}

void ddp_cuda_gemm_forget(struct ddp_cuda *cuda)
{
    struct plans *plans = cuda->plans;
    for (size_t i = 0; plans && i < BUCKETS; i++)
        for (struct plan *plan = plans->buckets[i], *next; plan; plan = next) {
            next = plan->next;
            plan_free(plan);
        }
    free(plans);
    cuda->plans = NULL;
}

/* --- products ------------------------------------------------------------------------------- */

static bool is_small(const struct ddp_cuda_gemm *gemm) /* nothing for a library */
{
    return gemm->m == 0 || gemm->n == 0 || gemm->k == 0;
}

/* *done: false when cublasLt has no algorithm for it. */
static enum ddp_status library(const struct ddp_cuda_gemm *gemm, bool gelu, struct ddp_cuda *cuda,
                               bool *done)
{
    struct plan *plan = NULL;
    *done = false;
    enum ddp_status status = plan_of(&plan, gemm, gelu, cuda);
    if (status || !plan->usable)
        return status;
    const float one = 1, beta = gemm->add ? 1 : 0;
    status =
        failed(cublasLtMatmul(cuda->blas, plan->operation, &one, gemm->b, plan->first, gemm->a,
                              plan->second, &beta, gemm->c, plan->result, gemm->c, plan->result,
                              &plan->algorithm, cuda->workspace, DDP_CUDA_BLAS_BYTES, cuda->stream),
               "cublasLtMatmul");
    *done = status == DDP_OK;
    return status;
}

enum ddp_status ddp_cuda_gemm(const struct ddp_cuda_gemm *gemm, struct ddp_cuda *cuda,
                              bool *activated)
{
    struct plans *plans = NULL;
    bool done = false;
    if (activated)
        *activated = false;
    enum ddp_status status = plans_of(cuda, &plans);
    if (status)
        return status;
    const bool try = !is_small(gemm) && !plans->plain;
    if (try && (gemm->gelu || gemm->dgelu)) {
        status = library(gemm, true, cuda, &done);
        *activated = done;
    }
    if (try && status == DDP_OK && !done)
        status = library(gemm, false, cuda, &done);
    if (status == DDP_OK && !done)
        status = ddp_cuda_gemm_plain(gemm, cuda);
    return status ? status : ddp_cuda_launched(cuda, "matrix product");
}
