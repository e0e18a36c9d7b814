/* SPDX-License-Identifier: MIT
 *
 * The reading half of checkpoint.h. Files of tensors are checked from end to end and stay open;
 * values are read from them where they are wanted, so that nobody has room for all. */
#include "config.h"

#include "checkpoint/checkpoint.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PIECE_BYTES ((size_t)1 << 20)

/* --- tensors ---------------------------------------------------------------------------------- */

/* Not of the optimizer's state, which is of what is learned. */
static bool has_statistics(const char *array)
{
    return !array || ddp_text_ends_with(array, DDP_CHECKPOINT_WHOLE);
}

size_t ddp_checkpoint_tensor_count(const ddp_graph *graph, const char *array)
{
    const bool learned = !has_statistics(array);
    size_t count = 0;
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++)
        count += !learned || !ddp_graph_parameter_at(graph, i)->statistic;
    return count;
}

/* As PyTorch flattens an optimizer's state: "state.0.weight.exp_avg". */
static char *tensor_name(const char *array, const char *parameter)
{
    char *name = NULL;
    if (!array)
        name = strdup(parameter);
    else if (asprintf(&name, "state.%s.%s", parameter, array) < 0)
        name = NULL;
    if (!name)
        ddp_fail(DDP_ERR_MEMORY, "out of memory");
    return name;
}

enum ddp_status ddp_checkpoint_tensors(const ddp_graph *graph, const char *array, const float *flat,
                                       struct ddp_safetensor *tensors, char **names,
                                       const struct ddp_parameter **parameters)
{
    size_t i = 0;
    for (int p = 0; p < ddp_graph_parameter_count(graph); p++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, p);
        if (parameter->statistic && !has_statistics(array))
            continue;
        names[i] = tensor_name(array, parameter->name);
        if (!names[i])
            return DDP_ERR_MEMORY;
        tensors[i] = (struct ddp_safetensor){.name = names[i],
                                             .dtype = "F32",
                                             .dim_count = parameter->dim_count,
                                             .data = flat ? flat + parameter->offset : NULL,
                                             .bytes = (size_t)parameter->count * sizeof(float)};
        parameters[i] = parameter;
        memcpy(tensors[i++].dims, parameter->dims, sizeof parameter->dims);
    }
    return DDP_OK;
}

/* Whether the file's tensor is this parameter's. */
static bool fits(const struct ddp_safetensor *found, const struct ddp_parameter *parameter)
{
    return found && strcmp(found->dtype, "F32") == 0 && found->dim_count == parameter->dim_count &&
           memcmp(found->dims, parameter->dims, (size_t)found->dim_count * sizeof(int64_t)) == 0;
}

enum ddp_status ddp_checkpoint_take(const struct ddp_checkpoint *checkpoint, const ddp_graph *graph,
                                    const char *array, int64_t begin, int64_t count, float *values)
{
    const int part = array ? DDP_CHECKPOINT_OPTIMIZER : DDP_CHECKPOINT_MODEL;
    enum ddp_status status = DDP_OK;
    memset(values, 0, (size_t)count * sizeof *values);
    for (int p = 0; status == DDP_OK && p < ddp_graph_parameter_count(graph); p++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, p);
        const int64_t first = parameter->offset, last = first + parameter->count;
        const int64_t from = first > begin ? first : begin;
        const int64_t end = last < begin + count ? last : begin + count;
        if (from >= end || (parameter->statistic && !has_statistics(array)))
            continue;
        char *name = tensor_name(array, parameter->name);
        if (!name)
            return DDP_ERR_MEMORY;
        const struct ddp_safetensor *found = ddp_safetensors_find(checkpoint->files[part], name);
        status = fits(found, parameter)
                     ? ddp_safetensors_read(found, (size_t)(from - first) * sizeof *values,
                                            values + (from - begin),
                                            (size_t)(end - from) * sizeof *values)
                     : ddp_fail(DDP_ERR_FORMAT,
                                "%s/%s: no tensor %s of the model's shape: the checkpoint is from "
                                "another model",
                                checkpoint->path, ddp_checkpoint_part_names[part], name);
        free(name);
    }
    return status;
}

/* --- reading and checking --------------------------------------------------------------------- */

/* Opens a regular file and returns its size. Reasons do not name the file: the caller does. */
static int open_file(int dir_fd, const char *name, uint64_t *bytes, char *reason)
{
    struct stat info;
    const int fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        *bytes = (uint64_t)info.st_size;
        return fd;
    }
    ddp_checkpoint_wrong(reason, "cannot read it: %s",
                         fd < 0 ? strerror(errno) : "not a regular file");
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Reads exactly that many bytes and sums them up; fewer are there: false.
 *   keep  false: in `bytes` is room for a piece */
