#!/bin/sh
# SPDX-License-Identifier: MIT
# Going on from a checkpoint ends in the bits of the run that was not interrupted, for models with everything that a
# checkpoint can hold: batch norm's statistics, dropout's random numbers, weights in bf16, momentum and second moments,
# whole, shared or packed, and an epoch in its middle with its order and augmentation.
. "${srcdir:-.}/tests/cli.inc"

# --- data: some text, as text and as images of 3 x 8 x 8 with two classes ---------------------------------------

cat "$here"/src/mode/*.c "$here"/src/graph/*.c >"$work/text"
# npy SHAPE: the header of an array of bytes
npy() {
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
}
{ npy '(200, 3, 8, 8)' && head -c $((200 * 192)) "$work/text"; } >"$work/x.npy"
{ npy '(200,)' && tr -cd 'a-z' <"$work/text" | tr 'a-z' '\000\000\000\000\000\000\000\000\001' | head -c 200; } >"$work/y.npy"
images="--data $work/x.npy,$work/y.npy"

# --- going on ---------------------------------------------------------------------------------------------------

# run NAME COMMAND...: it ends in the reference's weights
run() {
    name=$1
    shift
    count=$((count + 1))
    rm -f "$work/f"
    # shellcheck disable=SC2086 # options
    timeout $((120 * patience)) "$@" $options --save "$work/f" >"$work/out" 2>&1 || fail "$name: exit code $?: $(head -n 5 "$work/out")"
    cmp -s "$work/f" "$work/reference" || fail "$name: other bits than the uninterrupted run"
}

# model NAME STEP OPTIONS...: checkpoints of STEP, written and read in each mode
model() {
    model=$1 step=$(printf %08d "$2") every=$2
    shift 2
    options="$* --global-batch 16 --batch-size 2 --seed 5 --no-eval --quiet"
    # shellcheck disable=SC2086 # options
    "$trainer" $options --threads 1 --save "$work/reference" || fail "$model: exit code $?"
    set -- "ddprun -n 2 trainer --zero 0" "trainer --mode dp --replicas 2" "ddprun -n 4 trainer --bucket-mb 0.02" \
        "ddprun -n 2 trainer --bucket-mb 0.05" "ddprun -n 2 trainer" trainer
    first=$1
    for written; do
        rm -rf "$work/dir"
        # shellcheck disable=SC2086 # a command with options
        run "$model: $written" "$top"/$written --checkpoint "$work/dir" --checkpoint-every "$every" --keep 0
        shift # the one that goes on is the next one: each mode writes, each reads
        read=${1:-$first}
        # shellcheck disable=SC2086 # a command with options
        run "$model: $written, then $read" "$top"/$read --resume-from "$work/dir/step-$step"
        cmp -s "$work/dir/step-$step/model.safetensors" "$work/reference" && fail "$model: nothing happens after step $every"
    done
}

model resnet 3 --model resnet $images --steps 6
model cnn 16 --model cnn $images --augment crop,flip --steps 20
model gpt2 4 --model gpt2 --data "$work/text" --seq-len 16 --layers 2 --heads 2 --channels 32 --dropout 0.2 --dtype bf16 --steps 8
model mlp 5 --model mlp $images --hidden 64,32 --optimizer adamw --clip-grad-norm 0.5 --steps 9
finish
