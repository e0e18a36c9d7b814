#!/bin/sh
# SPDX-License-Identifier: MIT
# The backend of torch.distributed over several nodes, all of them ddpruns on this machine: its collectives, groups of
# some ranks, and messages between two.
# DDP_TEST_PYTHON is the interpreter that has PyTorch 2.4 or later.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/nodes.inc"
python=${DDP_TEST_PYTHON:-python3}
PYTHONPATH=$(cd "$here/python" && pwd)
DDP_LIBRARY=$top/.libs/libddp.so
export PYTHONPATH DDP_LIBRARY PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
[ -e "$DDP_LIBRARY" ] || skip "this build has no shared libddp"
"$python" -c '
import importlib.metadata as m
import sys
sys.exit(tuple(map(int, m.version("torch").split(".")[:2])) < (2, 4))' 2>/dev/null ||
    skip "$python has no PyTorch of at least 2.4: name one that has in DDP_TEST_PYTHON"
ends "torch.distributed, 2 + 1 ranks" 0 2 2,1 "$python" "$here/tests/python/torch_ranks.py" copies messages order replicas groups
said "the ranks of node 0" "rank 1: copies .*: ok" 0
said "the rank of node 1" "rank 2: copies .*: ok" 1
finish
