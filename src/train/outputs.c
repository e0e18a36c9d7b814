/* SPDX-License-Identifier: MIT
 *
 * See outputs.h. */
#include "config.h"

#include "train/outputs.h"

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/staged_directory.h"
#include "core/terminal.h"
#include "core/text.h"
#include "core/write.h"
#include "plan/weights.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct output {
    const char *option, *path;                               /* path NULL: not given */
    enum { AT_ONCE, AT_END, DIRECTORY, NEW_DIRECTORY } kind; /* a file: when it is opened */
};

/* The path without links and dots, also of a file that is yet to be made, in directories that are;
 * false: there is none. */
static bool resolve(const char *path, char resolved[PATH_MAX])
{
    if (realpath(path, resolved))
        return true;
    char *copy = errno == ENOENT ? ddp_path_bare(path) : NULL;
    char *slash = copy ? strrchr(copy, '/') : NULL;
    const char *base = slash ? slash + 1 : copy;
    bool known = false;
    if (slash)
        *slash = '\0';
    if (copy && resolve(!slash ? "." : *copy ? copy : "/", resolved)) {
        const size_t used = strlen(resolved);
        known = true;
        if (strcmp(base, "..") == 0)
            *strrchr(resolved, '/') = '\0';
        else if (strcmp(base, ".") != 0)
            known =
                snprintf(resolved + used, PATH_MAX - used, "/%s", base) < (int)(PATH_MAX - used);
    }
    free(copy);
    return known;
}

static bool are_same(const struct output *a, const struct output *b)
{
    char one[PATH_MAX], other[PATH_MAX];
    struct stat first, second;
    const bool exist = stat(a->path, &first) == 0 && stat(b->path, &second) == 0;
    if (exist && (S_ISCHR(first.st_mode) || (a->kind == DIRECTORY && b->kind == DIRECTORY)))
        return false; /* a terminal or /dev/null takes all; event files go beside checkpoints */
    if (exist && first.st_dev == second.st_dev && first.st_ino == second.st_ino)
        return true;
    return !(a->kind == DIRECTORY && b->kind == DIRECTORY) && resolve(a->path, one) &&
           resolve(b->path, other) && strcmp(one, other) == 0;
}

/* A directory that is exported is replaced as a whole, and must be a model or empty until then. */
static bool is_inside(const struct output *inner, const struct output *outer)
{
    char one[PATH_MAX], other[PATH_MAX];
    if (outer->kind != NEW_DIRECTORY || !resolve(inner->path, one) || !resolve(outer->path, other))
        return false;
    const size_t length = strlen(other);
    return strncmp(one, other, length) == 0 && one[length] == '/';
}

/* Makes the directories above a file that are missing, and says so. */
static enum ddp_status make_directory_of(const struct output *output, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    char *directory = ddp_directory_of(output->path);
    if (!directory)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    const bool missing = access(directory, F_OK) < 0 && errno == ENOENT;
    enum ddp_status status = missing ? ddp_make_directories(directory, true) : DDP_OK;
    if (missing && status == DDP_OK && out)
        ddp_terminal_print(out, "made the directory %s for %s\n", ddp_text_show(shown, directory),
                           output->option);
    free(directory);
    return status;
}

/* Can it be written? Hours of training may come before. */
static enum ddp_status check_file(const char *path)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status == DDP_OK)
        ddp_atomic_file_close(file);
    return status;
}

static enum ddp_status check_pair(const struct output *one, const struct output *other)
{
    if (!one->path || !other->path || one == other)
        return DDP_OK;
    if (are_same(one, other))
        return ddp_fail(DDP_ERR_INVALID, "%s and %s name the same file, %s: give each its own",
                        one->option, other->option, other->path);
    if (is_inside(other, one))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s %s is inside the directory of %s, which is written as a whole: name a "
                        "place outside",
                        other->option, other->path, one->option);
    return DDP_OK;
}

