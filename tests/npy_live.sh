#!/bin/sh
# SPDX-License-Identifier: MIT
# Arrays that the NumPy installed here writes, with other numbers each time.
set -u
python=${PYTHON:-python3}
if ! "$python" -c 'import numpy' >/dev/null 2>&1; then
    echo "skipped: $python has no NumPy"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
case=$(date +%s)
echo "cases of number $case"
"$python" "${srcdir:-.}/tests/golden/npy.py" "$work" "$case" || exit 99
DDP_GOLDEN_DIR="$work" CK_RUN_CASE=golden ./check_npy
