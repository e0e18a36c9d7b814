#!/bin/sh
# SPDX-License-Identifier: MIT
# The examples do what their first lines say, as built here against libddp alone.
. "${srcdir:-.}/tests/lib/cli.inc"

weights='Model weights: \[0\.9472, 0\.9440, 0\.9527, 0\.9687, 0\.9570, 0\.9343, 0\.9411, 0\.9186\]'
expect "train, alone" 0 "$weights" "$top/examples/train"
expect "train, 2 workers" 0 "$weights" "$ddprun" -n 2 "$top/examples/train"
expect "overlap, alone" 0 '1 ranks, last bucket: 7$' "$top/examples/overlap"
expect "overlap, 4 workers" 0 '4 ranks, last bucket: 34$' "$ddprun" -n 4 "$top/examples/overlap"
# Data of one's own, from a table.
awk 'BEGIN { srand(3); print "a,b,c,y"
    for (i = 0; i < 500; i++) { a = 2 * rand() - 1; b = 2 * rand() - 1; c = 2 * rand() - 1
        printf "%.5f,%.5f,%.5f,%.5f\n", a, b, c, 2 * a - b * b + c / 2 } }' >"$work/table.csv"
set -- "$work/table.csv" --epochs 12 --batch-size 16 --global-batch 32 --val-split 0.1 --lr 0.05
expect "own data, alone" 0 'test loss 0\.0[0-9]*$' "$top/examples/own_data" "$@" --save "$work/alone"
expect "own data, 2 workers" 0 'test loss 0\.0[0-9]*$' "$ddprun" -n 2 "$top/examples/own_data" "$@" --save "$work/two"
expect "own data, dp" 0 'test loss 0\.0[0-9]*$' "$top/examples/own_data" "$@" --mode dp --save "$work/dp"
cmp "$work/alone" "$work/two" && cmp "$work/alone" "$work/dp" || fail "own data: other weights in other modes"
expect "own data, predicts" 0 'predictions of 50 ' "$top/examples/own_data" "$work/table.csv" --val-split 0.1 --load "$work/dp" \
    --predict "$work/p.csv"
awk -F , 'NR > 1 { d += ($2 - $3) ^ 2 } END { exit NR != 51 || d / 50 > 0.1 }' "$work/p.csv" || fail "own data: bad predictions"
# Stopped between two steps, by a signal that comes once there is a checkpoint.
set -- "$work/table.csv" --epochs 2000 --batch-size 16 --global-batch 32 --lr 0.02 --no-eval
expect "own data, to the end" 0 'saved' "$top/examples/own_data" "$@" --save "$work/whole"
"$top/examples/own_data" "$@" --checkpoint "$work/steps" --checkpoint-every 50 >"$work/out" 2>&1 &
example=$!
until_true sh -c 'ls "$0"/step-* >/dev/null 2>&1' "$work/steps" || fail "own data: no checkpoint"
kill -TERM $example
wait $example
[ $? = 75 ] || fail "own data: not stopped"
expect "own data, resumed" 0 'resumed' "$top/examples/own_data" "$@" --checkpoint "$work/steps" --checkpoint-every 100000 \
    --resume --save "$work/resumed"
cmp "$work/whole" "$work/resumed" || fail "own data: other weights after a stop"
printf '1,2,3\n4,x,6\n' >"$work/bad.csv"
expect "own data, not numbers" 3 'bad.csv: bad row 2' "$top/examples/own_data" "$work/bad.csv"
need_fashion
set -- --steps 3 --batch-size 8 --global-batch 16 --no-eval
expect "own model, no data" 2 'error: the program.s model own has no data: .*ddp_train_set_data.*--data' "$top/examples/own_model" "$@"
expect "own model, a plan" 0 "model    own, " "$top/examples/own_model" --plan --shape 1,28,28
expect "own model, help" 2 'error: --help: unknown option; see trainer --help all$' "$top/examples/own_model" --help
set -- "$@" --data "$fashion"
expect "own model, alone" 0 "model    own, " "$top/examples/own_model" "$@" --save "$work/alone"
expect "own model, 2 workers" 0 "model    own, " "$ddprun" -n 2 "$top/examples/own_model" "$@" --save "$work/two"
expect "own model, dp" 0 "model    own, " "$top/examples/own_model" "$@" --mode dp --save "$work/dp"
cmp "$work/alone" "$work/two" && cmp "$work/alone" "$work/dp" || fail "own model: other weights in other modes"
expect "own operation, alone" 0 "model    swish, " "$top/examples/own_op" "$@" --save "$work/alone"
expect "own operation, 2 workers" 0 "model    swish, " "$ddprun" -n 2 "$top/examples/own_op" "$@" --save "$work/two"
expect "own operation, dp" 0 "model    swish, " "$top/examples/own_op" "$@" --mode dp --save "$work/dp"
cmp "$work/alone" "$work/two" && cmp "$work/alone" "$work/dp" || fail "own operation: other weights in other modes"
# A loop of one's own decides by what it is told: the same in all modes.
set -- --steps 40 --batch-size 32 --global-batch 64 --hidden 16 --lr 0.3 --eval-every 5
expect "own loop, alone" 0 'after 40 steps: loss .* test loss' "$top/examples/own_loop" "$@" --save "$work/alone"
sort "$work/out" >"$work/lines"
[ "$(grep -cE '^fc2\.bias\[[0-9]\] = -?[0-9.]+$' "$work/out")" = 10 ] || fail "own loop: no weights are printed"
expect "own loop, 2 workers" 0 'after 40 steps' "$ddprun" -n 2 "$top/examples/own_loop" "$@" --save "$work/two"
sort "$work/out" | cmp - "$work/lines" || fail "own loop: 2 workers show other lines"
expect "own loop, dp" 0 'after 40 steps' "$top/examples/own_loop" "$@" --mode dp --save "$work/dp"
cmp "$work/alone" "$work/two" && cmp "$work/alone" "$work/dp" || fail "own loop: other weights in other modes"
# Interrupted where the rate was halved already, on other workers: the same end.
expect "own loop, whole" 0 'after 40 steps' "$top/examples/own_loop" "$@" --lr 1 --save "$work/whole"
grep '^after 40' "$work/out" >"$work/last"
expect "own loop, checkpoints" 0 'after 40 steps' "$ddprun" -n 2 "$top/examples/own_loop" "$@" --lr 1 --checkpoint "$work/own" --checkpoint-every 7 --keep 0
rm -rf "$work"/own/step-0000002[89] "$work"/own/step-0000003* "$work"/own/step-0000004*
grep -q '"rate"' "$work/own/step-00000021/state.json" || fail "own loop: the rate was not halved before step 21"
for mode in accum dp; do
    cp -r "$work/own" "$work/own.$mode"
    expect "own loop, resumed, $mode" 0 'after 40 steps' "$top/examples/own_loop" "$@" --lr 1 --mode $mode --checkpoint "$work/own.$mode" \
        --resume --save "$work/resumed"
    cmp "$work/whole" "$work/resumed" || fail "own loop: other weights after an interruption, $mode"
    grep '^after 40' "$work/out" | cmp - "$work/last" || fail "own loop: another metric after an interruption, $mode"
done
expect "own loop, ends early" 0 'after' "$top/examples/own_loop" "$@" --lr 0
[ "$(grep -c '^after' "$work/out")" = 4 ] || fail "own loop: not ended after 3 evaluations that were not better"
expect "own loop, stopped" 2 'error: --plan does not train: it needs ddp_train_run' "$top/examples/own_loop" "$@" --plan
finish