enum ddp_status ddp_train_check_outputs(const struct ddp_train_options *options, FILE *out)
{
    const struct output outputs[] = {
        {"--save", options->save, AT_END},
        {"--export", options->export_path,
         ddp_planned_exports_directory(options, options->model) ? NEW_DIRECTORY : AT_END},
        {"--predict", options->predict, AT_END},
        {"--log", options->report.log, AT_ONCE},
        {"--trace", options->report.trace, AT_ONCE},
        {"--checkpoint", options->checkpoint, DIRECTORY},
        {"--tensorboard", options->report.tensorboard, DIRECTORY},
    };
    const size_t count = sizeof outputs / sizeof outputs[0];
    enum ddp_status status = DDP_OK;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; status == DDP_OK && k < count; k++)
            status = check_pair(&outputs[i], &outputs[k]);
    for (size_t i = 0; status == DDP_OK && i < count && !options->plan; i++) {
        if (outputs[i].path && outputs[i].kind != DIRECTORY)
            status = make_directory_of(&outputs[i], out);
        if (status == DDP_OK && outputs[i].path && outputs[i].kind == AT_END)
            status = check_file(outputs[i].path);
    }
    return status;
}

/* --- room ------------------------------------------------------------------------------------- */

static enum ddp_status check_room_of_file(const char *path, uint64_t bytes)
{
    ddp_atomic_file *file;
    enum ddp_status status = ddp_atomic_file_open(&file, path);
    if (status != DDP_OK)
        return status;
    status = ddp_atomic_file_reserve(file, bytes, bytes);
    ddp_atomic_file_close(file);
    return status;
}

static enum ddp_status check_room_of_directory(const char *path, uint64_t bytes, uint64_t largest)
{
    ddp_staged_directory *directory;
    enum ddp_status status = ddp_staged_directory_open(&directory, path, 0);
    if (status != DDP_OK)
        return status;
    status = ddp_staged_directory_reserve(directory, "model.safetensors", bytes, largest);
    ddp_staged_directory_close(directory);
    return status;
}

enum ddp_status ddp_run_check_room(const struct ddp_run *run, uint64_t exported)
{
    const struct ddp_train_options *options = run->planned.options;
    const uint64_t learned = (uint64_t)ddp_graph_element_count(run->planned.graph);
    enum ddp_status status = DDP_OK;
    if (options->save)
        status = check_room_of_file(options->save, learned * sizeof(float));
    if (status != DDP_OK || !options->export_path)
        return status;
    if (!ddp_planned_exports_directory(options, run->planned.plan.model))
        return check_room_of_file(options->export_path, exported);
    const uint64_t shard = (uint64_t)options->shard_bytes;
    return check_room_of_directory(options->export_path, exported,
                                   shard > 0 && shard < exported ? shard : exported);
}

/* --- elsewhere -------------------------------------------------------------------------------- */

/* Writes into a new directory in `place`; false: it cannot be written there either. */
static bool write_in(struct ddp_run *run, const char *place, const char *base,
                     enum ddp_status (*write)(struct ddp_run *run, const char *path))
{
    char *directory = NULL, unsaid[1024];
    if (asprintf(&directory, "%s/ddprun-XXXXXX", place) < 0)
        return false;
    char *path = mkdtemp(directory) ? ddp_path_in(directory, base) : NULL;
    const struct ddp_log_held before =
        ddp_log_exchange((struct ddp_log_held){unsaid, sizeof unsaid});
    const bool written = path && write(run, path) == DDP_OK;
    ddp_log_exchange(before);
    if (written)
        ddp_log(DDP_LOG_WARNING, "what was to be written there is in %s", path);
    else if (path)
        rmdir(directory);
    free(path);
    free(directory);
    return written;
}

enum ddp_status ddp_run_write(struct ddp_run *run, const char *path,
                              enum ddp_status (*write)(struct ddp_run *run, const char *path))
{
    const char *const places[] = {getenv("TMPDIR"), "/var/tmp", "/tmp", getenv("HOME"), "/dev/shm"};
    enum ddp_status status = write(run, path);
    if (status != DDP_ERR_IO)
        return status;
    char *copy = ddp_path_bare(path);
    const char *slash = copy ? strrchr(copy, '/') : NULL, *base = slash ? slash + 1 : copy;
    const bool named = base && *base && strcmp(base, ".") != 0 && strcmp(base, "..") != 0;
    bool written = !copy;
    for (size_t i = 0; !written && i < sizeof places / sizeof places[0]; i++)
        written = places[i] && *places[i] == '/' &&
                  write_in(run, places[i], named ? base : "model", write);
    if (!written)
        ddp_log(DDP_LOG_WARNING, "what was to be written there could not be written to TMPDIR, "
                                 "/var/tmp, /tmp, HOME or /dev/shm either");
    free(copy);
    return status;
}
