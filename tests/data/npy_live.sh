#!/bin/sh
# SPDX-License-Identifier: MIT
# Arrays that the NumPy installed here writes, with other numbers each time.
python=${PYTHON:-python3} modules=numpy
. "${srcdir:-.}/tests/lib/fresh.inc"
fresh_cases data/golden/npy.py
./check_npy
