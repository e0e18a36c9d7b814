#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text from a GPT-2 of 124M with keys and values kept, in the PyTorch of this Python, taking turns with generate_perf.

usage: generate_torch.py PATH/generate_perf [THREADS [SAMPLES [POSITION]]]

PyTorch runs the plain functions of its library on weights of the same shapes, with memory for keys and values made
beforehand; and, where the module transformers is there, its GPT2LMHeadModel with past_key_values. Medians of processor
time, of all threads, and the median of the turns' ratios.
"""
import statistics
import subprocess
import sys
import time

import torch
from torch.nn import functional as F

THREADS, SAMPLES, POSITION = [int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 1), (3, 1), (4, 128))]
STEPS, TURNS = 8, 7
L, H, C, V, P = 12, 12, 768, 50257, 1024
D = C // H


class Plain:
    def __init__(self):
        r = lambda *shape: torch.randn(*shape) * 0.02
        self.wte, self.wpe = r(V, C), r(P, C)
        self.blocks = [dict(a=r(3 * C, C), ab=r(3 * C), p=r(C, C), pb=r(C), f=r(4 * C, C), fb=r(4 * C), o=r(C, 4 * C), ob=r(C),
                            g1=torch.ones(C), b1=torch.zeros(C), g2=torch.ones(C), b2=torch.zeros(C)) for _ in range(L)]
        self.g, self.b = torch.ones(C), torch.zeros(C)
        self.keys = torch.zeros(L, SAMPLES, H, P, D)
        self.values = torch.zeros(L, SAMPLES, H, P, D)
        self.at = POSITION

    def step(self, tokens):
        x = self.wte[tokens] + self.wpe[self.at]
        for i, w in enumerate(self.blocks):
            y = F.linear(F.layer_norm(x, (C,), w["g1"], w["b1"]), w["a"], w["ab"])
            q, k, v = y.view(SAMPLES, 3, H, D).unbind(1)
            self.keys[i, :, :, self.at], self.values[i, :, :, self.at] = k, v
            keys, values = self.keys[i, :, :, :self.at + 1], self.values[i, :, :, :self.at + 1]
            p = torch.softmax(torch.matmul(keys, q.unsqueeze(-1)) / D ** 0.5, 2)
            y = torch.matmul(p.transpose(2, 3), values).reshape(SAMPLES, C)
            x = x + F.linear(y, w["p"], w["pb"])
            y = F.gelu(F.linear(F.layer_norm(x, (C,), w["g2"], w["b2"]), w["f"], w["fb"]))
            x = x + F.linear(y, w["o"], w["ob"])
        self.at += 1
        return F.linear(F.layer_norm(x, (C,), self.g, self.b), self.wte)

    def again(self):
        self.at = POSITION


class Transformers:
    def __init__(self):
        from transformers import GPT2Config, GPT2LMHeadModel
        self.model = GPT2LMHeadModel(GPT2Config()).eval()
        self.again()

    def again(self):
        out = self.model(torch.zeros(SAMPLES, POSITION, dtype=torch.long), use_cache=True)
        self.past = out.past_key_values

    def step(self, tokens):
        out = self.model(tokens.unsqueeze(1), past_key_values=self.past, use_cache=True)
        self.past = out.past_key_values
        return out.logits[:, -1]


def turn(model):
    model.again()
    tokens = torch.zeros(SAMPLES, dtype=torch.long)
    begin = time.process_time()
    for _ in range(STEPS):
        best = torch.topk(model.step(tokens) / 0.8, 200)
        tokens = best.indices.gather(1, torch.multinomial(torch.softmax(best.values, 1), 1)).squeeze(1)
    return (time.process_time() - begin) / STEPS * 1e3


def main():
    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    models = {"PyTorch": Plain()}
    try:
        models["transformers"] = Transformers()
    except ImportError:
        print("transformers: not installed")
    command = [sys.argv[1], str(THREADS), str(SAMPLES), str(POSITION), "turns"]
    ours = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    taken = {name: [] for name in ["ddprun", *models]}
    for i in range(TURNS + 1):
        row = {name: turn(model) for name, model in models.items()}
        ours.stdin.write("\n")
        row["ddprun"] = float(ours.stdout.readline())
        for name in row if i > 0 else ():  # the first warms up
            taken[name].append(row[name])
    ours.stdin.close()
    ours.wait()
    for name, ms in taken.items():
        ratio = statistics.median(theirs / own for theirs, own in zip(ms, taken["ddprun"]))
        middle = statistics.median(ms)
        print(f"{name:13} {middle:8.2f} ms a token of {SAMPLES}, {1e3 * SAMPLES / middle:7.1f} tokens/s, "
              f"{ratio:5.2f} times ddprun's time")


main()
