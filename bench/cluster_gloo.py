#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The side of PyTorch's gloo in bench/cluster, which starts one of these a rank; the loop of cluster_loop.h.

usage: cluster_gloo.py PIPES
"""
import sys
import time

import torch
import torch.distributed as dist


def turn(buffer, calls):
    """Seconds of each call, and how many elements of the first one were wrong."""
    index, rank, size = torch.arange(buffer.numel()) * 7, dist.get_rank(), dist.get_world_size()
    buffer.copy_((index + 3 * rank) % 61)
    dist.barrier()
    dist.all_reduce(buffer)
    expected = sum((index + 3 * r) % 61 for r in range(size))
    wrong = int((buffer != expected).sum())
    buffer.zero_()
    dist.barrier()
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        dist.all_reduce(buffer)
        seconds.append(time.perf_counter() - start)
    dist.barrier()
    return seconds, wrong


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    buffer = torch.zeros(16 << 20)
    with open(f"{sys.argv[1]}.{dist.get_rank()}") as orders:
        answer = open(f"{sys.argv[1]}.answer", "w") if dist.get_rank() == 0 else None
        for line in iter(orders.readline, ""):
            size, calls = map(int, line.split())
            seconds, wrong = turn(buffer[:size // 4], calls)
            if answer:
                print(size, wrong, *(f"{1e6 * x:.2f}" for x in seconds), file=answer, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
