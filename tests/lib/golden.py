#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what PyTorch itself gives, for check_rng, check_sampler and check_split to compare with, bit for bit, and check_adamw,
check_norm, check_conv2d, check_pool2d, check_batch_norm and check_mse within rounding.

usage: golden.py DIRECTORY [EXTRA]

DIRECTORY, of the committed ones tests, gets the files at the end of this one. EXTRA is a number that chooses other random cases
than the committed ones, which have 0. A line is one case: a kind, its numbers, a colon, the answer. Floats are written as the hexadecimal of their bits,
long answers as the 64-bit FNV-1a hash of their bytes.
"""
import os
import random
import sys

import torch
from torch import nn
from torch.utils.data import DistributedSampler, random_split


def bits(tensor):
    return " ".join("%08x" % (b & 0xFFFFFFFF) for b in tensor.detach().flatten().view(torch.int32).tolist())


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % value


def numbers(values):
    return " ".join(str(int(v)) for v in values)


def seeded(seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


def rng_cases(rnd):
    seeds = [0, 1, 42, 2**31, 2**32 + 7, 2**63 - 1] + [rnd.getrandbits(40) for _ in range(4)]
    for seed in seeds:
        count = rnd.randrange(1, 40)
        yield f"rand {seed} {count}", bits(torch.rand(count, generator=seeded(seed)))
        lo, hi = sorted((rnd.uniform(-3, 3), rnd.uniform(-3, 3)))
        tensor = torch.empty(count).uniform_(lo, hi, generator=seeded(seed))
        yield f"uniform {seed} {count} {lo.hex()} {hi.hex()}", bits(tensor)
        count = rnd.randrange(1, 30)
        yield f"randperm {seed} {count}", numbers(torch.randperm(count, generator=seeded(seed)))
        for first, second in ((1, 3), (rnd.randrange(1, 16), rnd.randrange(1, 16)), (15, 16), (3, 32), (17, 5)):
            mean, std = rnd.choice(((0.0, 1.0), (0.0, 0.02), (rnd.uniform(-2, 2), rnd.uniform(0.1, 2))))
            generator = seeded(seed)
            both = [torch.empty(n).normal_(mean, std, generator=generator) for n in (first, second)]
            yield f"normal {seed} {first} {second} {mean.hex()} {std.hex()}", bits(torch.cat(both))
        torch.manual_seed(seed)
        fan_in, out = rnd.randrange(1, 30), rnd.randrange(1, 4)
        layer = nn.Linear(fan_in, out)
        yield f"linear {seed} {fan_in} {out}", bits(layer.weight) + " " + bits(layer.bias)
    torch.manual_seed(5)
    conv = nn.Conv2d(3, 2, 3)
    yield "linear 5 27 2", bits(conv.weight) + " " + bits(conv.bias)
    for count in (0, 1, 2, 30):  # how many draws a permutation takes shows in what follows it
        generator = seeded(8)
        order = torch.randperm(count, generator=generator)
        yield f"then 8 {count}", (numbers(order) + " " + bits(torch.rand(2, generator=generator))).strip()
    for seed, count in ((0, 60000), (rnd.getrandbits(32), 700), (rnd.getrandbits(32), 623 * 7)):
        order = torch.randperm(count, generator=seeded(seed)).to(torch.int32)
        yield f"randperm-hash {seed} {count}", fnv(order.numpy().tobytes())
    for seed, fan_in, out in ((1, 784, 512), (rnd.getrandbits(32), rnd.randrange(1, 3000), 5)):
        torch.manual_seed(seed)
        layer = nn.Linear(fan_in, out)
        data = layer.weight.detach().numpy().tobytes() + layer.bias.detach().numpy().tobytes()
        yield f"linear-hash {seed} {fan_in} {out}", fnv(data)
    for seed, count in ((3, 100003), (rnd.getrandbits(32), 4096)):
        yield f"normal-hash {seed} {count}", fnv(torch.randn(count, generator=seeded(seed)).numpy().tobytes())


class Counted:
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


def sampler_cases(rnd):
    shapes = [(10, 1), (10, 2), (10, 3), (2, 5), (1, 7), (8, 2), (9, 4), (16, 8), (3, 3), (3, 10)]
    shapes += [(rnd.randrange(1, 60), rnd.randrange(1, 20)) for _ in range(10)]
    for count, shards in shapes:
        for shuffle in (False, True):
            for drop_last in (False, True):
                seed, epoch = rnd.choice((0, 42, rnd.getrandbits(33))), rnd.randrange(0, 5)
                for rank in {0, shards - 1, rnd.randrange(shards)}:
                    sampler = DistributedSampler(Counted(count), num_replicas=shards, rank=rank, shuffle=shuffle,
                                                 seed=seed, drop_last=drop_last)
                    sampler.set_epoch(epoch)
                    name = f"sampler {count} {shards} {rank} {int(shuffle)} {int(drop_last)} {seed} {epoch}"
                    yield name, numbers(sampler)


def split_cases(rnd):
    shapes = [(2, 1), (10, 3), (10, 9), (500, 50), (1000, 1)]
    shapes += [(rnd.randrange(50, 3000), rnd.randrange(1, 50)) for _ in range(5)]
    for count, cut in shapes:
        parts = random_split(range(count), [count - cut, cut], torch.Generator().manual_seed(0))
        yield f"split {count} {cut}", numbers(sorted(parts[1].indices))


def adam_run(name, seed, count, steps, dtype, **settings):
    """Weights, exp_avg, exp_avg_sq after some steps; weights and gradients are torch.rand() - 0.5 from one generator."""
    generator = seeded(seed)
    weight = nn.Parameter((torch.rand(count, generator=generator) - 0.5).to(dtype))
    optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]([weight], foreach=False, **settings)
    for _ in range(steps):
        weight.grad = (torch.rand(count, generator=generator) - 0.5).to(dtype)
        optimizer.step()
    state = optimizer.state[weight]
    return weight, state["exp_avg"], state["exp_avg_sq"]


def adam_case(rnd, name, betas, weight_decay):
    """A case in which gradient and decay nearly cancel hangs on roundings, whose share Adam makes large: another is drawn."""
    while True:
        seed, count, steps = rnd.getrandbits(32), rnd.choice((1, 7, 16, 33)), rnd.randrange(1, 8)
        rate, eps = 10 ** rnd.uniform(-4, -1), rnd.choice((1e-8, 1e-6, 1e-3))
        settings = dict(lr=rate, betas=betas, eps=eps, weight_decay=weight_decay)
        answer = adam_run(name, seed, count, steps, torch.float32, **settings)
        exact = adam_run(name, seed, count, steps, torch.float64, **settings)
        if all(torch.allclose(a.double(), e, rtol=2e-7, atol=1e-8) for a, e in zip(answer, exact)):
            break
    numbers_of = " ".join(x.hex() for x in (rate, *betas, eps, weight_decay))
    return f"{name} {seed} {count} {steps} {numbers_of}", " ".join(bits(t) for t in answer)


def optim_cases(rnd):
    for name in ("adam", "adamw"):
        for betas in ((0.9, 0.999), (0.9, 0.95), (0.0, 0.9), (0.3, 0.5), (rnd.random(), rnd.random())):
            for weight_decay in (0.0, 0.01, rnd.uniform(0, 1)):
                yield adam_case(rnd, name, betas, weight_decay)
    for count in (1, 100, 4096, 5000, 20011):
        seed, limit = rnd.getrandbits(32), rnd.uniform(0.1, 50)
        weight = nn.Parameter(torch.zeros(count))
        weight.grad = torch.rand(count, generator=seeded(seed)) - 0.5
        norm = torch.nn.utils.clip_grad_norm_([weight], limit)
        yield f"clip {seed} {count} {limit.hex()}", bits(norm) + " " + bits(weight.grad[:1])


def rand(generator, *dims):
    return (torch.rand(dims, generator=generator) - 0.5).requires_grad_()


def flat(*tensors):
    return " ".join(bits(t) for t in tensors)


def images_out(y, dy, *inputs):
    """y, then the gradients of the inputs; images go in and out channels-last."""
    y.backward(dy.detach())
    return flat(y.contiguous(), *(i.grad.contiguous() for i in inputs))


def channels_first(x):
    return x.permute(0, 3, 1, 2)


def channels_last(y):
    return y.permute(0, 2, 3, 1)


def conv2d_case(rnd, size, channels, kernel, stride, padding, dilation, relu):
    seed = rnd.getrandbits(32)
    g = seeded(seed)
    batch, (height, width), (inner, out) = 2, size, channels
    x, weight, bias = rand(g, batch, height, width, inner), rand(g, out, inner, *kernel), rand(g, out)
    y = nn.functional.conv2d(channels_first(x), weight, bias, stride, padding, dilation)
    y = channels_last(torch.relu(y) if relu else y)
    name = (f"conv2d {seed} {batch} {height} {width} {inner} {out} {kernel[0]} {kernel[1]} {stride} {padding} "
            f"{dilation} {int(relu)}")
    return name, images_out(y, rand(g, *y.shape), x, weight, bias)


def pool2d_case(rnd, kind, size, channels, kernel, stride, padding):
    seed = rnd.getrandbits(32)
    g = seeded(seed)
    x = rand(g, 2, *size, channels)
    if kind == "max":
        x = (x * 4).round().detach().requires_grad_()  # ties
    pool = {"max": nn.functional.max_pool2d, "avg": nn.functional.avg_pool2d}[kind]
    y = channels_last(pool(channels_first(x), kernel, stride, padding))
    name = f"{kind}_pool2d {seed} 2 {size[0]} {size[1]} {channels} {kernel[0]} {kernel[1]} {stride} {padding}"
    return name, images_out(y, rand(g, *y.shape), x)


def batch_norm_case(rnd, rows, channels, relu, has_residual):
    seed = rnd.getrandbits(32)
    g = seeded(seed)
    x, residual, gamma, beta = rand(g, rows, channels), rand(g, rows, channels), rand(g, channels), rand(g, channels)
    mean, var = torch.zeros(channels), torch.ones(channels)
    y = nn.functional.batch_norm(x, mean, var, gamma, beta, training=True, momentum=0.1, eps=1e-5)
    y = y + residual if has_residual else y
    y = torch.relu(y) if relu else y
    name = f"batch_norm {seed} {rows} {channels} {int(relu)} {int(has_residual)}"
    answer = images_out(y, rand(g, rows, channels), x, gamma, beta, *([residual] if has_residual else []))
    return name, answer + " " + flat(mean, var)


def mse_case(rnd, count):
    seed = rnd.getrandbits(20)
    g = seeded(seed)
    x, targets = rand(g, count), rand(g, count)
    loss = nn.functional.mse_loss(x, targets)
    loss.backward()
    return f"mse {seed} {count}", flat(loss, x.grad)


def soft_case(rnd, rows, classes, share, smooth):
    """As RandomMixup of torchvision's references: a batch and the batch before it, and their labels."""
    seed = rnd.getrandbits(20)
    x = torch.rand((rows, classes), generator=seeded(seed)) - 0.5
    target = nn.functional.one_hot(torch.arange(rows) * 7 % classes, classes).float()
    mixed = x.mul(share).add_(x.roll(1, 0).mul_(1 - share)).requires_grad_()
    target = target.mul(share).add_(target.roll(1, 0).mul_(1 - share))
    loss = nn.CrossEntropyLoss(label_smoothing=smooth)(mixed, target)
    loss.backward()
    return f"soft {seed} {rows} {classes} {share.hex()} {smooth.hex()}", flat(mixed, loss, mixed.grad)


