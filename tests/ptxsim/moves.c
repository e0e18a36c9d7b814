/* SPDX-License-Identifier: MIT
 *
 * Moves, selections and conversions: PTX ISA, "Data Movement and Conversion Instructions". */
#include "config.h"

#include "tests/ptxsim/machine.h"

#include "core/bf16.h"

#include <float.h>
#include <math.h>
#include <string.h>

static void move_32(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    uint32_t *d = PTX_U32(w, i->o[0]);
    const uint32_t *a = PTX_U32(w, i->o[1]);
    PTX_EACH(lanes, d[l] = a[l]);
}

static void move_64(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    uint64_t *d = PTX_U64(w, i->o[0]);
    const uint64_t *a = PTX_U64(w, i->o[1]);
    PTX_EACH(lanes, d[l] = a[l]);
}

static void move_predicate(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    ptx_set_predicate(w, &i->o[0], ptx_predicate(w, &i->o[1]), lanes);
}

static void select_32(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const uint32_t *a = PTX_U32(w, i->o[1]), *b = PTX_U32(w, i->o[2]);
    const uint32_t first = ptx_predicate(w, &i->o[3]);
    uint32_t *d = PTX_U32(w, i->o[0]);
    PTX_EACH(lanes, d[l] = first >> l & 1 ? a[l] : b[l]);
}

static void select_64(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const uint64_t *a = PTX_U64(w, i->o[1]), *b = PTX_U64(w, i->o[2]);
    const uint32_t first = ptx_predicate(w, &i->o[3]);
    uint64_t *d = PTX_U64(w, i->o[0]);
    PTX_EACH(lanes, d[l] = first >> l & 1 ? a[l] : b[l]);
}

static uint64_t low_bits(uint64_t value, unsigned bits)
{
    return bits == 64 ? value : value & ((UINT64_C(1) << bits) - 1);
}

/* The first register of a vector is the lowest bits. */
static void pack(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const unsigned bits = i->type.bits / i->vector;
    PTX_EACH(lanes, uint64_t value = 0;
             for (int v = 0; v < i->vector; v++) value |=
             low_bits(ptx_value(w, &i->o[1 + v], l), bits) << bits * (unsigned)v;
             ptx_put(w, &i->o[0], l, value));
}

static void unpack(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const unsigned bits = i->type.bits / i->vector;
    PTX_EACH(lanes, const uint64_t value = ptx_value(w, &i->o[0], l);
             for (int v = 0; v < i->vector; v++)
                 ptx_put(w, &i->o[1 + v], l, low_bits(value >> bits * (unsigned)v, bits)));
}

/* --- cvt --- */

float ptx_half(struct ptx_type type, uint32_t word, int half)
{
    if (type.kind == 'g')
        return ddp_f16_to_f32((uint16_t)(half ? word >> 16 : word));
    const uint32_t bits = half ? word & 0xffff0000U : word << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, to even; NaN is canonical. */
static uint32_t half_of(struct ptx_type type, float value)
{
    if (type.kind == 'g')
        return isnan(value) ? 0x7fff : ddp_f16_of(value);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return isnan(value) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static uint64_t extended(uint64_t value, struct ptx_type type)
{
    value = low_bits(value, type.bits);
    const unsigned unused = 64 - type.bits;
    return type.kind == 's' ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

static uint64_t bits_of(double value, unsigned bits)
{
    const float narrow = (float)value;
    uint32_t word;
    uint64_t words;
    memcpy(&word, &narrow, sizeof word);
    memcpy(&words, &value, sizeof words);
    return bits == 64 ? words : word;
}

/* From a float or double: to one, or towards zero to an int64_t, where what is too large becomes
 * the largest. */
static uint64_t converted(struct ptx_warp *w, const struct ptx_ins *i, int lane)
{
    const double value = i->from.bits == 64 ? PTX_F64(w, i->o[1])[lane]
                         : i->from.bits == 16
                             ? (double)ddp_f16_to_f32((uint16_t)PTX_U32(w, i->o[1])[lane])
                             : (double)PTX_F32(w, i->o[1])[lane];
    if (i->type.kind == 'f' && i->type.bits == 16)
        return ddp_f16_of((float)value);
    if (i->type.kind == 'f')
        return bits_of(i->saturate ? value > 0 ? fmin(value, 1) : 0 : value, i->type.bits);
    if (value >= 0x1p63)
        return INT64_MAX;
    return value >= -0x1p63 ? (uint64_t)(int64_t)value : UINT64_C(1) << 63; /* and NaN */
}

void ptx_convert(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    const struct ptx_type to = i->type, from = i->from;
    const bool is_signed = from.kind == 's';
    if (to.kind == 'h' || to.kind == 'g') { /* the first operand becomes the upper half */
        PTX_EACH(lanes, PTX_U32(w, i->o[0])[l] = half_of(to, PTX_F32(w, i->o[1])[l]) << 16 |
                                                 half_of(to, PTX_F32(w, i->o[2])[l]));
        return;
    }
    if (from.kind == 'f') {
        PTX_EACH(lanes, ptx_put(w, &i->o[0], l, converted(w, i, l)));
        return;
    }
    PTX_EACH(lanes, const uint64_t value = extended(ptx_value(w, &i->o[1], l), from);
             if (to.kind != 'f') ptx_put(w, &i->o[0], l, extended(value, to));
             else if (to.bits == 64) PTX_F64(w, i->o[0])[l] =
                 is_signed ? (double)(int64_t)value : (double)value;
             else PTX_F32(w, i->o[0])[l] = is_signed ? (float)(int64_t)value : (float)value);
}

const struct ptx_operation ptx_moves[] = {
    {"mov.b16", "44", move_32},
    {"mov.b32", "44", move_32},
    {"mov.b64", "88", move_64},
    {"mov.pred", "pp", move_predicate},
    {"mov.pack", "", pack},
    {"mov.unpack", "", unpack},
    {"selp.b16", "444p", select_32},
    {"selp.b32", "444p", select_32},
    {"selp.b64", "888p", select_64},
    {"cvta.to.global.u64", "88", move_64},
    {NULL, NULL, NULL},
};
