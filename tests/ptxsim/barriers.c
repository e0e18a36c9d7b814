/* SPDX-License-Identifier: MIT
 *
 * Whether each barrier is needed, and would be missed: launches are run without one. */
#include "config.h"

#include "tests/ptxsim/machine.h"
#include "tests/ptxsim/runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIES = 64 };

/* A barrier of a kernel: bar.sync, bar.warp.sync or cp.async.wait_all. */
struct barrier {
    struct barrier *next;
    struct ptx_kernel *kernel;
    int at, tries;
    bool found;
};
static struct barrier *barriers;

static void write_barriers(void)
{
    FILE *file = fopen(getenv("DDP_PTXSIM_BARRIERS"), "a");
    if (!file)
        abort();
    setvbuf(file, NULL, _IOFBF, 1 << 16);
    for (const struct barrier *b = barriers; b; b = b->next) {
        const struct ptx_ins *i = &b->kernel->code[b->at];
        fprintf(file, "%s\t%s\t%s\t%s\n", b->found ? "found" : "missed", i->name,
                ptx_place(b->kernel, i), b->kernel->name);
    }
    fclose(file);
}

static void list_barriers(struct ptx_kernel *kernel)
{
    static bool once;
    for (const struct barrier *b = barriers; b; b = b->next)
        if (b->kernel == kernel)
            return;
    if (!once)
        atexit(write_barriers);
    once = true;
    for (int at = 0; at < kernel->count; at++)
        if (strncmp(kernel->code[at].name, "bar.", 4) == 0 ||
            kernel->code[at].run == ptx_copies_wait) {
            struct barrier *b = calloc(1, sizeof *b);
            if (!b)
                abort();
            b->next = barriers;
            b->kernel = kernel;
            b->at = at;
            barriers = b;
        }
}

static void nothing(struct ptx_warp *w, const struct ptx_ins *i, uint32_t lanes)
{
    (void)w, (void)i, (void)lanes;
}

void ptx_try_barriers(struct ptx_kernel *kernel, const struct ptx_launch *launch)
{
    if (!getenv("DDP_PTXSIM_BARRIERS"))
        return;
    list_barriers(kernel);
    for (struct barrier *b = barriers; b; b = b->next) {
        if (b->kernel != kernel || b->found || b->tries++ >= TRIES)
            continue;
        const pid_t child = fork();
        if (child == 0) {
            const int null = open("/dev/null", O_WRONLY);
            if (null < 0 || dup2(null, STDERR_FILENO) < 0)
                _exit(2);
            kernel->code[b->at].flow = PTX_PLAIN;
            kernel->code[b->at].run = nothing;
            _exit(ptx_run(launch, ptx_device_memory) > 0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child)
            abort();
        b->found = WIFEXITED(status) && WEXITSTATUS(status) == 1;
    }
}
