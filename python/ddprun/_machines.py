# SPDX-License-Identifier: MIT
"""Groups whose ranks are on several machines: all of a job that ddprun started, over UCX. There is
no mail between machines, so what goes from rank to rank is gathered by all."""

import os

import torch

from . import _lib


def job_of(rank, size):
    """The job of ddprun, if it is on several machines and the group is all of it; else None."""
    launched = "DDPRUN_BOARD_FD" in os.environ and size == int(os.environ["WORLD_SIZE"])
    if not launched or size == int(os.environ["LOCAL_WORLD_SIZE"]):
        return None
    if rank != int(os.environ["RANK"]):
        raise RuntimeError("on several machines a group of all ranks has them in their order")
    return _lib.open_job()


def _bytes(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


def exchange(rank, size, gather_all, sends, receives):
    """Tensors by rank: what each rank gets, and gives. `gather_all` as ProcessGroup's."""
    nothing = torch.empty(0, dtype=torch.uint8)
    parts = [_bytes(sends[r]) if r in sends else nothing for r in range(size)]
    counts = torch.empty((size, size), dtype=torch.int64)
    gather_all(counts, torch.tensor([part.numel() for part in parts]))
    longest = int(counts.sum(1).max())
    mine = torch.zeros(longest, dtype=torch.uint8)
    mine[: int(counts[rank].sum())] = torch.cat(parts)
    everyones = torch.empty((size, longest), dtype=torch.uint8)
    gather_all(everyones, mine)
    for peer, tensor in receives.items():
        begin, count = int(counts[peer, :rank].sum()), int(counts[peer, rank])
        if count != tensor.numel() * tensor.element_size():
            raise _lib.Error(
                _lib.INVALID,
                f"rank {peer} of {size} sent {count} bytes, "
                f"this rank receives {tensor.numel() * tensor.element_size()}",
            )
        part = everyones[peer, begin : begin + count].clone()
        tensor.copy_(part.view(tensor.dtype).view(tensor.shape))
