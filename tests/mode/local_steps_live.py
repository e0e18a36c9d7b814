# SPDX-License-Identifier: MIT
"""Local steps as the PyTorch installed here computes them: DistributedDataParallel in two processes with gloo, the
communication hook of post-local SGD and its optimizer.
  data DIR                  makes DIR/x.npy and DIR/y.npy
  check DIR LOG EVERY HOOK_FROM AVERAGE_FROM MOMENTUM OUTER_LR OUTER_MOMENTUM
                            compares the losses of LOG, of a training that began with DIR/weights. HOOK_FROM: the step, from 0,
                            from which gradients stay local; AVERAGE_FROM: the first after which weights are averaged
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


def train(rank, directory, every, hook_from, average_from, momentum, outer_rate, outer_momentum):
    import torch
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{directory}/meet", rank=rank, world_size=WORKERS)
    module = torch.nn.Sequential()
    module.add_module("fc1", torch.nn.Linear(10, 16))
    module.add_module("relu", torch.nn.ReLU())
    module.add_module("fc2", torch.nn.Linear(16, 4))
    module.load_state_dict(load(directory + "/weights"))
    model = torch.nn.parallel.DistributedDataParallel(module)
    subgroup = [distributed.new_group([r]) for r in range(WORKERS)][rank]  # as one process a machine
    model.register_comm_hook(PostLocalSGDState(None, subgroup, hook_from), post_localSGD_hook)
    parameters = list(model.parameters())
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(parameters, 0.05, momentum=momentum),
                                      PeriodicModelAverager(every, average_from))
    anchor = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    outer = torch.optim.SGD(anchor, outer_rate, momentum=outer_momentum, nesterov=outer_momentum > 0)
    x, y = (torch.tensor(numpy.load(f"{directory}/{name}.npy")[rank::WORKERS]) for name in "xy")
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        part = slice(step * BATCH, (step + 1) * BATCH)
        loss = torch.nn.functional.cross_entropy(model(x[part]), y[part])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            if step < hook_from:
                for p, a in zip(parameters, anchor):
                    a.copy_(p)
            elif step >= average_from and (step - average_from) % every == 0:
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
    arguments = (directory, *map(int, numbers[:3]), *map(float, numbers[3:]))
    torch.multiprocessing.start_processes(train, arguments, nprocs=WORKERS, start_method="fork")  # importing torch takes seconds
    expected = numpy.load(directory + "/losses.npy")
    with open(log) as file:
        events = [json.loads(line) for line in file]
    found = numpy.array([event["loss"] for event in events if event["event"] == "step"])
    worst = numpy.abs(found - expected).max() if len(found) == STEPS else numpy.inf
    print(f"{len(found)} losses, as those of PyTorch {torch.__version__} to {worst:.1e}")
    sys.exit(not worst <= 1e-5)


if __name__ == "__main__":
    make(*sys.argv[2:]) if sys.argv[1] == "data" else check(*sys.argv[2:])
