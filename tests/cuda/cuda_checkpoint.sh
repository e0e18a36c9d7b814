#!/bin/sh
# SPDX-License-Identifier: MIT
# Checkpoints and GPUs: what one number of workers wrote another goes on with, to the same bits; and a CPU goes on with a
# GPU's, or a GPU with a CPU's, within rounding.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 4

gpu="--device cuda" cpu="--device cpu --threads 1"
common="--model article --data-size 700 --shuffle --batch-size 8 --global-batch 64 --steps 20 --lr 1e-4 --quiet"
common="$common --optimizer adamw --clip-grad-norm 1"
dir=$work/dir

# written NAME COMMAND...: checkpoints after steps 9 and 20
written() {
    name=$1
    shift
    count=$((count + 1))
    rm -rf "$dir"
    "$@" --checkpoint "$dir" --checkpoint-every 9 --keep 0 >"$work/out" 2>&1 || fail "$name: $(head -n 3 "$work/out")"
}
from="--resume-from $dir/step-00000009"

first=
same "uninterrupted" "$trainer" $common $gpu
written "4 workers" "$ddprun" -n 4 $share trainer $common $gpu --zero 1
same "4 workers, then 2" "$ddprun" -n 2 $share trainer $common $gpu $from --zero 1
same "4 workers, then 1" "$trainer" $common $gpu $from
replicas 2
same "4 workers, then 2 replicas" "$trainer" $common $gpu $dp $from
written "2 replicas" "$trainer" $common $gpu $dp
same "2 replicas, then 4 workers" "$ddprun" -n 4 $share trainer $common $gpu $from --zero 0
written "4 workers with replicas" "$ddprun" -n 4 $share trainer $common $gpu --zero 0
same "4 workers with replicas, then 2 workers" "$ddprun" -n 2 $share trainer $common $gpu $from --zero 1

# resumed NAME COMMAND...: ends near the weights of the GPU
resumed() {
    name=$1
    shift
    count=$((count + 1))
    rm -f "$work/f"
    "$@" --save "$work/f" >"$work/out" 2>&1 || fail "$name: $(head -n 3 "$work/out")"
    weights_near "$work/f" "$work/first" 1e-5 || fail "$name: ends elsewhere"
}
resumed "a GPU's, then a CPU" "$ddprun" -n 2 trainer $common $cpu $from
written "a CPU's" "$ddprun" -n 2 trainer $common $cpu
resumed "a CPU's, then a GPU" "$trainer" $common $gpu $from
resumed "a CPU's, then 2 GPUs" "$ddprun" -n 2 $share trainer $common $gpu $from

# A worker that is killed, or that stops and is ended: all start again, from the last checkpoint, to the same bits.
for fault in kill stop; do
    rm -rf "$dir"
    DDP_FAULTS=$fault:rank=1,step=12 same "a worker meets $fault" "$ddprun" -n 2 $share --max-restarts 1 --timeout 2 --grace 1 \
        trainer $common $gpu --checkpoint "$dir" --checkpoint-every 5 --resume
    grep -q 'restarting all workers' "$work/out" || fail "a worker meets $fault: $(cat "$work/out")"
done

# Evaluations have the same bits with any number of GPUs, and so have an early end and the best checkpoint.
head -c 100 "$here/src/mode/ddp.c" >"$work/text"
ends="--model gpt2 --data $work/text --val $work/text --seq-len 8 --layers 1 --heads 1 --channels 16 --schedule constant --quiet
    --global-batch 4 --batch-size 2 --lr 1 --steps 60 --eval-every 2 --patience 2 --keep 1,best --checkpoint $dir"
first=
state=
for start in "$trainer" "$ddprun -n 2 $share trainer" "$trainer --mode dp --replicas 2 --devices 0,$((1 % present))"; do
    rm -rf "$dir"
    same "an early end, $start" $start $ends $gpu
    cp "$dir/best/state.json" "$work/state.now"
    [ -n "$state" ] || cp "$work/state.now" "$work/state"
    state=yes
    cmp -s "$work/state.now" "$work/state" || fail "an early end, $start: another best: $(diff "$work/state" "$work/state.now")"
done
grep -q '"step": 60,' "$dir"/step-*/state.json && fail "an early end: there was none"

finish
