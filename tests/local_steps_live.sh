#!/bin/sh
# SPDX-License-Identifier: MIT
# Local steps against the PyTorch installed here: its averager of post-local SGD, and an outer SGD as in DiLoCo.
. "${srcdir:-.}/tests/cli.inc"
python=${PYTHON:-python3}
"$python" -c 'import torch.distributed.algorithms.model_averaging.averagers' >/dev/null 2>&1 ||
    skip "$python has no PyTorch with model averaging"
"$python" "$here/tests/local_steps_live.py" data "$work" || exit 99
set -- trainer --model mlp --hidden 16 --data "$work/x.npy,$work/y.npy" --no-shuffle --batch-size 3 --seed 3 --no-eval --threads 1 \
    --schedule constant --momentum 0.9 --quiet
expect "initial weights" 0 '' "$ddprun" -n 1 "$@" --lr 0 --steps 1 --save "$work/weights"

# live NAME EVERY FROM OUTER_LR OUTER_MOMENTUM
live() {
    name=$1 every=$2 from=$3 outer=
    [ "$4" = 1 ] && [ "$5" = 0 ] || outer="--outer-lr $4 --outer-momentum $5"
    rm -f "$work/log" "$work/meet"
    shift
    expect "$name" 0 '' "$ddprun" -n 2 $train --lr 0.05 --steps 40 --load "$work/weights" --sync-every "$every" \
        --local-from "$from" $outer --log "$work/log"
    expect "$name: PyTorch" 0 'as PyTorch' "$python" "$here/tests/local_steps_live.py" check "$work" "$work/log" "$@"
}
train=$*
live "every 4 steps" 4 0 1 0
live "every 5 steps, from step 13 on" 5 13 1 0
live "DiLoCo" 4 0 0.7 0.9
live "DiLoCo, from step 6 on" 5 6 0.7 0.9
finish
