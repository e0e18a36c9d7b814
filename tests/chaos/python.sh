#!/bin/sh
# SPDX-License-Identifier: MIT
# python.sh PROGRAM.py: runs a program of this folder, where there is a Python that can.
test -x ./ddprun || { echo "run in the build directory"; exit 99; }
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
python3 -c 'import ctypes, multiprocessing.pool, os; os.close(os.pidfd_open(os.getpid()))' 2>/dev/null ||
    { echo "skipped: needs Python 3.9 or later with its standard library, and Linux 5.3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$@"
