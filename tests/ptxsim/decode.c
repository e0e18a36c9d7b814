/* SPDX-License-Identifier: MIT
 *
 * One statement of a kernel becomes an instruction. */
#include "config.h"

#include "tests/ptxsim/parse.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 12, ARGUMENTS = 8 };

/* "@%p1 setp.lt.s32 %p2, %r1, 7" */
struct statement {
    char *part[PARTS]; /* setp lt s32 */
    char *argument[ARGUMENTS];
    int parts, arguments;
};

/* --- operands --- */

static bool number(const char *text, uint64_t *value)
{
    const size_t digits = text[0] == '0' && (text[1] == 'f' || text[1] == 'd') ? strlen(text) : 0;
    char *end;
    if (digits == 10 || digits == 18) { /* the bits of a float or double */
        *value = strtoull(text + 2, &end, 16);
        return !*end;
    }
    if (!isdigit((unsigned char)*text) && *text != '-')
        return false;
    *value = *text == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
    return !end[*end == 'U'];
}

static struct ptx_operand constant(struct ptx_parser *p, uint64_t value, uint8_t bytes)
{
    int i = 0;
    while (i < p->constants && (p->constant[i].bytes != bytes || p->constant[i].value != value))
        i++;
    if (i == p->constants) {
        p->constant = ptx_grown(p->constant, p->constants, sizeof *p->constant);
        p->constant[p->constants++] = (struct ptx_constant){value, bytes};
    }
    return (struct ptx_operand){.at = PTX_CONSTANT | (uint32_t)i, .bytes = bytes};
}

static struct ptx_operand special(struct ptx_parser *p, int id)
{
    struct ptx_kernel *k = p->kernel;
    int i = 0;
    while (i < k->special_count && k->special[i].id != id)
        i++;
    if (i == k->special_count) {
        k->special[i].id = id;
        k->special[k->special_count++].at = ptx_take_register(p, 4);
    }
    return (struct ptx_operand){.at = k->special[i].at, .bytes = 4};
}

/* A register, an immediate, or the address of a variable. bytes: what it has to have; an immediate
 * takes that size. */
static struct ptx_operand operand(struct ptx_parser *p, const char *text, uint8_t bytes)
{
    struct ptx_operand o = {.negated = *text == '!'};
    uint64_t value;
    text += o.negated;
    if (strcmp(text, "_") == 0)
        return (struct ptx_operand){.bytes = bytes, .none = true};
    if (ptx_find_register(p, text, &o)) {
        if (o.bytes != bytes)
            ptx_die(p, "%s has %d bytes, not %d", text, o.bytes, bytes);
        return o;
    }
    for (int id = 0; ptx_specials[id]; id++)
        if (strcmp(ptx_specials[id], text) == 0)
            return special(p, id);
    if (number(text, &value))
        return constant(p, bytes == 4 ? (uint32_t)value : value, bytes);
    for (int i = p->symbols - 1; i >= 0; i--)
        if (strcmp(p->symbol[i].name, text) == 0)
            return constant(p, p->symbol[i].at, bytes);
    ptx_die(p, "%s is not known", text);
}

/* As wide as the register is; of an immediate, as the type. */
static struct ptx_operand operand_of(struct ptx_parser *p, const char *text, struct ptx_type type)
{
    struct ptx_operand o;
    return operand(p, text, ptx_find_register(p, text, &o) ? o.bytes : type.bits == 64 ? 8 : 4);
}

/* "[%rd1+16]", "[name]" */
static struct ptx_operand address(struct ptx_parser *p, char *text)
{
    char *end = strrchr(text, ']'), *plus = strpbrk(text, "+-");
    if (*text != '[' || !end)
        ptx_die(p, "%s is not an address", text);
    const int64_t more = plus ? strtoll(plus + (*plus == '+'), NULL, 0) : 0;
    *(plus ? plus : end) = 0;
    struct ptx_operand o = operand_of(p, text + 1, (struct ptx_type){'u', 64});
    o.plus = more;
    return o;
}

/* "{%f1, %f2}", or one register. Returns how many. */
static int operands(struct ptx_parser *p, char *text, struct ptx_operand *to, struct ptx_type type)
{
    char *part[ARGUMENTS];
    if (*text != '{') {
        *to = operand_of(p, text, type);
        return 1;
    }
    text[strlen(text) - 1] = 0;
    const int count = ptx_split(p, text + 1, part, ARGUMENTS);
    for (int i = 0; i < count; i++)
        to[i] = operand_of(p, part[i], type);
    return count;
}

/* --- what stands in the name --- */

