#!/bin/sh
# SPDX-License-Identifier: MIT
# Random numbers, samplers, optimizers and image operations against the PyTorch installed here, with other cases each time.
set -u
python=${PYTHON:-python3}
if ! "$python" -c 'import torch' >/dev/null 2>&1; then
    echo "skipped: $python has no PyTorch"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
case=$(date +%s)
echo "cases of number $case"
"$python" "${srcdir:-.}/tests/golden/generate.py" "$work" "$case" || exit 99
export DDP_GOLDEN_DIR="$work"
./check_rng && ./check_sampler && ./check_split && ./check_adamw && ./check_norm && ./check_conv2d && ./check_pool2d && ./check_batch_norm
