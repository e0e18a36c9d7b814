/* SPDX-License-Identifier: MIT
 *
 * Makes and copies directories of models of the Llama kind, for hf_llama.sh and hf_llama_live.sh:
 *   hf_llama_tool fill SOURCE TARGET DTYPE SHARD   weights by the formula, the config of SOURCE
 *   hf_llama_tool copy SOURCE TARGET DTYPE SHARD   read as DTYPE, and written
 *   hf_llama_tool anew SOURCE TARGET DTYPE SHARD   the same, without the files of SOURCE
 * DTYPE is f32 or bf16, SHARD a number of bytes. */
#include "config.h"

#include "tests/weights/hf_formula.h"

int main(int argc, char **argv)
{
    struct ddp_hf_llama config;
    struct formula formula;
    if (argc != 6)
        return 2;
    const bool fill = strcmp(argv[1], "fill") == 0, anew = strcmp(argv[1], "anew") == 0;
    const enum ddp_dtype dtype = strcmp(argv[4], "bf16") == 0 ? DDP_BF16 : DDP_F32;
    const struct ddp_hf_export to = {.directory = argv[3],
                                     .source = anew ? NULL : argv[2],
                                     .dtype = dtype,
                                     .shard_bytes = (uint64_t)strtoull(argv[5], NULL, 10)};
    enum ddp_status status = ddp_hf_llama_read(&config, argv[2]);
    if (status == DDP_OK)
        status = ddp_hf_llama_export_check(&to);
    if (status != DDP_OK)
        return ddp_status_exit_code(status);
    formula_make(&formula, &config, fill ? DDP_F32 : dtype, fill);
    if (!fill)
        status = ddp_hf_llama_load(argv[2], &config, formula.values, formula.count);
    if (status == DDP_OK)
        status = ddp_hf_llama_export(&to, &config, formula.values, formula.count);
    formula_free(&formula);
    return ddp_status_exit_code(status);
}
