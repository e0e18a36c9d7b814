#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of one of the trainer's models on a GPU in the PyTorch of this Python, for bench/gpu.

usage: torch_gpu.py gpt2|mlp|resnet|peak [--steps N] [--batch N] [--length N] [--compile] [--dtype fp32|bf16] [--device D]

Written as one would for speed: flash attention, fused AdamW, autocast, a vocabulary padded to 50304, channels-last
images, the loss read once at the end. Prints one JSON object: milliseconds of each step, peak memory.
"""
import argparse
import contextlib
import json
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, HEADS, CHANNELS, PADDED = 12, 12, 768, 50304


class Block(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn, self.c_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.c_fc, self.mlp_proj = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        batch, length, channels = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(channels, 2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, channels))
        return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, args):
        super().__init__()
        layers, heads, channels, vocabulary = (2, 2, 64, 256) if args.tiny else (LAYERS, HEADS, CHANNELS, PADDED)
        self.vocabulary = vocabulary
        self.wte, self.wpe = nn.Embedding(vocabulary, channels), nn.Embedding(1024, channels)
        self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


class Residual(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.short = None if before == channels else nn.Sequential(
            nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + (self.short(x) if self.short else x))


def resnet18():
    """Its first layer is that for small images, as in the trainer."""
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Residual(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def make(args):
    """Model, optimizer, inputs, labels."""
    device = args.device
    if args.work == "gpt2":
        model = Gpt2(args).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device != "cpu")
        tokens = torch.randint(0, model.vocabulary, (args.batch, args.length + 1), device=device)
        return model, optimizer, tokens[:, :-1], tokens[:, 1:].reshape(-1)
    labels = torch.randint(0, 10, (args.batch,), device=device)
    if args.work == "mlp":
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                              nn.Linear(512, 10)).to(device)
        x = torch.rand(args.batch, 1, 28, 28, device=device)
    else:
        model = resnet18().to(device, memory_format=torch.channels_last)
        x = torch.randn(args.batch, 3, 32, 32, device=device).contiguous(memory_format=torch.channels_last)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), x, labels


def synchronize(args):
    if args.device != "cpu":
        torch.cuda.synchronize()


def peak(args):
    """FLOP/s of the fastest of a few large products in bf16."""
    best = {}
    for size in (64,) if args.tiny else (4096, 8192, 16384):
        a, b = (torch.rand(size, size, device=args.device, dtype=torch.bfloat16) * 2 - 1 for _ in range(2))
        times = []
        for _ in range(5):
            synchronize(args)
            begin = time.monotonic()
            for _ in range(10):
                a @ b
            synchronize(args)
            times.append((time.monotonic() - begin) / 10)
        best[size] = 2 * size ** 3 / sorted(times)[2]
    print(json.dumps({"name": f"PyTorch {torch.__version__}", "flop_per_s": max(best.values()), "by_size": best}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=("gpt2", "mlp", "resnet", "peak"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="to see that it works")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if args.dtype == "bf16" else "highest")
    if args.work == "peak":
        return peak(args)
    model, optimizer, x, labels = make(args)
    run = torch.compile(model) if args.compile else model
    kind = "cpu" if args.device == "cpu" else "cuda"
    cast = torch.autocast(kind, torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext()
    milliseconds = []
    for _ in range(args.steps):
        begin = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        with cast:
            y = run(x)
            loss = functional.cross_entropy(y.view(-1, y.shape[-1]), labels)
        loss.backward()
        if args.work == "gpt2":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        synchronize(args)
        milliseconds.append((time.monotonic() - begin) * 1e3)
    memory = {} if args.device == "cpu" else {"allocated": torch.cuda.max_memory_allocated(),
                                              "reserved": torch.cuda.max_memory_reserved()}
    print(json.dumps({"name": f"PyTorch {torch.__version__}", "ms": milliseconds, "loss": loss.item(), **memory}))


main()
