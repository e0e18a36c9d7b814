/* SPDX-License-Identifier: MIT
 *
 * Inside the reader of PTX: what the statements of one kernel share. */
#ifndef DDP_TESTS_PTXSIM_PARSE_H
#define DDP_TESTS_PTXSIM_PARSE_H

#include "tests/ptxsim/machine.h"

enum { PTX_NAME = 200 };
#define PTX_CONSTANT 0x80000000U /* `at` of an operand: the number of an immediate */

/* "%r<12>": registers of one type. */
struct ptx_range {
    char name[24];
    int count; /* -1: one, without a number */
    uint32_t at;
    uint8_t bytes; /* 0: predicates */
};

struct ptx_symbol {
    char name[PTX_NAME];
    enum ptx_space space;
    uint64_t at;
};

struct ptx_parser {
    struct ptx_module *module;
    struct ptx_kernel *kernel;
    struct ptx_range *range;
    struct ptx_symbol *symbol;
    struct ptx_label {
        char name[40];
        int at;
    } * label, *jump; /* jump: `at` is the branch */
    struct ptx_constant {
        uint64_t value;
        uint8_t bytes;
    } * constant;
    int ranges, symbols, labels, jumps, constants;
    int line, file, source_line, caller_file, caller_line;
    char statement[600]; /* for a message */
};

/* What is written is not understood: ends the program. */
void ptx_die(const struct ptx_parser *p, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* Room for one more element of an array of `count`, which grows to powers of two. */
void *ptx_grown(void *array, int count, size_t bytes);

struct ptx_type ptx_type_of(const struct ptx_parser *p, const char *name);
bool ptx_find_register(const struct ptx_parser *p, const char *name, struct ptx_operand *o);
uint32_t ptx_take_register(struct ptx_parser *p, uint8_t bytes);

/* Cuts a text at the commas that stand outside of brackets; returns how many parts there are,
 * without blanks around them. */
int ptx_split(const struct ptx_parser *p, char *text, char **parts, int most);

/* One instruction, without its semicolon, is added to the kernel. */
void ptx_decode(struct ptx_parser *p, char *text);

#endif
