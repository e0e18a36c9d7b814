#!/bin/sh
# SPDX-License-Identifier: MIT
# Weights in and out and gradients out of a program's own loop: the same in every mode and for every way to share the update
# out, on one node and two; and a run goes on with weights that were put in as one that began with them.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/nodes.inc"
. "$here/tests/train/loop_weights.inc"
make_data
common="--device cpu --batch-size 2 --global-batch 16 --no-eval --threads 1 --quiet"
mlp="--data $work/images --hidden 33,17 $common"
gpt2="--model gpt2 --data $work/text --seq-len 12 --layers 2 --heads 2 --channels 16 --dropout 0.1 $common"
resnet="--model resnet --size 20 --data $work/images --batch-size 2 --global-batch 8 --device cpu --no-eval --threads 1 --quiet --lr 1e-3"

# What there is, and what bad calls get.
expect "walk" 0 '^fc1.weight f32 33x64 2112$' "$client" walk . $mlp --steps 1
for line in 'fc3.bias f32 10 10' 'not open: -1 (nil)' 'before the first: (nil)' 'unknown: -1' 'without a name: -1' 'wrong count: -1' \
    'no memory: -1' 'no step: -1' 'loop_client: error: the run is not open: call ddp_train_open() first' \
    'loop_client: error: the model mlp has no tensor "no.such": its 6 tensors are named by ddp_train_tensor(), the first is fc1.weight' \
    'loop_client: error: tensor fc1.weight has 2112 values, and the program gives room for 1'; do
    grep -qxF "$line" "$work/out" || fail "walk: no line: $line"
done
expect "walk: statistics" 0 'running_var f32 16 16 statistic$' "$client" walk . $resnet --steps 1
grep -qx 'statistic: -1' "$work/out" || fail "walk: a statistic has a gradient"

modes() {
    run accum 1 "$@"
    run ddp "$ddprun -n 2" "$@" --bucket-mb 0.005
    run ddp "$ddprun -n 4" "$@" --bucket-mb 0.005 --zero 2
    run ddp "$ddprun -n 2" "$@" --zero 0
    run dp 1 "$@" --mode dp --replicas 4
    run pipeline "$ddprun -n 4" "$@" --stages 2
    run pipeline 1 "$@" --stages 2
    [ "$nodes" = no ] || run nodes "nodes 2 2" "$@" --zero 2
    [ "$nodes" = no ] || run nodes "nodes 2 1" "$@"
}
nodes=yes
weights "mlp" $mlp --optimizer adamw --weight-decay 0.1
gradients "mlp" "" $mlp --momentum 0
nodes=no
gradients "mlp, clipped" 0.05 $mlp --momentum 0 --clip-grad-norm 0.05
weights "gpt2 in bf16" $gpt2 --dtype bf16
weights "resnet" $resnet
gradients "gpt2" "" $gpt2 --optimizer sgd --momentum 0 --lr 0.1

# Local steps: weights that are put in between two synchronisations are those that the outer SGD begins from; there is no
# mean gradient.
set -- $mlp --seed 1 --steps 4 --momentum 0 --sync-every 4,lr=0.5
"$client" dump "$work/raw" $mlp --seed 2 --steps 3 >"$work/out" 2>&1 || fail "local steps: dump: $(head -n 5 "$work/out")"
first=
PUT_AT=3 same "local steps: put when all have the same" "$ddprun" -n 2 "$client" put "$work/raw.0" "$@" --sync-every 4,from=3,lr=0.5
PUT_AT=3 same "local steps: put in between" "$ddprun" -n 2 "$client" put "$work/raw.0" "$@"
expect "local steps: gradients" 2 'error: --sync-every 4: there is no mean gradient of ' "$ddprun" -n 2 "$client" gradients "$work/rank" "$@"
finish
