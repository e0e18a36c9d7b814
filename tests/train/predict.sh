#!/bin/sh
# SPDX-License-Identifier: MIT
# --eval-only, --predict and the confusion matrix: the same figures and bytes in all modes, for any number of workers and as
# training shows them; and, where there is PyTorch, its classes and probabilities.
. "${srcdir:-.}/tests/lib/cli.inc"

# npy NAME SHAPE: the bytes of standard input, in an array
npy() {
    { printf '\223NUMPY\001\000v\000'; printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': ($2), }"; cat; } >"$work/$1"
}
seq 5000 30000 | tr -d '\n' | head -c 43200 | npy x.npy 1200,1,6,6
seq 1 3000 | tr -d '\n' | head -c 1200 | tr 0-9 '\000-\011' | npy y.npy 1200,
seq 70000 90000 | tr -d '\n' | head -c 25236 | npy tx.npy 701,1,6,6
seq 3000 6000 | tr -d '\n' | head -c 701 | tr 0-9 '\000-\011' | npy ty.npy 701,
train="--data $work/x.npy,$work/y.npy"
data="$train --val $work/tx.npy,$work/ty.npy --hidden 16"
t="$trainer --threads 1"

# --- the same figures as in training, and in all modes
expect "training" 0 '^test accuracy' $t $data --epochs 2 --verbose --save "$work/w" --checkpoint "$work/run" --log "$work/log"
figures() { sed -n '/^test accuracy/,/^9 /p' "$work/out" | tail -n 13; }
figures >"$work/figures"
[ "$(wc -l <"$work/figures")" -eq 13 ] || fail "training: no confusion matrix: $(cat "$work/out")"
grep -h '"evaluation"' "$work/log" | tail -n 1 | grep -o '"test_loss":[^,]*,"test_accuracy":[^,]*' >"$work/logged"
[ -s "$work/logged" ] || fail "training: no evaluation in the log"
ways() {
    "$@" $t
    "$@" $t --mode dp --replicas 2
    "$@" "$ddprun" -n 2 $t
    "$@" "$ddprun" -n 3 $t --zero 0
    "$@" $t --acc-steps 3 --lanes 1 --batch-size 7 --optimizer adamw
}
evaluates() {
    rm -f "$work/log"
    expect "evaluation: $*" 0 '^test accuracy' "$@" $data --eval-only --verbose --load "$work/w" --log "$work/log"
    figures | cmp -s - "$work/figures" || fail "evaluation: $*: $(figures)"
    grep '"evaluation"' "$work/log" | grep -qF "$(cat "$work/logged")" || fail "evaluation: $*: $(cat "$work/log")"
    ! grep -qE '^(epoch|step|speed|batch|update) ' "$work/out" || fail "evaluation: $*: it trains: $(cat "$work/out")"
}
ways evaluates
# --- checkpoints: the newest of a run, while it could go on; a certain one; nothing is written
find "$work/run" | sort >"$work/files"
for from in "--load $work/run" "--checkpoint $work/run" "--checkpoint $work/run --resume" "--resume-from $work/run/step-00000038" \
    "--load $work/run/step-00000038/model.safetensors"; do
    expect "evaluation of a checkpoint: $from" 0 '^test accuracy' "$ddprun" -n 2 $t $train --val "$work/tx.npy,$work/ty.npy" \
        --eval-only -v $from
    figures | cmp -s - "$work/figures" || fail "evaluation of a checkpoint: $from: $(figures)"
done
find "$work/run" | sort | cmp - "$work/files" || fail "--eval-only writes checkpoints"
cp "$work/w" "$work/before"
expect "options of training" 0 'warning: --save has no effect with --eval-only, which trains nothing' \
    $t $data --eval-only --load "$work/w" --save "$work/w" --epochs 9 --lr 1
cmp -s "$work/w" "$work/before" || fail "--eval-only writes weights"

# --- those of another number of workers, too: their results are the same
alone() { # WAY: with $options, which end the command line of a training on other workers
    expect "a training's $options" 0 '^test accuracy' "$@" $data --eval-only --verbose --load "$work/w" $options
    figures | cmp -s - "$work/figures" || fail "a training's $options: $(figures)"
    ! grep -q warning "$work/out" || fail "a training's $options: $(cat "$work/out")"
}
for options in "--sync-batch-norm" "--zero 1 --bucket-mb 3" "--global-batch 10 --batch-size 5" \
    "--global-batch 7 --acc-steps 7" "--warmup-steps 1000"; do
    ways alone
done

# --- the sum of each row is the number of its labels, the diagonal the accuracy
awk 'NR == FNR && /^test accuracy/ { accuracy = $3 }
     NR == FNR && /^[0-9] / { for (i = 2; i <= 11; i++) { row += $i; all += $i }; right += $($1 + 2)
         if (sprintf("%.2f", 100 * $($1 + 2) / row) != $12) bad = 1; row = 0 }
     END { exit bad || all != 701 || sprintf("%.2f", 100 * right / all) != accuracy }' "$work/figures" ||
    fail "the confusion matrix does not add up: $(cat "$work/figures")"
[ "$(awk '/^(label|[0-9] )/ { print length }' "$work/figures" | sort -u | wc -l)" -le 2 ] ||
    fail "the confusion matrix is not aligned: $(cat "$work/figures")"

# --- predictions: the same bytes
predicts() {
    for kind in csv npy; do
        rm -f "$work/p.$kind"
        expect "predictions: $*" 0 "^predictions of 701 samples of the test set are in $work/p.$kind$" \
            "$@" $data --predict "$work/p.$kind" --load "$work/w"
        [ -e "$work/first.$kind" ] || cp "$work/p.$kind" "$work/first.$kind"
        cmp "$work/p.$kind" "$work/first.$kind" || fail "predictions: $*: other bytes"
    done
}
ways predicts
head -n 1 "$work/first.csv" | grep -qx 'index,label,prediction,probability' || fail "CSV: $(head -n 1 "$work/first.csv")"
[ "$(wc -l <"$work/first.csv")" -eq 702 ] || fail "CSV: $(wc -l <"$work/first.csv") lines"
awk -F, -v accuracy="$(awk '/^test accuracy/ { print $3 }' "$work/figures")" '
    NR > 1 { right += $2 == $3; if ($1 != NR - 2 || $4 < 0.1 || $4 > 1) bad = 1 }
    END { exit bad || sprintf("%.2f", 100 * right / (NR - 1)) != accuracy }' "$work/first.csv" || fail "CSV: other classes than evaluated"
awk -F, 'NR > 1 { n[$2, $3]++ } END { for (i = 0; i < 10; i++) { printf "%d", i; for (k = 0; k < 10; k++) printf " %d", n[i, k]
    print "" } }' "$work/first.csv" >"$work/counted"
