# SPDX-License-Identifier: MIT
"""Where the ranks of a group are. On one machine it is a job of its own. A job that ddprun started on
several has one communicator, over UCX, for groups of all its ranks; groups of some of them have
what ranks send each other in it."""

import ctypes
import itertools
import os
import weakref

import torch

from . import _lib

_dtypes = {
    _lib.F32: torch.float32,
    _lib.F64: torch.float64,
    _lib.I32: torch.int32,
    _lib.I64: torch.int64,
}
_ops = {_lib.SUM: torch.add, _lib.MIN: torch.minimum, _lib.MAX: torch.maximum}
_wholes = []  # weak references to the groups of all ranks
_numbers = itertools.count(1)


def _check_version(rank, version):
    if version != _lib.VERSION:
        raise RuntimeError(
            f"rank {rank} has ddprun {version}, this one {_lib.VERSION}: install one version for "
            "all ranks"
        )


def spread(store, rank, size, timeout):
    """The job's ranks that are the group's, in its order, if they are on several machines."""
    if "DDPRUN_BOARD_FD" not in os.environ or int(os.environ["GROUP_WORLD_SIZE"]) == 1:
        return None
    mine = os.environ["RANK"], os.environ["GROUP_RANK"], _lib.VERSION
    store.set(f"ddp/{rank}", " ".join(mine))
    keys = [f"ddp/{r}" for r in range(size)]
    store.wait(keys, timeout)
    places = [store.get(key).decode().split() for key in keys]
    for r, (_, _, version) in enumerate(places):
        _check_version(r, version)
    nodes = {node for _, node, _ in places}
    return [int(r) for r, _, _ in places] if len(nodes) > 1 else None


def meet(store, rank, size, timeout):
    """The job of a group on one machine."""
    if rank == 0:
        job, address = _lib.host_job(size)
        store.set("ddp", f"{_lib.VERSION} {address.decode()}")
        return job
    store.wait(["ddp"], timeout)
    version, address = store.get("ddp").decode().split()
    _check_version(0, version)
    return _lib.join_job(address.encode(), rank)


def agree(store, rank, timeout):
    """A number that no other group has."""
    if rank == 0:
        store.set("ddp", str(int(os.environ["RANK"]) << 32 | next(_numbers)))
    store.wait(["ddp"], timeout)
    return int(store.get("ddp"))


def add(group):
    _wholes.append(weakref.ref(group))


def whole():
    """The first group of all ranks."""
    for reference in _wholes:
        group = reference()
        if group and group._comm.comm:
            return group
    raise RuntimeError(
        "a group of some ranks on several machines needs one of all of them, in their order, with "
        "the backend ddp: call init_process_group with ddp"
    )


def _view(address, count, dtype):
    nbytes = count * dtype.itemsize
    memory = (ctypes.c_char * nbytes).from_address(address) if nbytes else bytearray()
    return torch.frombuffer(memory, dtype=dtype) if nbytes else torch.empty(0, dtype=dtype)


def _fold(parts, function):
    """In the tree over the ranks that libddp adds in."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << ((len(parts) - 1).bit_length() - 1)
    return function(_fold(parts[:half], function), _fold(parts[half:], function))


class Comm:
    """As _lib.Comm, of some ranks: each adds up, and hands on, its share."""

    def __init__(self, whole, box):
        self.job, self.comm, self.box = whole.job, whole.comm, box
        self.size = len(box.ranks)
        self.timeout_ms = -1

    def set_timeout(self, timeout_ms):
        self.timeout_ms = timeout_ms

    def _exchange(self, sends, receives):
        self.box.exchange(sends, receives, self.timeout_ms)

    def _to_all(self, tensor, parts):
        self._exchange(dict.fromkeys(range(self.size), tensor), dict(enumerate(parts)))

    def _sum(self, parts, out, op):
        """Of everyone's part for this rank."""
        theirs = out.new_empty((self.size, out.numel()))
        self._exchange(dict(enumerate(parts)), dict(enumerate(theirs)))
        out.copy_(_fold(theirs, _ops[op]))

    def all_reduce(self, address, count, dtype, op):
        parts = _view(address, count, _dtypes[dtype]).tensor_split(self.size)
        mine = parts[self.box.rank]
        self._sum(parts, mine, op)
        self._to_all(mine, parts)

    def reduce_scatter(self, send, receive, count, dtype, op):
        parts = _view(send, count * self.size, _dtypes[dtype]).tensor_split(self.size)
        self._sum(parts, _view(receive, count, _dtypes[dtype]), op)

    def all_gather(self, send, receive, nbytes):
        everyones = _view(receive, nbytes * self.size, torch.uint8)
        self._to_all(_view(send, nbytes, torch.uint8), everyones.tensor_split(self.size))

    def broadcast(self, address, nbytes, root):
        tensor = _view(address, nbytes, torch.uint8)
        sends = dict.fromkeys(range(self.size), tensor) if self.box.rank == root else {}
        self._exchange(sends, {root: tensor})

    def barrier(self):
        nothing = torch.empty(0, dtype=torch.uint8)
        self._to_all(nothing, [nothing] * self.size)

    def close(self):
        self.job = self.comm = None
