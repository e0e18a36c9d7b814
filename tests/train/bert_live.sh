#!/bin/sh
# SPDX-License-Identifier: MIT
# Losses of encoders beside transformers and sentence-transformers, where they are installed.
set -u
python=${TRL_PYTHON:-${PYTHON:-python3}}
if ! "$python" -c 'import sentence_transformers, transformers' >/dev/null 2>&1; then
    echo "skipped: $python has no transformers, or no sentence-transformers"
    exit 77
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error PYTHONWARNINGS=ignore CUDA_VISIBLE_DEVICES='' XDG_CACHE_HOME="$work/cache" \
    "$python" "${srcdir:-.}/tests/train/bert_live.py" ./trainer "$work" 2>"$work/errors" && exit 0
tail -n 20 "$work/errors"
exit 1
