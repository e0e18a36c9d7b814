#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Short trainings on GPUs in every mode, for ThreadSanitizer: each stream and each thread of a kernel is a thread to it, so
# that a barrier or an event that is missing is a race, with its lines. Without it, that they work.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 2
make_data

# trains NAME COMMAND...
trains() {
    name=$1
    shift
    count=$((count + 1))
    "$@" >"$work/out" 2>&1 || fail "$name: $(head -n 60 "$work/out")"
}

short="--device cuda --batch-size 2 --no-eval --quiet"
mlp="--data $work/images --hidden 33,17 --steps 3 $short"
trains "alone" "$trainer" $mlp --acc-steps 2 --clip-grad-norm 0.1
trains "2 workers" "$ddprun" -n 2 $share trainer $mlp --acc-steps 2 --bucket-mb 0.001 --optimizer adamw
trains "2 workers, --fast" "$ddprun" -n 2 $share trainer $mlp --bucket-mb 0.001 --fast
replicas 2
trains "2 replicas" "$trainer" $dp $mlp --acc-steps 2
trains "cnn" "$trainer" --model cnn --data "$work/images" --steps 1 $short --dtype bf16
trains "gpt2" "$trainer" --model gpt2 --data "$work/text" --seq-len 8 --layers 1 --heads 2 --channels 8 --dropout 0.1 \
    --steps 2 $short
finish
