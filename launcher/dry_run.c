/* SPDX-License-Identifier: MIT
 *
 * --dry-run: prints a plan. */
#include "config.h"

#include "launcher/environment.h"

#include "core/text.h"

#include <string.h>

/* Prints a word that a terminal must not see as it is, as bash and others read it back: $'\x1b'. */
static void print_escaped(const char *word, FILE *out)
{
    fputs(" $'", out);
    for (; *word; word++) {
        const unsigned char byte = (unsigned char)*word;
        if (byte < 0x20 || byte >= 0x7f)
            fprintf(out, "\\x%02x", byte);
        else
            fprintf(out, byte == '\'' || byte == '\\' ? "\\%c" : "%c", byte);
    }
    fputc('\'', out);
}

/* Prints a word so that a shell reads it back. */
static void print_word(const char *word, FILE *out)
{
    if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_-+=:,./@%") == strlen(word)) {
        fprintf(out, " %s", word);
        return;
    }
    char shown[DDP_TEXT_SHOWN];
    if (strcmp(ddp_text_show(shown, word), word) != 0) {
        print_escaped(word, out);
        return;
    }
    fputs(" '", out);
    for (; *word; word++)
        fprintf(out, *word == '\'' ? "'\\''" : "%c", *word);
    fputc('\'', out);
}

void launch_plan_print(const struct launch_plan *plan, FILE *out)
{
    struct environment added;
    char shown[DDP_TEXT_SHOWN];
    fprintf(out, "program: %s\ncommand:", ddp_text_show(shown, plan->program));
    for (char *const *arg = plan->argv; *arg; arg++)
        print_word(*arg, out);
    fprintf(out, "\nworkers: %d, on %d usable core%s\n", plan->nproc, plan->cores,
            plan->cores == 1 ? "" : "s");
    for (int rank = 0; rank < plan->nproc; rank++) {
        environment_collect(&added, plan, rank, 3, 4, NULL);
        fprintf(out, "rank %d:", rank);
        if (environment_device(plan, rank) < plan->devices.count)
            fprintf(out, " GPU %s,",
                    ddp_text_show(shown,
                                  environment_device_name(plan, environment_device(plan, rank))));
        if (rank < plan->bindings.count)
            fprintf(out, " %s,", plan->bindings.workers[rank].text);
        fputs(" environment", out);
        for (size_t i = 0; i < added.count; i++)
            print_word(added.text + added.offsets[i], out);
        fputc('\n', out);
    }
}
