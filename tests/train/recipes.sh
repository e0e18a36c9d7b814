#!/bin/sh
# SPDX-License-Identifier: MIT
# The moving average of the weights is what it says; --load FILE,frozen changes the head alone,
# with the same bits however the work is shared out, and what it writes can be used without the first file.
. "${srcdir:-.}/tests/lib/cli.inc"
cd "$work" || exit 99


# The weights after each step, two numbers a line.
weights() {
    sed -n 's/^Model weights: \[\([^,]*\), \([^,]*\),.*/\1 \2/p' "$work/out" | head -n "$1"
}
linear="--model article --data-size 24 --batch-size 4 --steps 6 --lr 0.05 --verbose --no-eval"
expect "weights" 0 '^Model weights' "$trainer" $linear --optimizer sgd
weights 6 >plain
expect "their average" 0 'weights averaged with decay 0.5' "$trainer" $linear --optimizer sgd,ema=0.5
weights 6 >average
paste -d ' ' plain average | awk '
    NR == 1 { a = $1; b = $2 }
    NR > 1 { a = (a + $1) / 2; b = (b + $2) / 2 }
    ($3 - a) ^ 2 > 1e-7 || ($4 - b) ^ 2 > 1e-7 { print "step " NR ": " $0; bad = 1 }
    $1 == $3 { same++ }
    END { exit bad || NR != 6 || same > 2 }' || fail "average: $(paste plain average)"

"$top/image_tool" pictures 3 8 16 3 1 || exit 99
set -- --data pictures --image-size 16 --val-split 6 --model resnet --size 20 --batch-size 4 --lr 0.01 --quiet --seed 2
expect "a first training" 0 '' "$trainer" "$@" --steps 2 --save base.w
expect "the head" 0 '' "$trainer" "$@" --steps 4 --load base.w,frozen --acc-steps 2 --optimizer adamw,ema=0.8 --save head.w
expect "all" 0 '' "$trainer" "$@" --steps 4 --load base.w --acc-steps 2 --optimizer adamw --save all.w
# 272084 weights, of which the head has 195; and 1376 running statistics.
changed=$(cmp -l base.w head.w | wc -l)
[ "$changed" -gt 500 ] && [ "$changed" -le $(((195 + 1376) * 4)) ] || fail "frozen: $changed bytes are others"
[ "$(cmp -l base.w all.w | wc -l)" -gt 500000 ] || fail "not frozen: $(cmp -l base.w all.w | wc -l) bytes are others"
set -- "$@" --steps 4 --load base.w,frozen --optimizer adamw,ema=0.8
expect "the head, 2 workers" 0 '' "$ddprun" -n 2 trainer "$@" --zero 2 --bucket-mb 0.1 --save two.w
expect "the head, stages" 0 '' "$trainer" "$@" --stages 2 --acc-steps 2 --save stages.w
expect "half of it" 0 '' "$trainer" "$@" --acc-steps 2 --checkpoint run --checkpoint-every 2 --keep 0
rm -rf run/step-00000004
expect "the rest" 0 '' "$ddprun" -n 2 trainer "$@" --checkpoint run --resume --save resumed.w
# What is frozen does not travel: of 1.1 MB a step the two add up 16 KiB.
expect "the head, whole gradients" 0 '' "$ddprun" -n 2 trainer "$@" --zero 0 --save whole.w --trace trace.json
awk -F '"bytes":' '/"reduce slice"/ { sum += $2 } END { print sum; exit !(sum > 0 && sum < 100000) }' trace.json >added ||
    fail "the head, whole gradients: workers add up $(cat added) bytes in 4 steps"
expect "its plan" 0 "^exchange 7\\.[0-9]* kB a step" "$ddprun" -n 2 trainer --data pictures --image-size 16 --val-split 6 --batch-size 4 \
    --load base.w,frozen --zero 0 --plan
for file in two whole stages resumed; do
    cmp head.w $file.w || fail "$file: other weights"
done
cmp head.w run/step-00000004/model.safetensors || fail "a checkpoint has other weights than the average"
expect "another decay" 2 'error: .*average of weights' "$trainer" "$@" --acc-steps 2 --optimizer adamw,ema=0.7 --checkpoint run --resume
expect "another model" 0 '' "$trainer" --data pictures --image-size 16 --val-split 6 --model mlp --hidden 8 --steps 1 --quiet --save mlp.w
expect "another model, frozen" 2 'error: --load mlp.w,frozen: this is for --model resnet, and the model is mlp$' "$trainer" --data pictures \
    --image-size 16 --val-split 6 --load mlp.w,frozen
expect "predictions" 0 '^predictions of' "$trainer" --load head.w --data pictures --predict out.csv
finish
