#!/bin/sh
# SPDX-License-Identifier: MIT
# How often a model is right in questions with choices, by transformers, where it is installed: the golden values anew.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${TRL_PYTHON:-${PYTHON:-python3}}
"$python" -c 'import torch, transformers' >/dev/null 2>&1 || skip "$python has no transformers"
tests=${srcdir:-.}/tests/train
"$python" "$tests/preferences.py" make "$work/made" && "$python" "$tests/choices.py" make "$work/made" || exit 99
expect 'a base' 0 '' ./hf_llama_tool fill "$work/made" "$work/model" f32 100000
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error CUDA_VISIBLE_DEVICES='' \
    "$python" "$tests/choices.py" golden "$work/model" "$work/made/questions.jsonl" >"$work/golden" 2>"$work/errors" || { fail "transformers"; tail -n 20 "$work/errors"; }
count=$((count + 1))
cmp "$work/golden" "$tests/golden/choices.txt" || { fail "other values than golden/choices.txt"; cat "$work/golden"; }
finish
