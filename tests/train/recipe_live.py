# SPDX-License-Identifier: MIT
"""For recipe_live.sh: writes images, and repeats with PyTorch what the trainer did with them.

usage: recipe_live.py data | check whole|frozen     in the directory of the files
"""
import json
import math
import os
import struct
import sys

import numpy
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
from models import ResNet  # noqa: E402

BATCH, CLASSES, ALPHA, SMOOTH, DECAY, RATE, SEED = 8, 4, 0.5, 0.1, 0.9, 0.02, 3
MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK, a >> 32 ^ c[3] ^ k[1], a & MASK]
        k = [k[0] + 0x9E3779B9 & MASK, k[1] + 0xBB67AE85 & MASK]
    return c


def share(epoch, first):
    """The trainer's draw from the Beta distribution: Jöhnk's, from the first sample of the batch."""
    for attempt in range(64):
        numbers = philox((first, 0, epoch, 0), (SEED, 0x61756D00 + attempt))
        for i in (0, 2):
            own, other = (math.log((n + 0.5) / 2**32) / ALPHA for n in numbers[i:i + 2])
            if math.exp(own) + math.exp(other) <= 1:
                return 1 / (1 + math.exp(other - own))
    raise AssertionError


def load(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(body[slice(*t["data_offsets"])]), dtype=torch.float32).view(t["shape"])
            for name, t in header.items()}


def write_data():
    random = numpy.random.default_rng(1)
    for name, count in (("", 64), ("v", 20)):
        y = numpy.arange(count) % CLASSES
        x = random.standard_normal((count, 3, 12, 12)) + y[:, None, None, None] / 3
        numpy.save(name + "x.npy", x.astype(numpy.float32))
        numpy.save(name + "y.npy", y)


def check(how):
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(numpy.load(name)) for name in ("x.npy", "y.npy"))
    model = ResNet(20, 3, CLASSES)
    model.load_state_dict(load("base.safetensors"), strict=False)
    if how == "frozen":
        model.requires_grad_(False)
        model.fc.requires_grad_(True)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE, momentum=0.9)
    average = AveragedModel(model, avg_fn=lambda mean, new, _: DECAY * mean + (1 - DECAY) * new, use_buffers=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=SMOOTH)
    losses = []
    for step in range(8):
        first = step * BATCH
        batch, target = x[first:first + BATCH], nn.functional.one_hot(y[first:first + BATCH], CLASSES).float()
        own = share(0, first)  # as RandomMixup of torchvision's references
        batch = batch * own + batch.roll(1, 0) * (1 - own)
        target = target * own + target.roll(1, 0) * (1 - own)
        loss = criterion(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        losses.append(loss.item())
    with open(how + ".jsonl", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    got = [r["loss"] for r in records if r["event"] == "step"]
    worst = max(abs(a / b - 1) for a, b in zip(got, losses))
    assert len(got) == 8 and worst < 2e-5, (got, losses)
    average.eval()
    with torch.no_grad():
        test = nn.functional.cross_entropy(average(torch.from_numpy(numpy.load("vx.npy"))),
                                           torch.from_numpy(numpy.load("vy.npy"))).item()
    evaluated = [r for r in records if r["event"] == "evaluation"][-1]["test_loss"]
    assert abs(evaluated / test - 1) < 1e-4, (evaluated, test)
    saved, base, apart = load(how + ".safetensors"), load("base.safetensors"), 0
    for name, tensor in average.module.state_dict().items():
        if tensor.is_floating_point():
            apart = max(apart, ((tensor - saved[name]).norm() / (tensor.norm() + 1e-3)).item())
            held = how == "frozen" and not name.startswith("fc.") and "running" not in name
            assert not held or torch.equal(saved[name], base[name]), name
    assert apart < 1e-4, apart
    print(f"{how}: as PyTorch: losses within {worst:.1e}, test loss {abs(evaluated / test - 1):.1e}, average {apart:.1e}")


if sys.argv[1] == "data":
    write_data()
else:
    check(sys.argv[2])