sed -n '/^[0-9] /p' "$work/figures" | awk '{ NF = 11; print }' | cmp - "$work/counted" || fail "CSV: not the confusion matrix"
cut -d, -f2 "$work/first.csv" | sed 1d >"$work/labels"
tail -c 701 "$work/ty.npy" | od -An -v -tu1 -w1 | tr -d ' ' | cmp -s - "$work/labels" || fail "CSV: other labels than the data's"

# --- a trace of it (the names of its operations outlive them: sanitizers see that)
expect "a trace" 0 '' "$ddprun" -n 2 $t $data --predict "$work/p.npy" --load "$work/w" --trace "$work/trace"
for what in predict linear; do
    grep -q "\"name\":\"$what" "$work/trace" || fail "a trace: nothing of $what"
done

# --- without labels, without a test set, a value of a test set without labels
expect "without labels" 0 'predictions of 701 samples of the test set' \
    $t $train --val "$work/tx.npy" --hidden 16 --predict "$work/p.csv" --load "$work/w"
head -n 1 "$work/p.csv" | grep -qx 'index,prediction,probability' || fail "without labels: $(head -n 1 "$work/p.csv")"
cut -d, -f1,3,4 "$work/first.csv" | cmp - "$work/p.csv" || fail "without labels: other predictions"
expect "without a test set" 0 'predictions of 701 samples of the data' \
    $t --data "$work/tx.npy" --hidden 16 --predict "$work/p.npy" --load "$work/w"
! grep -q warning "$work/out" || fail "without a test set: $(cat "$work/out")"
expect "the scale of the training" 0 '' $t --data "$work/tx.npy" --predict "$work/alone.csv" --load "$work/run"
cut -d, -f1,3,4 "$work/first.csv" | cmp - "$work/alone.csv" || fail "the scale of the training: other predictions"
expect "training needs labels" 2 'has no labels' $t --data "$work/tx.npy" --hidden 16
expect "evaluation needs labels" 3 'without labels' $t $train --val "$work/tx.npy" --hidden 16 --eval-only --load "$work/w"

