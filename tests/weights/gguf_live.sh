#!/bin/sh
# SPDX-License-Identifier: MIT
# GGUF files beside gguf-py and llama.cpp, where Python has the packages gguf and xllamacpp.
set -u
python=${GGUF_PYTHON:-${PYTHON:-python3}}
if ! "$python" -c 'import gguf, numpy' >/dev/null 2>&1; then
    echo "skipped: $python has no gguf"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
"$python" "${srcdir:-.}/tests/weights/gguf_live.py" ./gguf_tool ./trainer ./hf_llama_tool ./tokenizer_tool "${srcdir:-.}" "$work"
