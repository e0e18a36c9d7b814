#!/bin/sh
# SPDX-License-Identifier: MIT
# --dtype fp16 beside torch.amp.GradScaler: 200 losses within 1e-4 of golden/fp16.txt, and the same scale after each step. A
# run that is resumed goes on with its scale; what is not finite for another reason is still found.
# DDP_GOLDEN_DIR: goldens elsewhere than in tests.
. "${srcdir:-.}/tests/lib/cli.inc"
golden=${DDP_GOLDEN_DIR:-$here/tests}/train/golden
text=/usr/share/common-licenses/GPL-3

# field NAME: of each step in the log
field() {
    sed -n '/"event":"step"/s/.*"'"$1"'":\([-+.e0-9]*\).*/\1/p' "$work/log"
}

while read -r model optimizer rate shards batch seed scale every values; do
    case $model in '#'*) continue ;; esac
    set -- --model "$model" --optimizer "$optimizer" --lr "$rate" --schedule constant --batch-size "$batch" --seed "$seed" \
        --acc-steps "$shards" --dtype "fp16,scale=$scale,every=$every" --clip-grad-norm 0
    case $optimizer in
    sgd) set -- "$@" --weight-decay 0 ;;
    adamw) set -- "$@" --optimizer adamw,beta2=0.999 --weight-decay 0.01,on=all ;;
    esac
    case $model in
    mlp)
        [ -r "$fashion/train-images-idx3-ubyte.gz" ] || {
            not_run "mlp $optimizer: no Fashion-MNIST"
            continue
        }
        set -- "$@" --hidden 64,32
        ;;
    gpt2)
        [ -z "${DDP_GOLDEN_DIR-}" ] && ! echo "1ebbd3e34237af26da5dc08a4e440464  $text" | md5sum -c - >/dev/null 2>&1 && {
            not_run "gpt2 $optimizer: $text is another one here"
            continue
        }
        set -- "$@" --data "$text" --tokens bytes --seq-len 32 --layers 2 --heads 2 --channels 32
        ;;
    esac
    count=$((count + 1))
    rm -f "$work/log"
    "$trainer" --device cpu "$@" --steps 200 --no-eval --quiet --log "$work/log" >"$work/out" 2>&1 ||
        fail "$model $optimizer: exit code $?: $(tail -n 3 "$work/out")"
    echo "${values% | *}" | tr ' ' '\n' >"$work/losses"
    echo "${values#* | }" | tr ' ' '\n' >"$work/scales"
    field loss >"$work/losses.got"
    field loss_scale >"$work/scales.got"
    near 200 1e-4 "$work/losses" "$work/losses.got" relative >"$work/near" || fail "$model $optimizer: losses"
    near 200 0 "$work/scales" "$work/scales.got" >"$work/near.scales" || fail "$model $optimizer: scales"
    echo "$model $optimizer: $(cat "$work/near"), $(uniq "$work/scales.got" | wc -l) scales"
done <"$golden/fp16.txt"

# A run that is resumed, and one that is computed again, goes on with the scale.
cd "$work" || exit 99
rm -f log
awk 'BEGIN { srand(1); print "a,b,y"; for (i = 0; i < 200; i++) { a = rand() - 0.5; b = rand() - 0.5
    print a "," b "," (a * b > 0 ? "on" : "off") } }' >table.csv
run="--data table.csv --target y --hidden 9,8 --batch-size 4 --global-batch 8 --steps 20 --no-eval --quiet --seed 2 --device cpu"
dtype="--dtype fp16,scale=8388608,every=4"
# shellcheck disable=SC2086 # options
expect 'a run' 0 '' "$trainer" $run $dtype --checkpoint steps --checkpoint-every 1 --keep 0 --save whole --log log --hash-every 1
field loss_scale | uniq -c | awk '$1 > 1 { kept++ } { scales++ } END { exit kept < 2 || scales < 6 }' ||
    fail "a run: its scale hardly changes"
for step in 3 9 14; do
    at=steps/step-$(printf %08d $step)
    [ "$(field loss_scale | sed -n ${step}p)" = "$(sed -n 's/.*"scale": \([0-9.]*\),/\1/p' "$at/state.json")" ] ||
        fail "step $step: the checkpoint has another scale than the log"
    # shellcheck disable=SC2086 # options
    expect "resumed after step $step" 0 '' "$ddprun" -n 2 trainer $run $dtype --resume-from "$at" \
        --save "resumed$step"
    cmp -s whole "resumed$step" || fail "resumed after step $step: other weights"
done
# shellcheck disable=SC2086 # options
expect 'another scale' 2 'fp16 scale 8388608, twice every 4 steps \(now scale 8388608, twice every 5 steps\)' \
    "$trainer" $run --dtype fp16,scale=8388608,every=5 --resume-from steps/step-00000003
# shellcheck disable=SC2086 # options
expect 'another type' 2 'fp16 .*\(now unknown\)' "$trainer" $run --resume-from steps/step-00000003
expect 'computed again' 0 'equal after step 20, computed again from steps/step-000000[12][0-9]; ' "$trainer" verify log
expect 'its first steps' 0 'equal after step 6' "$trainer" verify log --step 6

# What no scale helps with stops the run, with any.
# shellcheck disable=SC2086 # options
expect 'a loss that is not finite' 10 'error: the loss is (nan|inf) at step [0-9]*: first in' \
    "$trainer" $run $dtype --lr 1e6 --schedule constant --clip-grad-norm 0
# shellcheck disable=SC2086 # options
expect 'skipped' 0 '[0-9]+ of 20 updates were skipped' "$trainer" $run $dtype --lr 1e6 --schedule constant --nan skip --clip-grad-norm 0

# --- what is refused ---
# shellcheck disable=SC2086 # options
expect 'parts of another type' 2 'error: --dtype: scale= and every= belong to fp16' "$trainer" $run --dtype bf16,scale=2
# shellcheck disable=SC2086 # options
expect 'local steps in bf16' 2 'error: --sync-every 2: workers send weights, not gradients' "$ddprun" -n 2 trainer $run --dtype fp32,wire=bf16 --sync-every 2
expect 'a wire of another type' 2 'error: --dtype .*wire' "$trainer" $run --dtype fp32,wire=fp16
expect 'local steps' 2 'error: --sync-every 2 and --dtype fp16, .*: use --dtype bf16' "$ddprun" -n 2 trainer $run --dtype fp16 --sync-every 2
finish
