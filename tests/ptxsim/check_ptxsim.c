/* SPDX-License-Identifier: MIT
 *
 * The interpreter of PTX on kernels written here: what they compute, and that each fault is found,
 * with its twin that has none. Needs no nvcc. */
#include "config.h"

#include "tests/lib/runner.h"
#include "tests/ptxsim/machine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Alignas(128) uint32_t memory[256];
static struct ptx_traffic moved; /* by the last launch */

static bool lookup(uint64_t address, uint64_t *start, uint64_t *end, bool *watched)
{
    *start = (uint64_t)(uintptr_t)memory;
    *end = *start + sizeof memory;
    *watched = true;
    return address >= *start && address < *end;
}

/* Runs a kernel of this body, with the address of `memory` in %m, that of this thread's word in %a,
 * its number in %t and `room`, 64 words of shared memory. Returns how many reports it gave, and in
 * `said` the first of them. */
static char said[4096];
static uint64_t run(const char *body, unsigned blocks, unsigned threads)
{
    static char text[8192];
    char name[] = "/tmp/ptxsimXXXXXX";
    snprintf(
        text, sizeof text,
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(\n.param .u64 p\n)\n{\n"
        ".reg .pred %%p<9>;\n.reg .b32 %%r<20>;\n.reg .b32 %%t;\n.reg .f32 %%f<9>;\n.reg .b16 "
        "%%rs<3>;\n"
        ".reg .b64 %%rd<9>;\n.reg .b64 %%m, %%a;\n.shared .align 16 .b8 room[256];\n"
        "ld.param.u64 %%m, [p];\nmov.u32 %%t, %%tid.x;\nmul.wide.u32 %%a, %%t, 4;\n"
        "add.s64 %%a, %%a, %%m;\nmov.u32 %%r9, room;\nshl.b32 %%r8, %%t, 2;\n"
        "add.s32 %%r8, %%r8, %%r9;\n%s\nret;\n}\n",
        body);
    struct ptx_module module = {.text = text};
    struct ptx_kernel *kernel = ptx_kernel_parse(&module, "k");
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    const struct ptx_launch launch = {
        .kernel = kernel, .grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .parameters = &address};
    const int file = mkstemp(name), old = dup(STDERR_FILENO);
    ck_assert(file >= 0 && old >= 0 && dup2(file, STDERR_FILENO) >= 0);
    const uint64_t reports = ptx_run(&launch, lookup);
    moved = (struct ptx_traffic){{0}, {0}};
    for (int i = 0; i < kernel->count; i++)
        for (int space = 0; space < 2; space++) {
            moved.moves[space] += kernel->traffic[i].moves[space];
            moved.least[space] += kernel->traffic[i].least[space];
        }
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    close(old);
    const ssize_t length = pread(file, said, sizeof said - 1, 0);
    said[length > 0 ? length : 0] = 0;
    close(file);
    unlink(name);
    ptx_kernel_free(kernel);
    return reports;
}

/* --- faults --- */

#define NEIGHBOUR "xor.b32 %r7, %t, 1;\nshl.b32 %r7, %r7, 2;\nadd.s32 %r7, %r7, %r9;\n"
#define FAR       "xor.b32 %r7, %t, 32;\nshl.b32 %r7, %r7, 2;\nadd.s32 %r7, %r7, %r9;\n"
#define PUT       "st.shared.u32 [%r8], %t;\n"
#define GET       "ld.shared.u32 %r1, [%r7];\nst.global.u32 [%a], %r1;\n"
#define FILLED    PUT "bar.sync 0;\n"
#define COPY      "cp.async.cg.shared.global [room], [%m], 16, 16;\n"
#define FIRST     "setp.ne.s32 %p1, %t, 0;\n@%p1 bra $end;\n"
#define ODD       "and.b32 %r1, %t, 1;\nsetp.eq.s32 %p1, %r1, 1;\n"

static const struct {
    const char *name;
    unsigned blocks, threads;
    const char *wrong, *said, *right;
} faults[] = {
    {"write, read in a warp", 1, 32, NEIGHBOUR PUT GET, "race in a warp: read after write",
     NEIGHBOUR PUT "bar.warp.sync 0xffffffff;\n" GET},
    {"write, read between warps", 1, 64, FAR PUT "bar.warp.sync -1;\n" GET,
     "race: read after write", FAR FILLED GET},
    {"read, write in a warp", 1, 32, FILLED NEIGHBOUR "ld.shared.u32 %r1, [%r7];\n" PUT,
     "race in a warp: write after read",
     FILLED NEIGHBOUR "ld.shared.u32 %r1, [%r7];\nbar.warp.sync -1;\n" PUT},
    {"several read, one writes", 1, 64,
     FILLED "ld.shared.u32 %r1, [room];\nsetp.eq.s32 %p1, %t, 63;\n"
            "@%p1 st.shared.u32 [room], %t;\n",
     "race: write after read", FILLED "ld.shared.u32 %r1, [room];\nbar.sync 0;\n" PUT},
    {"both write", 1, 64, "st.shared.u32 [room], %t;\n", "both write",
     "mov.u32 %r1, 7;\nsetp.lt.s32 %p1, %t, 32;\n@%p1 st.shared.u32 [room], %r1;\n"},
    {"one byte of a word", 1, 2,
     "add.s32 %r7, %r9, %t;\nst.shared.u16 [room], %t;\n"
     "ld.shared.u8 %r1, [%r7];\n",
     "race in a warp",
     "add.s32 %r7, %r9, %t;\nst.shared.u8 [%r7], %t;\nld.shared.u8 %r1, [%r7];\n"},
    {"nobody wrote", 1, 32, NEIGHBOUR GET, "uninitialised shared memory",
     NEIGHBOUR PUT "bar.warp.sync -1;\n" GET},
    {"only another block wrote", 2, 32,
     "mov.u32 %r1, %ctaid.x;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r8], %t;\n"
     "ld.shared.u32 %r2, [%r8];\n",
     "uninitialised shared memory", PUT "ld.shared.u32 %r2, [%r8];\n"},
    {"blocks write one word", 2, 32, "st.global.u32 [%a], %t;\n", "race of blocks: both write",
     "mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %rd1, %r1, 128;\nadd.s64 %a, %a, %rd1;\n"
     "st.global.u32 [%a], %t;\n"},
    {"a block reads what another wrote", 2, 1,
     "mov.u32 %r1, %ctaid.x;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 st.global.u32 [%m], %t;\n"
     "@!%p1 ld.global.u32 %r2, [%m];\n",
     "race of blocks: read after write",
     "mov.u32 %r1, %ctaid.x;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 st.global.u32 [%m], %t;\n"
     "@!%p1 ld.global.u32 %r2, [%m+4];\n"},
    {"a block writes what others read", 3, 1,
     "mov.u32 %r1, %ctaid.x;\nld.global.u32 %r2, [%m];\nsetp.eq.s32 %p1, %r1, 2;\n"
     "@%p1 st.global.u32 [%m], %t;\n",
     "race of blocks: write after read", "ld.global.u32 %r2, [%m];\n"},
    {"threads of a block, in global memory", 1, 64,
     "st.global.u32 [%a], %t;\nld.global.u32 %r1, [%m];\n", "race: read after write",
     "st.global.u32 [%a], %t;\nbar.sync 0;\nld.global.u32 %r1, [%m];\n"},
    {"past the end of global memory", 1, 32, "ld.global.u32 %r1, [%a+1020];\n", "out of bounds",
     "ld.global.u32 %r1, [%a+896];\n"},
    {"past the end of shared memory", 1, 32, "st.shared.u32 [%r8+132], %t;\n", "out of bounds",
     "st.shared.u32 [%r8+128], %t;\n"},
    {"misaligned", 1, 32, "ld.global.v2.u32 {%r1, %r2}, [%m+4];\n", "misaligned",
     "ld.global.v2.u32 {%r1, %r2}, [%m+8];\n"},
    {"a copy that is read at once", 1, 1, COPY "ld.shared.u32 %r1, [room];\ncp.async.wait_all;\n",
     "a copy that was not waited for", COPY "cp.async.wait_all;\nld.shared.u32 %r1, [room];\n"},
    {"a copy that others read without a barrier", 1, 2,
     "setp.eq.s32 %p1, %t, 0;\n@%p1 cp.async.cg.shared.global [room], [%m], 16, 16;\n"
     "cp.async.wait_all;\nld.shared.u32 %r1, [room];\n",
     "race in a warp: read after write",
     "setp.eq.s32 %p1, %t, 0;\n@%p1 cp.async.cg.shared.global [room], [%m], 16, 16;\n"
     "cp.async.wait_all;\nbar.sync 0;\nld.shared.u32 %r1, [room];\n"},
    {"the thread ends before its copy", 1, 1, COPY, "the thread ends before it",
     COPY "cp.async.wait_all;\n"},
    {"a barrier for some", 1, 32,
     ODD "@%p1 bra $end;\nbar.sync 0;\nmov.u32 %r2, 1;\n$end:\n"
         "st.global.u32 [%a], %t;\nbar.sync 0;\n",
     "divergence", ODD "@%p1 bra $end;\nmov.u32 %r2, 1;\n$end:\nbar.sync 0;\n"},
    {"different barriers", 1, 64,
     "setp.lt.s32 %p1, %t, 32;\n@%p1 bra $one;\nbar.sync 0;\n"
     "bra.uni $end;\n$one:\nbar.sync 0;\n$end:\n",
     "different barriers", "bar.sync 0;\nbar.sync 0;\n"},
    {"a shuffle in a branch", 1, 32,
     ODD "@%p1 bra $end;\nshfl.sync.bfly.b32 %r2, %t, 1, 31, -1;\n$end:\n", "shuffle",
     ODD "shfl.sync.bfly.b32 %r2, %t, 1, 31, -1;\n"},
    {"a shuffle of a lane that is not in the mask", 1, 32,
     "setp.lt.s32 %p1, %t, 16;\n@!%p1 bra $end;\nshfl.sync.bfly.b32 %r2, %t, 16, 31, 0xffff;\n"
     "$end:\n",
     "shuffle",
     "setp.lt.s32 %p1, %t, 16;\n@!%p1 bra $end;\n"
     "shfl.sync.bfly.b32 %r2, %t, 8, 31, 0xffff;\n$end:\n"},
    {"a lane that is not in its mask", 1, 32, "vote.sync.ballot.b32 %r1, %p1, 0xffff;\n",
     "wrong member mask", "vote.sync.ballot.b32 %r1, %p1, -1;\n"},
    {"division by zero", 1, 32, "div.u32 %r1, 7, %t;\n", "division by zero",
     "add.s32 %r1, %t, 1;\ndiv.u32 %r1, 7, %r1;\n"},
};

START_TEST(test_fault)
{
    ck_assert_msg(run(faults[_i].right, faults[_i].blocks, faults[_i].threads) == 0,
                  "%s, without the fault:\n%s", faults[_i].name, said);
    ck_assert_msg(run(faults[_i].wrong, faults[_i].blocks, faults[_i].threads) > 0 &&
                      strstr(said, faults[_i].said),
                  "%s:\n%s", faults[_i].name, said);
}
END_TEST

/* What is not known ends the program. */
START_TEST(test_unknown)
{
    static const char *const bodies[] = {"add.rz.f32 %f1, %f2, %f3;\n", "frob.b32 %r1, %r2;\n",
                                         "mov.u32 %r1, %clock;\n", "bar.sync 1;\n",
                                         "ld.local.u32 %r1, [%m];\n"};
    run(bodies[_i], 1, 1);
}
END_TEST

/* --- values --- */

/* Rows of a are 1, 2, 1, 2 .. in columns 0 to 7 and 3 in the others; a column of b has its number.
 */
#define PRODUCT(name, a, b)                                                                        \
    "shr.u32 %r4, %t, 2;\ncvt.rn.f32.u32 %f3, %r4;\ncvt.rn.f16x2.f32 %r5, %f3, %f3;\n"             \
    "mov.u32 %r6, 0x40003c00;\nmov.u32 %r7, 0x42004200;\nmov.f32 %f4, 0f00000000;\n"               \
    "mov.f32 %f5, %f4;\nmov.f32 %f6, %f4;\nmov.f32 %f7, %f4;\n"                                    \
    "mma.sync.aligned." name ".row.col.f32.f16.f16.f32 {%f4, %f5, %f6, %f7}, {" a "}, {" b "}, "   \
    "{%f4, %f5, %f6, %f7};\nmov.b32 %r3, %f4;\n"

/* An expression of thread 5 with r1 = 5, r2 = -7; f1 = 5, f2 = -1 and rd1 = -3. */
static const struct {
    const char *code;
    uint32_t result;
} values[] = {
    {"mul.hi.s32 %r3, %r2, 1073741824;\n", (uint32_t)-2},
    {"rem.s32 %r3, %r2, %r1;\n", (uint32_t)-2},
    {"div.s64 %rd2, %rd1, 2;\ncvt.u32.u64 %r3, %rd2;\n", (uint32_t)-1},
    {"shr.s32 %r3, %r2, 40;\n", (uint32_t)-1},
    {"mov.b16 %rs1, 0x8100;\nshr.s16 %rs1, %rs1, 8;\ncvt.s32.s16 %r3, %rs1;\n", (uint32_t)-127},
    {"shr.u32 %r3, %r2, 32;\n", 0},
    {"min.s32 %r3, %r1, %r2;\n", (uint32_t)-7},
    {"bfi.b32 %r3, %r1, 0, 4, 8;\n", 0x50},
    {"prmt.b32 %r3, 0x44332211, 0x88776655, 0x7531;\n", 0x88664422},
    {"bfind.shiftamt.u32 %r3, %r1;\n", 29},
    {"setp.ge.u32 %p1, %r2, %r1;\nselp.u32 %r3, 1, 2, %p1;\n", 1},
    {"setp.ge.s32 %p1, %r2, %r1;\nselp.u32 %r3, 1, 2, %p1;\n", 2},
    {"div.rn.f32 %f3, %f1, 0f00000000;\nsub.f32 %f3, %f3, %f3;\nsetp.ltu.f32 %p1, %f3, %f1;\n"
     "selp.u32 %r3, 1, 2, %p1;\n",
     1},
    {"cvt.rn.bf16x2.f32 %r3, %f1, %f1;\n", 0x40a040a0},
    {"cvt.rn.bf16x2.f32 %r3, 0f3f808000, 0f3f818000;\n", 0x3f803f82},       /* ties to even */
    {"cvt.rn.f16.f32 %rs1, 0f3f801000;\ncvt.u32.u16 %r3, %rs1;\n", 0x3c00}, /* likewise */
    {"cvt.rn.f16.f32 %rs1, 0fc77ff000;\ncvt.u32.u16 %r3, %rs1;\n", 0xfc00}, /* -65520 */
    {"cvt.rn.f16x2.f32 %r3, 0f3f801000, 0f3f803000;\n", 0x3c003c02},
    {"mov.b16 %rs1, 1;\ncvt.f32.f16 %f3, %rs1;\nmov.b32 %r3, %f3;\n", 0x33800000},
    {PRODUCT("m16n8k16", "%r6, %r6, %r7, %r7", "%r5, %r5"), 0x42900000}, /* 2 (4 3 + 4 6) */
    {PRODUCT("m16n8k8", "%r6, %r6", "%r5"), 0x41c00000},                 /* 2 (4 3) */
    {"fma.rm.f32 %f3, %f2, 0f30800000, 0f3f800000;\nmov.b32 %r3, %f3;\n", 0x3f7fffff},
    {"ex2.approx.ftz.f32 %f3, 0fc3000000;\nmov.b32 %r3, %f3;\n", 0}, /* 2^-128 */
    {"cvt.sat.f32.f32 %f3, %f1;\nmov.b32 %r3, %f3;\n", 0x3f800000},
    {"shfl.sync.idx.b32 %r3, %t, 3, 31, -1;\n", 3},
    {"shfl.sync.up.b32 %r3, %t, 2, 0, -1;\n", 3},
    {"setp.lt.u32 %p1, %t, 4;\nvote.sync.ballot.b32 %r3, %p1, -1;\n", 15},
    {"mov.u32 %r3, 0;\n$more:\nadd.s32 %r3, %r3, 2;\nsetp.lt.s32 %p1, %r3, %t;\n@%p1 bra $more;\n",
     6},
};

START_TEST(test_value)
{
    char body[1024];
    snprintf(body, sizeof body,
             "mov.u32 %%r1, 5;\nmov.u32 %%r2, -7;\nmov.f32 %%f1, 0f40a00000;\n"
             "mov.f32 %%f2, 0fbf800000;\nmov.u64 %%rd1, -3;\n%sst.global.u32 [%%a], %%r3;\n",
             values[_i].code);
    ck_assert_msg(run(body, 1, 32) == 0, "%s", said);
    ck_assert_msg(memory[5] == values[_i].result, "%s: %#x, not %#x", values[_i].code, memory[5],
                  values[_i].result);
}
END_TEST

/* --- traffic: of 32 lanes, or fewer --- */

#define TIMES(lanes) "shl.b32 %r1, %t, " lanes ";\nadd.s32 %r1, %r1, %r9;\n"

static const struct {
    const char *name;
    unsigned threads;
    const char *code;
    struct ptx_traffic moved;
} accesses[] = {
    {"words in a row", 32, "ld.global.u32 %r1, [%a];\n", {{4, 0}, {4, 0}}},
    {"words in a row, across a border", 32, "ld.global.u32 %r1, [%a+4];\n", {{5, 0}, {5, 0}}},
    {"every other word",
     32,
     "add.s64 %a, %a, %a;\nsub.s64 %a, %a, %m;\nst.global.u32 [%a], %t;\n",
     {{8, 0}, {4, 0}}},
    {"one word", 32, "ld.global.u32 %r1, [%m];\n", {{1, 0}, {1, 0}}},
    {"four words each",
     32,
     "mul.wide.u32 %a, %t, 16;\nadd.s64 %a, %a, %m;\n"
     "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%a];\n",
     {{16, 0}, {16, 0}}},
    {"a bank each", 32, PUT, {{0, 1}, {0, 1}}},
    {"one bank for two", 32, TIMES("3") "st.shared.u32 [%r1], %t;\n", {{0, 2}, {0, 1}}},
    {"halves of a word", 32, TIMES("1") "st.shared.u16 [%r1], %t;\n", {{0, 1}, {0, 1}}},
    {"two words each", 32, TIMES("3") "st.shared.v2.u32 [%r1], {%t, %t};\n", {{0, 2}, {0, 2}}},
    {"four words each, in shared memory",
     16,
     TIMES("4") "st.shared.v4.u32 [%r1], {%t, %t, %t, %t};\n",
     {{0, 2}, {0, 2}}},
    {"four words each, every other in two banks",
     8,
     TIMES("5") "st.shared.v4.u32 [%r1], {%t, %t, %t, %t};\n",
     {{0, 2}, {0, 1}}},
    {"a copy",
     4,
     "shl.b32 %r1, %t, 4;\nadd.s32 %r1, %r1, %r9;\ncvt.u64.u32 %rd1, %t;\n"
     "shl.b64 %rd1, %rd1, 5;\nadd.s64 %rd1, %rd1, %m;\n"
     "cp.async.cg.shared.global [%r1], [%rd1], 16, 16;\ncp.async.wait_all;\n",
     {{4, 1}, {2, 1}}},
    {"a copy of nothing",
     1,
     "cp.async.cg.shared.global [%r8], [%m], 16, 0;\ncp.async.wait_all;\n",
     {{0, 1}, {0, 1}}},
};

START_TEST(test_traffic)
{
    ck_assert_msg(run(accesses[_i].code, 1, accesses[_i].threads) == 0, "%s: %s", accesses[_i].name,
                  said);
    for (int space = 0; space < 2; space++) {
        ck_assert_msg(moved.moves[space] == accesses[_i].moved.moves[space] &&
                          moved.least[space] == accesses[_i].moved.least[space],
                      "%s, %s memory: %d, at least %d", accesses[_i].name,
                      space ? "shared" : "global", (int)moved.moves[space],
                      (int)moved.least[space]);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("ptxsim");
    TCase *tc = test_case(suite, "ptxsim", 30);
    tcase_add_loop_test(tc, test_fault, 0, sizeof faults / sizeof *faults);
    tcase_add_loop_test(tc, test_value, 0, sizeof values / sizeof *values);
    tcase_add_loop_test(tc, test_traffic, 0, sizeof accesses / sizeof *accesses);
    tcase_add_loop_test_raise_signal(tc, test_unknown, SIGABRT, 0, 5);
    return suite;
}
