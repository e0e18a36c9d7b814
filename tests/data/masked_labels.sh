#!/bin/sh
# SPDX-License-Identifier: MIT
# Labels that do not count (tests/data/own_data_tool.c): the loss is the sum over those that do, divided by how many they are in the
# whole global batch, in every mode and split, of a loss on logits and of one with its head in it; so are evaluations. Steps
# without any are skipped, and data without any are refused.
. "${srcdir:-.}/tests/lib/cli.inc"
tool=$top/own_data_tool
cd "$work" || exit 99
common="--epochs 2 --global-batch 16 --lanes 8 --lr 0.02 --optimizer adamw --clip-grad-norm 0.5 --seed 5 --threads 1 --val-split 28"

# trained FILE COMMAND...: weights in FILE, losses of the steps in FILE.losses, evaluations in FILE.test
trained() {
    file=$1
    shift
    rm -f log
    expect "$*" 0 "saved $file" "$@" $common --save "$file" --log log
    sed -n 's/.*"event":"step".*"loss":\([0-9.e-]*\).*"gradient_norm":\([0-9.e-]*\).*/\1 \2/p' log >"$file.losses"
    grep '^test' out >"$file.test"
    [ "$(wc -l <"$file.losses")" -eq 34 ] || fail "$*: $(wc -l <"$file.losses") losses"
    [ -s "$file.test" ] || fail "$*: nothing was evaluated"
}

# same COMMAND...: what is in one, one.losses and one.test
same() {
    trained other "$@"
    cmp one other || fail "$*: other weights"
    cmp one.losses other.losses || fail "$*: other losses"
    cmp one.test other.test || fail "$*: other evaluations"
}

# near_losses FILE BOUND: its losses and norms are those of one
near_losses() {
    tr ' ' '\n' <one.losses >numbers.a
    tr ' ' '\n' <"$1" >numbers.b
    near "$(wc -l <numbers.a)" "$2" numbers.a numbers.b || fail "$1: other losses"
}

for kind in "masked --model gpt2 --layers 2 --heads 2 --channels 8" masked-head; do
    trained one "$tool" $kind --batch-size 2
    same "$ddprun" -n 2 "$tool" $kind --batch-size 2
    same "$ddprun" -n 4 "$tool" $kind --batch-size 2
    same "$ddprun" -n 4 "$tool" $kind --batch-size 2 --zero 0
    same "$tool" $kind --batch-size 2 --mode dp --replicas 2
    same "$tool" $kind --batch-size 2 --mode dp --replicas 4
    same "$tool" $kind --batch-size 2 --mode pipeline --stages 2
    same "$ddprun" -n 2 "$tool" $kind --batch-size 2 --mode pipeline
    # Another split of the same samples, whose products have other shapes.
    for rows in 16 8 1; do
        trained other "$tool" $kind --batch-size $rows
        near_losses other.losses 2e-4
        weights_near one other 2e-3 || fail "$kind, $rows samples a shard: other weights"
    done
    # Each worker divides by its own labels, and the loss that is reported is that of all.
    trained other "$ddprun" -n 2 "$tool" $kind --batch-size 2 --sync-every 4
    head -n 1 one.losses | cut -d ' ' -f 1 >numbers.a
    head -n 1 other.losses | cut -d ' ' -f 1 >numbers.b
    near 1 1e-6 numbers.a numbers.b || fail "$kind: local steps begin with the loss $(cat numbers.b), not $(cat numbers.a)"
    # Evaluation: whatever is in a batch.
    expect "eval" 0 '^test accuracy' "$tool" $kind --eval-only --val-split 28 --load one --batch-size 28
    grep '^test' out >whole
    for rows in 1 2 5; do
        expect "eval, $rows" 0 '^test accuracy' "$tool" $kind --eval-only --val-split 28 --load one --batch-size $rows
        grep '^test' out | cmp - whole || fail "$kind, batches of $rows: other evaluations: $(cat out)"
        expect "eval, $rows" 0 '' "$ddprun" -n 3 "$tool" $kind --eval-only --val-split 28 --load one --batch-size $rows
        grep '^test' out | cmp - whole || fail "$kind, batches of $rows, 3 workers: other evaluations"
    done
    # Weights of zeros: the loss of a label that counts is the logarithm of 20 classes, and the class 0 is predicted.
    begin=$((8 + $(od -An -tu4 -N 4 one)))
    { head -c "$begin" one && head -c $(($(wc -c <one) - begin)) /dev/zero; } >zeros
    expect "zeros" 0 '^test .*perplexity 20$' "$tool" $kind --eval-only --val-split 28 --load zeros --batch-size 5
    expect "zeros" 0 '' "$tool" $kind --load zeros --steps 1 --lr 0 --batch-size 2 --global-batch 16 --no-eval --log zeros.log
    grep -q '"loss":2.99573[0-9]*,' zeros.log || fail "$kind: weights of zeros have another loss: $(cat zeros.log)"
done

# --- nothing counts ---
rm -f log
few="--model gpt2 --layers 1 --heads 2 --channels 8 --batch-size 4 --global-batch 8 --no-eval --seed 5 --threads 1"
expect "some steps" 0 'warning: step [0-9]+ is skipped: none of the labels of its global batch counts' "$tool" mostly-masked $few --epochs 2 --save one --log log
grep -qE 'warning: [0-9]+ of 76 updates were skipped: none of their labels counts' out || fail "no count of skipped steps: $(cat out)"
[ "$(grep -c 'is skipped' out)" -eq 1 ] || fail "said more than once"
grep -q '^epoch 1/2: loss [0-9]' out || fail "skipped steps are in the mean of an epoch: $(grep '^epoch' out)"
grep -q '"counted":0,' log && grep -q '"counted":[1-9]' log || fail "the log does not say how many labels count"
expect "some steps, 2 workers" 0 'is skipped' "$ddprun" -n 2 "$tool" mostly-masked $few --epochs 2 --save other
cmp one other || fail "2 workers: other weights"
said='error: no label counts in any step up to step'
for start in "$tool" "$ddprun -n 2 $tool"; do
    # shellcheck disable=SC2086 # words
    expect "no label, $start" 2 "$said 10: all of them are masked" $start all-masked --batch-size 4 --global-batch 8 --no-eval
    [ "$(grep -c "$said" out)" -eq 1 ] || fail "$start: not said once"
done
expect "one step" 2 "$said 1: " "$tool" all-masked --batch-size 4 --steps 1 --no-eval
finish
