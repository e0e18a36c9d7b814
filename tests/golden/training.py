#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the goldens of whole trainings, computed by PyTorch with its own modules, optimizer, DistributedSampler and
DataLoader: article.txt (the article's model) and mlp.txt (losses of an MLP on Fashion-MNIST).

A step is what DistributedDataParallel computes: each of W ranks takes its sampler's batch, the gradients are averaged
over ranks. The ranks run one after another here, so that any W fits on one machine.

usage: training.py DIRECTORY [--data FASHION_MNIST_DIRECTORY]"""
import argparse
import gzip
import itertools
import pathlib
import struct

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(model, dataset, loss_of, shards, batch, epochs, steps, seed, shuffle, lr, momentum):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
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
    torch.manual_seed(seed)
    dataset = TensorDataset(torch.rand(data_size, 8))
    model = torch.nn.Linear(8, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    train(model, dataset, lambda m, t: m(t[0]).sum(), shards, batch, epochs, 0, seed, False, 0.01, 0.9)
    return model.weight.detach().flatten().tolist()


def write_article(path):
    cases = [(8, 4, 0, 2, 2)]
    cases += itertools.product([1, 7, 8, 33], [1, 4, 16], [0, 42], [3], [1, 2, 3, 5, 8])
    with open(path, 'w') as out:
        out.write('# data_size batch_size seed epochs shards weights..., from training.py\n')
        for case in cases:
            weights = article(*case)
            out.write(' '.join(map(str, case)) + ' ' + ' '.join(f'{w:.6f}' for w in weights) + '\n')


def read_idx(path):
    data = gzip.open(path).read()
    dims = struct.unpack_from(f'>{data[3]}I', data, 4)
    return torch.frombuffer(bytearray(data[4 + 4 * data[3]:]), dtype=torch.uint8).reshape(dims)


def write_mlp(path, directory):
    images = read_idx(directory / 'train-images-idx3-ubyte.gz').double() / 255
    labels = read_idx(directory / 'train-labels-idx1-ubyte.gz').long()
    images = ((images - images.mean()) / images.std(unbiased=False)).float().flatten(1)
    dataset = TensorDataset(images, labels)
    with open(path, 'w') as out:
        out.write('# shards batch seed, then the loss of each step, from training.py\n')
        for shards, batch, seed in [(1, 64, 0), (2, 32, 1), (8, 32, 3)]:
            torch.manual_seed(seed)
            model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(),
                                        torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
            losses = train(model, dataset,
                           lambda m, t: torch.nn.functional.cross_entropy(m(t[0]), t[1]),
                           shards, batch, 1, 50, seed, True, 0.05, 0.9)
            out.write(f'{shards} {batch} {seed} ' + ' '.join(f'{x:.6f}' for x in losses) + '\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('directory', type=pathlib.Path)
    parser.add_argument('--data', type=pathlib.Path, default='/usr/share/datasets/fashion-mnist')
    args = parser.parse_args()
    torch.set_num_threads(1)
    write_article(args.directory / 'article.txt')
    write_mlp(args.directory / 'mlp.txt', args.data)


if __name__ == '__main__':
    main()
