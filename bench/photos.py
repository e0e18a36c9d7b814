#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Photographs beside PyTorch and torchvision, the two sides by turns.

usage: photos.py [--build DIR] [--only loader,step] [--images N] [--size WxH] [--side N] [--batch N] [--seconds S]
                 [--steps N] [--rounds N] [--threads N]      with a Python that has torch, torchvision and Pillow

loader  images a second of JPEG files that Pillow writes: regions scaled to SIDE and mirrored, as RandomResizedCrop and
        RandomHorizontalFlip, scaled by mean and deviation. N reading threads beside a DataLoader of N workers. Goal: 1.5 times.
step    ResNet-50 at SIDE pixels with SGD and momentum, float32, beside torchvision's, channels-last. Goal: 1.3 times.

Medians of the rounds; in brackets the least and the greatest.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms

HERE = os.path.dirname(os.path.abspath(__file__))


def options():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=".")
    parser.add_argument("--only", default="loader,step")
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--size", default="500x375")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def write_jpegs(directory, count, width, height):
    """Smooth shapes and some noise: files of about the bytes a pixel that photographs have."""
    random = numpy.random.default_rng(1)
    for i in range(count):
        small = random.integers(0, 256, (height // 25 + 2, width // 25 + 2, 3), dtype=numpy.uint8)
        image = numpy.asarray(Image.fromarray(small).resize((width, height), Image.BICUBIC), dtype=numpy.int16)
        noise = random.integers(-12, 13, (height, width, 1), dtype=numpy.int16)
        folder = f"{directory}/class-{i % 8}"
        os.makedirs(folder, exist_ok=True)
        Image.fromarray((image + noise).clip(0, 255).astype(numpy.uint8)).save(f"{folder}/{i:05}.jpg", quality=90)


def our_loader(args, images):
    out = subprocess.run([f"{args.build}/bench/loader_perf", str(args.seconds), str(args.threads), str(args.batch), images,
                          str(args.side)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out)["images_per_s"]


def their_loader(args, images):
    change = transforms.Compose([transforms.RandomResizedCrop(args.side), transforms.RandomHorizontalFlip(),
                                 transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    loader = DataLoader(torchvision.datasets.ImageFolder(images, change), args.batch, shuffle=True, num_workers=args.threads,
                        persistent_workers=True)
    batches = count = 0
    while True:  # what was read ahead does not count
        for x, _ in loader:
            if batches == 2 * args.threads + 2:
                begin = time.monotonic()
            elif batches > 2 * args.threads + 2:
                count += len(x)
                if time.monotonic() - begin > args.seconds:
                    return count / (time.monotonic() - begin)
            batches += 1


def step_data(args, work):
    random = numpy.random.default_rng(2)
    numpy.save(f"{work}/x.npy", random.integers(0, 256, (4 * args.batch, 3, args.side, args.side), dtype=numpy.uint8))
    numpy.save(f"{work}/y.npy", numpy.arange(4 * args.batch) % 8)


def our_step(args, work):
    """Images a second, from the times of the steps but the first two."""
    log = f"{work}/steps.jsonl"
    if os.path.exists(log):
        os.remove(log)
    subprocess.run([f"{args.build}/trainer", "--data", f"{work}/x.npy,{work}/y.npy", "--model", "resnet", "--size", "50",
                    "--optimizer", "sgd", "--batch-size", str(args.batch), "--steps", str(args.steps + 2), "--no-eval",
                    "--threads", str(args.threads), "--device", "cpu", "--quiet", "--log", log], check=True)
    times = [e["time"] for e in map(json.loads, open(log)) if e["event"] == "step"][1:]
    return args.batch / statistics.median(b - a for a, b in zip(times, times[1:]))


def their_step(args, work):
    x = torch.from_numpy(numpy.load(f"{work}/x.npy")[:args.batch]).float().div(255)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.from_numpy(numpy.load(f"{work}/y.npy")[:args.batch])
    model = torchvision.models.resnet50(num_classes=8).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    taken = []
    for _ in range(args.steps + 2):
        begin = time.monotonic()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        taken.append(time.monotonic() - begin)
    return args.batch / statistics.median(taken[2:])


def turns(args, name, sides, goal):
    rates = [[], []]
    for _ in range(args.rounds):
        for side, run in enumerate(sides):
            rates[side].append(run())
    middle = [statistics.median(r) for r in rates]
    ranges = [f"{m:.1f} [{min(r):.1f} {max(r):.1f}]" for m, r in zip(middle, rates)]
    ratio = middle[0] / middle[1]
    print(f"{name}: {ranges[0]} images/s, beside {ranges[1]}: {ratio:.2f} times, goal {goal}{'' if ratio >= goal else ' !'}",
          flush=True)


def main():
    args = options()
    torch.set_num_threads(args.threads)
    width, height = map(int, args.size.split("x"))
    print(f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, {args.threads} threads or workers, "
          f"batches of {args.batch}, medians of {args.rounds} rounds")
    with tempfile.TemporaryDirectory() as work:
        if "loader" in args.only:
            write_jpegs(f"{work}/jpegs", args.images, width, height)
            turns(args, f"loader, JPEG of {args.size} to {args.side}",
                  (lambda: our_loader(args, f"{work}/jpegs"), lambda: their_loader(args, f"{work}/jpegs")), 1.5)
        if "step" in args.only:
            step_data(args, work)
            turns(args, f"ResNet-50 step at {args.side}", (lambda: our_step(args, work), lambda: their_step(args, work)), 1.3)


if __name__ == "__main__":
    sys.exit(main())
