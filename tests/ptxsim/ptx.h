/* SPDX-License-Identifier: MIT
 *
 * PTX, NVIDIA's assembly language for GPUs, executed on the host: what nvcc made of a kernel, lane
 * by lane, with a report of every race, read of memory that nobody wrote, access out of bounds and
 * misuse of a warp. Written from NVIDIA's document "PTX ISA", whose sections the comments name.
 * What is not known here is an error. One launch runs at a time. */
#ifndef DDP_TESTS_PTXSIM_PTX_H
#define DDP_TESTS_PTXSIM_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PTX_WARP = 32, PTX_MAX_WARPS = 32, PTX_MAX_OPERANDS = 16, PTX_MAX_PARAMETERS = 32 };
#define PTX_FULL 0xffffffffU

/* The first byte of shared memory has an offset above 0, so that 0 is out of bounds. */
enum { PTX_SHARED_START = 1024 };

enum ptx_space { PTX_NOWHERE, PTX_GLOBAL, PTX_SHARED, PTX_PARAM };

/* kind: 'b' bits, 'u' unsigned, 's' signed, 'f' float, 'h' two of bf16, 'g' two of float16, 'p'
 * predicate */
struct ptx_type {
    char kind;
    uint8_t bits;
};

struct ptx_warp;
struct ptx_ins;

/* Executes an instruction for these lanes. */
typedef void ptx_handler(struct ptx_warp *warp, const struct ptx_ins *ins, uint32_t lanes);

/* A register of a warp: 32 words of 4 or 8 bytes (16-bit values have words of 4), or one word with
 * a bit for each lane. Immediates are registers that nothing writes. */
struct ptx_operand {
    uint32_t at;  /* bytes into the registers of a warp */
    int64_t plus; /* of an address */
    uint8_t bytes;
    bool negated; /* of a predicate */
    bool none;    /* "_", or left out */
};

/* How the lanes of a warp come together for it. */
enum ptx_flow {
    PTX_PLAIN,
    PTX_BRANCH,
    PTX_EXIT,
    PTX_MEMBERS, /* all lanes of a mask, which is operand 0 */
    PTX_ALIGNED, /* all lanes of the warp */
    PTX_BARRIER  /* all threads of the block */
};

/* To nearest, towards minus infinity; to a whole number towards zero. */
enum ptx_rounding { PTX_RN, PTX_RM, PTX_RZI };

struct ptx_ins {
    ptx_handler *run;
    enum ptx_flow flow;
    enum ptx_space space;
    enum ptx_rounding rounding;
    struct ptx_type type, from; /* from: of a conversion, of the operands of a product */
    uint8_t vector;             /* elements of a load or store; columns of a product's a */
    uint8_t mode;               /* comparison, kind of shuffle */
    bool flush, saturate, propagate_nan, transposed;
    bool guarded;
    struct ptx_operand guard;
    int target; /* of a branch: instruction */
    struct ptx_operand o[PTX_MAX_OPERANDS];
    const char *name;
    int line;                                        /* of the PTX */
    int file, source_line, caller_file, caller_line; /* -lineinfo; caller: of inlined code */
};

/* What the requests of warps make a memory move, and the least that it could move for them: [0]
 * sectors of global memory, [1] rounds of the banks of shared memory. */
struct ptx_traffic {
    uint64_t moves[2], least[2];
};

struct ptx_kernel {
    char *name;
    struct ptx_module *module;
    struct ptx_ins *code;
    int count;
    uint32_t register_bytes;
    uint32_t constants_at; /* the last registers: immediates, which every warp begins with */
    char *constants;
    struct {
        uint32_t at;
        int id; /* in ptx_specials */
    } special[32];
    int special_count;
    struct {
        uint32_t at, bytes;
    } parameter[PTX_MAX_PARAMETERS];
    int parameter_count;
    uint32_t parameter_bytes, shared_bytes; /* with PTX_SHARED_START */
    int max_threads;                        /* .maxntid; 0: not said */
    struct ptx_traffic *traffic;            /* of each instruction, in the last launch */
    unsigned grain; /* bytes of the smallest access to memory that is watched: 1 to 4 */
};

enum { PTX_MAX_FILES = 64 };
struct ptx_module {
    const char *text;
    char *file[PTX_MAX_FILES];
};

/* Reads one kernel of a module, whose `text` lasts. What it does not know ends the program. */
struct ptx_kernel *ptx_kernel_parse(struct ptx_module *module, const char *name);
/* Calls `each` with the name of every kernel in the text. */
void ptx_kernel_names(const char *text, void (*each)(const char *name));
void ptx_kernel_free(struct ptx_kernel *kernel);

extern const char *const ptx_specials[]; /* "%tid.x", ... NULL */

struct ptx_launch {
    const struct ptx_kernel *kernel;
    unsigned grid[3], block[3];
    uint32_t dynamic_bytes;
    const void *parameters;
    bool no_products; /* mma does nothing, as code for an older device */
};

/* The memory of the device that an address lies in. watched: a race in it is one. */
typedef bool ptx_lookup(uint64_t address, uint64_t *start, uint64_t *end, bool *watched);

/* Runs all blocks. Returns the number of reports, which are written to standard error. */
uint64_t ptx_run(const struct ptx_launch *launch, ptx_lookup *lookup);

#endif
