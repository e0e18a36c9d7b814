# SPDX-License-Identifier: MIT
"""PyTorch's own tests of torch.distributed, with the backend ddp in the place of gloo.

    WORLD_SIZE=3 python3 torch_suite.py ddp|gloo [FILE.py] [-v] [TEST...]

FILE is one of test/distributed in PyTorch's source, instead of what its wheel has. Not part of `make check`: it takes
minutes. Its processes are forked: they import nothing again."""

import os
import runpy
import sys
import tempfile

which = sys.argv.pop(1)
file = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1].endswith(".py") else None
os.environ.setdefault("WORLD_SIZE", "3")
os.environ["BACKEND"] = "gloo"
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.makedirs(os.path.join(os.environ["TEMP_DIR"], "barrier"), exist_ok=True)
os.makedirs(os.path.join(os.environ["TEMP_DIR"], "test_dir"), exist_ok=True)

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

if which == "ddp":
    import ddprun.torch

    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["DDP"]
    for names in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(distributed_test, names).remove("gloo")  # torch's profiler has no events of ours


def fork(case):
    case._start_processes(torch.multiprocessing.get_context("fork").Process)


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self.processes = []
        fork(self)

    def _spawn_processes(self):
        pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    if file:
        MultiProcessTestCase._spawn_processes = fork
        sys.argv[0] = file
        runpy.run_path(file, run_name="__main__")
    else:
        run_tests()
