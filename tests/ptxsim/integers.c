/* SPDX-License-Identifier: MIT
 *
 * Instructions on integers and predicates: PTX ISA, "Integer Arithmetic", "Logic and Shift" and
 * "Comparison and Selection". Values of 16 bits lie in words of 32, whose upper half is not looked
 * at. */
#include "config.h"

#include "tests/ptxsim/machine.h"

#define LOW(x) ((uint16_t)(x))

#define UNARY(name, to, from, value)                                                               \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)                  \
    {                                                                                              \
        to *d = (to *)(w->registers + i->o[0].at);                                                 \
        const from *x = (const from *)(w->registers + i->o[1].at);                                 \
        PTX_EACH(lanes, const from a = x[l]; d[l] = (to)(value));                                  \
    }
#define BINARY(name, to, from, second, value)                                                      \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)                  \
    {                                                                                              \
        to *d = (to *)(w->registers + i->o[0].at);                                                 \
        const from *x = (const from *)(w->registers + i->o[1].at);                                 \
        const second *y = (const second *)(w->registers + i->o[2].at);                             \
        PTX_EACH(lanes, const from a = x[l]; const second b = y[l]; d[l] = (to)(value));           \
    }
#define TERNARY(name, type, value)                                                                 \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)                  \
    {                                                                                              \
        type *d = (type *)(w->registers + i->o[0].at);                                             \
        const type *x = (const type *)(w->registers + i->o[1].at);                                 \
        const type *y = (const type *)(w->registers + i->o[2].at);                                 \
        const type *z = (const type *)(w->registers + i->o[3].at);                                 \
        PTX_EACH(lanes, const type a = x[l]; const type b = y[l]; const type c = z[l];             \
                 d[l] = (type)(value));                                                            \
    }

BINARY(add_32, uint32_t, uint32_t, uint32_t, a + b)
BINARY(add_64, uint64_t, uint64_t, uint64_t, a + b)
BINARY(sub_32, uint32_t, uint32_t, uint32_t, a - b)
BINARY(sub_64, uint64_t, uint64_t, uint64_t, a - b)
BINARY(mul_32, uint32_t, uint32_t, uint32_t, a *b)
BINARY(mul_64, uint64_t, uint64_t, uint64_t, a *b)
BINARY(mul_high_s32, uint32_t, int32_t, int32_t, (int64_t)a *b >> 32)
BINARY(mul_high_u32, uint32_t, uint32_t, uint32_t, (uint64_t)a *b >> 32)
BINARY(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)a *b)
BINARY(mul_wide_s32, uint64_t, int32_t, int32_t, (int64_t)a *b)
TERNARY(mad_32, uint32_t, a *b + c)
TERNARY(mad_64, uint64_t, a *b + c)
UNARY(neg_32, uint32_t, uint32_t, 0U - a)
UNARY(neg_64, uint64_t, uint64_t, 0U - a)
UNARY(abs_s32, uint32_t, int32_t, a < 0 ? 0U - (uint32_t)a : (uint32_t)a)
UNARY(abs_s64, uint64_t, int64_t, a < 0 ? 0U - (uint64_t)a : (uint64_t)a)

