#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training steps of GPT-2 in PyTorch's pipeline (torch.distributed.pipelining, schedule 1F1B, gloo), for bench/pipeline.

usage: pipeline_torch.py MODEL.bin TOKENS.bin --cut N[,N...] [--micro N] [--batch N] [--length N] [--steps N] [--threads N]
                         [--lr RATE]
       started by torch.distributed.run, a process a stage; each N of --cut is the block with which a stage begins. Without
       --cut: one process, one micro-batch after another.

The files are llm.c's. The first and the last stage have a copy of wte.weight each, whose gradients they add up, as Megatron
does. Prints one JSON object: milliseconds and loss of each step, peak memory of each process in KiB.
"""
import argparse
import json
import os
import struct
import time

import torch
from torch import distributed, nn
from torch.nn import functional

import torch_steps  # beside this file
from torch_steps import models


def attention(self, x):
    """PyTorch's fastest; models.py has it in plain operations."""
    batch, length, channels = x.shape
    q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(channels, 2))
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.c_proj(y.transpose(1, 2).reshape(batch, length, channels))


class Stage(nn.Module):
    """Blocks [first, end) of the model; the first stage has the embeddings, the last one the head."""

    def __init__(self, model, first, end):
        super().__init__()
        self.is_first, self.is_last = first == 0, end == len(model.h)
        self.h = nn.ModuleList(model.h[first:end])
        if self.is_first:
            self.wpe = model.wpe
        if self.is_first or self.is_last:
            self.wte = model.wte
        if self.is_last:
            self.ln_f = model.ln_f

    def forward(self, x):
        if self.is_first:
            x = self.wte(x) + self.wpe.weight[:x.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T if self.is_last else x


def cross_entropy(logits, labels):
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def read_model(path):
    with open(path, "rb") as file:
        context, vocabulary, layers, heads, channels = struct.unpack("<8i", file.read(32))[2:7]
    model = models.Gpt2(vocabulary, context, layers, heads, channels)
    torch_steps.load_llmc(model, path)
    return model


def micro_batches(args, tokens):
    """(step) -> inputs, labels: micro-batch m has samples m, m + N, ... of the step's, as the trainer's shard m."""
    rows = args.micro * args.batch

    def batch(step):
        at = step * rows * args.length
        x, labels = (tokens[at + i:at + i + rows * args.length].view(args.batch, args.micro, args.length) for i in (0, 1))
        return x.transpose(0, 1).flatten(0, 1), labels.transpose(0, 1).flatten(0, 1)
    return batch


def plain(args, model):
    optimizer = torch_steps.adamw(model.parameters(), args.lr)

    def step(x, labels):
        optimizer.zero_grad()
        total = 0.0
        for part, targets in zip(x.chunk(args.micro), labels.chunk(args.micro)):
            loss = cross_entropy(model(part), targets)
            (loss / args.micro).backward()
            total += loss.item()
        optimizer.step()
        return total / args.micro
    return step


def pipeline(args, model):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    distributed.init_process_group("gloo")
    rank, stages = distributed.get_rank(), distributed.get_world_size()
    bounds = [0, *map(int, args.cut.split(",")), len(model.h)]
    part = Stage(model, bounds[rank], bounds[rank + 1])
    ends = distributed.new_group([0, stages - 1])
    optimizer = torch_steps.adamw(part.parameters(), args.lr)
    schedule = Schedule1F1B(PipelineStage(part, rank, stages, torch.device("cpu")), args.micro, loss_fn=cross_entropy)

    def step(x, labels):
        optimizer.zero_grad()
        losses = []
        if part.is_first:
            schedule.step(x)
        elif part.is_last:
            schedule.step(target=labels, losses=losses, return_outputs=False)
        else:
            schedule.step()
        if part.is_first or part.is_last:
            distributed.all_reduce(part.wte.weight.grad, group=ends)
        optimizer.step()
        return sum(loss.item() for loss in losses) / args.micro
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--cut")
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-4)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if hasattr(functional, "scaled_dot_product_attention"):
        models.Attention.forward = attention
    step = (pipeline if args.cut else plain)(args, read_model(args.model))
    batch = micro_batches(args, torch_steps.read_tokens(args.tokens))
    milliseconds, losses = [], []
    for number in range(args.steps):
        begin = time.monotonic()
        losses.append(step(*batch(number)))
        milliseconds.append((time.monotonic() - begin) * 1e3)
    found = {"name": f"PyTorch {torch.__version__}", "ms": milliseconds, "loss": losses, "peaks_kib": [torch_steps.peak_kib()]}
    if args.cut:
        every = [None] * distributed.get_world_size()
        distributed.all_gather_object(every, found)
        found = {**every[-1], "peaks_kib": [one["peaks_kib"][0] for one in every]}
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(found))
    if args.cut:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
