#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes DIRECTORY/train/golden/fp16.txt: losses and scales of trainings with PyTorch's own GradScaler, on tensors of the
CPU. Products are of float16 operands and add up in float32, as those of the trainer.

usage: fp16.py DIRECTORY [--data FASHION_MNIST_DIRECTORY] [--text FILE] [--seed N]"""
import argparse
import itertools
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import models
import training


class Product(torch.autograd.Function):
    """x W^T: every operand is rounded, infinite ones included."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x.half(), weight.half())
        return x.half().float() @ weight.half().float().T

    @staticmethod
    def backward(context, dy):
        x, weight = (tensor.float() for tensor in context.saved_tensors)
        dy = dy.half().float()
        return dy @ weight, dy.flatten(0, -2).T @ x.flatten(0, -2)


class Linear(nn.Linear):
    def forward(self, x):
        return Product.apply(x, self.weight) + self.bias


class Gpt2(models.Gpt2):
    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return Product.apply(self.ln_f(x), self.wte.weight)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(model, dataset, shards, batch, steps, seed, optimizer, scaler):
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
    samplers = [DistributedSampler(dataset, num_replicas=shards, rank=r, shuffle=True, seed=seed) for r in range(shards)]
    loaders = [DataLoader(dataset, batch_size=batch, sampler=s) for s in samplers]

    def epochs():
        for epoch in itertools.count():
            for sampler in samplers:
                sampler.set_epoch(epoch)
            yield from zip(*loaders)

    for batches in itertools.islice(epochs(), steps):
        optimizer.zero_grad()
        total = 0.0
        for tensors in batches:
            loss = training.class_loss(model, tensors)
            scaler.scale(loss).backward()
            total += loss.item()
        for parameter in model.parameters():
            parameter.grad /= shards
        scaler.step(optimizer)
        scaler.update()
        yield total / shards, scaler.get_scale()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('directory', type=pathlib.Path)
    parser.add_argument('--data', type=pathlib.Path, default='/usr/share/datasets/fashion-mnist')
    parser.add_argument('--text', type=pathlib.Path, default='/usr/share/common-licenses/GPL-3')
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = training.fashion(args.data)
    data = {'mlp': TensorDataset(images, labels), 'gpt2': training.windows(args.text.read_bytes(), 32)}
    golden = args.directory / 'train' / 'golden'
    golden.mkdir(parents=True, exist_ok=True)
    with open(golden / 'fp16.txt', 'w') as out:
        out.write('# model optimizer rate shards batch seed scale every, the loss of each step | the scale after it, '
                  'from fp16.py\n')
        for name, optimizer, rate, shards, batch, scale, every in (
                ('mlp', training.sgd, 2e-4, 2, 16, 2**26, 20), ('mlp', training.adamw, 1e-5, 1, 32, 2**16, 2000),
                ('gpt2', training.sgd, 0.005, 2, 4, 2**28, 30), ('gpt2', training.adamw, 1e-4, 2, 2, 2**30, 12)):
            torch.manual_seed(args.seed)
            model = mlp() if name == 'mlp' else Gpt2(256, 32, 2, 2, 32)
            scaler = torch.amp.GradScaler('cpu', init_scale=float(scale), growth_interval=every)
            rows = list(train(model, data[name], shards, batch, 200, args.seed, optimizer(model.parameters(), rate),
                              scaler))
            out.write(f'{name} {optimizer.__name__} {rate} {shards} {batch} {args.seed} {scale} {every} '
                      + ' '.join(f'{loss:.7f}' for loss, _ in rows) + ' | '
                      + ' '.join(f'{scale:.0f}' for _, scale in rows) + '\n')


if __name__ == '__main__':
    main()
