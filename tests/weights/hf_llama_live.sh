#!/bin/sh
# SPDX-License-Identifier: MIT
# Directories of the Llama kind against Python's transformers and PEFT, where they are installed: what they save is read, they
# load what is written, and training is the same.
set -u
python=${TRANSFORMERS_PYTHON:-${PYTHON:-python3}}
if ! "$python" -c 'import torch, transformers; transformers.SmolLM3ForCausalLM' >/dev/null 2>&1; then
    echo "skipped: $python has no torch, or no transformers with SmolLM3"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS=ignore CUDA_VISIBLE_DEVICES='' \
    "$python" "${srcdir:-.}/tests/weights/hf_llama_live.py" ./hf_llama_tool ./trainer "$work"
