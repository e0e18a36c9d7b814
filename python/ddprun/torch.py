# SPDX-License-Identifier: MIT
"""The backend "ddp" of torch.distributed: CPU tensors.

Each process group is a job of libddp of its own: its rank 0 hosts it, and hands the address to the
others through the group's store. A group of all ranks on several machines is the job of ddprun, and
one of some of them uses its mail. Collectives run at once where their caller waits for them, and otherwise, in their order, in a thread of the group. See
ddprun-torch(7)."""

import atexit
import os
import queue
import threading
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4):
    raise ImportError(f"ddprun.torch needs PyTorch 2.4 or newer, and this is {torch.__version__}")
if not dist.is_available():
    raise ImportError("this PyTorch was built without torch.distributed: ddprun.torch needs it")

from torch._C import _distributed_c10d as c10d
from torch.distributed import ReduceOp

from . import _lib, _machines
from ._call import Call, run_calls
from ._mail import Box, Post

_dtypes = {
    torch.float32: _lib.F32,
    torch.float64: _lib.F64,
    torch.int32: _lib.I32,
    torch.int64: _lib.I64,
}
_ops = {
    ReduceOp.SUM: ("sum", _lib.SUM),
    ReduceOp.AVG: ("avg", _lib.SUM),
    ReduceOp.MIN: ("min", _lib.MIN),
    ReduceOp.MAX: ("max", _lib.MAX),
}
# What libddp does not reduce is folded here, in the order of the ranks.
_folds = {
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
_FOLD_COUNT = 1 << 18  # elements of each rank at a time
_BARRIER_TAG = -1  # users' tags are not negative


def _wider(dtype):
    """The type in which libddp sums another: a float rounds once, an integer wraps alike."""
    if dtype.is_floating_point:
        return torch.float32
    return torch.int64 if dtype in (torch.uint32, torch.uint64) else torch.int32


def _done():
    future = torch.futures.Future()
    future.set_result(None)
    return c10d._create_work_from_future(future)


def _not_for(device):
    return (
        f"the backend ddp is for CPU tensors, not for {device}: combine it with another one, as in "
        'init_process_group("cpu:ddp,cuda:nccl")'
    )


def _dense(tensors):
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise ValueError(_not_for(tensor.device))
        if tensor.layout != torch.strided:
            raise ValueError(f"the backend ddp takes dense tensors, not {tensor.layout}")
    return tensors


def _same_type(tensors):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("tensors must have the same type: Invalid tensor type")


def _nbytes(tensor):
    return tensor.numel() * tensor.element_size()


class ProcessGroup(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._timeout = timeout
        self._name = self._description = ""
        self._turn = threading.Lock()  # of the thread that is in the communicator
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._pending = 0  # calls in the queue
        self._done = None
        self._exchanges = self._messages = None  # Boxes
        self._parts = weakref.WeakSet()  # groups that use its mail
        ranks = _machines.spread(store, rank, size, timeout)
        if ranks is None:
            self._open(_machines.meet(store, rank, size, timeout))
        elif ranks == list(range(int(os.environ["WORLD_SIZE"]))):
            self._open(_lib.open_job())
            _machines.add(self)
        else:
            whole = _machines.whole()
            whole._parts.add(self)
            number = _machines.agree(store, rank, timeout)
            self._exchanges = Box(whole._exchanges.post, rank, ranks, number)
            self._messages = Box(whole._messages.post, rank, ranks, number)
            self._comm = _machines.Comm(whole._comm, self._exchanges)
        self._done = _done()
        atexit.register(_close, weakref.ref(self))

    def _open(self, job):
        self._comm = _lib.Comm(job)
        if self._size > 1:
            ranks = range(self._size)
            self._exchanges = Box(Post(self._comm, False), self._rank, ranks)
            self._messages = Box(Post(self._comm, True), self._rank, ranks)

    # --- what torch asks of a group ---

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def name(self):
        return "ddp"

    getRank, getSize, getBackendName = rank, size, name

    # By these names torch asks in C++, by the others in Python.
    def getGroupName(self):
        return self._name

    def setGroupName(self, name):
        self._name = name

    def getGroupDesc(self):
        return self._description

    def setGroupDesc(self, description):
        self._description = description

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    def __repr__(self):
        return f"<ddprun.torch.ProcessGroup: rank {self._rank} of {self._size}>"

    @property
    def _device_types(self):
        """None before torch has registered the group: so long it looks for a backend in C++."""
        known = self in dist.distributed_c10d._world.pg_map
        return [torch.device("cpu")] if known else []

    supports_coalescing = False

    def _get_backend(self, device):
        if torch.device(device).type != "cpu":
            raise RuntimeError(_not_for(device))
        return self

    def set_timeout(self, timeout):
        self._timeout = timeout

    _set_timeout = set_timeout

    def shutdown(self):
        if self._thread:
            self._queue.put(None)
            self._thread.join()
        for part in list(self._parts):
            part.shutdown()
        with self._turn:
            for box in (self._exchanges, self._messages):
                if box and box.number == 0:
                    box.post.close()
            self._thread = self._exchanges = self._messages = None
            self._comm.close()

    def _end(self):
        if self._done and self._comm.job and self._pending == 0:
            self.shutdown()

    __del__ = _end  # PyTorch 2.4 shuts no group down but NCCL's

    def abort(self):
        if self._comm.job:
            _lib.lib.ddp_job_abort(self._comm.job)
        self.shutdown()

    # --- one way for all collectives ---

    def _submit(self, opts, call, result):
        """Calls it, now if the caller waits for it, which then need not be told the result."""
        timeout = getattr(opts, "timeout", None)
        if timeout is None or timeout <= timedelta(0):
            timeout = self._timeout
        timeout_ms = max(1, min(int(timeout.total_seconds() * 1000), 2**31 - 1))
        if not getattr(opts, "asyncOp", True) and self._pending == 0:
            self._run(call, timeout_ms)
            return self._done
        return Call(self._enqueue(call, timeout_ms, result))

    def _run(self, call, timeout_ms):
        with self._turn:
            if self._comm.comm is None:
                raise RuntimeError("the process group has been destroyed")
            self._comm.set_timeout(timeout_ms)
            call()

    def _enqueue(self, call, timeout_ms, result):
        def run(_):
            try:
                self._run(call, timeout_ms)
            finally:
                self._pending -= 1
            return result

        promise = torch.futures.Future()
        future = promise.then(run)  # an exception in run() becomes the future's
        if self._thread is None:
            self._thread = threading.Thread(target=run_calls, args=(self._queue,), daemon=True)
            self._thread.start()
        self._pending += 1
        self._queue.put(promise)
        return future

    # --- reducing ---

    def _reduce(self, tensor, op):
        """In place, on every rank."""
        if not tensor.is_contiguous():
            whole = tensor.contiguous()
            self._reduce(whole, op)
            tensor.copy_(whole)
        elif op in _folds:
            self._fold(tensor, _folds[op])
        elif op not in _ops:
            raise ValueError(f"the backend ddp has no {op}")
        elif tensor.is_complex() and op in (ReduceOp.SUM, ReduceOp.AVG):
            self._reduce(torch.view_as_real(tensor), op)
        elif tensor.dtype not in _dtypes:
            wide = tensor.to(_wider(tensor.dtype))
            self._reduce(wide, op)
            tensor.copy_(wide)
        else:
            dtype, (name, operation) = _dtypes[tensor.dtype], _ops[op]
            self._comm.all_reduce(tensor.data_ptr(), tensor.numel(), dtype, operation)
            self._average(tensor, name)

    def _average(self, tensor, name):
        if name == "avg" and tensor.dtype.is_floating_point:
            tensor.div_(self._size)
        elif name == "avg":
            tensor.div_(self._size, rounding_mode="trunc")

    def _fold(self, tensor, function):
        flat = tensor.view(-1)
        for part in flat.split(_FOLD_COUNT):
            everyones = part.new_empty((self._size, part.numel()))
            self._gather_all(everyones, part)
            for other in everyones[1:]:
                function(everyones[0], other, out=everyones[0])
            part.copy_(everyones[0])

    def allreduce(self, tensors, opts=c10d.AllreduceOptions()):
        op, (tensor,) = opts.reduceOp.op, _dense(tensors)
        return self._submit(opts, lambda: self._reduce(tensor, op), tensors)

    def allreduce_coalesced(self, tensors, opts=c10d.AllreduceCoalescedOptions()):
        op = opts.reduceOp.op
        _same_type(_dense(tensors))

        def call():
            flat = torch.cat([t.reshape(-1) for t in tensors])
            self._reduce(flat, op)
            for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors])):
                tensor.copy_(part.view_as(tensor))

        return self._submit(opts, call, tensors)

    def reduce(self, tensors, opts=c10d.ReduceOptions()):
        op, (tensor,) = opts.reduceOp.op, _dense(tensors)
        here = opts.rootRank == self._rank
        return self._submit(
            opts, lambda: self._reduce(tensor if here else tensor.clone(), op), tensors
        )

    def _scatter_sum(self, out, flat, op):
        """`flat`: a part for each rank, of which this one gets its own."""
        if flat.dtype in _dtypes and op in _ops and out.is_contiguous():
            name, operation = _ops[op]
            arguments = out.numel(), _dtypes[flat.dtype], operation
            self._comm.reduce_scatter(flat.data_ptr(), out.data_ptr(), *arguments)
            self._average(out, name)
        else:
            whole = flat.clone()
            self._reduce(whole, op)
            out.copy_(whole.chunk(self._size)[self._rank].view_as(out))

    def reduce_scatter(self, outputs, inputs, opts=c10d.ReduceScatterOptions()):
        op, (out,), (parts,) = opts.reduceOp.op, _dense(outputs), inputs
        _same_type(_dense(parts) + [out])
        counts = [part.numel() for part in parts]
        if counts[self._rank] != out.numel() or len(parts) != self._size:
            raise ValueError("reduce_scatter: invalid tensor size: a part for each rank is needed")

        def call():
            flat = torch.cat([part.reshape(-1) for part in parts])
            if min(counts) == max(counts):
                self._scatter_sum(out, flat, op)
            else:
                self._reduce(flat, op)
                out.copy_(flat.split(counts)[self._rank].view_as(out))

        return self._submit(opts, call, outputs)

    def reduce_scatter_single(self, out, flat, opts=c10d.ReduceScatterOptions()):
        op = opts.reduceOp.op
        _same_type(_dense([out, flat]))
        if flat.numel() != out.numel() * self._size:
            raise ValueError("reduce_scatter: the input must be world size times the output")
        call = lambda: self._scatter_sum(out, flat.contiguous(), op)
        return self._submit(opts, call, [out])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outs, flats, opts=c10d.ReduceScatterOptions()):
        works = [self.reduce_scatter_single(o, f, opts) for o, f in zip(outs, flats)]
        return works[-1]  # they complete in their order

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # --- copying to all ---

    def _gather_all(self, out, tensor):
        """`out`: contiguous, a part from each rank, of which `tensor` is this one's."""
        nbytes = _nbytes(tensor)
        mine = tensor.contiguous()
        if nbytes % 2 == 0:
            self._comm.all_gather(mine.data_ptr(), out.data_ptr(), nbytes)
            return
        padded = torch.zeros(nbytes + 1, dtype=torch.uint8)
        padded[:-1] = mine.view(-1).view(torch.uint8)
        everyones = torch.empty((self._size, nbytes + 1), dtype=torch.uint8)
        self._comm.all_gather(padded.data_ptr(), everyones.data_ptr(), nbytes + 1)
        out.view(-1).view(torch.uint8).view(self._size, nbytes).copy_(everyones[:, :-1])

    def allgather(self, outputs, inputs, opts=c10d.AllgatherOptions()):
        (parts,), (tensor,) = outputs, _dense(inputs)
        _same_type(_dense(parts) + [tensor])
        counts = [part.numel() for part in parts]
        if len(parts) != self._size or counts[self._rank] != tensor.numel():
            raise ValueError("all_gather: invalid tensor size: a part for each rank is needed")

        def call():
            if min(counts) == max(counts):
                everyones = tensor.new_empty((self._size, tensor.numel()))
                self._gather_all(everyones, tensor)
                for part, theirs in zip(parts, everyones):
                    part.copy_(theirs.view_as(part))
            else:
                self._exchange(dict.fromkeys(range(self._size), tensor), dict(enumerate(parts)))

        return self._submit(opts, call, outputs)

    def allgather_coalesced(self, outputs, inputs, opts=c10d.AllgatherOptions()):
        """`outputs`: for each rank a list of what it gives."""
        _dense(inputs)
        works = [
            self.allgather([[theirs[i] for theirs in outputs]], [tensor], opts)
            for i, tensor in enumerate(inputs)
        ]
        return works[-1]

    def all_gather_single(self, out, tensor, opts=c10d.AllgatherOptions()):
        _same_type(_dense([out, tensor]))
        if out.numel() != tensor.numel() * self._size:
            raise ValueError("all_gather: the output must be world size times the input")

        def call():
            whole = out.contiguous()
            self._gather_all(whole, tensor)
            if whole is not out:
                out.copy_(whole)

        return self._submit(opts, call, [out])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outs, tensors, opts=c10d.AllgatherOptions()):
        works = [self.all_gather_single(o, t, opts) for o, t in zip(outs, tensors)]
        return works[-1]

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def broadcast(self, tensors, opts=c10d.BroadcastOptions()):
        root, (tensor,) = opts.rootRank, _dense(tensors)

        def call():
            nbytes = _nbytes(tensor)
            if nbytes % 2 == 0 and tensor.is_contiguous():
                self._comm.broadcast(tensor.data_ptr(), nbytes, root)
                return
            padded = torch.zeros(nbytes + nbytes % 2, dtype=torch.uint8)
            padded[:nbytes] = tensor.contiguous().view(-1).view(torch.uint8)
            self._comm.broadcast(padded.data_ptr(), padded.numel(), root)
            tensor.copy_(padded[:nbytes].view(tensor.dtype).view(tensor.shape))

        return self._submit(opts, call, tensors)

    def barrier(self, opts=c10d.BarrierOptions()):
        return self._submit(opts, self._comm.barrier, None)

    # --- copying to some ---

    def _exchange(self, sends, receives):
        """Tensors by rank: what each rank gets, and gives."""
        if self._exchanges:
            self._exchanges.exchange(sends, receives, self._comm.timeout_ms)
        elif receives:  # a group of one
            receives[0].copy_(sends[0].view_as(receives[0]))

    def gather(self, outputs, inputs, opts=c10d.GatherOptions()):
        root, (tensor,) = opts.rootRank, _dense(inputs)
        parts = outputs[0] if root == self._rank else []
        _same_type(_dense(parts) + [tensor])
        if root == self._rank and len(parts) != self._size:
            raise ValueError("gather: the root needs an output for each rank")
        call = lambda: self._exchange({root: tensor}, dict(enumerate(parts)))
        return self._submit(opts, call, outputs)

    def gather_single(self, out, tensor, root=0, opts=None):
        opts = opts or c10d.GatherOptions()
        opts.rootRank = root
        parts = list(out.chunk(self._size)) if root == self._rank else []
        return self.gather([parts], [tensor], opts)

    def scatter(self, outputs, inputs, opts=c10d.ScatterOptions()):
        root, (out,) = opts.rootRank, _dense(outputs)
        parts = inputs[0] if root == self._rank else []
        _same_type(_dense(parts) + [out])
        if root == self._rank and len(parts) != self._size:
            raise ValueError("scatter: the root needs an input for each rank")
        call = lambda: self._exchange(dict(enumerate(parts)), {root: out})
        return self._submit(opts, call, outputs)

    def alltoall(self, outputs, inputs, opts=c10d.AllToAllOptions()):
        _same_type(_dense(outputs) + _dense(inputs))
        if len(outputs) != self._size or len(inputs) != self._size:
            raise ValueError("all_to_all: a tensor for each rank is needed")
        call = lambda: self._exchange(dict(enumerate(inputs)), dict(enumerate(outputs)))
        return self._submit(opts, call, outputs)

    def all_to_all_single(self, out, tensor, out_sizes, sizes, opts=c10d.AllToAllOptions()):
        _same_type(_dense([out, tensor]))
        for whole, split in ((out, out_sizes), (tensor, sizes)):
            if split and (len(split) != self._size or sum(split) != whole.size(0)):
                raise ValueError("all_to_all: the split sizes do not add up to the tensor's rows")
            if not split and whole.size(0) % self._size:
                raise ValueError("all_to_all: the rows do not divide equally across group size")

        def split(whole, rows):
            return dict(enumerate(whole.split(rows or [whole.size(0) // self._size] * self._size)))

        call = lambda: self._exchange(split(tensor, sizes), split(out, out_sizes))
        return self._submit(opts, call, [out])

    alltoall_base = all_to_all_single

    # --- messages ---

    def _peer(self, rank):
        if not 0 <= rank < self._size or rank == self._rank:
            raise ValueError(f"rank {rank}: a message needs another rank of {self._size}")
        if self._messages is None:
            raise RuntimeError("the process group has been destroyed")
        return rank

    def _deadline(self, timeout=None):
        timeout = self._timeout if timeout is None else timeout
        return time.monotonic() + timeout.total_seconds()

    def send(self, tensors, peer, tag=0):
        (tensor,) = _dense(tensors)
        peer = self._peer(peer)
        return self._messages.send(tensor, peer, tag, self._deadline())

    def recv(self, tensors, peer, tag=0):
        (tensor,) = _dense(tensors)
        peer = self._peer(peer)
        return self._messages.receive(tensor, peer, tag, self._deadline())

    def recv_anysource(self, tensors, tag=0):
        (tensor,) = _dense(tensors)
        self._peer((self._rank + 1) % self._size)
        return self._messages.receive(tensor, None, tag, self._deadline())

    recvAnysource = recv_anysource

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """Rank 0 names those that have not come in time."""
        timeout = self._timeout if timeout is None else timeout
        ms = int(timeout.total_seconds() * 1000)
        if self._messages is None:
            self._run(self._comm.barrier, max(1, ms))
            return
        deadline = self._deadline(timeout)
        signal = torch.zeros(0, dtype=torch.uint8)
        arguments = _BARRIER_TAG, deadline
        if self._rank > 0:
            try:
                self._messages.send(signal, 0, *arguments).wait()
                self._messages.receive(signal, 0, *arguments).wait()
            except _lib.Error as error:
                raise RuntimeError(
                    f"Rank {self._rank} successfully reached monitoredBarrier, but received "
                    f"errors while waiting for send/recv from rank 0: {error}"
                ) from None
            return
        if ms <= 0:
            raise RuntimeError(f"Rank 0 timed out in monitoredBarrier after {ms} ms")
        others = range(1, self._size)
        arrivals = {r: self._messages.receive(signal, r, *arguments) for r in others}
        missing = []
        for rank, arrival in arrivals.items():
            try:
                arrival.wait()
            except _lib.Error:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            who = ("Ranks " if wait_all_ranks else "Rank ") + ", ".join(map(str, missing))
            raise RuntimeError(f"{who} failed to pass monitoredBarrier in {ms} ms")
        for rank in others:
            self._messages.send(signal, rank, *arguments).wait()


def _close(reference):
    """At exit: a rank that ends says so, unless a thread is inside still."""
    group = reference()
    if group:
        group._end()


def _create(store, rank, size, timeout):
    return ProcessGroup(store, rank, size, timeout)


dist.Backend.register_backend("ddp", _create, devices=["cpu"])
