#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes nf4.txt: blocks of NF4 as bitsandbytes (0.50.2) makes and reads them on the CPU. A line: the type of the values, f32 or
bf16, the values, their blocks (a scale of float32 and 32 bytes of codes each), and the values read back, as float32 in hexadecimal."""
import os

import bitsandbytes.functional as F
import numpy as np
import torch

code = F.get_4bit_type("nf4", device="cpu").numpy()
middle = ((code[:-1].astype(np.float64) + code[1:]) / 2).astype(np.float32)


def values(seed):
    i = np.arange(192, dtype=np.int64)
    x = ((i * i * (2 * seed + 31) + i * 17 + seed) % 2048 - 1024).astype(np.float32) / np.float32(2 ** (9 + seed))
    if seed == 0:
        x[:64] = 0
    if seed == 1:  # on midpoints, and beside them
        x[0] = 1
        x[1:16], x[16:31] = middle, np.nextafter(middle, np.float32(2))
        x[31:46] = np.nextafter(middle, np.float32(-2))
        x[46:64] = 0
    return x


with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "nf4.txt"), "w") as out:
    for dtype in (torch.float32, torch.bfloat16):
        for seed in range(4):
            x = torch.tensor(values(seed)).to(dtype)
            codes, state = F.quantize_4bit(x, blocksize=64, quant_type="nf4")
            blocks = b"".join(s.tobytes() + c.tobytes() for s, c in
                              zip(state.absmax.float().numpy(), codes.numpy().reshape(-1, 32)))
            back = F.dequantize_4bit(codes, state)
            print("f32" if dtype == torch.float32 else "bf16", x.float().numpy().tobytes().hex(), blocks.hex(),
                  back.float().numpy().tobytes().hex(), file=out)
