/* SPDX-License-Identifier: MIT
 *
 * See terminal.h. SIGTTOU is blocked in ddprun, so it may hand the terminal around from the
 * background. */
#include "config.h"

#include "launcher/terminal.h"

#include "core/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

void terminal_open(struct terminal *terminal)
{
    terminal->fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    terminal->borrower = 0;
}

void terminal_close(struct terminal *terminal)
{
    if (terminal->fd < 0)
        return;
    if (terminal->borrower && tcgetpgrp(terminal->fd) == terminal->borrower)
        tcsetpgrp(terminal->fd, getpgrp());
    close(terminal->fd);
    terminal->fd = -1;
}

bool terminal_is_ours(const struct terminal *terminal)
{
    if (terminal->fd < 0)
        return false;
    pid_t owner = tcgetpgrp(terminal->fd);
    return owner == getpgrp() || (terminal->borrower && owner == terminal->borrower);
}

bool terminal_wait(const struct terminal *terminal)
{
    /* In an orphaned process group the signal does nothing. */
    for (int quick = 0; quick < 3 && !terminal_is_ours(terminal); quick++) {
        int64_t before_ns = ddp_clock_ns();
        raise(SIGTTIN); /* sleeps here until "fg", or "bg" */
        if (ddp_clock_ns() - before_ns > 1000000)
            quick = 0;
    }
    return terminal_is_ours(terminal);
}

void terminal_lend(struct terminal *terminal, pid_t group)
{
    if (terminal_is_ours(terminal) && tcsetpgrp(terminal->fd, group) == 0)
        terminal->borrower = group;
    kill(-group, SIGCONT);
}

void terminal_pause(struct terminal *terminal)
{
    bool lent =
        terminal->fd >= 0 && terminal->borrower && tcgetpgrp(terminal->fd) == terminal->borrower;
    if (lent)
        tcsetpgrp(terminal->fd, getpgrp());
    raise(SIGSTOP);
    if (lent && tcgetpgrp(terminal->fd) == getpgrp())
        tcsetpgrp(terminal->fd, terminal->borrower);
}
