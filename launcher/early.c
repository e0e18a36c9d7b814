/* SPDX-License-Identifier: MIT
 *
 * See early.h. What stands in .preinit_array runs before the initialisation of any library, and
 * long before main(). */
#include "config.h"

#include "launcher/early.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static const int noted[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
#define NOTED (sizeof noted / sizeof noted[0])

static _Atomic uint32_t came; /* bit N for signal N */

/* A second Ctrl-C does not wait for whatever takes so long. */
static void note(int number)
{
    const uint32_t bit = UINT32_C(1) << number;
    if ((atomic_fetch_or(&came, bit) & bit) && number == SIGINT) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* What was ignored stays so. */
static void change(void (*from)(int), void (*to)(int))
{
    struct sigaction now, next = {.sa_handler = to, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < NOTED; i++)
        if (sigaction(noted[i], NULL, &now) == 0 && now.sa_handler == from)
            sigaction(noted[i], &next, NULL);
}

static void begin(void)
{
    change(SIG_DFL, note);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = begin;

void early_end(void)
{
    change(note, SIG_DFL);
    for (size_t i = 0; i < NOTED; i++)
        if (atomic_load(&came) >> noted[i] & 1)
            raise(noted[i]);
}
