#!/bin/sh
# SPDX-License-Identifier: MIT
# Images that the Pillow installed here writes and scales, with other pixels each time.
set -u
python=${PILLOW_PYTHON:-${PYTHON:-python3}}
if ! "$python" -c 'import numpy, PIL' >/dev/null 2>&1; then
    echo "skipped: $python has no Pillow"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
case=$(date +%s)
echo "cases of number $case"
"$python" "${srcdir:-.}/tests/golden/image_files.py" "$work" "$case" || exit 99
DDP_GOLDEN_DIR="$work" CK_RUN_CASE=golden ./check_images
