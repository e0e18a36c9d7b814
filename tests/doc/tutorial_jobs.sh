#!/bin/sh
# SPDX-License-Identifier: MIT
# The tutorial from lost workers to PyTorch: every command runs, and prints what the page shows, to the digits of its losses.
# DDP_TEST_PYTHON is an interpreter that has PyTorch 2.4 or later.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/doc/tutorial.inc"
python=${DDP_TEST_PYTHON:-python3}
command -v pgrep >/dev/null || skip "pgrep, by which the reader finds a worker, is not installed"
[ -e "$top/.libs/libddp-ucx.so" ] || without ucx "CPUs of several nodes need libddp-ucx.so, which was not built"
if "$python" -c '
import importlib.metadata as m
import sys
sys.exit(tuple(map(int, m.version("torch").split(".")[:2])) < (2, 4))' 2>/dev/null; then
    PATH=$(dirname "$(command -v "$python")"):$PATH # after which a plain python3 is this one
else
    without torch "$python has no PyTorch of at least 2.4: name one that has in DDP_TEST_PYTHON"
fi
pages 01 07 08 09 10
finish
