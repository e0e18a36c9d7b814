#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The step of ResNet-20 (32 x 32, batch 128) and its convolutions in the PyTorch of this Python, to put beside resnet_perf.

usage: resnet_torch.py [THREADS [nchw|nhwc]]

Times are medians; "cpu" is the processor time of all threads, which other jobs on the machine disturb less.
"""
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

THREADS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
LAYOUT = torch.channels_last if sys.argv[2:] == ["nhwc"] else torch.contiguous_format
LAYERS = ((1, 32, 3, 16, 3, 1), (6, 32, 16, 16, 3, 1), (1, 32, 16, 32, 3, 2), (1, 32, 16, 32, 1, 2),
          (5, 16, 32, 32, 3, 1), (1, 16, 32, 64, 3, 2), (1, 16, 32, 64, 1, 2), (5, 8, 64, 64, 3, 1))


def conv(inner, out, kernel, stride):
    return nn.Conv2d(inner, out, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inner, out, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inner, out, 3, stride), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = conv(out, out, 3, 1), nn.BatchNorm2d(out)
        self.short = nn.Sequential(conv(inner, out, 1, stride), nn.BatchNorm2d(out)) if stride != 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


def resnet20():
    blocks = [Block(c_in, c_out, s) for c_in, c_out, s in
              [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2]
    return nn.Sequential(conv(3, 16, 3, 1), nn.BatchNorm2d(16), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(64, 10))


def median(function, count=9):
    wall, cpu = [], []
    for _ in range(count + 2):
        begin, used = time.perf_counter(), time.process_time()
        function()
        cpu.append(time.process_time() - used)
        wall.append(time.perf_counter() - begin)
    return sorted(wall[2:])[count // 2] * 1e3, sorted(cpu[2:])[count // 2] * 1e3


def layers():
    total = [0.0, 0.0]
    for count, size, inner, out, kernel, stride in LAYERS:
        layer = conv(inner, out, kernel, stride).to(memory_format=LAYOUT)
        x = torch.randn(128, inner, size, size).contiguous(memory_format=LAYOUT).requires_grad_(inner != 3)
        dy = torch.randn_like(layer(x))
        with torch.no_grad():
            forward = median(lambda: layer(x))
        both = median(lambda: layer(x).backward(dy))
        print(f"{size:3} {inner:3} -> {out:3} {kernel}x{kernel}/{stride}  forward {forward[0]:6.2f} ms  "
              f"with backward {both[0]:6.2f} ms (cpu {forward[1]:6.2f} {both[1]:6.2f})")
        total = [total[0] + count * both[0], total[1] + count * both[1]]
    print(f"convolutions of a step: {total[0]:.1f} ms (cpu {total[1]:.1f})")


def main():
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    layers()
    model = resnet20().to(memory_format=LAYOUT)
    x = torch.randn(128, 3, 32, 32).contiguous(memory_format=LAYOUT)
    labels = torch.randint(0, 10, (128,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    wall, cpu = median(step)
    print(f"PyTorch {torch.__version__}, {THREADS} threads, {LAYOUT}: step {wall:.1f} ms (cpu {cpu:.1f})")


main()
