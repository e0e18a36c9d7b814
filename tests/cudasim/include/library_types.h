/* SPDX-License-Identifier: MIT
 *
 * Stands in for NVIDIA's header of this name where CUDA is not installed: what this project uses of
 * it. A test compares it with the real one where that exists: constants are in lists, and
 * CUDASIM_CHECK leaves everything but lists and prototypes out. */
#ifndef CUDASIM_LIBRARY_TYPES_H
#define CUDASIM_LIBRARY_TYPES_H

#define CUDASIM_DATA_TYPES(X)                                                                      \
    X(CUDA_R_32F, 0)                                                                               \
    X(CUDA_R_64F, 1)                                                                               \
    X(CUDA_R_16F, 2)                                                                               \
    X(CUDA_R_8I, 3)                                                                                \
    X(CUDA_R_8U, 8)                                                                                \
    X(CUDA_R_32I, 10)                                                                              \
    X(CUDA_R_16BF, 14)

#ifndef CUDASIM_CHECK
#define CUDASIM_CONSTANT(name, value) name = value,

typedef enum cudaDataType_t { CUDASIM_DATA_TYPES(CUDASIM_CONSTANT) } cudaDataType;
typedef cudaDataType cudaDataType_t;
#endif

#endif
