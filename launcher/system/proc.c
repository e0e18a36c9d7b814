/* SPDX-License-Identifier: MIT
 *
 * See proc.h. */
#include "config.h"

#include "launcher/system/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool proc_read(long pid, const char *name, char *text, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

char proc_state(long pid)
{
    char text[512];
    proc_read(pid, "stat", text, sizeof text);
    const char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : (char)0;
}
