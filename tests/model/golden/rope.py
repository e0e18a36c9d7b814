#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the frequencies of rotary positions that transformers computes, for check_rope to compare with.

usage: rope.py DIRECTORY

DIRECTORY/model/golden gets rope.txt. A line is one case: kind, size, original context, theta, factor, low_freq_factor, high_freq_factor,
beta_fast, beta_slow, 1 for a ramp that is not truncated, a colon, the frequencies as the hexadecimal of their bits. Public models are
among them: Llama 2, 3, 3.1 and 3.2, SmolLM 2 and 3, Qwen 2.5 and 3, Phi 3.
"""
import os
import sys

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

KINDS = ("default", "linear", "llama3", "yarn")


def frequencies(kind, size, original, theta, factor, low, high, fast, slow, untruncated):
    rope = {"rope_type": kind, "rope_theta": theta}
    if kind != "default":
        rope["factor"] = factor
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = original
    if kind == "llama3":
        rope.update(low_freq_factor=low, high_freq_factor=high)
    if kind == "yarn":
        rope.update(beta_fast=fast, beta_slow=slow, truncate=not untruncated)
    config = LlamaConfig(hidden_size=2 * size, num_attention_heads=2, num_key_value_heads=2, head_dim=size,
                         max_position_embeddings=int(original * factor), rope_parameters=rope)
    return LlamaRotaryEmbedding(config).inv_freq


def cases():
    for size, theta in ((2, 1e4), (6, 1e4), (8, 1e4), (48, 1e4), (64, 1e4), (128, 1e4), (128, 5e5), (64, 1e5), (64, 1e6),
                        (128, 1e6), (128, 5e6), (256, 1e7), (96, 2e6)):
        yield "default", size, 2048, theta, 1.0, 1.0, 4.0, 32.0, 1.0, 0
    for size, factor in ((8, 2.0), (64, 4.0), (128, 8.0), (100, 2.5)):
        yield "linear", size, 4096, 1e4, factor, 1.0, 4.0, 32.0, 1.0, 0
    for size, original, theta, factor, low, high in (
            (16, 32, 5e5, 8.0, 1.0, 4.0), (128, 8192, 5e5, 8.0, 1.0, 4.0), (64, 8192, 5e5, 32.0, 1.0, 4.0),
            (128, 8192, 5e5, 32.0, 1.0, 4.0), (96, 1000, 3e4, 5.5, 0.75, 3.25)):
        yield "llama3", size, original, theta, factor, low, high, 32.0, 1.0, 0
    for size, original, theta, factor, fast, slow, untruncated in (
            (16, 16, 1e6, 4.0, 32.0, 1.0, 0), (128, 32768, 1e6, 4.0, 32.0, 1.0, 0), (128, 65536, 2e6, 2.0, 32.0, 1.0, 0),
            (64, 4096, 15e4, 32.0, 32.0, 1.0, 1), (64, 4096, 1e4, 40.0, 16.0, 2.0, 0), (128, 2048, 1e4, 1.5, 8.0, 8.0, 1),
            (8, 64, 1e4, 4.0, 32.0, 32.0, 0)):
        yield "yarn", size, original, theta, factor, 1.0, 4.0, fast, slow, untruncated


with open(os.path.join(sys.argv[1], "model", "golden", "rope.txt"), "w") as out:
    for case in cases():
        bits = frequencies(*case).float().view(torch.int32).tolist()
        left = " ".join([str(KINDS.index(case[0]))] + [repr(x) for x in case[1:]])
        out.write("rope %s : %s\n" % (left, " ".join("%08x" % (b & 0xFFFFFFFF) for b in bits)))