def image_cases(rnd):
    for relu in (False, True):
        yield conv2d_case(rnd, (5, 6), (3, 4), (3, 3), 1, 1, 1, relu)
        yield conv2d_case(rnd, (7, 6), (2, 5), (3, 3), 2, 1, 1, relu)
        yield conv2d_case(rnd, (8, 7), (2, 3), (3, 2), 2, 2, 3, relu)
        yield conv2d_case(rnd, (5, 4), (2, 17), (1, 1), 2, 0, 1, relu)
        yield conv2d_case(rnd, (rnd.randrange(4, 9), rnd.randrange(4, 9)), (rnd.randrange(1, 6), rnd.randrange(1, 6)),
                          (rnd.randrange(1, 4), rnd.randrange(1, 4)), rnd.randrange(1, 4), rnd.randrange(0, 3), 1, relu)
    for kind in ("max", "avg"):
        yield pool2d_case(rnd, kind, (4, 6), 3, (2, 2), 2, 0)
        yield pool2d_case(rnd, kind, (7, 5), 2, (3, 3), 2, 1)
        yield pool2d_case(rnd, kind, (5, 6), 4, (3, 2), 1, 1)
        yield pool2d_case(rnd, kind, (4, 4), 5, (4, 4), 4, 0)
    for rows, channels in ((8, 3), (12, 4), (40, 6), (rnd.randrange(8, 30), rnd.randrange(1, 20))):
        for flags in range(4):
            yield batch_norm_case(rnd, rows, channels, flags & 1, flags & 2)
    for count in (1, 7, 16, rnd.randrange(17, 60)):
        yield mse_case(rnd, count)
    for rows, classes in ((1, 2), (2, 10), (5, 17), (rnd.randrange(3, 9), rnd.randrange(18, 40))):
        for share, smooth in ((1.0, 0.1), (0.3, 0.0), (rnd.random(), rnd.random())):
            yield soft_case(rnd, rows, classes, share, smooth)


def main():
    directory, extra = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    torch.set_num_threads(1)
    for name, cases in (("core/golden/rng.txt", rng_cases), ("data/golden/sampler.txt", sampler_cases),
                        ("data/golden/split.txt", split_cases), ("kernels/golden/optim.txt", optim_cases),
                        ("kernels/golden/images.txt", image_cases)):
        os.makedirs(os.path.dirname(os.path.join(directory, name)), exist_ok=True)
        with open(os.path.join(directory, name), "w", encoding="ascii") as out:
            for case, answer in cases(random.Random(extra)):
                out.write(f"{case} : {answer}\n")


main()
