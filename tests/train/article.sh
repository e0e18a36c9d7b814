#!/bin/sh
# SPDX-License-Identifier: MIT
# The article's claim, to the printed digit: accumulation, DDP and DataParallel end in the same weights, those of
# PyTorch. First its own three commands, then every row of golden/article.txt in the modes.
. "${srcdir:-.}/tests/lib/cli.inc"

. "$here/tests/train/article.inc"

ends_in accumulation "$trainer" --model article --epochs 2 --batch_size 4 --data_size 8 --acc_steps 2 --verbose
ends_in DDP "$ddprun" --nproc 2 trainer --model article --epochs 2 --distributed --batch_size 4 --data_size 8 --verbose
ends_in DataParallel "$trainer" --model article --mode dp --replicas 2 --epochs 2 --batch_size 4 --data_size 8 --verbose

row=0
while read -r size batch seed epochs shards weights; do
    case $size in '#'*) continue ;; esac
    row=$((row + 1))
    set -- --model article --data-size "$size" --batch-size "$batch" --seed "$seed" --epochs "$epochs"
    label="size $size batch $batch seed $seed epochs $epochs shards $shards"
    matches "accum: $label" "$weights" "$trainer" "$@" --acc-steps "$shards"
    case $((row % 3)) in
    1) matches "dp: $label" "$weights" "$trainer" "$@" --mode dp --replicas "$shards" ;;
    2) matches "ddp: $label" "$weights" "$ddprun" -n "$shards" trainer "$@" ;;
    esac
done <"$here/tests/train/golden/article.txt"
[ "$row" -ge 100 ] || fail "only $row golden rows"
finish
