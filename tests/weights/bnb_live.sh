#!/bin/sh
# SPDX-License-Identifier: MIT
# Directories of nf4 beside bitsandbytes, where BNB_PYTHON or PYTHON has it.
set -u
python=${BNB_PYTHON:-${PYTHON:-python3}}
if ! "$python" -c 'import bitsandbytes, peft, safetensors, transformers' >/dev/null 2>&1; then
    echo "skipped: $python has no bitsandbytes, PEFT and transformers"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
"$python" "${srcdir:-.}/tests/weights/bnb_live.py" ./trainer ./hf_llama_tool "$work"
