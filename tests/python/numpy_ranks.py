# SPDX-License-Identifier: MIT
"""What each rank does of tests/python/python.sh with NumPy arrays."""

import ddprun
import numpy

ddprun.init(timeout=60)
rank, size = ddprun.rank(), ddprun.size()
total = size * (size - 1) // 2
for dtype in (numpy.float32, numpy.float64, numpy.int32, numpy.int64):
    array = numpy.full((3, 70001), rank, dtype)
    assert ddprun.allreduce(array) is array and (array == total).all()
    assert (ddprun.allreduce(numpy.full(5, rank, dtype), "min") == 0).all()
    assert (ddprun.allreduce(numpy.full(5, rank, dtype), "max") == size - 1).all()
assert (ddprun.allreduce(numpy.full(5, rank, numpy.float32), "avg") == total / size).all()
for dtype, shape in ((numpy.uint8, (3, 5)), (numpy.float16, (7,)), (numpy.complex128, (2, 3))):
    everyones = ddprun.allgather(numpy.full(shape, rank, dtype))
    assert everyones.shape == (size, *shape) and everyones.dtype == dtype
    assert all((everyones[r] == r).all() for r in range(size))
    array = ddprun.broadcast(numpy.full(shape, rank, dtype), size - 1)
    assert (array == size - 1).all()
ddprun.barrier()
for wrong in (numpy.ones(4)[::2], numpy.ones(4, numpy.uint8), [1.0]):
    try:
        ddprun.allreduce(wrong)
        raise AssertionError(wrong)
    except (TypeError, ValueError):
        pass
ddprun.finish()
try:
    ddprun.rank()
    raise AssertionError("a rank after the end")
except RuntimeError:
    pass
print(f"rank {rank}: ok")
