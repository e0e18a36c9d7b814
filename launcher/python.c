/* SPDX-License-Identifier: MIT
 *
 * See python.h. */
#include "config.h"

#include "launcher/python.h"

#include "core/memory.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The program sees neither this module nor the variables. ImportError says that there is no other
 * sitecustomize, which is the usual case, and site ignores it. */
static const char module_text[] =
    "import os\n"
    "import sys\n"
    "\n"
    "def _arrange():\n"
    "    mine = os.path.dirname(__file__)\n"
    "    first, _, rest = os.environ.get('PYTHONPATH', '').partition(os.pathsep)\n"
    "    if first == mine:\n"
    "        if rest:\n"
    "            os.environ['PYTHONPATH'] = rest\n"
    "        else:\n"
    "            del os.environ['PYTHONPATH']\n"
    "    sys.path[:] = [path for path in sys.path if path != mine]\n"
    "    sys.path_importer_cache.pop(mine, None)\n"
    "    try:\n"
    "        number, fd = map(int, os.environ.pop('DDPRUN_STACK', '').split(':'))\n"
    "        import faulthandler\n"
    "        os.set_inheritable(fd, False)\n"
    "        faulthandler.register(number, file=fd)\n"
    "    except (AttributeError, ImportError, OSError, RuntimeError, ValueError):\n"
    "        pass\n"
    "    try:\n"
    "        os.close(int(mine.rpartition('/')[2]))\n"
    "    except (OSError, ValueError):\n"
    "        pass\n"
    "\n"
    "_arrange()\n"
    "del sys.modules['sitecustomize']\n"
    "import sitecustomize\n";
static const char module_name[] = "sitecustomize.py";

#define TEXT_BYTES (sizeof module_text - 1)
#define NAME_BYTES (sizeof module_name - 1)

bool python_is(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    const char *rest = name + strlen("python");
    return strncmp(name, "python", strlen("python")) == 0 && rest[strspn(rest, "0123456789.")] == 0;
}

/* --- the archive ------------------------------------------------------------------------------ */

static uint32_t crc32_of(const char *bytes, size_t count)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < count; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

static void put(FILE *out, int bytes, uint32_t value)
{
    for (int i = 0; i < bytes; i++, value >>= 8)
        fputc((int)(value & 0xff), out);
}

/* What the local header of a file and the directory have in common. */
static void put_entry(FILE *out)
{
    put(out, 2, 10); /* version needed */
    put(out, 2, 0);  /* flags */
    put(out, 2, 0);  /* stored */
    put(out, 2, 0);  /* time */
    put(out, 2, 33); /* 1 January 1980 */
    put(out, 4, crc32_of(module_text, TEXT_BYTES));
    put(out, 4, (uint32_t)TEXT_BYTES);
    put(out, 4, (uint32_t)TEXT_BYTES);
    put(out, 2, (uint32_t)NAME_BYTES);
    put(out, 2, 0); /* extra field */
}

static void put_archive(FILE *out)
{
    enum { LOCAL = 30, CENTRAL = 46 };
    put(out, 4, 0x04034b50);
    put_entry(out);
    fputs(module_name, out);
    fputs(module_text, out);
    put(out, 4, 0x02014b50);
    put(out, 2, 10);
    put_entry(out);
    put(out, 2, 0); /* comment */
    put(out, 4, 0); /* disk, attributes */
    put(out, 4, 0); /* attributes */
    put(out, 4, 0); /* where the file begins */
    fputs(module_name, out);
    put(out, 4, 0x06054b50);
    put(out, 4, 0);          /* disks */
    put(out, 4, 0x00010001); /* entries */
    put(out, 4, (uint32_t)(CENTRAL + NAME_BYTES));
    put(out, 4, (uint32_t)(LOCAL + NAME_BYTES + TEXT_BYTES));
    put(out, 2, 0);
}

static int make_archive(void)
{
    int fd = memfd_create("ddprun-python", MFD_CLOEXEC);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    if (out)
        put_archive(out);
    if (out && fclose(out) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* --- the workers' ---------------------------------------------------------------------------- */

void python_open(struct python *python, int workers)
{
    char name[32];
    *python = (struct python){.count = workers, .module = make_archive()};
    if (python->module < 0 ||
        !(python->stacks = ddp_array_alloc((size_t)workers, sizeof *python->stacks)))
        return;
    for (int rank = 0; rank < workers; rank++) {
        snprintf(name, sizeof name, PYTHON_STACK_FILE "%d", rank);
        int fd = memfd_create(name, MFD_CLOEXEC);
        if (fd >= 0)
            fcntl(fd, F_SETFL, O_APPEND);
        python->stacks[rank] = fd;
    }
}

void python_close(struct python *python)
{
    if (python->module >= 0)
        close(python->module);
    for (int rank = 0; python->stacks && rank < python->count; rank++)
        if (python->stacks[rank] >= 0)
            close(python->stacks[rank]);
    free(python->stacks);
    *python = (struct python){.module = -1};
}

bool python_path(const struct python *python, char *path, size_t size)
{
    const char *before = getenv("PYTHONPATH");
    const bool set = before && *before;
    return python->stacks && snprintf(path, size, "/proc/self/fd/%d%s%s", python->module,
                                      set ? ":" : "", set ? before : "") < (int)size;
}

int python_stack_fd(const struct python *python, int rank)
{
    return python->stacks ? python->stacks[rank] : -1;
}

bool python_stack(const struct python *python, int rank, char *value, size_t size)
{
    const int fd = python_stack_fd(python, rank);
    return fd >= 0 && snprintf(value, size, "%d:%d", PYTHON_STACK_SIGNAL, fd) < (int)size;
}

void python_inherit(const struct python *python, int rank)
{
    const int fd = python_stack_fd(python, rank);
    if (fd >= 0 && fcntl(python->module, F_SETFD, 0) == 0)
        fcntl(fd, F_SETFD, 0);
}
