/* SPDX-License-Identifier: MIT
 *
 * A fuzz target defines fuzz_accepts(); libFuzzer calls it through LLVMFuzzerTestOneInput(), `make
 * check` through replay.c. */
#ifndef DDP_TESTS_FUZZ_H
#define DDP_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses the bytes and uses every byte of the result. True: accepted. */
bool fuzz_accepts(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
