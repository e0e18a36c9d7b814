#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the goldens of whole trainings, computed by PyTorch with its own modules, optimizer, DistributedSampler and
DataLoader, in DIRECTORY/train/golden: article.txt (the article's model), mlp.txt (losses of an MLP on Fashion-MNIST) and models.txt (losses of the
other models, of models.py, on Fashion-MNIST and on a text that every Debian system has).

A step is what DistributedDataParallel computes: each of W ranks takes its sampler's batch, the gradients are averaged
over ranks. The ranks run one after another here, so that any W fits on one machine.

usage: training.py DIRECTORY [--data FASHION_MNIST_DIRECTORY] [--text FILE] [--seed N] [--no-article]"""
import argparse
import gzip
import itertools
import pathlib
import struct

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import models


def sgd(parameters, lr, momentum=0.9):
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum)


def adamw(parameters, lr):
    return torch.optim.AdamW(parameters, lr=lr)


def train(model, dataset, loss_of, shards, batch, epochs, steps, seed, shuffle, optimizer):
    samplers = [DistributedSampler(dataset, num_replicas=shards, rank=r, shuffle=shuffle, seed=seed)
                for r in range(shards)]
    loaders = [DataLoader(dataset, batch_size=batch, sampler=s) for s in samplers]
    losses = []
    for epoch in range(epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for batches in zip(*loaders):
            optimizer.zero_grad()
            total = 0.0
            for tensors in batches:
                loss = loss_of(model, tensors)
                loss.backward()  # adds up over the shards
                total += loss.item()
            for parameter in model.parameters():
                parameter.grad /= shards
            optimizer.step()
            losses.append(total / shards)
            if steps and len(losses) == steps:
                return losses
    return losses


def article(data_size, batch, seed, epochs, shards):
    """The article's program: data_size samples of as many random numbers, a linear model without bias from ones, the sum
    of its outputs as loss."""
    torch.manual_seed(seed)
    dataset = TensorDataset(torch.rand(data_size, data_size))
    model = torch.nn.Linear(data_size, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    train(model, dataset, lambda m, t: m(t[0]).sum(), shards, batch, epochs, 0, seed, False,
          sgd(model.parameters(), 0.01))
    return model.weight.detach().flatten().tolist()


def write_article(path):
    cases = [(8, 4, 0, 2, 2), (16, 2, 5, 3, 3)]
    shards, seeds = itertools.cycle([1, 2, 3, 5, 8]), itertools.cycle([0, 42, 2**32 + 7, 2**64 - 1])
    cases += [(size, batch, next(seeds), 3, next(shards)) for size in range(1, 41) for batch in (1, 4, 16)]
    with open(path, 'w') as out:
        out.write('# data_size batch_size seed epochs shards weights..., from training.py\n')
        for case in cases:
            weights = article(*case)
            out.write(' '.join(map(str, case)) + ' ' + ' '.join(f'{w:.6f}' for w in weights) + '\n')


def read_idx(path):
    data = gzip.open(path).read()
    dims = struct.unpack_from(f'>{data[3]}I', data, 4)
    return torch.frombuffer(bytearray(data[4 + 4 * data[3]:]), dtype=torch.uint8).reshape(dims)


def class_loss(model, tensors):
    logits = model(tensors[0])
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), tensors[1].flatten())


def fashion(directory):
    images = read_idx(directory / 'train-images-idx3-ubyte.gz').double() / 255
    labels = read_idx(directory / 'train-labels-idx1-ubyte.gz').long()
    images = ((images - images.mean()) / images.std(unbiased=False)).float()
    return images.unsqueeze(1), labels


def write_mlp(path, directory):
    images, labels = fashion(directory)
    dataset = TensorDataset(images.flatten(1), labels)
    with open(path, 'w') as out:
        out.write('# shards batch seed, then the loss of each step, from training.py\n')
        for shards, batch, seed in [(1, 64, 0), (2, 32, 1), (8, 32, 3)]:
            torch.manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(),
                                        torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
            losses = train(model, dataset, class_loss, shards, batch, 1, 50, seed, True,
                           sgd(model.parameters(), 0.05))
            out.write(f'{shards} {batch} {seed} ' + ' '.join(f'{x:.6f}' for x in losses) + '\n')


def windows(text, length):
    """The text's bytes as samples of `length` tokens and the tokens after them; the last part is kept for validation,
    as the trainer does."""
    tokens = torch.tensor(list(text), dtype=torch.long)
    tokens = tokens[:len(tokens) * 9 // 10]
    count = (len(tokens) - 1) // length
    return TensorDataset(tokens[:count * length].view(count, length), tokens[1:count * length + 1].view(count, length))


def write_models(path, directory, text, seed):
    images, labels = fashion(directory)
    images = TensorDataset(images, labels)
    words = windows(text.read_bytes(), 32)
    make = {'mlp': lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 512), torch.nn.ReLU(),
                                               torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)),
            'cnn': lambda: models.Cnn(1, 28, 10),
            'resnet': lambda: models.ResNet(20, 1, 10),
            'gpt2': lambda: models.Gpt2(256, 32, 2, 2, 32)}
    # Rates at which rounding does not grow: a ResNet at its start multiplies differences step by step, so that with sgd
    # at 1e-3 PyTorch with one and with two threads is 1 % apart after 50 steps.
    cases = [('mlp', adamw, 1e-3, 2, 32), ('cnn', sgd, 0.005, 2, 16), ('cnn', adamw, 3e-4, 1, 32),
             ('resnet', sgd, 1e-5, 2, 16), ('resnet', adamw, 2e-6, 1, 16),
             ('gpt2', sgd, 0.02, 2, 4), ('gpt2', adamw, 1e-3, 4, 2)]
    with open(path, 'w') as out:
        out.write('# model optimizer rate shards batch seed, then the loss of each step, from training.py\n')
        for name, optimizer, rate, shards, batch in cases:
            torch.manual_seed(seed)
            model = make[name]()
            losses = train(model, words if name == 'gpt2' else images, class_loss, shards, batch, 1, 50, seed, True,
                           optimizer(model.parameters(), rate))
            out.write(f'{name} {optimizer.__name__} {rate} {shards} {batch} {seed} '
                      + ' '.join(f'{x:.7f}' for x in losses) + '\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('directory', type=pathlib.Path)
    parser.add_argument('--data', type=pathlib.Path, default='/usr/share/datasets/fashion-mnist')
    parser.add_argument('--text', type=pathlib.Path, default='/usr/share/common-licenses/GPL-3')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--no-article', action='store_true', help='leave article.txt out')
    args = parser.parse_args()
    torch.set_num_threads(1)
    golden = args.directory / 'train' / 'golden'
    golden.mkdir(parents=True, exist_ok=True)
    if not args.no_article:
        write_article(golden / 'article.txt')
    write_mlp(golden / 'mlp.txt', args.data)
    write_models(golden / 'models.txt', args.data, args.text, args.seed)


if __name__ == '__main__':
    main()
