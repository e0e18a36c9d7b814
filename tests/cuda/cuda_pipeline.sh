#!/bin/sh
# SPDX-License-Identifier: MIT
# --mode pipeline on GPUs: the bits of accumulation there, with a worker a stage, replicas of the stages, and all stages in
# one process; with recomputation, short batches, and checkpoints from one into the other; evaluated by stages.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 4
make_data

# model NAME CUT OPTIONS...
model() {
    model=$1 cut=$2
    shift 2
    set -- --device cuda --batch-size 1 --global-batch 8 --steps 3 --seed 3 --no-eval --quiet "$@"
    first=
    rm -rf "$work/ck"
    same "$model: accumulation" "$trainer" "$@"
    same "$model: 2 stages" "$ddprun" -n 2 $share trainer "$@" --mode pipeline --checkpoint "$work/ck" --checkpoint-every 2
    same "$model: 4 workers, 2 stages, recomputed" "$ddprun" -n 4 $share trainer "$@" --stages 2 --recompute
    same "$model: one process, given cut" "$trainer" "$@" --cut $cut
    same "$model: accumulation, from 2 stages" "$trainer" "$@" --resume-from "$work/ck/step-00000002"
}
gpt2="--model gpt2 --data $work/text --seq-len 8 --layers 2 --heads 2 --channels 16"
model "mlp fp32, clipped" fc2 --data "$work/images" --hidden 33,17 --optimizer adamw --clip-grad-norm 0.1
model "gpt2 fp32" h.1 $gpt2 --vocab-size 258 --dropout 0.1
model "gpt2 bf16" h.0.mlp $gpt2 --vocab-size 1030 --dropout 0.1 --dtype bf16
model "gpt2 fp16" h.1 $gpt2 --dtype fp16,scale=1e9
model "resnet bf16" layer2 --model resnet --size 20 --data "$work/images" --batch-size 2 --dtype bf16 --lr 1e-3

first=
set -- --device cuda --hidden 24,12 --data "$work/images" --batch-size 5 --epochs 2 --seed 1 --no-eval --quiet
same "tail: accumulation" "$trainer" "$@" --acc-steps 4
same "tail: 3 stages" "$ddprun" -n 3 $share trainer "$@" --stages 3 --acc-steps 4

head -c 150 "$work/text" >"$work/short"
set -- --device cuda $gpt2 --val "$work/short" --steps 2 --global-batch 4 --batch-size 2 --seed 3
expect "evaluated: accumulation" 0 "test loss" "$trainer" "$@"
grep -o "test loss.*" "$work/out" >"$work/accum.loss"
expect "evaluated: 2 stages" 0 "test loss" "$ddprun" -n 2 $share trainer "$@" --mode pipeline
grep -o "test loss.*" "$work/out" | cmp -s - "$work/accum.loss" || fail "evaluated: another loss by 2 stages"

# A text by the model in training and the search for a loss that is not finite take a copy of all weights.
# alike NAME PATTERN CODE COMMAND...: the lines that match are those of the first one in the group
alike() {
    name=$1 pattern=$2 code=$3
    shift 3
    expect "$name" "$code" "$pattern" "$@"
    grep -oE "$pattern" "$work/out" >"$work/lines"
    [ -n "$told" ] || cp "$work/lines" "$work/told"
    told=$name
    cmp -s "$work/lines" "$work/told" || fail "$name: $(cat "$work/lines"), expected $(cat "$work/told")"
}
for dtype in fp32 bf16; do
    told=
    set -- --device cuda $gpt2 --steps 2 --global-batch 4 --batch-size 2 --sample-every 2,length=10 \
        --prompt line --no-eval --dtype $dtype
    for start in "$trainer" "$ddprun -n 2 $share trainer --mode pipeline" "$trainer --stages 2"; do
        alike "text $dtype: $start" '^line.*' 0 $start "$@"
    done
    told=
    set -- --device cuda --hidden 24,12 --data "$work/images" --batch-size 4 --global-batch 16 --lr 1e6 --schedule constant --no-eval \
        --steps 40 --dtype $dtype
    workers="$ddprun -n 2 $share trainer --mode pipeline"
    [ $dtype = fp32 ] || workers="$ddprun -n 4 $share trainer --stages 2"
    for start in "$trainer" "$workers" "$trainer --stages 2"; do
        alike "not finite $dtype: $start" 'the loss is .* shard [0-9]*' 10 $start "$@"
    done
done
finish
