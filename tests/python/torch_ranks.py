# SPDX-License-Identifier: MIT
"""What each rank of tests/python/python.sh does: every collective of the backend ddp against what it
must give, computed here from all ranks' inputs."""

import gc
import os
import sys
import threading
from datetime import timedelta

import ddprun.torch
import torch
import torch.distributed as dist
from ddprun import _lib, _machines
from torch.distributed import ReduceOp

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
    torch.int16, torch.int32, torch.int64, torch.bool,
]  # fmt: skip
ODD = 100003  # elements: more than a slot, and no multiple of anything


def value(rank, dtype, count=ODD):
    numbers = torch.arange(count, dtype=torch.int64) * 3 + rank * 7
    return (numbers % 5).to(dtype)  # small: sums are exact


def same(got, expected, what):
    if got.dtype != expected.dtype or not torch.equal(got, expected):
        raise AssertionError(f"{what}: {got.flatten()[:8]} instead of {expected.flatten()[:8]}")


def reductions(rank, size):
    for dtype in DTYPES:
        every = [value(r, dtype) for r in range(size)]
        wide = torch.stack([t.to(torch.int64) for t in every])
        expected = {
            ReduceOp.SUM: wide.sum(0), ReduceOp.MIN: wide.amin(0), ReduceOp.MAX: wide.amax(0),
            ReduceOp.PRODUCT: wide.prod(0),
        }  # fmt: skip
        if not dtype.is_floating_point:
            bits = [t.clone() for t in every]
            for t in bits[1:]:
                bits[0] &= t
            expected[ReduceOp.BAND] = bits[0]
            bits = [t.clone() for t in every]
            for t in bits[1:]:
                bits[0] |= t
            expected[ReduceOp.BOR] = bits[0]
        for op, result in expected.items():
            tensor = every[rank].clone()
            dist.all_reduce(tensor, op)
            same(tensor, result.to(dtype), f"all_reduce {op} {dtype}")
        tensor = every[rank].clone()
        dist.reduce(tensor, size - 1, ReduceOp.MAX)
        last = rank == size - 1
        same(tensor, (expected[ReduceOp.MAX] if last else wide[rank]).to(dtype), f"reduce {dtype}")
        out = torch.empty(ODD, dtype=dtype)
        dist.reduce_scatter(out, [every[rank] for _ in range(size)])
        same(out, expected[ReduceOp.SUM].to(dtype), f"reduce_scatter {dtype}")
        out = torch.empty(1001, dtype=dtype)
        parts = [value(r, dtype, 1001 * size) for r in range(size)]
        dist.reduce_scatter_tensor(out, parts[rank].clone(), ReduceOp.MAX)
        best = torch.stack([p.to(torch.int64) for p in parts]).amax(0)
        same(out, best[rank * 1001 : (rank + 1) * 1001].to(dtype), f"reduce_scatter_tensor {dtype}")
    average = torch.full((5,), float(rank))
    dist.all_reduce(average, ReduceOp.AVG)
    same(average, torch.full((5,), (size - 1) / 2), "avg")
    holes = torch.zeros(40, 40)[:, ::2]
    holes += rank
    dist.all_reduce(holes)
    same(holes, torch.full((40, 20), float(size * (size - 1) // 2)), "not contiguous")
    number = torch.tensor([complex(rank, 1)])
    dist.all_reduce(number)
    same(number, torch.tensor([complex(size * (size - 1) // 2, size)]), "complex")


def copies(rank, size):
    for dtype in DTYPES:
        every = [value(r, dtype) for r in range(size)]
        outs = [torch.empty(ODD, dtype=dtype) for _ in range(size)]
        dist.all_gather(outs, every[rank])
        for r in range(size):
            same(outs[r], every[r], f"all_gather {dtype}")
        flat = torch.empty(ODD * size, dtype=dtype)
        dist.all_gather_into_tensor(flat, every[rank])
        same(flat, torch.cat(every), f"all_gather_into_tensor {dtype}")
        for root in (0, size - 1):
            tensor = every[rank].clone()
            dist.broadcast(tensor, root)
            same(tensor, every[root], f"broadcast {dtype}")
            outs = [torch.empty(ODD, dtype=dtype) for _ in range(size)] if rank == root else None
            dist.gather(every[rank], outs, root)
            for r in range(size if outs else 0):
                same(outs[r], every[r], f"gather {dtype}")
            out = torch.empty(ODD, dtype=dtype)
            dist.scatter(out, every if rank == root else None, root)
            same(out, every[rank], f"scatter {dtype}")
        ins = [value(rank * size + r, dtype, 1000 + 10 * r + rank) for r in range(size)]
        outs = [torch.empty(1000 + 10 * rank + r, dtype=dtype) for r in range(size)]
        dist.all_to_all(outs, ins)
        for r in range(size):
            expected = value(r * size + rank, dtype, 1000 + 10 * rank + r)
            same(outs[r], expected, f"all_to_all {dtype}")
        out = torch.empty(sum(range(1, size + 1)), 3, dtype=dtype)
        mine = torch.full((size * (rank + 1), 3), rank, dtype=torch.int64).to(dtype)
        dist.all_to_all_single(out, mine, list(range(1, size + 1)), [rank + 1] * size)
        rows = [torch.full((r + 1, 3), r, dtype=torch.int64).to(dtype) for r in range(size)]
        same(out, torch.cat(rows), f"all_to_all_single {dtype}")
    uneven = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    for r in range(size):
        same(uneven[r], torch.full((r + 1,), float(r)), "uneven all_gather")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(size)], objects
    box = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(box, 0)
    assert box == [{"from": 0}]
    dist.all_reduce(torch.empty(0))
    dist.barrier()
    try:
        dist.monitored_barrier()
    except ValueError as error:  # PyTorch 2.4 has it for gloo only
        assert "GLOO" in str(error), error


def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    big = 300007  # far more than a ring holds
    works = [dist.isend(value(rank, torch.float64, big), right, tag=4)]
    dist.barrier()  # a thread sends on while this rank waits here
    works.append(dist.isend(torch.tensor([rank]), right, tag=5))
    small, large = torch.zeros(1, dtype=torch.int64), torch.zeros(big, dtype=torch.float64)
    dist.recv(small, left, tag=5)  # the later message first
    dist.recv(large, left, tag=4)
    same(small, torch.tensor([left]), "small message")
    same(large, value(left, torch.float64, big), "large message")
    for work in works:
        work.wait()
    if rank == 0:
        seen = {dist.recv(small) for _ in range(size - 1)}
        assert seen == set(range(1, size)), seen
    else:
        dist.send(torch.tensor([rank]), 0)
    dist.barrier()
    pair = torch.zeros(big), torch.full((big,), float(rank))
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, pair[1], right), dist.P2POp(dist.irecv, pair[0], left)]
    )
    for work in works:
        work.wait()
    same(pair[0], torch.full((big,), float(left)), "batch_isend_irecv")
    if rank < 2:
        try:
            if rank == 0:
                dist.send(torch.zeros(3), 1)
            else:
                dist.recv(torch.zeros(2), 0)
                raise AssertionError("a message of another size was taken")
        except RuntimeError as error:
            assert "rank 0" in str(error) and "12 bytes" in str(error), error
    dist.barrier()


def asynchronous(rank, size):
    works = []
    for i in range(50):
        tensor = torch.full((2000,), float(i + rank))
        works.append((dist.all_reduce(tensor, async_op=True), tensor, i))
    now = torch.ones(3)
    dist.all_reduce(now)  # behind them
    for work, tensor, i in works:
        assert work.is_completed()
        expected = float(i * size + size * (size - 1) // 2)
        same(tensor, torch.full((2000,), expected), "async")
    tensor = torch.ones(4)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    same(future.wait(), torch.full((4,), 2.0 * size), "future")
    # Two groups, which two halves of the ranks call in other orders.
    one, two = dist.new_group(), dist.new_group()
    a, b = torch.ones(1), torch.full((1,), 2.0)
    order = [(one, a), (two, b)] if rank % 2 else [(two, b), (one, a)]
    for work in [dist.all_reduce(t, group=g, async_op=True) for g, t in order]:
        work.wait()
    same(torch.cat([a, b]), torch.tensor([float(size), 2.0 * size]), "two groups")
    evens = dist.new_group(list(range(0, size, 2)))
    if rank % 2 == 0:
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=evens)
        same(tensor, torch.tensor([sum(range(0, size, 2))]), "sub-group")
    with dist._coalescing_manager():
        many = [torch.full((i + 1,), float(rank)) for i in range(5)]
        for tensor in many:
            dist.all_reduce(tensor)
    for i, tensor in enumerate(many):
        same(tensor, torch.full((i + 1,), float(size * (size - 1) // 2)), "coalesced")
    for group in (one, two):
        dist.destroy_process_group(group)


def order(rank, size):
    """The same bits as libddp's tree over the ranks, however the sum is called."""
    parts = [torch.rand(50021, generator=torch.Generator().manual_seed(r)) - 0.5 for r in range(size)]

    def tree(low, high):
        if high - low == 1:
            return parts[low]
        half = 1
        while half * 2 < high - low:
            half *= 2
        return tree(low, low + half) + tree(low + half, high)

    expected = tree(0, size)
    tensor = parts[rank].clone()
    dist.all_reduce(tensor)
    same(tensor, expected, "order of all_reduce")
    flat = torch.cat([parts[rank]] * size)
    out = torch.empty(50021)
    dist.reduce_scatter_tensor(out, flat)
    same(out, expected, "order of reduce_scatter")


def replicas(rank, size):
    """DistributedDataParallel ends with the weights of one process with the whole batch."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.Tanh(), torch.nn.Linear(300, 4))
    alone = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.Tanh(), torch.nn.Linear(300, 4))
    alone.load_state_dict(model.state_dict())
    replica = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    batch = torch.randn(8 * size, 20, generator=torch.Generator().manual_seed(2))
    for net, part in ((replica, batch[8 * rank : 8 * rank + 8]), (alone, batch)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            net(part).square().mean().backward()
            optimizer.step()
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def late(rank, size):
    """A collective that not all call ends in time."""
    group = dist.new_group(timeout=timedelta(milliseconds=200))
    if rank == 0:
        try:
            dist.all_reduce(torch.ones(1), group=group)
            raise AssertionError("an all-reduce ended that only rank 0 called")
        except RuntimeError as error:
            assert "Timed out" in str(error), error
    dist.barrier()


def groups(rank, size):
    """The same in a group of some ranks, and between them."""
    again = dist.new_group()
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=again)
    same(tensor, torch.full((3,), float(size)), "a second group of all")
    dist.destroy_process_group(again)
    for members in ([0, 1], list(range(1, size)), [0, size - 1]):
        group = dist.new_group(members)
        if rank not in members:
            continue
        whole, here = dist.group.WORLD, members.index(rank)
        dist.group.WORLD = group  # what follows is for a world
        try:
            order(here, len(members))
            if members == [0, size - 1]:
                copies(here, 2)
                reductions(here, 2)
        finally:
            dist.group.WORLD = whole
        first, last = members[0], members[-1]
        if rank == first:
            dist.send(value(1, torch.float64), last, group=group, tag=3)
        elif rank == last:
            got = torch.empty(ODD, dtype=torch.float64)
            assert dist.recv(got, group=group, tag=3) == first
            same(got, value(1, torch.float64), "message in a group")
        dist.destroy_process_group(group)


def refuses(rank, size):
    def says(kind, words, call, *arguments):
        try:
            call(*arguments)
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"no {kind.__name__}: {words}")

    says(ValueError, '"cpu:ddp,cuda:nccl"', dist.all_reduce, torch.ones(3, device="meta"))
    store = dist.HashStore()
    store.set("ddp", f"0.1 {os.getpid()}/1/2/3")
    words = f"rank 0 has ddprun 0.1, this one {_lib.VERSION}"
    says(RuntimeError, words, _machines.meet, store, 1, 2, timedelta(seconds=1))


def dies(rank, size):
    """Rank 1 dies; every wait of the others ends and names it."""
    dist.barrier()
    if rank == 1:
        os._exit(0)
    waits = [
        lambda: dist.recv(torch.ones(10), 1),
        lambda: dist.all_reduce(torch.ones(10), async_op=True).wait(),
        lambda: dist.all_reduce(torch.ones(10)),
    ]
    for wait in waits:
        try:
            wait()
            raise AssertionError("a wait for a rank that has died ended well")
        except RuntimeError as error:
            assert "rank 1" in str(error), error


def main():
    names = [name for name in sys.argv[1:] if "://" not in name]
    where = {}
    if "://" in sys.argv[1]:  # without a launcher
        numbers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        where = {"init_method": sys.argv[1], "rank": numbers[0], "world_size": numbers[1]}
    dist.init_process_group("ddp", timeout=timedelta(seconds=60), **where)
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in names:
        globals()[name](rank, size)
    if names[-1] != "dies":
        dist.barrier()
        dist.destroy_process_group()
        gc.collect()  # where PyTorch does not shut groups down, what an exception has held of one
        assert threading.active_count() == 1, threading.enumerate()
    print(f"rank {rank}: {' '.join(names)}: ok", flush=True)


main()
