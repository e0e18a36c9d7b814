/* SPDX-License-Identifier: MIT
 *
 * See onednn.h. oneDNN 2 makes all its kernels for a type of operands in the first products of that
 * type, whatever their shapes. */
#include "config.h"

#include "kernels/cpu/onednn.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#ifdef HAVE_ONEDNN
#include <dnnl.h>
#endif
#ifdef HAVE_ONEDNN_BF16
dnnl_status_t dnnl_gemm_bf16bf16f32(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n,
                                    dnnl_dim_t k, float alpha, const uint16_t *a, dnnl_dim_t lda,
                                    const uint16_t *b, dnnl_dim_t ldb, float beta, float *c,
                                    dnnl_dim_t ldc);
#endif
#ifdef HAVE_GOMP
/* From <omp.h>, which comes with GCC only. */
void omp_set_num_threads(int threads);
#endif

#define ROOM_BYTES ((size_t)32 << 20) /* of address space; 18 MiB were seen */
#define SIZE       8

bool ddp_gemm_bf16_native(void)
{
#ifdef HAVE_ONEDNN_BF16
    /* Not what the processor can: ONEDNN_MAX_CPU_ISA may forbid it. */
    const unsigned needed = dnnl_cpu_isa_avx512_core_bf16;
    return (dnnl_get_effective_cpu_isa() & needed) == needed;
#else
    return false;
#endif
}

void ddp_onednn_stay_single(void)
{
#ifdef HAVE_GOMP
    static _Thread_local bool single; /* the setting is the calling thread's */
    if (!single)
        omp_set_num_threads(1);
    single = true;
#endif
}

enum ddp_status ddp_onednn_status(int error, const char *operation)
{
#ifdef HAVE_ONEDNN
    if (error == dnnl_out_of_memory)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory in oneDNN", operation);
#endif
    if (error)
        return ddp_fail(DDP_ERR_SYSTEM, "%s: oneDNN failed with status %d", operation, error);
    return DDP_OK;
}

#ifdef HAVE_ONEDNN
int ddp_onednn_multiply(const struct ddp_gemm *gemm)
{
    const char transpose_a = gemm->transpose_a ? 'T' : 'N';
    const char transpose_b = gemm->transpose_b ? 'T' : 'N';
    ddp_onednn_stay_single();
#ifdef HAVE_ONEDNN_BF16
    if (gemm->bf16)
        return (int)dnnl_gemm_bf16bf16f32(transpose_a, transpose_b, gemm->m, gemm->n, gemm->k, 1.0f,
                                          gemm->a, gemm->lda, gemm->b, gemm->ldb, gemm->beta,
                                          gemm->c, gemm->ldc);
#endif
    return (int)dnnl_sgemm(transpose_a, transpose_b, gemm->m, gemm->n, gemm->k, 1.0f, gemm->a,
                           gemm->lda, gemm->b, gemm->ldb, gemm->beta, gemm->c, gemm->ldc);
}

/* A product of each kind. */
static enum ddp_status multiply(bool transpose_a, bool transpose_b, float beta, bool bf16)
{
    const float a[SIZE * SIZE] = {0}, b[SIZE * SIZE] = {0};
    float c[SIZE * SIZE] = {0};
    const struct ddp_gemm gemm = {
        .transpose_a = transpose_a,
        .transpose_b = transpose_b,
        .bf16 = bf16,
        .m = SIZE,
        .n = SIZE,
        .k = SIZE,
        .a = a,
        .b = b,
        .c = c,
        .lda = SIZE,
        .ldb = SIZE,
        .ldc = SIZE,
        .beta = beta,
    };
    struct ddp_signals signals;
    ddp_signals_hold(&signals);
    const int error = ddp_onednn_multiply(&gemm);
    ddp_signals_release(&signals);
    return ddp_onednn_status(error, bf16 ? "bf16 gemm" : "gemm");
}

static enum ddp_status look_for_room(void)
{
    if (ddp_memory_probe(ROOM_BYTES))
        return DDP_OK;
    return ddp_fail(DDP_ERR_MEMORY,
                    "out of memory: oneDNN needs %zu MiB of address space for its code",
                    ROOM_BYTES >> 20);
}

static enum ddp_status prepare(bool vector)
{
    enum ddp_status status = look_for_room();
    const int kinds = vector ? 0 : ddp_gemm_bf16_native() ? 16 : 8;
    for (int kind = 0; status == DDP_OK && kind < kinds; kind++)
        status = multiply(kind & 1, kind & 2, kind & 4 ? 1 : 0, kind & 8);
    return status;
}
#endif

enum ddp_status ddp_onednn_prepare(bool vector)
{
    enum ddp_status status = DDP_OK;
#ifdef HAVE_ONEDNN
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static atomic_bool done[2];
    if (atomic_load_explicit(&done[vector], memory_order_acquire))
        return DDP_OK;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&done[vector]))
        status = prepare(vector);
    atomic_store(&done[vector], status == DDP_OK);
    pthread_mutex_unlock(&lock);
#else
    (void)vector;
#endif
    return status;
}