static bool read_bytes(int fd, char *bytes, size_t count, bool keep, uint32_t *crc32, char *reason)
{
    uLong sum = 0;
    while (count > 0) {
        ssize_t n = read(fd, bytes, count < PIECE_BYTES ? count : PIECE_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ddp_checkpoint_wrong(reason, "cannot read it: %s",
                                        n < 0 ? strerror(errno) : "it is truncated");
        sum = crc32_z(sum, (const Bytef *)bytes, (size_t)n);
        bytes += keep ? n : 0;
        count -= (size_t)n;
    }
    *crc32 = (uint32_t)sum;
    return true;
}

static bool read_state(struct ddp_checkpoint_state *state, int dir_fd, char *reason)
{
    char *text;
    uint64_t bytes = 0;
    uint32_t unused;
    const int fd = open_file(dir_fd, "state.json", &bytes, reason);
    if (fd < 0)
        return false;
    if (bytes > DDP_CHECKPOINT_STATE_BYTES) {
        close(fd);
        return ddp_checkpoint_wrong(reason, "it has %" PRIu64 " bytes, which is too many", bytes);
    }
    text = malloc((size_t)bytes + 1);
    const bool good = text && read_bytes(fd, text, (size_t)bytes, true, &unused, reason) &&
                      ddp_checkpoint_state_parse(state, text, (size_t)bytes, reason);
    if (!text)
        ddp_checkpoint_wrong(reason, DDP_CHECKPOINT_NO_MEMORY);
    free(text);
    close(fd);
    return good;
}

static bool check_size(int dir_fd, const char *name, const struct ddp_checkpoint_part_sum *sum,
                       int *fd, char *reason)
{
    uint64_t bytes = 0;
    *fd = open_file(dir_fd, name, &bytes, reason);
    if (*fd < 0)
        return false;
    if (bytes == sum->bytes)
        return true;
    close(*fd);
    return ddp_checkpoint_wrong(reason, "it has %" PRIu64 " bytes, and state.json says %" PRIu64,
                                bytes, sum->bytes);
}

/*   memory [out]  of the file's bytes; NULL: they are only checked */
static bool read_file(int dir_fd, const char *name, const struct ddp_checkpoint_part_sum *sum,
                      void **memory, char *reason)
{
    uint32_t crc32 = 0;
    int fd;
    if (!check_size(dir_fd, name, sum, &fd, reason))
        return false;
    char *bytes = malloc(memory ? (size_t)sum->bytes + 1 : PIECE_BYTES);
    bool good = bytes != NULL || ddp_checkpoint_wrong(reason, DDP_CHECKPOINT_NO_MEMORY);
    good = good && read_bytes(fd, bytes, (size_t)sum->bytes, memory != NULL, &crc32, reason);
    close(fd);
    if (memory)
        *memory = bytes;
    else
        free(bytes);
    if (good && crc32 != sum->crc32)
        good = ddp_checkpoint_wrong(
            reason, "it is damaged: its CRC-32 is %08" PRIx32 ", and state.json says %08" PRIx32,
            crc32, sum->crc32);
    return good;
}

static bool check_part(const struct ddp_checkpoint *checkpoint, int dir_fd, int part, char *reason)
{
    return read_file(dir_fd, ddp_checkpoint_part_names[part], &checkpoint->state.parts[part], NULL,
                     reason);
}

/* The files of a checkpoint, opened once they are known to be what was written. */
static enum ddp_status open_parts(struct ddp_checkpoint *checkpoint)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < DDP_CHECKPOINT_PARTS; i++) {
        char *path = ddp_path_in(checkpoint->path, ddp_checkpoint_part_names[i]);
        status =
            path ? ddp_safetensors_open_header(&checkpoint->files[i], path, true) : DDP_ERR_MEMORY;
        free(path);
    }
    return status;
}

/* Reads and checks a whole checkpoint.
 *   file [out]  the one that is wrong */
static bool read_whole(struct ddp_checkpoint *checkpoint, int dir_fd, const char **file,
                       char *reason)
{
    *file = "state.json";
    if (!read_state(&checkpoint->state, dir_fd, reason))
        return false;
    for (int i = 0; i < DDP_CHECKPOINT_PARTS; i++) {
        *file = ddp_checkpoint_part_names[i];
        if (!check_part(checkpoint, dir_fd, i, reason))
            return false;
    }
    if (!*checkpoint->state.own_file)
        return true;
    *file = checkpoint->state.own_file;
    return read_file(dir_fd, *file, &checkpoint->state.own, &checkpoint->own, reason);
}

