#!/bin/sh
# SPDX-License-Identifier: MIT
# Local steps against the PyTorch installed here: DistributedDataParallel with the hook of post-local SGD and its optimizer,
# and with an outer SGD as in DiLoCo. PYTHON names a Python with PyTorch.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${PYTHON:-python3}
"$python" -c 'import numpy, torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook' >/dev/null 2>&1 ||
    skip "$python has no PyTorch with post-local SGD: PYTHON names another Python"
"$python" "$here/tests/mode/local_steps_live.py" data "$work" || exit 99
set -- trainer --model mlp --hidden 16 --data "$work/x.npy,$work/y.npy" --no-shuffle --batch-size 3 --seed 3 --no-eval \
    --threads 1 --schedule constant --quiet
expect "initial weights" 0 '' "$ddprun" -n 1 "$@" --lr 0 --steps 1 --save "$work/weights"

# live NAME EVERY FROM MOMENTUM HOOK_FROM AVERAGE_FROM [OUTER_LR OUTER_MOMENTUM]: our options, then when PyTorch's parts begin
live() {
    name=$1 every=$2 from=$3 momentum=$4 hook_from=$5 average_from=$6 outer=
    [ $# -eq 6 ] || outer="--outer-lr $7 --outer-momentum $8"
    rm -f "$work/log" "$work/meet"
    expect "$name" 0 '' "$ddprun" -n 2 $train --lr 0.05 --momentum "$momentum" --steps 40 --load "$work/weights" \
        --sync-every "$every" --local-from "$from" $outer --log "$work/log"
    expect "$name: PyTorch" 0 '40 losses, as those of' "$python" "$here/tests/mode/local_steps_live.py" check "$work" "$work/log" \
        "$every" "$hook_from" "$average_from" "$momentum" "${7:-1}" "${8:-0}"
    echo "$name: $(grep losses "$work/out")"
}
train=$*
# PyTorch's averager begins with an average: it is told to begin when the first round of local steps ends.
live "every 4 steps" 4 0 0.9 0 3
live "every 5 steps, from step 13 on" 5 13 0.9 13 17
live "DiLoCo" 4 0 0.9 0 3 0.7 0.9
live "DiLoCo, from step 6 on" 5 6 0.9 6 10 0.7 0.9
# With one start for both, as its page has it, it averages after its first local step, which without momentum is an ordinary one.
live "one start for both" 4 13 0 12 12
finish
