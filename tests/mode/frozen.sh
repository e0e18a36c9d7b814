#!/bin/sh
# SPDX-License-Identifier: MIT
# A model of which most is frozen: the same weights in all modes, files that hold what is learned alone, checkpoints that
# resume on the same base only, and evaluation.
. "${srcdir:-.}/tests/lib/cli.inc"

client=$top/frozen_client
head -c 6000 "$here/LICENSE" >"$work/text.txt"
while [ "$(wc -c <"$work/text.txt")" -lt 6000 ]; do cat "$here/LICENSE" >>"$work/text.txt"; done
set -- --data "$work/text.txt" --seq-len 16 --batch-size 2 --steps 6 --optimizer adamw --lr 0.01 --lanes 4
for FROZEN in f32 bf16 nf4; do
    export FROZEN
    expect "$FROZEN, accum" 0 'model +adapted, 640 parameters and [0-9]+ frozen ones' "$client" "$@" --acc-steps 4 --save "$work/accum"
    expect "$FROZEN, ddp" 0 '' "$ddprun" -n 2 "$client" "$@" --acc-steps 2 --save "$work/other"
    cmp -s "$work/accum" "$work/other" || fail "$FROZEN: ddp has other weights"
    expect "$FROZEN, ddp of 4" 0 '' "$ddprun" -n 4 "$client" "$@" --save "$work/other"
    cmp -s "$work/accum" "$work/other" || fail "$FROZEN: 4 workers have other weights"
    expect "$FROZEN, dp" 0 '' "$client" "$@" --mode dp --replicas 4 --save "$work/other"
    cmp -s "$work/accum" "$work/other" || fail "$FROZEN: dp has other weights"
    expect "$FROZEN, pipeline" 0 '' "$ddprun" -n 2 "$client" "$@" --mode pipeline --stages 2 --acc-steps 4 --save "$work/other"
    cmp -s "$work/accum" "$work/other" || fail "$FROZEN: a pipeline has other weights"
    expect "$FROZEN, 3 stages in a process" 0 '' "$client" "$@" --mode pipeline --stages 3 --acc-steps 4 --save "$work/other"
    cmp -s "$work/accum" "$work/other" || fail "$FROZEN: 3 stages have other weights"
    expect "$FROZEN, evaluation" 0 'loss' "$client" "$@" --acc-steps 4 --val "$work/text.txt"
    if grep -q middle "$work/accum" || ! grep -q a.down "$work/accum"; then
        fail "$FROZEN: the file of weights does not hold what is learned alone"
    fi
done

# A run that is continued ends in the same bits; the base must be the same.
expect "first half" 0 '' "$client" "$@" --acc-steps 4 --checkpoint "$work/steps" --checkpoint-every 3
cp -r "$work/steps" "$work/kept"
rm -r "$work/steps/step-00000006"
expect "the plan of a continuation" 0 'memory +weights .* \+ frozen weights' "$client" "$@" --acc-steps 4 --checkpoint "$work/steps" --resume --plan
expect "continued" 0 'resumed' "$ddprun" -n 2 "$client" "$@" --acc-steps 2 --checkpoint "$work/steps" --resume
cmp -s "$work/steps/step-00000006/model.safetensors" "$work/kept/step-00000006/model.safetensors" ||
    fail "continued: other weights"
if grep -q middle "$work/kept/step-00000006/model.safetensors"; then fail "a checkpoint holds what is frozen"; fi
rm -r "$work/steps/step-00000006"
BASE=0.5 expect "another base" 2 'frozen parameters' "$client" "$@" --acc-steps 4 --checkpoint "$work/steps" --resume
FROZEN=bf16 expect "another dtype" 2 'frozen parameters' "$client" "$@" --acc-steps 4 --checkpoint "$work/steps" --resume

# All that is learned is told as frozen: nothing to learn.
FROZEN=all expect "nothing to learn" 2 'nothing to learn' "$client" "$@"
FROZEN=table expect "a table in blocks" 9 'embedding: wte is held in blocks of nf4, which only linear layers read' "$client" "$@"

# A file of a base goes into frozen parameters of either dtype; one of adapters leaves them alone.
unset FROZEN
expect "a base" 0 '' "$client" "$@" --acc-steps 4 --save "$work/base.safetensors"
FROZEN=bf16 expect "from a base" 0 'from .*base' "$client" "$@" --acc-steps 4 --load "$work/base.safetensors" --save "$work/tuned.safetensors"
FROZEN=nf4 expect "from a base in blocks" 0 'from .*base' "$client" "$@" --acc-steps 4 --load "$work/base.safetensors" --save "$work/quantised.safetensors"
cmp -s "$work/tuned.safetensors" "$work/quantised.safetensors" && fail "a base in blocks is not quantised"
FROZEN=bf16 expect "from adapters" 0 '' "$client" "$@" --acc-steps 4 --load "$work/tuned.safetensors"
expect "adapters without their base" 3 'tensor .* is missing' "$client" "$@" --acc-steps 4 --load "$work/tuned.safetensors"
finish