static int index_of(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

static const char *const roundings[] = {"rn", "rm", "rzi", NULL};
static const char *const comparisons[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ", "neu",
                                          "ltu", "leu", "gtu", "geu", "num", "nan", NULL};

/* Takes a modifier that changes no name in the table. */
static bool modifier(struct ptx_ins *i, const char *word)
{
    static const char *const words[] = {"ftz", "sat", "NaN", "uni", "approx", NULL};
    const int rounding = index_of(roundings, word), other = index_of(words, word);
    if (rounding >= 0)
        i->rounding = (enum ptx_rounding)rounding;
    i->flush |= other == 0;
    i->saturate |= other == 1;
    i->propagate_nan |= other == 2;
    return rounding >= 0 || other >= 0;
}

static void take_space(struct ptx_parser *p, struct ptx_ins *i, const char *word)
{
    static const char *const spaces[] = {"global", "shared", "param", NULL};
    const int space = index_of(spaces, word);
    if (space < 0)
        ptx_die(p, "the space \"%s\" is not known", word);
    i->space = (enum ptx_space)(PTX_GLOBAL + space);
}

static const struct ptx_operation *find(const char *name)
{
    const struct ptx_operation *const tables[] = {ptx_integers, ptx_floats, ptx_moves};
    for (int t = 0; t < 3; t++)
        for (const struct ptx_operation *o = tables[t]; o->name; o++)
            if (strcmp(o->name, name) == 0)
                return o;
    return NULL;
}

static void expect(struct ptx_parser *p, bool right, const char *what)
{
    if (!right)
        ptx_die(p, "%s is not known in this form", what);
}

/* --- instructions that are not in the table --- */

static void decode_memory(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    const bool load = *s->part[0] == 'l';
    take_space(p, i, s->part[1]);
    i->vector = s->parts == 4 ? (uint8_t)atoi(s->part[2] + 1) : 1;
    expect(p, s->arguments == 2 && s->parts <= 4 && i->vector >= 1 && i->vector <= 4, "an access");
    i->o[0] = address(p, s->argument[load]);
    expect(p, operands(p, s->argument[!load], &i->o[1], i->type) == i->vector, "a vector");
    i->run = load ? ptx_load : ptx_store;
    if (i->space != PTX_PARAM && i->type.bits / 8 * i->vector < p->kernel->grain)
        p->kernel->grain = i->type.bits / 8 * i->vector;
}

static void decode_branch(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    p->jump = ptx_grown(p->jump, p->jumps, sizeof *p->jump);
    struct ptx_label *jump = &p->jump[p->jumps++];
    expect(p, s->arguments == 1, "a branch");
    snprintf(jump->name, sizeof jump->name, "%s", s->argument[0]);
    jump->at = p->kernel->count;
    i->flow = PTX_BRANCH;
}

static void decode_exit(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    expect(p, s->parts == 1 && s->arguments == 0, "the end of a kernel");
    i->flow = PTX_EXIT;
}

static void decode_barrier(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    if (strcmp(i->name, "bar.warp.sync") == 0 && s->arguments == 1) {
        i->flow = PTX_MEMBERS;
        i->o[0] = operand(p, s->argument[0], 4);
        i->run = ptx_sync_warp;
        return;
    }
    expect(p, strcmp(i->name, "bar.sync") == 0 && s->arguments == 1 && !strcmp(s->argument[0], "0"),
           "a barrier");
    i->flow = PTX_BARRIER;
}

/* shfl.sync.bfly.b32 d|p, a, b, c, members */
static void decode_shuffle(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    static const char *const modes[] = {"up", "down", "bfly", "idx", NULL};
    const int mode = s->parts == 4 ? index_of(modes, s->part[2]) : -1;
    expect(p, mode >= 0 && s->arguments == 5, "a shuffle");
    char *bar = strchr(s->argument[0], '|');
    i->o[5].none = !bar;
    if (bar) {
        *bar = 0;
        i->o[5] = operand(p, bar + 1, 0);
    }
    i->flow = PTX_MEMBERS;
    i->mode = (uint8_t)mode;
    i->o[0] = operand(p, s->argument[4], 4);
    for (int a = 0; a < 4; a++)
        i->o[1 + a] = operand(p, s->argument[a], 4);
    i->run = ptx_shuffle;
}

static void decode_vote(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    expect(p, strcmp(i->name, "vote.sync.ballot.b32") == 0 && s->arguments == 3, "a vote");
    i->flow = PTX_MEMBERS;
    i->o[0] = operand(p, s->argument[2], 4);
    i->o[1] = operand(p, s->argument[0], 4);
    i->o[2] = operand(p, s->argument[1], 0);
    i->run = ptx_vote;
}

static void decode_mma(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    static const struct {
        const char *name;
        char kind;
        uint8_t columns;
    } products[] = {{"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 'h', 16},
                    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 'g', 16},
                    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 'g', 8}};
    int which = 0, count = 0;
    while (which < 3 && strcmp(i->name, products[which].name) != 0)
        which++;
    expect(p, which < 3 && s->arguments == 4, "a product");
    i->from = (struct ptx_type){products[which].kind, 32};
    i->vector = products[which].columns;
    for (int a = 0; a < 4; a++)
        count += operands(p, s->argument[a], &i->o[count], i->type);
    expect(p, count == 4 + i->vector / 4 + i->vector / 8 + 4, "a fragment");
    i->flow = PTX_ALIGNED;
    i->run = ptx_mma;
}