static int open_directory(int parent, const char *name)
{
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool ddp_checkpoint_looks_whole(int dir_fd, int64_t step)
{
    char name[DDP_CHECKPOINT_NAME], reason[DDP_CHECKPOINT_REASON];
    struct ddp_checkpoint_state state;
    const int fd = open_directory(dir_fd, ddp_checkpoint_name(name, step));
    bool good = fd >= 0 && read_state(&state, fd, reason) && state.cursor.step == step;
    for (int i = 0; good && i < DDP_CHECKPOINT_PARTS; i++) {
        int file;
        good = check_size(fd, ddp_checkpoint_part_names[i], &state.parts[i], &file, reason);
        if (good)
            close(file);
    }
    if (good && *state.own_file) {
        int file;
        good = check_size(fd, state.own_file, &state.own, &file, reason);
        if (good)
            close(file);
    }
    if (fd >= 0)
        close(fd);
    return good;
}

void ddp_checkpoint_drop_files(struct ddp_checkpoint *checkpoint)
{
    for (int i = 0; i < DDP_CHECKPOINT_PARTS; i++) {
        ddp_safetensors_close(checkpoint->files[i]);
        checkpoint->files[i] = NULL;
    }
}

void ddp_checkpoint_free(struct ddp_checkpoint *checkpoint)
{
    ddp_checkpoint_drop_files(checkpoint);
    free(checkpoint->own);
    free(checkpoint->path);
    *checkpoint = (struct ddp_checkpoint){0};
}

/* Reads the checkpoint at checkpoint->path. DDP_ERR_FORMAT: it is not whole, and the message for
 * that is in `text`, "FILE: reason". DDP_ERR_MEMORY: logged. */
static enum ddp_status read_path(struct ddp_checkpoint *checkpoint, int parent, const char *name,
                                 char *text, size_t size)
{
    char reason[DDP_CHECKPOINT_REASON];
    const char *file = ".";
    const int fd = open_directory(parent, name);
    bool good = fd >= 0 ? read_whole(checkpoint, fd, &file, reason)
                        : ddp_checkpoint_wrong(reason, "cannot open it: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    if (good)
        return DDP_OK;
    if (strcmp(reason, DDP_CHECKPOINT_NO_MEMORY) == 0)
        return ddp_fail(DDP_ERR_MEMORY, "%s/%s: %s", checkpoint->path, file, reason);
    snprintf(text, size, "%s/%s: %s", checkpoint->path, file, reason);
    return DDP_ERR_FORMAT;
}

static enum ddp_status read_latest(struct ddp_checkpoint *checkpoint,
                                   const struct ddp_checkpoint_dir *dir, const int64_t *steps,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[DDP_CHECKPOINT_NAME], text[2 * DDP_CHECKPOINT_REASON];
        checkpoint->path = ddp_path_in(dir->path, ddp_checkpoint_name(name, steps[i]));
        if (!checkpoint->path)
            return DDP_ERR_MEMORY;
        enum ddp_status status = read_path(checkpoint, dir->fd, name, text, sizeof text);
        if (status == DDP_OK && checkpoint->state.cursor.step != steps[i]) {
            status = DDP_ERR_FORMAT;
            snprintf(text, sizeof text, "%s/state.json: it is that of step %" PRId64,
                     checkpoint->path, checkpoint->state.cursor.step);
        }
        if (status == DDP_OK)
            return open_parts(checkpoint);
        if (status != DDP_ERR_FORMAT)
            return status;
        ddp_log(DDP_LOG_WARNING, "skipped a damaged checkpoint: %s", text);
        ddp_checkpoint_free(checkpoint);
    }
    return DDP_OK;
}

enum ddp_status ddp_checkpoint_read_latest(struct ddp_checkpoint *checkpoint,
                                           const struct ddp_checkpoint_dir *dir)
{
    int64_t *steps = NULL;
    size_t count = 0;
    *checkpoint = (struct ddp_checkpoint){0};
    enum ddp_status status = ddp_checkpoint_dir_list(dir, &steps, &count);
    if (status == DDP_OK)
        status = read_latest(checkpoint, dir, steps, count);
    free(steps);
    if (status == DDP_OK && count > 0 && !checkpoint->path)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: all %zu checkpoints there are damaged: remove them to start "
                          "over, or name another with --resume-from",
                          dir->path, count);
    if (status != DDP_OK)
        ddp_checkpoint_free(checkpoint);
    return status;
}

/* A directory with a state.json is a checkpoint; one without may hold some. */
static enum ddp_status read_from_directory(struct ddp_checkpoint *checkpoint, const char *path)
{
    struct ddp_checkpoint_dir dir = {.path = strdup(path), .fd = open_directory(AT_FDCWD, path)};
    enum ddp_status status = DDP_OK;
    if (!dir.path)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    else if (dir.fd < 0)
        status = ddp_fail_path(path, "open");
    if (status == DDP_OK)
        status = ddp_checkpoint_read_latest(checkpoint, &dir);
    if (status == DDP_OK && !checkpoint->path)
        status = ddp_fail(DDP_ERR_FORMAT,
                          "%s: neither a checkpoint (it has no state.json) nor a directory of "
                          "checkpoints (there is no step-...)",
                          path);
    ddp_checkpoint_dir_close(&dir);
    return status;
}

