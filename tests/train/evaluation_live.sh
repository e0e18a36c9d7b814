#!/bin/sh
# SPDX-License-Identifier: MIT
# The figures of a language model's evaluation against those that the PyTorch installed here computes from the saved weights.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${PYTHON:-python3}
"$python" -c 'import torch' >/dev/null 2>&1 || skip "$python has no PyTorch"
cat "$here"/src/mode/*.c >"$work/text"
expect "training" 0 '' "$ddprun" -n 2 trainer --model gpt2 --data "$work/text" --seq-len 16 --layers 1 --heads 2 --channels 16 \
    --batch-size 4 --steps 60 --lr 0.01 --eval-every 30 --eval-steps 5 --log "$work/log" --save "$work/weights"
expect "what PyTorch computes" 0 'as PyTorch' "$python" "$here/tests/train/evaluation_live.py" "$work/weights" "$work/text" 20 "$work/log"
finish
