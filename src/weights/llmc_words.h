/* SPDX-License-Identifier: MIT
 *
 * The header of llm.c's model files, for its parser and its writer: 256 little-endian int32. */
#ifndef DDP_WEIGHTS_LLMC_WORDS_H
#define DDP_WEIGHTS_LLMC_WORDS_H

#define DDP_LLMC_WORDS 256
#define DDP_LLMC_F32   3
#define DDP_LLMC_BF16  5

enum {
    DDP_LLMC_MAGIC,
    DDP_LLMC_VERSION,
    DDP_LLMC_CONTEXT,
    DDP_LLMC_VOCABULARY,
    DDP_LLMC_LAYERS,
    DDP_LLMC_HEADS,
    DDP_LLMC_CHANNELS,
    DDP_LLMC_PADDED,
    DDP_LLMC_USED_WORDS
};

#endif
