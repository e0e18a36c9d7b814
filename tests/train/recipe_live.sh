#!/bin/sh
# SPDX-License-Identifier: MIT
# Label smoothing, mixup, a moving average of the weights and a frozen body, against the PyTorch installed here, which takes the
# same draws: losses of the steps, that of an evaluation, and the average that is saved.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${PYTHON:-python3}
"$python" -c 'import numpy, torch' >/dev/null 2>&1 || skip "$python has no PyTorch"
cd "$work" || exit 99
live="$here/tests/train/recipe_live.py"
case $live in /*) ;; *) live=$top/$live ;; esac
"$python" "$live" data || exit 99
set -- --data x.npy,y.npy --val vx.npy,vy.npy --model resnet --size 20 --no-shuffle --batch-size 8 --schedule constant --weight-decay 0 \
    --quiet
expect "the first weights" 0 '' "$trainer" "$@" --steps 3 --lr 0.02 --save base.safetensors
for how in whole frozen; do
    more=
    [ "$how" = frozen ] && more=,frozen
    expect "$how" 0 '' "$trainer" "$@" --lr 0.02 --steps 8 --eval-every 8 --seed 3 --log "$how.jsonl" --save "$how.safetensors" \
        --optimizer sgd,ema=0.9 --augment mixup=0.5,smooth=0.1 --load "base.safetensors$more"
    expect "$how beside PyTorch" 0 'as PyTorch' "$python" "$live" check "$how"
    cat "$work/out"
done
finish
