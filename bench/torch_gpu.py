#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of one of the trainer's models on a GPU in the PyTorch of this Python, for bench/gpu.

usage: torch_gpu.py gpt2|mlp|resnet [--steps N] [--batch N] [--length N] [--compile] [--dtype fp32|bf16] [--device D]
       torch_gpu.py kernels [--only products,attention,convolution] [--batch N] [--length N] [--images N] [--device D]
       torch_gpu.py peak [--device D]

Written as its users do for speed: flash attention, fused AdamW, autocast, a vocabulary padded to 50304, channels-last
images; model and loss are one function, which --compile compiles as a whole; the host waits for the GPU once in 5 steps.
Prints one JSON object: milliseconds of each step (the mean of 5), peak memory; of kernels the seconds of each, by the names
of kernels_perf.
"""
import argparse
import contextlib
import json
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, HEADS, CHANNELS, PADDED = 12, 12, 768, 50304
BLOCK = 5  # steps between two waits


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


class WithLoss(nn.Module):
    """What is trained, as one function."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, labels):
        y = self.model(x)
        return functional.cross_entropy(y.view(-1, y.shape[-1]), labels)


def make(args):
    """Model, optimizer, inputs, labels."""
    device, fused = args.device, {"fused": True} if args.device != "cpu" else {}
    if args.work == "gpt2":
        model = Gpt2(args).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **fused)
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
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **fused), x, labels


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


# ---- kernels ----

def seconds_of(args, function):
    """Median of 5 rounds of calls, one behind the other."""
    calls = 1 if args.tiny else 10
    function()
    times = []
    for _ in range(5):
        synchronize(args)
        begin = time.monotonic()
        for _ in range(calls):
            function()
        synchronize(args)
        times.append((time.monotonic() - begin) / calls)
    return sorted(times)[2]


def numbers(args, *shape):
    return torch.rand(*shape, device=args.device, dtype=torch.bfloat16) * 2 - 1


def products(args):
    channels, head = (32, 256) if args.tiny else (CHANNELS, PADDED)
    rows = args.batch * args.length
    for name, inner, outer in (("qkv", channels, 3 * channels), ("attproj", channels, channels),
                               ("fc", channels, 4 * channels), ("fcproj", 4 * channels, channels), ("head", channels, head)):
        x, weight, dy = numbers(args, rows, inner), numbers(args, outer, inner), numbers(args, rows, outer)
        yield f"{name} forward", lambda: functional.linear(x, weight)
        if name == "fc":
            yield "fc with gelu forward", lambda: functional.gelu(functional.linear(x, weight), approximate="tanh")
        yield f"{name} dX", lambda: dy @ weight
        yield f"{name} dW", lambda: dy.t() @ x


def attention(args):
    heads = 1 if args.tiny else HEADS
    qkv = numbers(args, args.batch, args.length, 3, heads, 64).requires_grad_()
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    dy = numbers(args, args.batch, heads, args.length, 64)

    def forward():
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    yield "attention forward", forward
    y = forward()
    yield "attention backward", lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)


def convolution(args):
    for channels, side in ((16, 4),) if args.tiny else ((64, 32), (128, 16), (256, 8), (512, 4)):
        x, dy = (numbers(args, args.images, channels, side, side).contiguous(memory_format=torch.channels_last)
                 for _ in range(2))
        weight = numbers(args, channels, channels, 3, 3).contiguous(memory_format=torch.channels_last)

        def backward(dx):
            return torch.ops.aten.convolution_backward(dy, x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1,
                                                       (dx, not dx, False))
        name = f"convolution {channels}x{side}x{side}"
        yield f"{name} forward", lambda: functional.conv2d(x, weight, padding=1)
        yield f"{name} dX", lambda: backward(True)
        yield f"{name} dW", lambda: backward(False)


def kernels(args):
    found = {}
    for kind in (products, attention, convolution):
        if kind.__name__ in args.only:
            for name, function in kind(args):
                found[name] = seconds_of(args, function)
    print(json.dumps({"name": f"PyTorch {torch.__version__}", "seconds": found}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=("gpt2", "mlp", "resnet", "peak", "kernels"))
    parser.add_argument("--only", default="products,attention,convolution")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="to see that it works")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high" if args.dtype == "bf16" else "highest")
    torch.backends.cudnn.benchmark = True
    if args.work in ("peak", "kernels"):
        return peak(args) if args.work == "peak" else kernels(args)
    model, optimizer, x, labels = make(args)
    run = WithLoss(model)
    if args.compile:
        run = torch.compile(run)
    kind = "cpu" if args.device == "cpu" else "cuda"
    cast = torch.autocast(kind, torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext()

    def step():
        with cast:
            loss = run(x, labels)
        loss.backward()
        if args.work == "gpt2":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss
    milliseconds = []
    while len(milliseconds) < args.steps:
        count = min(BLOCK, args.steps - len(milliseconds))
        synchronize(args)
        begin = time.monotonic()
        for _ in range(count):
            loss = step()
        synchronize(args)
        milliseconds += [(time.monotonic() - begin) * 1e3 / count] * count
    memory = {} if args.device == "cpu" else {"allocated": torch.cuda.max_memory_allocated(),
                                              "reserved": torch.cuda.max_memory_reserved()}
    print(json.dumps({"name": f"PyTorch {torch.__version__}", "ms": milliseconds, "loss": loss.item(), **memory}))


main()
