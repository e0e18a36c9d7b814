#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A PyTorch script with DistributedDataParallel over gloo that can be restarted with any number of ranks: as PyTorch's own
examples do it, with a snapshot on a disk that all nodes see; for bench/cluster.

usage: cluster_snapshot.py SNAPSHOT LOG       (trains until it is ended; rank 0 writes a line to LOG after each step)
"""
import os
import sys
import time

import torch
import torch.distributed as dist

EVERY = 10  # steps


def main():
    snapshot, log = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = 0
    if os.path.exists(snapshot):
        state = torch.load(snapshot)
        model.module.load_state_dict(state["model"])
        step = state["step"]
    while True:
        model(torch.ones(32, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        time.sleep(0.02)
        if dist.get_rank() == 0:
            if step % EVERY == 0:
                torch.save({"model": model.module.state_dict(), "step": step}, snapshot + ".new")
                os.replace(snapshot + ".new", snapshot)
            with open(log, "a") as file:
                file.write(f"{step} {dist.get_world_size()}\n")


if __name__ == "__main__":
    main()
