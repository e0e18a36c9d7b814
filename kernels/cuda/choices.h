/* SPDX-License-Identifier: MIT
 *
 * Which of cublasLt's algorithms products take, found by timing: a table by all that an algorithm
 * depends on, and its text, in which ranks exchange it and a file keeps it. A line is a product:
 *
 *   m=40 n=56 k=48 ... gelu=0 algorithm=HEX crc32c=HEX
 *
 * where the first HEX is the 64 bytes of a cublasLtMatmulAlgo_t, which the same version of the
 * library understands on the same model of GPU, and the second the checksum of what stands before
 * it. Lines that begin with # and empty ones say nothing. */
#ifndef DDP_KERNELS_CUDA_CHOICES_H
#define DDP_KERNELS_CUDA_CHOICES_H

#include "ddp.h"

enum { DDP_CUDA_KEY_WORDS = 16, DDP_CUDA_ALGORITHM_BYTES = 64 };

struct ddp_cuda_choice {
    int64_t key[DDP_CUDA_KEY_WORDS]; /* gemm.c has what they are */
    unsigned char algorithm[DDP_CUDA_ALGORITHM_BYTES];
};

struct ddp_cuda_choices {
    struct ddp_cuda_choice *of;
    size_t count, capacity;
};

/* NULL: there is none. */
const struct ddp_cuda_choice *ddp_cuda_choices_find(const struct ddp_cuda_choices *choices,
                                                    const int64_t key[DDP_CUDA_KEY_WORDS]);

/* Adds one; where there is one for that product, it stays. DDP_ERR_MEMORY. */
enum ddp_status ddp_cuda_choices_add(struct ddp_cuda_choices *choices,
                                     const struct ddp_cuda_choice *choice);

/* Adds those of a text, whose damaged lines are left out and counted. DDP_ERR_MEMORY. */
enum ddp_status ddp_cuda_choices_read(struct ddp_cuda_choices *choices, const char *text,
                                      size_t bytes, size_t *damaged);

/* The text of all, which ends in a 0; freed with free(). DDP_ERR_MEMORY. */
enum ddp_status ddp_cuda_choices_text(const struct ddp_cuda_choices *choices, char **text);

void ddp_cuda_choices_free(struct ddp_cuda_choices *choices);

#endif
