# SPDX-License-Identifier: MIT
"""All-reduces, and steps of DistributedDataParallel, by backends of torch.distributed on the CPU, by turns in one job:
the memory of two processes, and what else runs, would differ by more than the backends do.

    PYTHONPATH=python ddprun -n 2 python3 bench/distributed_torch.py ddp gloo"""

import copy
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

if "ddp" in sys.argv:
    import ddprun.torch  # noqa: F401


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        batch, time_, width = x.shape
        shape = batch, time_, 3, self.heads, width // self.heads
        q, k, v = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, time_, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """A GPT-2 of 4 layers of width 256."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, 256), nn.Embedding(64, 256)
        self.blocks = nn.Sequential(*[Block(256, 4) for _ in range(4)])
        self.norm = nn.LayerNorm(256)

    def forward(self, tokens):
        x = self.norm(self.blocks(self.wte(tokens) + self.wpe.weight))
        return (x @ self.wte.weight.t()).view(-1, 256)


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.stride, self.more = stride, after - before

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        return F.relu(F.pad(x, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2)) + y)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        before = 16
        for after in (16, 32, 64):
            for block in range(3):
                layers.append(Residual(before, after, 2 if block == 0 and after > 16 else 1))
                before = after
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, images):
        return self.head(self.layers(images).mean((2, 3)))


def turns(count, time_one, what, skip):
    """Seconds by each backend, whose turns change places."""
    seconds = {name: [] for name in groups}
    for turn in range(count):
        for name in list(groups)[:: 1 if turn % 2 else -1]:
            dist.barrier()
            seconds[name].append(time_one(name))
    if dist.get_rank() == 0:
        for name, all_ in seconds.items():
            print(f"{name} {what}: {statistics.median(all_[skip:]) * 1e3:.4f} ms", flush=True)


def all_reduces(nbytes, count):
    tensor = torch.ones(nbytes // 4)

    def time_one(name):
        begin = time.perf_counter()
        for _ in range(count):
            dist.all_reduce(tensor, group=groups[name])
        return (time.perf_counter() - begin) / count

    turns(16, time_one, f"all-reduce of {nbytes} bytes", 1)


def steps(model, inputs, labels):
    replicas, optimizers = {}, {}
    for name, group in groups.items():
        mine = copy.deepcopy(model)
        replicas[name] = nn.parallel.DistributedDataParallel(mine, process_group=group)
        optimizers[name] = torch.optim.AdamW(mine.parameters(), 1e-3)

    def time_one(name):
        begin = time.perf_counter()
        optimizers[name].zero_grad()
        F.cross_entropy(replicas[name](inputs), labels).backward()
        optimizers[name].step()
        return time.perf_counter() - begin

    turns(65, time_one, f"step of {type(model).__name__}", 5)


torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group(sys.argv[1])
groups = {name: dist.new_group(backend=name) for name in sys.argv[1:]}
all_reduces(4, 300)
all_reduces(1 << 20, 20)
all_reduces(64 << 20, 1)
steps(GPT2(), torch.randint(256, (4, 64)), torch.randint(256, (256,)))
steps(ResNet20(), torch.randn(8, 3, 32, 32), torch.randint(10, (8,)))
dist.destroy_process_group()
