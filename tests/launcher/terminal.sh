#!/bin/sh
# SPDX-License-Identifier: MIT
# Job control, at a pseudo-terminal that Python makes.
. "${srcdir:-.}/tests/lib/signals.inc"
test -x ./ddprun || { echo "run in the build directory"; exit 99; }
for needed in python3 bash; do
    command -v $needed >/dev/null || { echo "skipped: $needed is not installed"; exit 77; }
done
unset RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS CUDA_VISIBLE_DEVICES DDP_LOG
PYTHONDONTWRITEBYTECODE=1 exec python3 "${srcdir:-.}/tests/launcher/terminal.py" "$@"
