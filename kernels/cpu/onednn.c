/* SPDX-License-Identifier: MIT
 *
 * See onednn.h. oneDNN 2 makes all its kernels for a type of operands in the first products of that
 * type, whatever their shapes. */
#include "config.h"

#include "kernels/cpu/onednn.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_bf16.h"
#include "kernels/cpu/gemm_tiles.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROOM_BYTES ((size_t)32 << 20) /* of address space; 18 MiB were seen */
#define SIZE       8

#ifdef HAVE_ONEDNN
/* A product of each kind. */
static enum ddp_status multiply(bool transpose_a, bool transpose_b, float beta)
{
    const float a[SIZE * SIZE] = {0}, b[SIZE * SIZE] = {0};
    const uint16_t a_bf16[SIZE * SIZE] = {0}, b_bf16[SIZE * SIZE] = {0};
    float c[SIZE * SIZE] = {0};
    const struct ddp_gemm gemm = {transpose_a, transpose_b, SIZE, SIZE, SIZE, a,    b,
                                  c,           SIZE,        SIZE, SIZE, beta, NULL, NULL};
    const struct ddp_gemm_bf16 bf16 = {transpose_a, transpose_b, SIZE, SIZE, SIZE, a_bf16, b_bf16,
                                       c,           SIZE,        SIZE, SIZE, beta, NULL,   NULL};
    enum ddp_status status = ddp_gemm_serial(&gemm);
    if (status == DDP_OK && ddp_gemm_bf16_native())
        status = ddp_gemm_bf16(&bf16, NULL);
    return status;
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
    for (int kind = 0; status == DDP_OK && kind < 8 && !vector; kind++)
        status = multiply(kind & 1, kind & 2, kind & 4 ? 1 : 0);
    return status;
}
#endif

enum ddp_status ddp_onednn_prepare(bool vector)
{
    enum ddp_status status = DDP_OK;
#ifdef HAVE_ONEDNN
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static atomic_bool done[2];
    static _Thread_local bool preparing; /* its own products come here too */
    if (atomic_load_explicit(&done[vector], memory_order_acquire) || preparing)
        return DDP_OK;
    pthread_mutex_lock(&lock);
    preparing = true;
    if (!atomic_load(&done[vector]))
        status = prepare(vector);
    preparing = false;
    atomic_store(&done[vector], status == DDP_OK);
    pthread_mutex_unlock(&lock);
#else
    (void)vector;
#endif
    return status;
}
