/* SPDX-License-Identifier: MIT
 *
 * The device's part in choosing algorithms of products by timing (kernels/cuda/gemm.c). */
#include "config.h"

#include "cuda/state.h"

#include "kernels/cuda/gemm.h"

#include <ctype.h>
#include <stdio.h>

/* The library's version understands its algorithms, and a model of GPU has its own. */
void ddp_cuda_name_choices(struct ddp_cuda_device *gpu, const char *model)
{
    size_t used = 0;
    char name[128];
    for (; *model && used < sizeof name - 1; model++)
        if (isalnum((unsigned char)*model) || *model == '.')
            name[used++] = *model;
        else if (used > 0 && name[used - 1] != '-')
            name[used++] = '-';
    name[used] = '\0';
    snprintf(gpu->choices, sizeof gpu->choices, "products-%s-sm%d-cublaslt-%zu", name,
             gpu->cuda.capability, cublasLtGetVersion());
}

const char *ddp_cuda_choices_name(void *state)
{
    struct ddp_cuda_device *gpu = state;
    return ddp_cuda_gemm_tunes(&gpu->cuda) ? gpu->choices : NULL;
}

void ddp_cuda_tune_begin(void *state, bool time)
{
    struct ddp_cuda_device *gpu = state;
    (void)ddp_cuda_gemm_tune(&gpu->cuda, time ? DDP_CUDA_TUNING_TIME : DDP_CUDA_TUNING_LIST);
}

int ddp_cuda_tune_end(void *state)
{
    struct ddp_cuda_device *gpu = state;
    return ddp_cuda_gemm_tune(&gpu->cuda, DDP_CUDA_TUNING_OFF);
}

enum ddp_status ddp_cuda_choices_export(void *state, char **text)
{
    struct ddp_cuda_device *gpu = state;
    return ddp_cuda_gemm_export(&gpu->cuda, text);
}

enum ddp_status ddp_cuda_choices_import(void *state, const char *text, bool replace,
                                        size_t *damaged)
{
    struct ddp_cuda_device *gpu = state;
    return ddp_cuda_gemm_import(&gpu->cuda, text, replace, damaged);
}
