#!/bin/sh
# SPDX-License-Identifier: MIT
# --recompute: less memory for every model and dtype, and the same bits, for which check_same_bits has all models and modes;
# checkpoints of one are resumed by the other; a value that is not finite is found where it is made.
. "${srcdir:-.}/tests/lib/cli.inc"
small_fashion

make_text 400

# activations COMMAND...: bytes a worker, as the plan says
activations() { "$@" --plan 2>&1 | sed -n 's/.* activations \([0-9.]*\) \([kMG]*B\) .*/\1 \2/p' | head -n 1 | numeric; }
numeric() { sed 's/ B$//; s/ kB$/e3/; s/ MB$/e6/; s/ GB$/e9/'; }

# model NAME SHARE OPTIONS...: activations shrink to at most this share
model() {
    model=$1 share=$2
    shift 2
    set -- "$@" --batch-size 2 --global-batch 8 --seed 3 --no-eval --steps 3
    less=$(activations "$trainer" "$@" --recompute) all=$(activations "$trainer" "$@")
    count=$((count + 1))
    awk -v less="$less" -v all="$all" -v share="$share" 'BEGIN { exit !(less > 0 && less <= share * all) }' ||
        fail "$model: $less bytes of activations instead of $all"
}

gpt2="--model gpt2 --data $work/text --seq-len 24 --layers 4 --heads 3 --channels 48"
for dtype in fp32 bf16; do
    model "mlp $dtype" 0.9 --model mlp --hidden 300,300,300,300,300,300 --data "$work/small" --dtype $dtype
    model "cnn $dtype" 0.9 --model cnn --data "$work/small" --dtype $dtype
    model "resnet $dtype" 0.6 --model resnet --data "$work/small" --dataset idx --dtype $dtype
    model "gpt2 $dtype" 0.6 $gpt2 --dropout 0.1 --dtype $dtype
done

# Batch norm over all workers is added up once.
first=
set -- --model resnet --data "$work/small" --dataset idx --batch-size 2 --steps 3 --seed 3 --no-eval --quiet --sync-batch-norm
same "batch norm of 2 workers" "$ddprun" -n 2 trainer "$@"
same "batch norm of 2 workers, recomputed" "$ddprun" -n 2 trainer "$@" --recompute

# From one into the other.
first=
set -- $gpt2 --batch-size 2 --seed 3 --no-eval --quiet
same "whole" "$trainer" "$@" --steps 4
"$trainer" "$@" --steps 4 --checkpoint "$work/ck" --checkpoint-every 2 --recompute >"$work/out" 2>&1 || fail "checkpoint: $(cat "$work/out")"
rm -r "$work/ck/step-00000004"
same "resumed without" "$trainer" "$@" --steps 4 --checkpoint "$work/ck" --resume

# The trace tells what is computed again; the plan says so.
count=$((count + 2))
"$trainer" $gpt2 --steps 2 --no-eval --recompute --trace "$work/trace" >"$work/out" 2>&1 || fail "trace: exit code $?"
grep -q '"recomputed"' "$work/trace" || fail "the trace does not tell what is computed again"
grep -q '^workers .*blocks recomputed' "$work/out" || fail "the plan does not say it: $(head -n 5 "$work/out")"

# Where the loss becomes infinite, the tensor is named as without it.
set -- --model mlp --hidden 300,300,300 --data "$work/small" --lr 1e6 --clip-grad-norm 0 --schedule constant --steps 50 --no-eval --nan stop
for option in "" --recompute; do
    "$trainer" "$@" $option >"$work/nan$option" 2>&1
done
count=$((count + 1))
grep -q 'error: the loss is .* first in' "$work/nan" || fail "nothing diverged: $(tail -n 3 "$work/nan")"
[ "$(grep error: "$work/nan")" = "$(grep error: "$work/nan--recompute")" ] ||
    fail "divergence: $(grep error: "$work/nan" "$work/nan--recompute")"

expect "no blocks" 2 "--recompute: the model article has no blocks" "$trainer" --model article --recompute --steps 1 --no-eval
finish
