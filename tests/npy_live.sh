#!/bin/sh
# SPDX-License-Identifier: MIT
# Arrays that the NumPy installed here writes, with other numbers each time.
python=${PYTHON:-python3} modules=numpy
. "${srcdir:-.}/tests/fresh.inc"
fresh_cases npy.py
./check_npy
