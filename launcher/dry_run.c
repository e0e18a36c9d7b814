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

/* A worker of this machine. */
static void print_worker(const struct launch_plan *plan, int rank, FILE *out)
{
    struct environment added;
    char shown[DDP_TEXT_SHOWN];
    environment_collect(&added, plan, rank, 3, 4, NULL);
    fprintf(out, "rank %d:", plan->first_rank + rank);
    if (environment_device(plan, rank) < plan->devices.count)
        fprintf(
            out, " GPU %s,",
            ddp_text_show(shown, environment_device_name(plan, environment_device(plan, rank))));
    if (rank < plan->bindings.count)
        fprintf(out, " %s,", plan->bindings.workers[rank].text);
    fputs(" environment", out);
    for (size_t i = 0; i < added.count; i++)
        print_word(added.text + added.offsets[i], out);
    fputc('\n', out);
}

/* A worker of another machine: only what it does not share with ours. Its devices are not known. */
static void print_distant(const struct launch_plan *plan, int node, int rank, FILE *out)
{
    struct launch_plan there = *plan;
    struct environment here, added;
    there.node = node;
    there.first_rank = plan->starts[node];
    environment_collect(&here, plan, rank, 3, 4, NULL);
    environment_collect(&added, &there, rank, 3, 4, NULL);
    fprintf(out, "rank %d: as rank %d, with", there.first_rank + rank, plan->first_rank + rank);
    for (size_t i = 0; i < added.count; i++)
        if (strcmp(added.text + added.offsets[i], here.text + here.offsets[i]) != 0)
            print_word(added.text + added.offsets[i], out);
    fputc('\n', out);
}

static void print_nodes(const struct launch_plan *plan, FILE *out)
{
    for (int node = 0; node < plan->node_count; node++) {
        fprintf(out, "node %d%s:\n", node,
                node == plan->node ? ", this machine" : ", if it has the same GPUs and cores");
        for (int rank = 0; rank < plan->nproc; rank++)
            if (node == plan->node)
                print_worker(plan, rank, out);
            else
                print_distant(plan, node, rank, out);
    }
    fputs("when all nodes have joined: MASTER_ADDR, MASTER_PORT, GLOO_SOCKET_IFNAME and "
          "NCCL_SOCKET_IFNAME\n",
          out);
}

void launch_plan_print(const struct launch_plan *plan, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    fprintf(out, "program: %s\ncommand:", ddp_text_show(shown, plan->program));
    for (char *const *arg = plan->argv; *arg; arg++)
        print_word(*arg, out);
    fprintf(out, "\nworkers: %d, on %d usable core%s\n", plan->nproc, plan->cores,
            plan->cores == 1 ? "" : "s");
    if (plan->node_count > 1) {
        fprintf(out, "nodes: %d, with %d workers in all if each has %d\n", plan->node_count,
                plan->job_size, plan->nproc);
        print_nodes(plan, out);
        return;
    }
    for (int rank = 0; rank < plan->nproc; rank++)
        print_worker(plan, rank, out);
}
