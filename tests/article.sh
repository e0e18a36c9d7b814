#!/bin/sh
# SPDX-License-Identifier: MIT
# The article's claim, to the printed digit: accumulation, DDP and DataParallel end in the same weights, those of
# PyTorch. First its own three commands, then every row of golden/article.txt in the modes.
. "${srcdir:-.}/tests/cli.inc"

want='^Model weights: \[0\.9472, 0\.9440, 0\.9527, 0\.9687, 0\.9570, 0\.9343, 0\.9411, 0\.9186\]$'

ends_in() {
    name=$1
    shift
    count=$((count + 1))
    "$@" >"$work/out" 2>"$work/err" || fail "$name: exit code $?"
    tail -n 1 "$work/out" | grep -qE "$want" || { fail "$name"; tail -n 3 "$work/out" "$work/err"; }
}
ends_in accumulation "$trainer" --model article --epochs 2 --batch_size 4 --data_size 8 --acc_steps 2 --verbose
ends_in DDP "$ddprun" --nproc 2 trainer --model article --epochs 2 --distributed --batch_size 4 --data_size 8 --verbose
ends_in DataParallel "$trainer" --model article --mode dp --replicas 2 --epochs 2 --batch_size 4 --data_size 8 --verbose

# matches NAME "WEIGHTS" COMMAND...: four printed decimals against PyTorch's six
matches() {
    name=$1 weights=$2
    shift 2
    count=$((count + 1))
    "$@" >"$work/out" 2>"$work/err" || fail "$name: exit code $?"
    tail -n 1 "$work/out" | sed 's/^Model weights: \[//; s/\]$//; s/, / /g' >"$work/got"
    echo "$weights" | cat - "$work/got" | awk '
        NR == 1 { n = split($0, want) }
        NR == 2 { bad = split($0, got) != n
                  for (i = 1; i <= n; i++) { d = want[i] - got[i]; if (d > 6e-5 || d < -6e-5) bad = 1 } }
        END { exit bad || NR != 2 }' || fail "$name: want $weights, got $(cat "$work/got")"
}
row=0
while read -r size batch seed epochs shards weights; do
    case $size in '#'*) continue ;; esac
    row=$((row + 1))
    set -- --model article --data-size "$size" --batch-size "$batch" --seed "$seed" --epochs "$epochs"
    label="size $size batch $batch seed $seed epochs $epochs shards $shards"
    matches "accum: $label" "$weights" "$trainer" "$@" --acc-steps "$shards"
    matches "dp: $label" "$weights" "$trainer" "$@" --mode dp --replicas "$shards"
    [ $((row % 3)) -eq 0 ] || continue
    matches "ddp: $label" "$weights" "$ddprun" -n "$shards" trainer "$@"
done <"$here/tests/golden/article.txt"
[ "$row" -ge 100 ] || fail "only $row golden rows"
finish