enum ddp_status ddp_checkpoint_read(struct ddp_checkpoint *checkpoint, const char *path)
{
    char text[2 * DDP_CHECKPOINT_REASON];
    *checkpoint = (struct ddp_checkpoint){0};
    const int fd = open_directory(AT_FDCWD, path);
    const bool single = fd >= 0 && faccessat(fd, "state.json", F_OK, 0) == 0;
    if (fd >= 0)
        close(fd);
    if (!single)
        return read_from_directory(checkpoint, path);
    checkpoint->path = strdup(path);
    if (!checkpoint->path)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = read_path(checkpoint, AT_FDCWD, path, text, sizeof text);
    if (status == DDP_ERR_FORMAT)
        (void)ddp_fail(status, "not a complete checkpoint: %s", text);
    if (status == DDP_OK)
        status = open_parts(checkpoint);
    if (status != DDP_OK)
        ddp_checkpoint_free(checkpoint);
    return status;
}

/* --- its weights alone ------------------------------------------------------------------------ */

/* DDP_ERR_FORMAT: the message for that is in `text`, "FILE: reason". */
static enum ddp_status check_weights(const char *path, char *text, size_t size)
{
    struct ddp_checkpoint checkpoint = {0};
    char reason[DDP_CHECKPOINT_REASON];
    const char *file = "state.json";
    const int fd = open_directory(AT_FDCWD, path);
    bool good = fd >= 0 ? read_state(&checkpoint.state, fd, reason)
                        : ddp_checkpoint_wrong(reason, "cannot open it: %s", strerror(errno));
    if (good) {
        file = ddp_checkpoint_part_names[DDP_CHECKPOINT_MODEL];
        good = check_part(&checkpoint, fd, DDP_CHECKPOINT_MODEL, reason);
    }
    if (fd >= 0)
        close(fd);
    if (good)
        return DDP_OK;
    if (strcmp(reason, DDP_CHECKPOINT_NO_MEMORY) == 0)
        return ddp_fail(DDP_ERR_MEMORY, "%s/%s: %s", path, file, reason);
    snprintf(text, size, "%s/%s: %s", path, file, reason);
    return DDP_ERR_FORMAT;
}

/* The weights' path, if they are whole; *file stays NULL otherwise. */
static enum ddp_status take_file(char **file, const char *path, char *text, size_t size)
{
    enum ddp_status status = check_weights(path, text, size);
    if (status != DDP_OK)
        return status;
    *file = ddp_path_in(path, ddp_checkpoint_part_names[DDP_CHECKPOINT_MODEL]);
    return *file ? DDP_OK : DDP_ERR_MEMORY;
}

static enum ddp_status find_latest(char **file, const struct ddp_checkpoint_dir *dir, bool tell)
{
    int64_t *steps = NULL;
    size_t count = 0;
    enum ddp_status status = ddp_checkpoint_dir_list(dir, &steps, &count);
    for (size_t i = 0; status == DDP_OK && i < count && !*file; i++) {
        char name[DDP_CHECKPOINT_NAME], text[2 * DDP_CHECKPOINT_REASON];
        char *path = ddp_path_in(dir->path, ddp_checkpoint_name(name, steps[i]));
        if (!path) {
            status = DDP_ERR_MEMORY;
            break;
        }
        status = take_file(file, path, text, sizeof text);
        if (status == DDP_ERR_FORMAT) {
            if (tell)
                ddp_log(DDP_LOG_WARNING, "skipped a damaged checkpoint: %s", text);
            status = DDP_OK;
        }
        free(path);
    }
    free(steps);
    if (status == DDP_OK && count > 0 && !*file)
        status =
            ddp_fail(DDP_ERR_FORMAT, "%s: all %zu checkpoints there are damaged", dir->path, count);
    return status;
}

enum ddp_status ddp_checkpoint_find_weights(char **file, const char *path, bool tell)
{
    char text[2 * DDP_CHECKPOINT_REASON];
    struct ddp_checkpoint_dir dir = {.fd = open_directory(AT_FDCWD, path)};
    enum ddp_status status = DDP_OK;
    *file = NULL;
    if (dir.fd < 0)
        return ddp_fail_path(path, "open");
    dir.path = strdup(path);
    if (!dir.path) {
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    } else if (faccessat(dir.fd, "state.json", F_OK, 0) == 0) {
        status = take_file(file, path, text, sizeof text);
        if (status == DDP_ERR_FORMAT)
            (void)ddp_fail(status, "not a complete checkpoint: %s", text);
    } else {
        status = find_latest(file, &dir, tell);
    }
    close(dir.fd);
    free(dir.path);
    return status;
}
