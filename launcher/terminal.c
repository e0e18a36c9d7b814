/* SPDX-License-Identifier: MIT
 *
 * See terminal.h. SIGTTOU is blocked in ddprun, so it may hand the terminal around from the
 * background. */
#include "config.h"

#include "launcher/terminal.h"

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

static bool is_ours(const struct terminal *terminal)
{
    pid_t owner = tcgetpgrp(terminal->fd);
    return owner == getpgrp() || (terminal->borrower && owner == terminal->borrower);
}

void terminal_lend(struct terminal *terminal, pid_t group)
{
    if (terminal->fd < 0)
        return;
    if (!is_ours(terminal))
        raise(SIGTTIN); /* sleeps here until "fg" */
    if (is_ours(terminal) && tcsetpgrp(terminal->fd, group) == 0)
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
