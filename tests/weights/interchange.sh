#!/bin/sh
# SPDX-License-Identifier: MIT
# GPT-2 weights in other programs' files. SAFETENSORS_PYTHON or PYTHON names an interpreter
# with numpy and safetensors (and transformers).
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
"${SAFETENSORS_PYTHON:-${PYTHON:-python3}}" "${srcdir:-.}/tests/weights/interchange.py" ./gpt2_tool "$work"
