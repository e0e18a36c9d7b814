/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: the text of choices of algorithms, from a file. Accepted is one without a damaged
 * line; what is read of any is written and read again the same. */
#include "config.h"

#include "kernels/cuda/choices.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    struct ddp_cuda_choices choices = {NULL, 0, 0}, again = {NULL, 0, 0};
    size_t damaged = 0, none = 0;
    char *text = NULL;
    bool accepted = false;
    if (ddp_cuda_choices_read(&choices, (const char *)data, size, &damaged) == DDP_OK &&
        ddp_cuda_choices_text(&choices, &text) == DDP_OK &&
        ddp_cuda_choices_read(&again, text, strlen(text), &none) == DDP_OK) {
        assert(none == 0 && again.count == choices.count);
        for (size_t i = 0; i < choices.count; i++) {
            assert(memcmp(&choices.of[i], &again.of[i], sizeof *choices.of) == 0);
            assert(ddp_cuda_choices_find(&choices, choices.of[i].key) == &choices.of[i]);
        }
        accepted = damaged == 0 && choices.count > 0;
    }
    free(text);
    ddp_cuda_choices_free(&choices);
    ddp_cuda_choices_free(&again);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
