# SPDX-License-Identifier: MIT
"""Local steps as the PyTorch installed here computes them, in two processes with gloo and the averager of its post-local SGD.
  data DIR                  makes DIR/x.npy and DIR/y.npy
  check DIR LOG EVERY FROM OUTER_LR OUTER_MOMENTUM   compares the losses of LOG, of a training that began with DIR/weights
"""
import json
import struct
import sys

import numpy

SAMPLES, BATCH, WORKERS, STEPS = 240, 3, 2, 40


def make(directory):
    draw = numpy.random.default_rng(5)
    x = draw.standard_normal((SAMPLES, 10)).astype("f4")
    numpy.save(directory + "/x.npy", x)
    numpy.save(directory + "/y.npy", (x[:, 0] > 0).astype("i8") + 2 * (x[:, 1] > 0))


def load(path):
    import torch
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: torch.tensor(numpy.frombuffer(data[slice(*of["data_offsets"])], "<f4").reshape(of["shape"]))
            for name, of in header.items()}


def train(rank, directory, every, start, outer_rate, outer_momentum):
    import torch
    from torch import distributed
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{directory}/meet", rank=rank, world_size=WORKERS)
    model = torch.nn.Sequential()
    model.add_module("fc1", torch.nn.Linear(10, 16))
    model.add_module("relu", torch.nn.ReLU())
    model.add_module("fc2", torch.nn.Linear(16, 4))
    model.load_state_dict(load(directory + "/weights"))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, 0.05, momentum=0.9)
    averager = PeriodicModelAverager(every, start + every - 1)
    anchor = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    outer = torch.optim.SGD(anchor, outer_rate, momentum=outer_momentum, nesterov=outer_momentum > 0)
    x, y = (torch.tensor(numpy.load(f"{directory}/{name}.npy")[rank::WORKERS]) for name in "xy")
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = torch.nn.functional.cross_entropy(model(x[part]), y[part])
        loss.backward()
        if step < start:
            for p in parameters:
                distributed.all_reduce(p.grad)
                p.grad /= WORKERS
        optimizer.step()
        averager.average_parameters(parameters)
        with torch.no_grad():
            if step + 1 <= start:
                for p, a in zip(parameters, anchor):
                    a.copy_(p)
            elif (step + 1 - start) % every == 0:
                for p, a in zip(parameters, anchor):
                    a.grad = a - p
                outer.step()
                for p, a in zip(parameters, anchor):
                    p.copy_(a)
        mean = loss.detach().clone()
        distributed.all_reduce(mean)
        losses.append(mean.item() / WORKERS)
    if rank == 0:
        numpy.save(directory + "/losses.npy", numpy.array(losses))
    distributed.barrier()
    distributed.destroy_process_group()


def check(directory, log, *numbers):
    import torch
    arguments = (directory, int(numbers[0]), int(numbers[1]), float(numbers[2]), float(numbers[3]))
    torch.multiprocessing.spawn(train, arguments, nprocs=WORKERS)
    expected = numpy.load(directory + "/losses.npy")
    with open(log) as file:
        events = [json.loads(line) for line in file]
    found = numpy.array([event["loss"] for event in events if event["event"] == "step"])
    worst = numpy.abs(found - expected).max() if len(found) == STEPS else numpy.inf
    print(f"{len(found)} losses, as PyTorch's to {worst:.1e}")
    sys.exit(not worst <= 1e-5)


if __name__ == "__main__":
    make(*sys.argv[2:]) if sys.argv[1] == "data" else check(*sys.argv[2:])
