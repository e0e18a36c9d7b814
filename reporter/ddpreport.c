/* SPDX-License-Identifier: MIT
 *
 * main() of ddpreport. */
#include "config.h"

#include "core/log.h"
#include "core/write.h"
#include "reporter/commands.h"
#include "reporter/settings.h"

#include <errno.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct settings settings;
    int exit_code = 0;
    ddp_fill_standard_streams();
    ddp_log_set_name("ddpreport");
    enum ddp_status status = settings_read(&settings, argc, argv);
    if (status == DDP_OK && settings.help)
        settings_help(stdout);
    else if (status == DDP_OK && settings.version)
        printf("ddpreport %s\n", ddp_version());
    else if (status == DDP_OK && settings.compare)
        status = compare_show(&settings, &exit_code);
    else if (status == DDP_OK && settings.scale)
        status = scale_show(&settings);
    else if (status == DDP_OK && settings.exports)
        status = export_show(&settings);
    else if (status == DDP_OK)
        status = runs_show(&settings);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == DDP_OK)
        status = ddp_fail(DDP_ERR_IO, "standard output cannot be written: %s", strerror(errno));
    return exit_code ? exit_code : ddp_status_exit_code(status);
}
