/* SPDX-License-Identifier: MIT
 *
 * See error_file.h. */
#include "config.h"

#include "launcher/error_file.h"

#include "core/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* {"message": "text"}, or {"message": {"message": "text", "extraInfo": {"py_callstack": "text"}}}
 * as torch writes it. */
static void extract(const json_t *root, struct error_text *text)
{
    const json_t *outer = json_object_get(root, "message");
    const json_t *inner = json_is_object(outer) ? json_object_get(outer, "message") : outer;
    const json_t *info = json_object_get(json_is_object(outer) ? outer : root, "extraInfo");
    const char *message = json_string_value(inner);
    const char *stack = json_string_value(json_object_get(info, "py_callstack"));
    snprintf(text->message, sizeof text->message, "%s", message ? message : "");
    if (!stack)
        return;
    size_t length = strlen(stack);
    if (length >= sizeof text->stack) {
        stack += length - (sizeof text->stack - 1);
        const char *line = strchr(stack, '\n');
        stack = line ? line + 1 : stack;
    }
    snprintf(text->stack, sizeof text->stack, "%s", stack);
}

static size_t read_whole(int fd, char *bytes, size_t size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t n = read(fd, bytes + used, size - used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    return used;
}

static void parse(const char *path, int fd, size_t size, struct error_text *text)
{
    json_error_t error;
    char *bytes = malloc(size);
    if (!bytes)
        return;
    size = read_whole(fd, bytes, size);
    json_t *root = json_loadb(bytes, size, JSON_ALLOW_NUL, &error);
    free(bytes);
    if (!root) {
        ddp_log(DDP_LOG_DEBUG, "%s: line %d: %s", path, error.line, error.text);
        return;
    }
    extract(root, text);
    json_decref(root);
}

bool error_file_read(const char *path, struct error_text *text)
{
    struct stat info;
    text->message[0] = text->stack[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return false;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        if (info.st_size > ERROR_FILE_BYTES)
            snprintf(text->message, sizeof text->message, "see %s, %lld bytes", path,
                     (long long)info.st_size);
        else
            parse(path, fd, (size_t)info.st_size, text);
    }
    close(fd);
    return text->message[0];
}
