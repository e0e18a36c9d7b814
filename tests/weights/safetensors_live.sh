#!/bin/sh
# SPDX-License-Identifier: MIT
# Our safetensors files against the format's own library, where Python has it.
set -u
python=${SAFETENSORS_PYTHON:-${PYTHON:-python3}}
if ! "$python" -c 'import numpy, safetensors' >/dev/null 2>&1; then
    echo "skipped: $python has no safetensors package, or no numpy"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
"$python" "${srcdir:-.}/tests/weights/safetensors_live.py" ./safetensors_tool "$work"
