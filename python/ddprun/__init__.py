# SPDX-License-Identifier: MIT
"""Collectives of libddp on NumPy arrays, in programs that ddprun starts.

    import ddprun, numpy
    ddprun.init()
    gradient = numpy.ones(10, dtype=numpy.float32)
    ddprun.allreduce(gradient)

ddprun.torch is the same for torch.distributed: see ddprun-torch(7).
"""

_names = ("init", "finish", "rank", "size", "local_rank", "allreduce", "allgather", "broadcast", "barrier")
__all__ = list(_names)


def __getattr__(name):
    """libddp is loaded when it is first used."""
    if name in _names:
        from . import numpy

        return getattr(numpy, name)
    raise AttributeError(f"module 'ddprun' has no attribute '{name}'")
