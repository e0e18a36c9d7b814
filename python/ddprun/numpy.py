# SPDX-License-Identifier: MIT
"""Collectives on NumPy arrays; imported as `ddprun`."""

import atexit

import numpy

from . import _lib

_comm = None
_dtypes = {"float32": _lib.F32, "float64": _lib.F64, "int32": _lib.I32, "int64": _lib.I64}
_ops = {"sum": _lib.SUM, "avg": _lib.SUM, "min": _lib.MIN, "max": _lib.MAX}


def init(timeout=None):
    """Joins the job of ddprun. `timeout`: seconds that a collective waits; None: no limit."""
    global _comm
    if _comm is None:
        _comm = _lib.Comm(_lib.open_job())
        atexit.register(finish)
    _comm.set_timeout(-1 if timeout is None else int(timeout * 1000))


def finish():
    global _comm
    if _comm is not None:
        _comm.close()
    _comm = None


def _world():
    if _comm is None:
        raise RuntimeError("call ddprun.init() first")
    return _comm


def rank():
    return _world().rank


def size():
    return _world().size


def local_rank():
    return _lib.lib.ddp_job_local_rank(_world().job)


def _check(array):
    if not isinstance(array, numpy.ndarray) or not array.flags.c_contiguous:
        raise ValueError("the array must be a C-contiguous numpy.ndarray")
    return array


def allreduce(array, op="sum"):
    """In place, and returns the array. `op`: sum, avg, min or max."""
    comm = _world()
    if op not in _ops:
        raise ValueError(f"op '{op}': must be one of {', '.join(_ops)}")
    if _check(array).dtype.name not in _dtypes:
        raise TypeError(f"allreduce: {array.dtype}: must be one of {', '.join(_dtypes)}")
    if op == "avg" and array.dtype.kind != "f":
        raise TypeError(f"allreduce: avg of {array.dtype}: must be floating-point")
    comm.all_reduce(array.ctypes.data, array.size, _dtypes[array.dtype.name], _ops[op])
    if op == "avg":
        array /= comm.size
    return array


def allgather(array):
    """A new array (size, ...) of every rank's, which all have the same shape and dtype."""
    comm = _world()
    padded = array.nbytes + array.nbytes % 2
    mine = numpy.zeros(padded, numpy.uint8)
    mine[: array.nbytes] = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
    out = numpy.empty((comm.size, padded), numpy.uint8)
    comm.all_gather(mine.ctypes.data, out.ctypes.data, padded)
    return out[:, : array.nbytes].copy().view(array.dtype).reshape((comm.size, *array.shape))


def broadcast(array, root=0):
    """In place, and returns the array."""
    comm = _world()
    if _check(array).nbytes % 2 == 0:
        comm.broadcast(array.ctypes.data, array.nbytes, root)
        return array
    padded = numpy.zeros(array.nbytes + 1, numpy.uint8)
    padded[:-1] = array.reshape(-1).view(numpy.uint8)
    comm.broadcast(padded.ctypes.data, padded.nbytes, root)
    array[...] = padded[:-1].view(array.dtype).reshape(array.shape)
    return array


def barrier():
    _world().barrier()
