/* SPDX-License-Identifier: MIT
 *
 * See choices.h. */
#include "config.h"

#include "kernels/cuda/choices.h"

#include "core/crc32c.h"
#include "core/log.h"
#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES (DDP_CUDA_KEY_WORDS * 36 + 2 * DDP_CUDA_ALGORITHM_BYTES + 64)

static const char *const words[DDP_CUDA_KEY_WORDS] = {
    "m",    "n",      "k",       "lda",     "ldb",     "ldc",  "transpose_a", "transpose_b",
    "type", "result", "align_a", "align_b", "align_c", "bias", "pre",         "gelu"};

const struct ddp_cuda_choice *ddp_cuda_choices_find(const struct ddp_cuda_choices *choices,
                                                    const int64_t key[DDP_CUDA_KEY_WORDS])
{
    for (size_t i = 0; i < choices->count; i++)
        if (memcmp(choices->of[i].key, key, sizeof choices->of[i].key) == 0)
            return &choices->of[i];
    return NULL;
}

enum ddp_status ddp_cuda_choices_add(struct ddp_cuda_choices *choices,
                                     const struct ddp_cuda_choice *choice)
{
    if (ddp_cuda_choices_find(choices, choice->key))
        return DDP_OK;
    if (choices->count == choices->capacity) {
        const size_t capacity = choices->capacity ? 2 * choices->capacity : 32;
        struct ddp_cuda_choice *of = ddp_array_alloc(capacity, sizeof *of);
        if (!of)
            return DDP_ERR_MEMORY;
        if (choices->count > 0)
            memcpy(of, choices->of, choices->count * sizeof *of);
        free(choices->of);
        choices->of = of;
        choices->capacity = capacity;
    }
    choices->of[choices->count++] = *choice;
    return DDP_OK;
}

void ddp_cuda_choices_free(struct ddp_cuda_choices *choices)
{
    free(choices->of);
    *choices = (struct ddp_cuda_choices){NULL, 0, 0};
}

/* --- text ----------------------------------------------------------------------------------- */

/* At most LINE_BYTES with the 0 behind it. */
static size_t write_line(char *line, const struct ddp_cuda_choice *choice)
{
    size_t used = 0;
    for (int i = 0; i < DDP_CUDA_KEY_WORDS; i++)
        used += (size_t)sprintf(line + used, "%s=%lld ", words[i], (long long)choice->key[i]);
    used += (size_t)sprintf(line + used, "algorithm=");
    for (int i = 0; i < DDP_CUDA_ALGORITHM_BYTES; i++)
        used += (size_t)sprintf(line + used, "%02x", (unsigned)choice->algorithm[i]);
    return used + (size_t)sprintf(line + used, " crc32c=%08x\n", (unsigned)ddp_crc32c(line, used));
}

enum ddp_status ddp_cuda_choices_text(const struct ddp_cuda_choices *choices, char **text)
{
    char *all = ddp_array_alloc(choices->count + 1, LINE_BYTES);
    if (!all)
        return DDP_ERR_MEMORY;
    for (size_t i = 0, used = 0; i < choices->count; i++)
        used += write_line(all + used, &choices->of[i]);
    *text = all;
    return DDP_OK;
}

/* A line is what is written of what is read of it: that is all there is to check. */
static bool read_line(const char *line, size_t bytes, struct ddp_cuda_choice *choice)
{
    char own[LINE_BYTES], again[LINE_BYTES], *at = own;
    if (bytes >= sizeof own || memchr(line, '\0', bytes))
        return false;
    memcpy(own, line, bytes);
    own[bytes] = '\0';
    for (int i = 0; i < DDP_CUDA_KEY_WORDS; i++) {
        const size_t length = strlen(words[i]);
        if (strncmp(at, words[i], length) != 0 || at[length] != '=')
            return false;
        choice->key[i] = strtoll(at + length + 1, &at, 10);
        if (*at++ != ' ')
            return false;
    }
    if (strncmp(at, "algorithm=", 10) != 0 || strlen(at) < 10 + 2 * DDP_CUDA_ALGORITHM_BYTES)
        return false;
    at += 10;
    for (int i = 0; i < DDP_CUDA_ALGORITHM_BYTES; i++, at += 2) {
        const char digits[] = {at[0], at[1], '\0'};
        choice->algorithm[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return write_line(again, choice) == bytes + 1 && memcmp(own, again, bytes) == 0;
}

enum ddp_status ddp_cuda_choices_read(struct ddp_cuda_choices *choices, const char *text,
                                      size_t bytes, size_t *damaged)
{
    enum ddp_status status = DDP_OK;
    struct ddp_cuda_choice choice;
    *damaged = 0;
    while (status == DDP_OK && bytes > 0) {
        const char *end = memchr(text, '\n', bytes);
        const size_t length = end ? (size_t)(end - text) : bytes;
        if (length > 0 && *text != '#') {
            if (read_line(text, length, &choice))
                status = ddp_cuda_choices_add(choices, &choice);
            else
                ++*damaged;
        }
        text += length + (end != NULL);
        bytes -= length + (end != NULL);
    }
    return status;
}
