#!/bin/sh
# SPDX-License-Identifier: MIT
# --objective on GPUs: losses and metrics are TRL's, and the same bits in every mode, from a checkpoint on too.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "there is no $python"
gpus 2
replicas 2
tests=$here/tests/train
"$python" "$tests/preferences.py" make "$work/made" || exit 99
expect 'a base' 0 '' "$top/hf_llama_tool" fill "$work/made" "$work/model" f32 100000

# objective NAME OPTION...: as the golden values have it
objective() {
    name=$1
    shift
    set -- --device cuda --model llama --load "$work/model" --seq-len 64 --steps 5 --schedule constant --optimizer adamw,beta2=0.999 \
        --weight-decay 0 --clip-grad-norm 0 --packing pad --no-eval --quiet --data "$work/made/pairs.jsonl" --lr 1e-3 "$@"
    expect "$name" 0 '' "$trainer" "$@" --batch-size 8 --log "$work/log"
    "$python" "$tests/preferences.py" check "$tests/golden/preferences.txt" "$name" "$work/log" 1e-4 || fail "$name: other values than TRL's"
    rm -r "$work/log"
    set -- "$@" --batch-size 2 --global-batch 8 --steps 2
    first=
    same "$name: 1 worker" "$trainer" "$@"
    same "$name: 2 workers" "$ddprun" -n 2 $share trainer "$@" --zero 1 --recompute
    [ "$name" = dpo ] || return
    same "$name: not recorded" env DDP_CUDA_GRAPHS=0 "$trainer" "$@"
    same "$name: dp" "$trainer" "$@" $dp
}
objective dpo --objective dpo
objective ipo --objective ipo
objective orpo --objective orpo
objective simpo --objective simpo,beta=2,gamma=0.5
objective kto --objective kto --data "$work/made/rated.jsonl"

# Several pairs in a row, an evaluation, LoRA, and the reference of the first step once resumed.
for dtype in bf16 fp16,scale=1024; do
    first=
    set -- --device cuda --model llama --load "$work/model" --seq-len 64 --batch-size 1 --global-batch 4 --lr 1e-3 --dtype $dtype \
        --objective dpo --data "$work/made/pairs.jsonl" --val "$work/made/pairs.jsonl" --quiet --steps 3
    same "dpo $dtype: 1 worker" "$trainer" "$@" --no-eval --checkpoint "$work/steps" --checkpoint-every 2
    rm -r "$work/steps/step-00000003"
    same "dpo $dtype: 2 workers, evaluated and resumed" "$ddprun" -n 2 $share trainer "$@" --checkpoint "$work/steps" --resume --eval-every 2
    same "dpo $dtype: a pipeline" "$ddprun" -n 2 $share trainer "$@" --no-eval --mode pipeline --stages 2
    rm -r "$work/steps"
done
set -- "$@" --no-eval --lora r=4,targets=all-linear
first=
same "dpo, LoRA: 1 worker" "$trainer" "$@"
same "dpo, LoRA: 2 workers" "$ddprun" -n 2 $share trainer "$@"
finish
