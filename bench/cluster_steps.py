#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A PyTorch script with DistributedDataParallel over gloo, which torchrun and ddprun start alike, for bench/cluster.

usage: cluster_steps.py [STEPS]       (without STEPS it trains until it is ended)
"""
import itertools
import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(int(sys.argv[1])) if len(sys.argv) > 1 else itertools.count():
        model(torch.ones(4, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 10:
            print(f"step 10, rank {os.environ['RANK']}\n", end="", flush=True)  # in one piece
        if len(sys.argv) == 1:
            time.sleep(0.02)
    dist.destroy_process_group()
    os._exit(0)  # on the way through the interpreter's end PyTorch 2.15 aborts in one of six runs of a single step


if __name__ == "__main__":
    main()