#define EXTREMES(suffix, type)                                                                     \
    BINARY(min_##suffix, type, type, type, a < b ? a : b)                                          \
    BINARY(max_##suffix, type, type, type, a > b ? a : b)
EXTREMES(u32, uint32_t)
EXTREMES(s32, int32_t)
EXTREMES(u64, uint64_t)
EXTREMES(s64, int64_t)

/* "Division by zero yields an unspecified, machine-specific value." The smallest number by -1
 * wraps. */
#define DIVISION(suffix, type, wide)                                                               \
    static void divide_##suffix(struct ptx_warp *w, const struct ptx_ins *i, int lane, bool rest)  \
    {                                                                                              \
        const type a = ((const type *)(w->registers + i->o[1].at))[lane];                          \
        const type b = ((const type *)(w->registers + i->o[2].at))[lane];                          \
        if (b == 0)                                                                                \
            ptx_report(w, i, lane, "division by zero", "its result is not specified");             \
        else                                                                                       \
            ((type *)(w->registers + i->o[0].at))[lane] =                                          \
                (type)(rest ? (wide)a % (wide)b : (wide)a / (wide)b);                              \
    }                                                                                              \
    static void div_##suffix(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)          \
    {                                                                                              \
        PTX_EACH(lanes, divide_##suffix(w, i, l, false));                                          \
    }                                                                                              \
    static void rem_##suffix(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)          \
    {                                                                                              \
        PTX_EACH(lanes, divide_##suffix(w, i, l, true));                                           \
    }
DIVISION(u32, uint32_t, uint32_t)
DIVISION(s32, int32_t, int64_t)
DIVISION(u64, uint64_t, uint64_t)
DIVISION(s64, int64_t, __int128)

/* --- logic and shift --- */

BINARY(and_32, uint32_t, uint32_t, uint32_t, a &b)
BINARY(and_64, uint64_t, uint64_t, uint64_t, a &b)
BINARY(or_32, uint32_t, uint32_t, uint32_t, a | b)
BINARY(or_64, uint64_t, uint64_t, uint64_t, a | b)
BINARY(xor_32, uint32_t, uint32_t, uint32_t, a ^ b)
BINARY(xor_64, uint64_t, uint64_t, uint64_t, a ^ b)
UNARY(not_32, uint32_t, uint32_t, ~a)
UNARY(not_64, uint64_t, uint64_t, ~a)

/* "Shift amounts greater than the register width N are clamped to N." */
BINARY(shl_32, uint32_t, uint32_t, uint32_t, b > 31 ? 0 : a << b)
BINARY(shl_64, uint64_t, uint64_t, uint32_t, b > 63 ? 0 : a << b)
BINARY(shl_16, uint32_t, uint32_t, uint32_t, b > 15 ? 0 : LOW(a << b))
BINARY(shr_u16, uint32_t, uint32_t, uint32_t, b > 15 ? 0 : LOW(a) >> b)
BINARY(shr_s16, uint32_t, uint32_t, uint32_t, (int16_t)LOW(a) >> (b > 15 ? 15 : b))
BINARY(shr_u32, uint32_t, uint32_t, uint32_t, b > 31 ? 0 : a >> b)
BINARY(shr_u64, uint64_t, uint64_t, uint32_t, b > 63 ? 0 : a >> b)
BINARY(shr_s32, uint32_t, int32_t, uint32_t, a >> (b > 31 ? 31 : b))
BINARY(shr_s64, uint64_t, int64_t, uint32_t, a >> (b > 63 ? 63 : b))

UNARY(count_32, uint32_t, uint32_t, __builtin_popcount(a))

static uint32_t reversed(uint32_t value)
{
    uint32_t result = 0;
    for (int bit = 0; bit < 32; bit++)
        result |= (value >> bit & 1) << (31 - bit);
    return result;
}
UNARY(reverse_32, uint32_t, uint32_t, reversed(a))

/* bfind.shiftamt: "the amount needed to left-shift the found bit into the most-significant bit
 * position"; 0xffffffff if there is none. */
UNARY(find_u32, uint32_t, uint32_t, a ? (uint32_t)__builtin_clz(a) : UINT32_MAX)

/* bfi: `length` bits of a replace those of b from `position` on. */
static uint64_t inserted(uint64_t a, uint64_t b, uint32_t position, uint32_t length, uint32_t width)
{
    position &= 255;
    length &= 255;
    for (uint32_t bit = 0; bit < length && position + bit < width; bit++)
        b = (b & ~(UINT64_C(1) << (position + bit))) | (a >> bit & 1) << (position + bit);
    return b;
}

static void insert_32(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    PTX_EACH(lanes, PTX_U32(w, i->o[0])[l] =
                        (uint32_t)inserted(PTX_U32(w, i->o[1])[l], PTX_U32(w, i->o[2])[l],
                                           PTX_U32(w, i->o[3])[l], PTX_U32(w, i->o[4])[l], 32));
}

static void insert_64(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    PTX_EACH(lanes,
             PTX_U64(w, i->o[0])[l] = inserted(PTX_U64(w, i->o[1])[l], PTX_U64(w, i->o[2])[l],
                                               PTX_U32(w, i->o[3])[l], PTX_U32(w, i->o[4])[l], 64));
}

/* prmt: each nibble of c selects a byte of {b, a}; its top bit replicates that byte's sign. */
static uint32_t permuted(uint32_t a, uint32_t b, uint32_t c)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t select = c >> 4 * k & 15, byte = bytes >> 8 * (select & 7) & 255;
        result |= (select & 8 ? (byte & 128 ? 255U : 0) : byte) << 8 * k;
    }
    return result;
}
TERNARY(permute, uint32_t, permuted(a, b, c))

/* --- predicates --- */

#define PREDICATE(name, value)                                                                     \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)                  \
    {                                                                                              \
        const uint32_t a = ptx_predicate(w, &i->o[1]), b = ptx_predicate(w, &i->o[2]);             \
        ptx_set_predicate(w, &i->o[0], value, lanes);                                              \
    }
PREDICATE(and_pred, a &b)
PREDICATE(or_pred, a | b)
PREDICATE(xor_pred, a ^ b)

static void not_pred(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    ptx_set_predicate(w, &i->o[0], ~ptx_predicate(w, &i->o[1]), lanes);
}

/* The first six comparisons of decode.c's list: the others are for numbers that may be NaN. */
#define COMPARE(suffix, type, narrow)                                                              \
    static void set_##suffix(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)          \
    {                                                                                              \
        const type *x = (const type *)(w->registers + i->o[1].at);                                 \
        const type *y = (const type *)(w->registers + i->o[2].at);                                 \
        uint32_t less = 0, equal = 0;                                                              \
        for (int l = 0; l < PTX_WARP; l++) {                                                       \
            less |= (uint32_t)((narrow)x[l] < (narrow)y[l]) << l;                                  \
            equal |= (uint32_t)((narrow)x[l] == (narrow)y[l]) << l;                                \
        }                                                                                          \
        const uint32_t values[] = {equal, ~equal, less, less | equal, ~(less | equal), ~less};     \
        ptx_set_predicate(w, &i->o[0], values[i->mode], lanes);                                    \
    }
COMPARE(u32, uint32_t, uint32_t)
COMPARE(s32, int32_t, int32_t)
COMPARE(u64, uint64_t, uint64_t)
COMPARE(s64, int64_t, int64_t)
COMPARE(u16, uint32_t, uint16_t)
COMPARE(s16, uint32_t, int16_t)

const struct ptx_operation ptx_integers[] = {
    {"add.b32", "444", add_32},
    {"add.b64", "888", add_64},
    {"sub.b32", "444", sub_32},
    {"sub.b64", "888", sub_64},
    {"mul.lo.b32", "444", mul_32},
    {"mul.lo.b64", "888", mul_64},
    {"mul.hi.s32", "444", mul_high_s32},
    {"mul.hi.u32", "444", mul_high_u32},
    {"mul.wide.u32", "844", mul_wide_u32},
    {"mul.wide.s32", "844", mul_wide_s32},
    {"mad.lo.b32", "4444", mad_32},
    {"mad.lo.b64", "8888", mad_64},
    {"neg.s32", "44", neg_32},
    {"neg.s64", "88", neg_64},
    {"abs.s32", "44", abs_s32},
    {"abs.s64", "88", abs_s64},
    {"min.u32", "444", min_u32},
    {"max.u32", "444", max_u32},
    {"min.s32", "444", min_s32},
    {"max.s32", "444", max_s32},
    {"min.u64", "888", min_u64},
    {"max.u64", "888", max_u64},
    {"min.s64", "888", min_s64},
    {"max.s64", "888", max_s64},
    {"div.u32", "444", div_u32},
    {"div.s32", "444", div_s32},
    {"div.u64", "888", div_u64},
    {"div.s64", "888", div_s64},
    {"rem.u32", "444", rem_u32},
    {"rem.s32", "444", rem_s32},
    {"rem.u64", "888", rem_u64},
    {"rem.s64", "888", rem_s64},
    {"and.b16", "444", and_32},
    {"and.b32", "444", and_32},
    {"and.b64", "888", and_64},
    {"or.b16", "444", or_32},
    {"or.b32", "444", or_32},
    {"or.b64", "888", or_64},
    {"xor.b16", "444", xor_32},
    {"xor.b32", "444", xor_32},
    {"xor.b64", "888", xor_64},
    {"not.b16", "44", not_32},
    {"not.b32", "44", not_32},
    {"not.b64", "88", not_64},
    {"shl.b16", "444", shl_16},
    {"shl.b32", "444", shl_32},
    {"shl.b64", "884", shl_64},
    {"shr.u16", "444", shr_u16},
    {"shr.u32", "444", shr_u32},
    {"shr.u64", "884", shr_u64},
    {"shr.s16", "444", shr_s16},
    {"shr.s32", "444", shr_s32},
    {"shr.s64", "884", shr_s64},
    {"popc.b32", "44", count_32},
    {"brev.b32", "44", reverse_32},
    {"bfind.shiftamt.u32", "44", find_u32},
    {"bfi.b32", "44444", insert_32},
    {"bfi.b64", "88844", insert_64},
    {"prmt.b32", "4444", permute},
    {"and.pred", "ppp", and_pred},
    {"or.pred", "ppp", or_pred},
    {"xor.pred", "ppp", xor_pred},
    {"not.pred", "pp", not_pred},
    {"setp.u16", "p44", set_u16},
    {"setp.s16", "p44", set_s16},
    {"setp.u32", "p44", set_u32},
    {"setp.s32", "p44", set_s32},
    {"setp.u64", "p88", set_u64},
    {"setp.s64", "p88", set_s64},
    {NULL, NULL, NULL},
};
