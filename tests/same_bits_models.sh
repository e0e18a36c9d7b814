#!/bin/sh
# SPDX-License-Identifier: MIT
# Same parameters and statistics, bit for bit, for every model, in fp32 and bf16, with dropout and clipping: any split
# of the same eight shards over workers, accumulation steps or replicas.
. "${srcdir:-.}/tests/cli.inc"
small_fashion

make_text 400

# model NAME OPTIONS...
model() {
    model=$1
    shift
    set -- "$@" --batch-size 2 --global-batch 16 --steps 3 --seed 3 --no-eval --quiet
    first=
    same "$model: 1 worker x 8" "$trainer" "$@" --threads 1
    same "$model: 1 worker x 8, 2 threads" "$trainer" "$@" --threads 2
    same "$model: 2 workers x 4" "$ddprun" -n 2 trainer "$@" --bucket-mb 0.05
    same "$model: 8 workers x 1" "$ddprun" -n 8 trainer "$@" --threads 1
    same "$model: 2 workers x 4, replicas" "$ddprun" -n 2 trainer "$@" --zero 0
    same "$model: dp, 4 replicas x 2" "$trainer" --mode dp --replicas 4 "$@"
}

gpt2="--model gpt2 --data $work/text --seq-len 24 --layers 2 --heads 3 --channels 48"
llama="--model llama --size d2 --data $work/text --seq-len 24"
for dtype in fp32 bf16; do
    model "cnn $dtype" --model cnn --data "$work/small" --dtype $dtype
    model "resnet $dtype" --model resnet --data "$work/small" --dataset idx --dtype $dtype
    model "gpt2 $dtype" $gpt2 --dropout 0.1 --dtype $dtype
    model "llama $dtype" $llama --dtype $dtype
    model "llama with adapters $dtype" $llama --lora r=4,targets=all-linear,dropout=0.1 --dtype $dtype
done

# Another seed drops other elements; none at all is another result again.
first=
set -- $gpt2 --batch-size 2 --steps 2 --no-eval --quiet
same "no dropout" "$trainer" "$@"
"$trainer" "$@" --dropout 0.1 --save "$work/f" >"$work/out" 2>&1 || fail "dropout: exit code $?"
cmp -s "$work/first" "$work/f" && fail "dropout: does nothing"
finish
