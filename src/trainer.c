/* SPDX-License-Identifier: MIT
 *
 * The program `trainer`: hands its command line to libddp and maps the result to an exit code. */
#include "config.h"

#include "ddp.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void print_help(bool all)
{
    puts("usage: trainer [options]\n"
         "       ddprun --nproc N trainer [options]\n"
         "       trainer info PATH\n"
         "       trainer tokenize IN OUT --tokenizer PATH\n"
         "\n"
         "Trains a model with data parallelism:\n"
         "  trainer              in one process\n"
         "  ddprun -n 4 trainer  in four workers\n"
         "  trainer --mode dp    in threads\n"
         "All end in the same weights.\n");
    if (all) {
        ddp_train_help(stdout);
        puts("\n"
             "  -h, --help [all]     print the most used options, or all\n"
             "      --version        print the version");
    } else {
        puts("Examples of the most used options; trainer --help all\n"
             "lists all options, man trainer describes them:\n");
        ddp_train_help_short(stdout);
    }
}

/* --help and --version win over everything else, wherever they are. */
static bool asks_for_text(int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const bool help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        const bool all = strcmp(argv[i], "--help=all") == 0;
        if (help || all) {
            print_help(all || (i + 1 < argc && strcmp(argv[i + 1], "all") == 0));
            return true;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("trainer %s\n", ddp_version());
            return true;
        }
    }
    return false;
}

/* Closed standard streams: the next file to be opened would get their number, and what is printed
 * would go into it. The stand-ins cannot be written, so results that get lost are still noticed. */
static void fill_standard_streams(void)
{
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) {
        if (fd > STDERR_FILENO) {
            close(fd);
            break;
        }
    }
}

/* Requests to stop wait from the first line to the last: training with checkpoints lets them
 * through when it can answer them, all else at once (how: SIG_BLOCK or SIG_UNBLOCK). */
static void mask_stop_signals(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(how, &set, NULL);
}

static enum ddp_status print_info(int argc, char *const *argv)
{
    if (argc != 3)
        return ddp_fail(DDP_ERR_INVALID, "info takes one directory or file: trainer info PATH");
    enum ddp_status status = ddp_train_info(argv[2], stdout);
    if (status == DDP_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = ddp_fail(DDP_ERR_IO, "cannot write to standard output");
    return status;
}

int main(int argc, char **argv)
{
    ddp_train *train = NULL;
    mask_stop_signals(SIG_BLOCK);
    fill_standard_streams();
    /* A file-size limit is then an error of write(), with a message, and not a death by signal. */
    signal(SIGXFSZ, SIG_IGN);
    if (asks_for_text(argc, argv)) {
        mask_stop_signals(SIG_UNBLOCK);
        if (fflush(stdout) == 0 && !ferror(stdout))
            return 0;
        fputs("trainer: error: cannot write to standard output\n", stderr);
        return ddp_status_exit_code(DDP_ERR_IO);
    }
    if (argc > 1 && strcmp(argv[1], "info") == 0) {
        mask_stop_signals(SIG_UNBLOCK);
        return ddp_status_exit_code(print_info(argc, argv));
    }
    const bool tokenizes = argc > 1 && strcmp(argv[1], "tokenize") == 0;
    const int operands = tokenizes ? 3 : 0;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK && tokenizes && (argc < 4 || argv[2][0] == '-' || argv[3][0] == '-'))
        status = ddp_fail(DDP_ERR_INVALID, "tokenize: name the text and the file to be written: "
                                           "trainer tokenize IN OUT --tokenizer PATH");
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc - operands, argv + operands);
    if (status == DDP_OK && !ddp_train_accepts_stop(train))
        mask_stop_signals(SIG_UNBLOCK);
    if (status == DDP_OK)
        status = tokenizes ? ddp_train_tokenize(train, argv[2], argv[3], stdout)
                           : ddp_train_run(train, stdout);
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
