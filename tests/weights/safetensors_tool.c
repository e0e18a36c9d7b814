/* SPDX-License-Identifier: MIT
 *
 * For safetensors_live.sh: `list FILE` prints the tensors, `copy FROM TO [metadata]` reads a file
 * and writes it again. */
#include "config.h"

#include "core/log.h"
#include "weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

static void list(const ddp_safetensors *file)
{
    for (size_t i = 0; i < ddp_safetensors_count(file); i++) {
        const struct ddp_safetensor *t = ddp_safetensors_at(file, i);
        printf("%s %s [", t->name, t->dtype);
        for (int d = 0; d < t->dim_count; d++)
            printf("%s%lld", d ? "," : "", (long long)t->dims[d]);
        printf("] ");
        for (size_t b = 0; b < t->bytes; b++)
            printf("%02x", ((const unsigned char *)t->data)[b]);
        printf("\n");
    }
}

static enum ddp_status copy(const ddp_safetensors *file, const char *path, bool metadata)
{
    const struct ddp_safetensors_pair pair = {"format", "pt"};
    size_t count = ddp_safetensors_count(file);
    struct ddp_safetensor *tensors = calloc(count + 1, sizeof *tensors);
    if (!tensors)
        return DDP_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) /* backwards: the order must not matter */
        tensors[i] = *ddp_safetensors_at(file, count - 1 - i);
    enum ddp_status status =
        ddp_safetensors_write(path, NULL, NULL, tensors, count, &pair, metadata);
    free(tensors);
    return status;
}

int main(int argc, char **argv)
{
    ddp_safetensors *file;
    ddp_log_set_name("safetensors_tool");
    if (argc < 3)
        return 2;
    enum ddp_status status = ddp_safetensors_open(&file, argv[2]);
    if (status != DDP_OK)
        return ddp_status_exit_code(status);
    if (strcmp(argv[1], "list") == 0)
        list(file);
    else if (argc > 3)
        status = copy(file, argv[3], argc > 4);
    ddp_safetensors_close(file);
    return ddp_status_exit_code(status);
}
