#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of one of the trainer's models in the PyTorch of this Python, for bench/run.

usage: torch_steps.py gpt2|mlp|resnet [--steps N] [--threads N] [--batch N] [--dtype fp32|bf16] [--nhwc]
                      [--compile] [--weights MODEL.bin --tokens TOKENS.bin]
       torchrun --nproc-per-node N torch_steps.py mlp ...          (DistributedDataParallel, gloo)

Prints one JSON object: milliseconds and loss of each step, when the first ended (CLOCK_MONOTONIC), peak memory in KiB.
"""
import argparse
import contextlib
import json
import math
import os
import struct
import sys
import time

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "train", "golden"))
import models  # noqa: E402 (found by the line above)

CONTEXT, LAYERS, HEADS, CHANNELS, VOCABULARY, LENGTH = 1024, 12, 12, 768, 50257, 64
HEADER_BYTES = 1024  # of llm.c's files


def attention(q, k, v, is_causal):
    """What PyTorch before 2.0 lacks."""
    assert is_causal
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v


def load_llmc(model, path):
    """llm.c's order: tensor by tensor, each of all layers."""
    parts = ("ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
             "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight",
             "mlp.c_proj.bias")
    named = dict(model.named_parameters())
    with open(path, "rb") as file, torch.no_grad():
        def take(name):
            count = named[name].numel()
            values = torch.frombuffer(bytearray(file.read(4 * count)), dtype=torch.float32)
            named[name].copy_(values.view(named[name].shape))

        padded, = struct.unpack("<i", file.read(32)[28:])
        file.seek(HEADER_BYTES)
        take("wte.weight")
        vocabulary, channels = named["wte.weight"].shape
        file.seek(4 * (padded - vocabulary) * channels, os.SEEK_CUR)
        take("wpe.weight")
        for part in parts:
            for layer in range(len(model.h)):
                take(f"h.{layer}.{part}")
        take("ln_f.weight")
        take("ln_f.bias")


def adamw(parameters, rate):
    options = dict(lr=rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    parameters = list(parameters)
    try:
        return torch.optim.AdamW(parameters, fused=True, **options)
    except (TypeError, RuntimeError):  # before 2.4
        return torch.optim.AdamW(parameters, **options)


def read_tokens(path):
    with open(path, "rb") as file:
        file.seek(HEADER_BYTES)
        return torch.frombuffer(bytearray(file.read()), dtype=torch.int16).long() & 0xffff


def gpt2(args):
    functional.scaled_dot_product_attention = getattr(functional, "scaled_dot_product_attention", attention)
    model = models.Gpt2(VOCABULARY, CONTEXT, LAYERS, HEADS, CHANNELS)
    if args.weights:
        load_llmc(model, args.weights)
    optimizer = adamw(model.parameters(), 1e-4)
    if args.tokens:
        tokens = read_tokens(args.tokens)
    else:
        tokens = torch.randint(0, VOCABULARY, (args.batch * LENGTH * 50 + 1,))
    size = args.batch * LENGTH

    def batch(step):
        at = step * size % (len(tokens) - size - 1)
        return tokens[at:at + size].view(-1, LENGTH), tokens[at + 1:at + size + 1]

    return model, optimizer, batch


def mlp(args):
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                          nn.Linear(512, 10))
    x, labels = torch.rand(args.batch * 20, 1, 28, 28), torch.randint(0, 10, (args.batch * 20,))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), slices(args, x, labels)


def resnet(args):
    layout = torch.channels_last if args.nhwc else torch.contiguous_format
    model = models.ResNet(20, 3, 10).to(memory_format=layout)
    x, labels = torch.randn(args.batch * 4, 3, 32, 32), torch.randint(0, 10, (args.batch * 4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return model, optimizer, slices(args, x.contiguous(memory_format=layout), labels)


def slices(args, x, labels):
    def batch(step):
        at = step * args.batch % len(x)
        return x[at:at + args.batch], labels[at:at + args.batch]
    return batch


def peak_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=("gpt2", "mlp", "resnet"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--nhwc", action="store_true")
    parser.add_argument("--compile", action="store_true", help="model and loss as one function of torch.compile")
    parser.add_argument("--weights")
    parser.add_argument("--tokens")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    model, optimizer, batch = {"gpt2": gpt2, "mlp": mlp, "resnet": resnet}[args.work](args)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    cast = torch.autocast("cpu", torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext()

    def loss_of(x, labels):
        y = model(x)
        return functional.cross_entropy(y.view(-1, y.shape[-1]), labels)

    if args.compile:
        loss_of = torch.compile(loss_of)
    milliseconds, losses, first_end = [], [], 0.0
    for step in range(args.steps):
        begin = time.monotonic()
        x, labels = batch(step)
        optimizer.zero_grad()
        with cast:
            loss = loss_of(x, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        milliseconds.append((time.monotonic() - begin) * 1e3)
        first_end = first_end or time.monotonic()
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps({"name": f"PyTorch {torch.__version__}", "ms": milliseconds, "loss": losses,
                          "first_end": first_end, "peak_kib": peak_kib()}))
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