# --- refused, before data are opened
no="--data $work/none --hidden 16"
expect "no weights" 2 'error: --eval-only needs a model that was trained' "$ddprun" -n 2 $t $no --eval-only
[ "$(grep -c 'needs a model' "$work/out")" -eq 1 ] || fail "no weights: not told once: $(cat "$work/out")"
expect "no weights to predict with" 2 'error: --predict needs a model that was trained' $t $no --predict "$work/p.csv"
expect "another ending" 2 'must end in .csv.* or in .npy' $t $no --load "$work/w" --predict "$work/p.txt"
seq 1 200 >"$work/text"
gpt2="--model gpt2 --data $work/text --val $work/text --layers 1 --heads 1 --channels 8 --seq-len 8"
expect "a model of tokens" 0 '^test accuracy' $t $gpt2 --steps 2 --save "$work/gpt2"
grep '^test accuracy' "$work/out" >"$work/told"
expect "tokens" 2 '--predict: the model gpt2 predicts the next token' $t --data "$work/none" --load "$work/gpt2" --predict "$work/p.csv"
expect "a model of tokens, evaluated" 0 '^test accuracy' "$ddprun" -n 2 $t $gpt2 --eval-only -v --load "$work/gpt2"
grep '^test accuracy' "$work/out" | cmp - "$work/told" || fail "tokens: other figures than in training"
expect "a linear model" 0 '' $t --model article --epochs 1 --save "$work/article"
expect "no classes" 2 'the model article does not predict classes' $t --load "$work/article" --predict "$work/p.csv"
mkdir "$work/d.csv"
expect "a directory" 4 'd.csv: cannot write: it is a directory' $t $no --load "$work/w" --predict "$work/d.csv"
expect "--no-eval" 2 '--eval-only and --no-eval exclude each other' $t $no --load "$work/w" --eval-only --no-eval
expect "nothing to evaluate on" 2 '--eval-only: there is nothing to evaluate on' $t $train --hidden 16 --load "$work/w" --eval-only
cp "$work/first.csv" "$work/p.csv"
expect "weights that do not fit" 2 'contradicts --load' $t $data --hidden 17 --load "$work/w" --predict "$work/p.csv"
cmp -s "$work/first.csv" "$work/p.csv" || fail "a run that fails has written over the file"

# --- images: classes and samples have names, which CSV quotes
python=${PYTHON:-python3}
if command -v "$python" >/dev/null; then
    "$python" -B "$here/tests/train/predict_check.py" images "$work/images" || exit 99
    expect "images" 0 '^1 two, "2" +0 +' $t --data "$work/images" --val "$work/images" --model mlp --hidden 8 --epochs 40 --batch-size 4 \
        --verbose --save "$work/i"
    expect "images" 0 'predictions of 12 samples' "$ddprun" -n 2 $t --data "$work/images" --no-eval --load "$work/i" --predict "$work/i.csv"
    expect "images" 0 '' "$python" -B "$here/tests/train/predict_check.py" names "$work/i.csv"
    mkdir "$work/flat"
    find "$work/images" -name '*.png' -exec cp {} "$work/flat" \;
    expect "images without labels" 2 'nothing to evaluate on, because .*flat has no labels' \
        $t --data "$work/images" --val "$work/flat" --eval-only --model mlp --hidden 8 --load "$work/i"
else
    not_run "images: there is no $python"
fi

# --- PyTorch
if "$python" -c 'import torch, numpy' 2>/dev/null; then
    for model in "mlp --hidden 20,30" cnn "resnet --size 20"; do
        rm -rf "$work/torch"
        mkdir "$work/torch"
        PYTHONDONTWRITEBYTECODE=1 "$python" "$here/tests/train/predict_check.py" data "$work/torch" || exit 99
        d="--data $work/torch/x.npy,$work/torch/y.npy --val $work/torch/tx.npy,$work/torch/ty.npy --model $model"
        expect "PyTorch: $model" 0 '' $t $d --epochs 3 --batch-size 20 --save "$work/torch/w"
        expect "PyTorch: $model" 0 '' "$ddprun" -n 2 $t $d --load "$work/torch/w" --predict "$work/torch/p.csv"
        expect "PyTorch: $model" 0 '' $t $d --load "$work/torch/w" --predict "$work/torch/p.npy"
        expect "PyTorch: $model" 0 '' "$python" -B "$here/tests/train/predict_check.py" compare "$work/torch" "${model%% *}"
    done
else
    not_run "PyTorch: $python has none"
fi
finish
