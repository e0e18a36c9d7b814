/* SPDX-License-Identifier: MIT
 *
 * main() of ddprun: reads the command line, makes the plan, runs the job. */
#include "config.h"

#include "core/log.h"
#include "core/write.h"
#include "launcher/device_paths.h"
#include "launcher/early.h"
#include "launcher/explain.h"
#include "launcher/keeper.h"
#include "launcher/launch_plan.h"
#include "launcher/place.h"
#include "launcher/settings.h"
#include "launcher/status.h"
#include "launcher/supervise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The exit code, unless what was printed is lost. */
static int end_printing(int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    ddp_log(DDP_LOG_ERROR, "standard output cannot be written: %s", strerror(errno));
    return EXIT_LAUNCHER;
}

static int print(void (*text)(FILE *))
{
    early_end();
    text(stdout);
    return end_printing(EXIT_SUCCESS);
}

static void print_version(FILE *out)
{
    fprintf(out, "ddprun %s\n", ddp_version());
}

static int explain(const struct settings *settings)
{
    struct place place;
    early_end();
    explain_variables(stdout);
    const enum ddp_status status = place_find(&place, settings);
    if (status == DDP_OK)
        explain_place(&place, settings, stdout);
    device_paths_show(settings->nproc, stdout);
    return end_printing(status == DDP_OK ? EXIT_SUCCESS : EXIT_USAGE);
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct place place;
    struct launch_plan plan;
    int exit_code = EXIT_LAUNCHER;
    ddp_fill_standard_streams();
    ddp_log_set_name("ddprun");
    keeper_remember_title(argc, argv);
    if (argc > 1 && strcmp(argv[1], "status") == 0) {
        early_end();
        return end_printing(status_main(argc - 1, argv + 1));
    }
    if (settings_read(&settings, argc, argv) != DDP_OK)
        return EXIT_USAGE;
    if (settings.help)
        return print(settings_help);
    if (settings.version)
        return print(print_version);
    if (settings.explain_launch)
        return explain(&settings);
    if (place_find(&place, &settings) != DDP_OK)
        return EXIT_USAGE;
    if (launch_plan_make(&plan, &settings, &place, &exit_code) != DDP_OK)
        return exit_code;
    if (settings.dry_run) {
        early_end();
        launch_plan_print(&plan, stdout);
        exit_code = end_printing(EXIT_SUCCESS);
    } else {
        exit_code = supervise(&plan);
    }
    launch_plan_free(&plan);
    return exit_code;
}
