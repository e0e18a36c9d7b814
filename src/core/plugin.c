/* SPDX-License-Identifier: MIT
 *
 * See plugin.h. */
#include "config.h"

#include "core/plugin.h"

#include "core/log.h"
#include "core/trace.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names become part of a file name and of a package name: lower-case letters and digits. */
static bool valid_name(const char *name)
{
    size_t length = name ? strlen(name) : 0;
    return length > 0 && length <= 32 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == length;
}

/* What is wrong with the plugin's own description; NULL: nothing. */
static const char *misfit(const struct ddp_plugin *plugin, const char *name)
{
    if (plugin->abi != DDP_PLUGIN_ABI)
        return "it belongs to another version";
    if (!plugin->name || strcmp(plugin->name, name) != 0)
        return "it is a plugin with another name";
    return NULL;
}

static void log_for_plugin(int level, const char *text)
{
    if (level == DDP_LOG_ERROR)
        (void)ddp_fail(DDP_ERR_SYSTEM, "%s", text); /* so that errors that are held are */
    else
        ddp_log((enum ddp_log_level)level, "%s", text);
}

/* Once for each plugin, whichever thread loads it first: what it sets, others may already use. */
static void attach(const struct ddp_plugin *plugin)
{
    enum { MAX_PLUGINS = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct ddp_plugin *attached[MAX_PLUGINS];
    const struct ddp_plugin_host host = {
        .log = log_for_plugin,
        .trace_recording = ddp_trace_recording,
        .trace = ddp_trace_record,
    };
    int at = 0;
    pthread_mutex_lock(&lock);
    while (at < MAX_PLUGINS && attached[at] && attached[at] != plugin)
        at++;
    if (plugin->attach && (at == MAX_PLUGINS || !attached[at]))
        plugin->attach(&host);
    if (at < MAX_PLUGINS)
        attached[at] = plugin;
    pthread_mutex_unlock(&lock);
}

/* Where the plugin is, or should be. A package that may be put anywhere, such as pip's, has it in
 * libexec/ddprun beside the directory of the program. */
static int find_file(char *path, size_t size, const char *name)
{
    const char *directory = secure_getenv("DDP_PLUGIN_PATH");
    if (directory && *directory)
        return snprintf(path, size, "%s/libddp-%s.so", directory, name);
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    for (int up = 0; up < 2 && length > 0; up++)
        while (length > 0 && program[--length] != '/')
            continue;
    int used = snprintf(path, size, "%.*s/libexec/ddprun/libddp-%s.so", (int)length, program, name);
    if (length > 0 && used > 0 && (size_t)used < size && access(path, F_OK) == 0)
        return used;
    return snprintf(path, size, "%s/libddp-%s.so", PKGLIBDIR, name);
}

enum ddp_status ddp_plugin_load(const struct ddp_plugin **plugin, const char *name, bool required)
{
    if (!plugin || !valid_name(name))
        return ddp_fail(DDP_ERR_INVALID, "'%s' is not a plugin's name", name ? name : "");
    char path[PATH_MAX];
    int length = find_file(path, sizeof path, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return ddp_fail(DDP_ERR_INVALID, "DDP_PLUGIN_PATH: the directory's name is too long");

    if (access(path, F_OK) != 0) {
        if (required)
            ddp_log(DDP_LOG_ERROR, "%s does not exist: install the package ddprun-%s", path, name);
        return DDP_ERR_UNSUPPORTED;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror(); /* names the file */
        if (required)
            ddp_log(DDP_LOG_ERROR,
                    "cannot load %s: install the package ddprun-%s and its dependencies",
                    reason ? reason : path, name);
        return DDP_ERR_UNSUPPORTED;
    }
    const struct ddp_plugin *found = dlsym(handle, "ddp_plugin");
    const char *problem = found ? misfit(found, name) : "it has no symbol ddp_plugin";
    if (problem) {
        if (required)
            ddp_log(DDP_LOG_ERROR, "%s: %s: install the package ddprun-%s of version %s", path,
                    problem, name, PACKAGE_VERSION);
        dlclose(handle);
        return DDP_ERR_UNSUPPORTED;
    }
    attach(found);
    *plugin = found; /* the handle is kept: the plugin stays */
    return DDP_OK;
}
