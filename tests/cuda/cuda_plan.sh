#!/bin/sh
# SPDX-License-Identifier: MIT
# A plan for GPUs: a run fits in the memory that it is planned to take and 2 % more, and not in 2 % less (or before the
# exchange has its room), in each mode; a
# run that runs out of memory names a batch that fits; and a plan can be made where there is no GPU.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
[ $simulated = yes ] || skip "the memory of a real GPU cannot be chosen"
i=0
while [ $i -lt 300 ]; do
    echo "line $i of a text"
    i=$((i + 1))
done >"$work/text"
gpt2="--model gpt2 --data $work/text --device cuda --layers 1 --heads 2 --channels 64 --seq-len 32 --batch-size 8 --steps 2"

# planned COMMAND...: bytes of the GPU that holds most
planned() {
    "$@" --plan --quiet >/dev/null 2>&1 || fail "no plan: $*"
    "$@" --plan 2>/dev/null | awk '/^  total/ { print $2 * ($3 == "kB" ? 1e3 : 1e6); exit }'
}
# edge NAME SHARE COMMAND...: the GPU's memory decides whether it ends well; with this share of what is planned it does not
edge() {
    name=$1 less=$2
    shift 2
    bytes=$(planned "$@")
    expect "$name, enough" 0 '' env DDP_CUDASIM_MEMORY="$(awk "BEGIN { print int(1.02 * ${bytes:-0}) }")" "$@" --quiet
    expect "$name, too little" 5 'error: .*GPU 0.*planned: .* of ' \
        env DDP_CUDASIM_MEMORY="$(awk "BEGIN { print int($less * ${bytes:-0}) }")" "$@" --quiet
    [ "$(grep -c 'error: .*GPU' "$work/out")" -eq 1 ] || fail "$name: not one line says so: $(grep 'error:' "$work/out")"
}
edge "accum" 0.98 "$trainer" $gpt2 --channels 128
edge "accum, bf16, lanes" 0.98 "$trainer" $gpt2 --channels 128 --dtype bf16 --acc-steps 4 --batch-size 4 --no-eval
edge "accum, sgd" 0.98 "$trainer" $gpt2 --optimizer sgd --batch-size 32 --steps 1
gpus 2
edge "dp" 0.98 "$trainer" $gpt2 --mode dp --replicas 2 --devices 0,1 --batch-size 32 --steps 1 --no-eval
# (NCCL takes its room for the exchange in the first step only.)
edge "ddp, zero 1" 0.93 "$ddprun" -n 2 "$trainer" $gpt2 --batch-size 32 --zero 1 --no-eval
edge "ddp, zero 0" 0.93 "$ddprun" -n 2 "$trainer" $gpt2 --batch-size 32 --zero 0 --no-eval
# Without --zero each worker has all of the update where there is memory for that, and the weights are the same.
auto="-n 2 $trainer $gpt2 --batch-size 32 --no-eval"
expect "whole" 0 'update .*, whole in each worker \(--zero 0: there is memory for it\)' "$ddprun" $auto --save "$work/whole"
bytes=$(planned "$ddprun" $auto --zero 0)
export DDP_CUDASIM_MEMORY=$((bytes))
expect "split, planned" 0 'update .*, split over the workers \(--zero 1: the GPUs have no memory for --zero 0\)' "$ddprun" $auto --plan
expect "split" 0 'update .*, split over the workers \(--zero 1:' "$ddprun" $auto --save "$work/split"
unset DDP_CUDASIM_MEMORY
cmp -s "$work/whole" "$work/split" || fail "whole and split: other weights"

# What is named fits.
gpus 1
expect "out of memory" 5 'error: .*out of memory on GPU 0.*use --batch-size [0-9]*' \
    env DDP_CUDASIM_MEMORY=12000000 "$trainer" $gpt2 --batch-size 100 --quiet
batch=$(sed -n 's/.*; use --batch-size \([0-9]*\).*/\1/p' "$work/out")
expect "what was named" 0 '' env DDP_CUDASIM_MEMORY=12000000 "$trainer" $gpt2 --batch-size "${batch:-0}" --quiet
expect "the plan names it too" 0 "^largest  --batch-size $batch is" env DDP_CUDASIM_MEMORY=12000000 "$trainer" $gpt2 --plan

# Without a GPU, and without a plugin for one.
expect "no GPU" 0 'on cuda: none is here' env DDP_CUDASIM_FAIL=cudaGetDeviceCount:1:100 "$trainer" $gpt2 --plan
expect "no plugin" 0 'on cuda: none is here' env DDP_PLUGIN_PATH="$work" "$trainer" $gpt2 --plan --mode dp --replicas 4
expect "a shape, and 80 GB" 0 '^ *\*? *accum .*bf16' "$trainer" --device cuda --model cnn --shape 3,16,16 --classes 5 --plan-memory 80G
[ "$(grep -c 'error\|warning' "$work/out")" -eq 0 ] || fail "a plan complains: $(cat "$work/out")"
finish
