#!/bin/sh
# SPDX-License-Identifier: MIT
# The article's claim on GPUs: accumulation, DDP and DataParallel end in the weights that the article prints, those of
# PyTorch; and rows of golden/article.txt in the modes.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/train/article.inc"
. "$here/tests/cuda/cuda.inc"
gpus 2

article="--device cuda --model article --epochs 2 --batch_size 4 --data_size 8 --verbose"
replicas 2
ends_in accumulation "$trainer" $article --acc_steps 2
ends_in DDP "$ddprun" --nproc 2 $share trainer $article --distributed
ends_in DataParallel "$trainer" $article $dp
ends_in "a CPU's DDP" "$ddprun" --nproc 2 trainer $article --distributed --device cpu

gpus 8
row=0
while read -r size batch seed epochs shards weights; do
    case $size in '#'*) continue ;; esac
    row=$((row + 1))
    [ $((row % 7)) -eq 0 ] || continue
    set -- --device cuda --model article --data-size "$size" --batch-size "$batch" --seed "$seed" --epochs "$epochs"
    label="size $size batch $batch seed $seed epochs $epochs shards $shards"
    matches "accum: $label" "$weights" "$trainer" "$@" --acc-steps "$shards"
    [ $((row % 2)) -eq 0 ] || continue
    replicas "$shards"
    matches "dp: $label" "$weights" "$trainer" "$@" $dp
    matches "ddp: $label" "$weights" "$ddprun" -n "$shards" $share trainer "$@"
done <"$here/tests/train/golden/article.txt"
finish