static void decode_matrix(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    i->transposed = strcmp(i->name, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == 0;
    expect(p, i->transposed || strcmp(i->name, "ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 0,
           "a matrix");
    expect(p, s->arguments == 2 && operands(p, s->argument[0], &i->o[1], i->type) == 4, "a matrix");
    i->o[0] = address(p, s->argument[1]);
    i->space = PTX_SHARED;
    i->flow = PTX_ALIGNED;
    i->run = ptx_load_matrix;
}

static void decode_copy(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    if (strcmp(i->name, "cp.async.wait_all") == 0) {
        i->run = ptx_copies_wait;
        return;
    }
    expect(p,
           strcmp(i->name, "cp.async.cg.shared.global") == 0 && s->arguments == 4 &&
               strcmp(s->argument[2], "16") == 0,
           "a copy");
    i->o[0] = address(p, s->argument[0]);
    i->o[1] = address(p, s->argument[1]);
    i->o[2] = operand(p, s->argument[3], 4);
    i->run = ptx_copy_start;
}

/* cvt.rn.f32.s64 d, a; cvt.rn.bf16x2.f32 d, a, b */
static void decode_conversion(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    i->from = i->type;
    i->type = ptx_type_of(p, s->part[s->parts - 2]);
    for (int part = 1; part < s->parts - 2; part++)
        expect(p, modifier(i, s->part[part]), s->part[part]);
    for (int a = 0; a < s->arguments; a++)
        i->o[a] = operand_of(p, s->argument[a], a ? i->from : i->type);
    const bool pair = i->type.kind == 'h' || i->type.kind == 'g';
    const bool floats = i->from.kind == 'f' && i->type.kind == 'f';
    const bool to_integer = i->from.kind == 'f' && i->type.kind == 's' && i->type.bits == 64;
    expect(p,
           s->arguments == (pair ? 3 : 2) && !i->flush && !i->propagate_nan &&
               (i->from.kind != 'f' || floats || to_integer || pair) &&
               (!floats || i->type.bits != 16 || i->from.bits == 32) &&
               i->rounding == (to_integer ? PTX_RZI : PTX_RN) &&
               (!i->saturate || (floats && i->type.bits == 32)),
           i->name);
    i->run = ptx_convert;
}

/* setp.lt.s32 p, a, b; setp.lt.and.s32 p|q, a, b, c */
static void decode_comparison(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    char name[32];
    const char type = i->type.kind == 'b' ? 'u' : i->type.kind;
    const int comparison = index_of(comparisons, s->part[1]);
    expect(p,
           comparison >= 0 && s->arguments == 3 && s->parts == 3 && (type == 'f' || comparison < 6),
           "a comparison");
    snprintf(name, sizeof name, "setp.%c%d", type, i->type.bits);
    const struct ptx_operation *operation = find(name);
    expect(p, operation != NULL, name);
    i->mode = (uint8_t)comparison;
    i->o[0] = operand(p, s->argument[0], 0);
    for (int a = 1; a < 3; a++)
        i->o[a] = operand(p, s->argument[a], i->type.bits == 64 ? 8 : 4);
    i->run = operation->run;
}

/* mov.b64 d, {a, b}; mov.b64 {d, e}, a */
static void decode_vector_move(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    const bool pack = *s->argument[1] == '{';
    const struct ptx_type part = {'b', (uint8_t)(i->type.bits / 2)};
    i->o[0] = operand_of(p, s->argument[!pack], i->type);
    i->vector = (uint8_t)operands(p, s->argument[pack], &i->o[1], part);
    const struct ptx_operation *operation = find(pack ? "mov.pack" : "mov.unpack");
    expect(p, operation && i->vector >= 2, "a vector");
    i->run = operation->run;
}

/* Whether the function of the table does what the modifiers say. */
static bool honoured(const struct ptx_ins *i, const char *name)
{
    static const char *const flushing[] = {"ex2.f32", "rcp.f32", "rcp.f64", NULL};
    static const char *const extremes[] = {"min.f32", "max.f32", NULL};
    return (i->rounding == PTX_RN || (i->rounding == PTX_RM && strcmp(name, "fma.f32") == 0)) &&
           (!i->flush || index_of(flushing, name) >= 0) && !i->saturate &&
           (!i->propagate_nan || index_of(extremes, name) >= 0);
}

/* The name in the table: without modifiers, and with .b for integers whose sign does not matter. */
static void decode_other(struct ptx_parser *p, struct ptx_ins *i, struct statement *s)
{
    static const char *const blind[] = {"add", "sub",  "mul.lo", "mad.lo",
                                        "mov", "selp", "shl",    NULL};
    char name[64];
    int length = snprintf(name, sizeof name, "%s", s->part[0]);
    for (int part = 1; part < s->parts - 1; part++)
        if (!modifier(i, s->part[part]))
            length += snprintf(name + length, sizeof name - (size_t)length, ".%s", s->part[part]);
    char kind = i->type.kind;
    if (index_of(blind, name) >= 0 && (kind == 'u' || kind == 's'))
        kind = 'b';
    if (kind == 'f' && (strcmp(name, "mov") == 0 || strcmp(name, "selp") == 0))
        kind = 'b';
    if (kind == 'p')
        snprintf(name + length, sizeof name - (size_t)length, ".pred");
    else
        snprintf(name + length, sizeof name - (size_t)length, ".%c%d", kind, i->type.bits);
    const struct ptx_operation *operation = find(name);
    expect(p, operation != NULL, name);
    expect(p, (int)strlen(operation->operands) == s->arguments && honoured(i, name), i->name);
    for (int a = 0; a < s->arguments; a++) {
        const char size = operation->operands[a];
        i->o[a] = operand(p, s->argument[a], size == 'p' ? 0 : (uint8_t)(size - '0'));
    }
    i->run = operation->run;
}

static const struct {
    const char *base;
    bool typed; /* the last part of its name is a type */
    void (*decode)(struct ptx_parser *p, struct ptx_ins *i, struct statement *s);
} decoders[] = {
    {"ld", true, decode_memory},       {"st", true, decode_memory},
    {"bra", false, decode_branch},     {"ret", false, decode_exit},
    {"bar", false, decode_barrier},    {"shfl", true, decode_shuffle},
    {"vote", true, decode_vote},       {"mma", true, decode_mma},
    {"ldmatrix", true, decode_matrix}, {"cp", false, decode_copy},
    {"cvt", true, decode_conversion},  {"setp", true, decode_comparison},
};

void ptx_decode(struct ptx_parser *p, char *text)
{
    struct ptx_kernel *k = p->kernel;
    struct statement s = {0};
    char name[80], *rest, *word = strtok_r(text, " \t\n", &rest);
    k->code = ptx_grown(k->code, k->count, sizeof *k->code);
    struct ptx_ins *i = &k->code[k->count];
    *i = (struct ptx_ins){.line = p->line,
                          .file = p->file,
                          .source_line = p->source_line,
                          .caller_file = p->caller_file,
                          .caller_line = p->caller_line};
    if (word && *word == '@') {
        i->guarded = true;
        i->guard = operand(p, word + 1, 0);
        word = strtok_r(NULL, " \t\n", &rest);
    }
    if (!word || strlen(word) >= sizeof name || !(i->name = strdup(word)))
        ptx_die(p, "there is no instruction");
    snprintf(name, sizeof name, "%s", word);
    s.arguments = ptx_split(p, rest, s.argument, ARGUMENTS);
    for (word = strtok_r(name, ".", &rest); word; word = strtok_r(NULL, ".", &rest)) {
        expect(p, s.parts < PARTS, i->name);
        s.part[s.parts++] = word;
    }
    size_t d = 0;
    while (d < sizeof decoders / sizeof *decoders && strcmp(decoders[d].base, s.part[0]) != 0)
        d++;
    const bool listed = d < sizeof decoders / sizeof *decoders;
    if (!listed || decoders[d].typed)
        i->type = ptx_type_of(p, s.part[s.parts - 1]);
    if (listed)
        decoders[d].decode(p, i, &s);
    else if (*s.part[0] == 'm' && s.arguments == 2 &&
             (*s.argument[0] == '{' || *s.argument[1] == '{'))
        decode_vector_move(p, i, &s);
    else
        decode_other(p, i, &s);
    k->count++;
}
