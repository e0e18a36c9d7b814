# SPDX-License-Identifier: MIT
"""PyTorch's own tests of torch.distributed, with the backend ddp in the place of gloo.

    WORLD_SIZE=3 python3 torch_suite.py ddp|gloo [-v] [TEST...]

Not part of `make check`: it takes minutes. Its processes are forked: they import nothing again."""

import os
import sys
import tempfile

which = sys.argv.pop(1)
os.environ.setdefault("WORLD_SIZE", "3")
os.environ["BACKEND"] = "gloo"
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.makedirs(os.path.join(os.environ["TEMP_DIR"], "barrier"), exist_ok=True)
os.makedirs(os.path.join(os.environ["TEMP_DIR"], "test_dir"), exist_ok=True)

import torch
import torch.distributed as dist
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed import distributed_test
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend

if which == "ddp":
    import ddprun.torch

    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["DDP"]
    for names in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(distributed_test, names).remove("gloo")  # torch's profiler has no events of ours


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self.processes = []
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def _spawn_processes(self):
        pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_tests()
