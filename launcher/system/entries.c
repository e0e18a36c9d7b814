/* SPDX-License-Identifier: MIT
 *
 * See entries.h. */
#include "config.h"

#include "launcher/system/entries.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What getdents64() fills in. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

void entries_visit(int directory, void (*each)(void *arg, int directory, const char *name),
                   void *arg)
{
    _Alignas(8) char entries[4096];
    long n;
    lseek(directory, 0, SEEK_SET);
    while ((n = syscall(SYS_getdents64, directory, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            at += entry->bytes;
            if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0)
                each(arg, directory, entry->name);
        }
}
