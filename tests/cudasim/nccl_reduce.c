/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of the simulated NCCL: element by element, one source after another, each partial
 * result rounded to the type, as it travels between GPUs. */
#include "config.h"

#include "tests/cudasim/nccl_sim.h"

#include "kernels/bf16.h"

#include <stdlib.h>
#include <string.h>

size_t nccl_sim_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 0;
    }
}

bool nccl_sim_reducible(ncclDataType_t type)
{
    return nccl_sim_type_bytes(type) > 0 && type != ncclFloat16;
}

#define SAME(x)       (x)
#define MINIMUM(a, b) ((b) < (a) ? (b) : (a))
#define MAXIMUM(a, b) ((b) > (a) ? (b) : (a))

/* sum = source, or sum (op) source, for one type: computed in WIDE, which FROM and TO convert to
 * and from; ADD and MULTIPLY are the type's. */
#define EACH(WIDE, FROM, TO, RESULT)                                                               \
    for (size_t i = 0; i < count; i++) {                                                           \
        const WIDE a = FROM(sum[i]), b = FROM(source[i]);                                          \
        sum[i] = TO(RESULT);                                                                       \
    }                                                                                              \
    break

#define DEFINE_COMBINE(NAME, TYPE, WIDE, FROM, TO, ADD, MULTIPLY)                                  \
    static void NAME(TYPE *sum, const TYPE *source, size_t count, ncclRedOp_t op)                  \
    {                                                                                              \
        switch (op) {                                                                              \
        case ncclProd:                                                                             \
            EACH(WIDE, FROM, TO, MULTIPLY(a, b));                                                  \
        case ncclMax:                                                                              \
            EACH(WIDE, FROM, TO, MAXIMUM(a, b));                                                   \
        case ncclMin:                                                                              \
            EACH(WIDE, FROM, TO, MINIMUM(a, b));                                                   \
        default:                                                                                   \
            EACH(WIDE, FROM, TO, ADD(a, b));                                                       \
        }                                                                                          \
    }

#define PLUS(a, b)  ((a) + (b))
#define TIMES(a, b) ((a) * (b))
/* Integers wrap. */
#define PLUS8(a, b)   ((int8_t)(uint8_t)((unsigned)(a) + (unsigned)(b)))
#define TIMES8(a, b)  ((int8_t)(uint8_t)((unsigned)(a) * (unsigned)(b)))
#define PLUS32(a, b)  ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define TIMES32(a, b) ((int32_t)((uint32_t)(a) * (uint32_t)(b)))
#define PLUS64(a, b)  ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define TIMES64(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define TO_UINT8(x)   ((uint8_t)(x))

DEFINE_COMBINE(combine_int8, int8_t, int8_t, SAME, SAME, PLUS8, TIMES8)
DEFINE_COMBINE(combine_uint8, uint8_t, unsigned, SAME, TO_UINT8, PLUS, TIMES)
DEFINE_COMBINE(combine_int32, int32_t, int32_t, SAME, SAME, PLUS32, TIMES32)
DEFINE_COMBINE(combine_uint32, uint32_t, uint32_t, SAME, SAME, PLUS, TIMES)
DEFINE_COMBINE(combine_int64, int64_t, int64_t, SAME, SAME, PLUS64, TIMES64)
DEFINE_COMBINE(combine_uint64, uint64_t, uint64_t, SAME, SAME, PLUS, TIMES)
DEFINE_COMBINE(combine_float, float, float, SAME, SAME, PLUS, TIMES)
DEFINE_COMBINE(combine_double, double, double, SAME, SAME, PLUS, TIMES)
DEFINE_COMBINE(combine_bf16, uint16_t, float, ddp_bf16_to_f32, ddp_bf16_of, PLUS, TIMES)

static void combine(void *sum, const void *source, size_t count, ncclDataType_t type,
                    ncclRedOp_t op)
{
    switch (type) {
    case ncclInt8:
        combine_int8(sum, source, count, op);
        break;
    case ncclUint8:
        combine_uint8(sum, source, count, op);
        break;
    case ncclInt32:
        combine_int32(sum, source, count, op);
        break;
    case ncclUint32:
        combine_uint32(sum, source, count, op);
        break;
    case ncclInt64:
        combine_int64(sum, source, count, op);
        break;
    case ncclUint64:
        combine_uint64(sum, source, count, op);
        break;
    case ncclFloat32:
        combine_float(sum, source, count, op);
        break;
    case ncclFloat64:
        combine_double(sum, source, count, op);
        break;
    case ncclBfloat16:
        combine_bf16(sum, source, count, op);
        break;
    default:
        abort();
    }
}

#define DIVIDE(TYPE)                                                                               \
    for (size_t i = 0; i < count; i++)                                                             \
        ((TYPE *)values)[i] = (TYPE)(((TYPE *)values)[i] / (TYPE)n);                               \
    break

/* The last step of an average. NCCL scales each float before the sum: for powers of two the same.
 */
static void divide(void *values, size_t count, ncclDataType_t type, int n)
{
    switch (type) {
    case ncclInt8:
        DIVIDE(int8_t);
    case ncclUint8:
        DIVIDE(uint8_t);
    case ncclInt32:
        DIVIDE(int32_t);
    case ncclUint32:
        DIVIDE(uint32_t);
    case ncclInt64:
        DIVIDE(int64_t);
    case ncclUint64:
        DIVIDE(uint64_t);
    case ncclFloat32:
        DIVIDE(float);
    case ncclFloat64:
        DIVIDE(double);
    case ncclBfloat16:
        for (size_t i = 0; i < count; i++) {
            uint16_t *value = (uint16_t *)values + i;
            *value = ddp_bf16_of(ddp_bf16_to_f32(*value) / (float)n);
        }
        break;
    default:
        abort();
    }
}

void nccl_sim_reduce(void *sum, const void *const *sources, int n, size_t count,
                     ncclDataType_t type, ncclRedOp_t op)
{
    memcpy(sum, sources[0], count * nccl_sim_type_bytes(type));
    for (int i = 1; i < n; i++)
        combine(sum, sources[i], count, type, op);
    if (op == ncclAvg)
        divide(sum, count, type, n);
}
