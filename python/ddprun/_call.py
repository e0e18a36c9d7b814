# SPDX-License-Identifier: MIT
"""Collectives in the thread of a group."""

from torch import distributed as dist
from torch._C import _distributed_c10d as c10d

# PyTorch 2.4 forgets in C++ what of a call is written in Python, unless Python holds it. (Releases
# that tell an all-reduce whether it is asynchronous hold it themselves.)
_forgets = not hasattr(c10d.AllreduceOptions, "asyncOp")
_kept = set()  # calls that nobody has waited for


class Call(dist.Work):
    """A collective in the thread of a group. Torch's own work of a future would hide a failure."""

    def __init__(self, future):
        super().__init__()
        self.future = future
        if _forgets:
            _kept.add(self)

    def wait(self, timeout=None):
        try:
            self.future.wait()
        finally:
            _kept.discard(self)
        return True

    def get_future(self):
        _kept.discard(self)
        return self.future

    def is_completed(self):
        return self.future.done()

    def is_success(self):
        return self.future.done() and self.exception() is None

    def exception(self):
        try:
            self.future.wait()
        except RuntimeError as error:
            return error
        return None

    def result(self):
        return self.future.wait()


def run_calls(calls):
    """The thread of a group; what it runs hangs on the promise."""
    while True:
        promise = calls.get()
        if promise is None:
            return
        promise.set_result(None)
        del promise
