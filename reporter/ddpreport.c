/* SPDX-License-Identifier: MIT
 *
 * main() of ddpreport. */
#include "config.h"

#include "core/log.h"
#include "core/memory.h"
#include "reporter/compare_table.h"
#include "reporter/runs.h"
#include "reporter/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Standard descriptors that are closed would be taken by the next file that is opened. */
static void open_standard_files(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Prints the tables. DDP_ERR_MISMATCH: some weights differ. */
static enum ddp_status show_comparison(const struct comparison *comparison)
{
    struct table time, memory;
    enum ddp_status status = compare_tables_make(&time, &memory, comparison);
    if (status == DDP_OK) {
        compare_describe(comparison, stdout);
        fputc('\n', stdout);
        table_print(&time, stdout);
        fputc('\n', stdout);
        table_print(&memory, stdout);
        printf("\n%s", compare_notes);
    }
    table_free(&time);
    table_free(&memory);
    if (status == DDP_OK && !comparison->all_equal)
        return ddp_fail(DDP_ERR_MISMATCH, "compare: weights that must be equal differ: see the "
                                          "table");
    return status;
}

static enum ddp_status compare(const struct settings *settings, int *exit_code)
{
    struct comparison *comparison = ddp_array_alloc(1, sizeof *comparison);
    if (!comparison)
        return DDP_ERR_MEMORY;
    enum ddp_status status = compare_run(comparison, settings, exit_code);
    if (status == DDP_OK)
        status = show_comparison(comparison);
    comparison_free(comparison);
    free(comparison);
    return status;
}

int main(int argc, char **argv)
{
    struct settings settings;
    int exit_code = 0;
    open_standard_files();
    ddp_log_set_name("ddpreport");
    enum ddp_status status = settings_read(&settings, argc, argv);
    if (status == DDP_OK && settings.help)
        settings_help(stdout);
    else if (status == DDP_OK && settings.version)
        printf("ddpreport %s\n", ddp_version());
    else if (status == DDP_OK && settings.compare)
        status = compare(&settings, &exit_code);
    else if (status == DDP_OK)
        status = settings.follow ? runs_follow(&settings) : runs_show(&settings);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == DDP_OK)
        status = ddp_fail(DDP_ERR_IO, "standard output cannot be written: %s", strerror(errno));
    return exit_code ? exit_code : ddp_status_exit_code(status);
}
