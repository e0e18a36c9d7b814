/* SPDX-License-Identifier: MIT
 *
 * Says which thread of which kernel touched what, when the processor stops it. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char handler_stack[64 << 10];

/* Not strictly safe in a handler: the program is lost, and what it prints is for a person. */
static void report_fault(int number, siginfo_t *info, void *context)
{
    char kernel[160], place[160], text[400];
    (void)context;
    sim_running_kernel(kernel, sizeof kernel);
    sim_describe(info->si_addr, place, sizeof place);
    int length =
        snprintf(text, sizeof text, "cudasim: %s%s%s at %s\n", kernel, kernel[0] ? ": " : "",
                 number == SIGSEGV ? "segmentation fault" : "bus error", place);
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0)
        _exit(128 + number);
    signal(number, SIG_DFL);
}

/* Only where no sanitizer or debugger reports faults already. */
void sim_catch_faults(void)
{
    struct sigaction old, action;
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    memset(&action, 0, sizeof action);
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    if (sigaction(SIGSEGV, NULL, &old) != 0 || old.sa_handler != SIG_DFL ||
        sigaltstack(&stack, NULL) != 0)
        return;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}
