#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes gguf_blocks.txt: blocks of GGUF as gguf-py makes and reads them. A line: encode or decode, the type's number, the values as
float32, and the bytes of the block, all in hexadecimal."""
import os

import gguf
import numpy as np

ENCODED = (1, 2, 8, 30)  # F16, Q4_0, Q8_0, BF16
DECODED = {2: 18, 6: 22, 8: 34, 12: 144, 14: 210}  # Q4_0, Q5_0, Q8_0, Q4_K, Q6_K


def values(seed):
    x = (np.arange(32, dtype=np.float32) * np.float32(seed * 7 + 3) % np.float32(13) - np.float32(6)) / np.float32(seed + 1)
    if seed == 1:
        x[:] = 0
    if seed == 2:
        x[:4] = [1e-7, -6.5e4, 6.5e4, 0.49999997]
    if seed == 3:  # ties, and the limits of float16
        x[:8] = [0.5, 1.5, -2.5, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 65504, 2.0**-14]
    return x


def block(kind, size, seed):
    raw = np.array([(i * i * 31 + i * (seed * 16 + 7) + seed * 101) % 256 for i in range(size)], np.uint8)
    half = np.frombuffer(np.array([0.0123 * (seed + 1), 0.0071], np.float16).tobytes(), np.uint8)
    if kind == 14:
        raw[-2:] = half[:2]
    else:
        raw[:2] = half[:2]
    if kind == 12:
        raw[2:4] = half[2:]
    return raw


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gguf_blocks.txt"), "w") as out:
    for kind in ENCODED:
        for seed in range(6):
            x = values(seed)
            data = gguf.quantize(x, gguf.GGMLQuantizationType(kind))
            print("encode", kind, x.tobytes().hex(), data.tobytes().hex(), file=out)
    for kind, size in DECODED.items():
        for seed in range(2):
            raw = block(kind, size, seed)
            x = gguf.dequantize(raw, gguf.GGMLQuantizationType(kind)).astype(np.float32)
            print("decode", kind, x.tobytes().hex(), raw.tobytes().hex(), file=out)
