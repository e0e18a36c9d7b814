#!/bin/sh
# SPDX-License-Identifier: MIT
# Data of a program's own (tests/data/own_data_tool.c): the same weights as from files, in every mode, normalised, split and resumed;
# labels that are numbers, their evaluation and prediction; and what is said of data that are wrong.
. "${srcdir:-.}/tests/lib/cli.inc"
tool=$top/own_data_tool
cd "$work" || exit 99
few="--batch-size 8 --global-batch 32 --lanes 4 --lr 0.05 --seed 5 --threads 1"

# trained FILE COMMAND...: saves weights, which must be those of $work/one, if that is there
trained() {
    file=$1
    shift
    expect "$*" 0 "saved $file" "$@" $few --save "$file"
    [ ! -e one ] || cmp "$file" one || fail "$*: other weights"
}

# --- as from files ---
"$tool" npy || exit 99
mlp="--hidden 9 --epochs 2 --val-split 0.2 --normalize"
trained one "$trainer" --data x.npy,y.npy $mlp
grep '^test' out >evaluations
[ -s evaluations ] || fail "nothing was evaluated"
trained a "$tool" arrays $mlp
grep '^test' out | cmp - evaluations || fail "arrays: other evaluations than from files"
trained b "$tool" read $mlp --data-threads 4
trained c "$ddprun" -n 2 "$tool" read $mlp
grep '^test' out | cmp - evaluations || fail "2 workers: other evaluations than from files"
trained d "$ddprun" -n 4 "$tool" arrays $mlp
trained e "$tool" arrays $mlp --mode dp --replicas 2
expect "predict, files" 0 'predictions of 60' "$trainer" --data x.npy,y.npy --val-split 0.2 --normalize --load one --predict p.csv
expect "predict, own" 0 'predictions of 60' "$tool" read --val-split 0.2 --normalize --load one --predict q.csv
cmp p.csv q.csv || fail "own data: other predictions than from files"
expect "a checkpoint of files" 0 '' "$trainer" --data x.npy,y.npy --hidden 9 --val-split 0.2 --epochs 2 $few --checkpoint of-files --quiet
expect "... is not resumed on other data" 2 'fingerprint of the data' "$tool" arrays --hidden 9 --epochs 2 $few --checkpoint of-files --resume --no-eval
rm -f one
trained one "$tool" arrays --hidden 9 --epochs 1
mv one flat
trained image "$tool" images --hidden 9 --epochs 1
weights_near flat image 0 || fail "images: other weights"
expect "images are flipped" 0 '' "$tool" images --augment flip --steps 2 --batch-size 4 --no-eval --quiet
expect "numbers are not" 2 'own data holds no images' "$tool" arrays --augment flip --steps 2 --batch-size 4 --no-eval --quiet

# --- tokens ---
gpt2="--model gpt2 --layers 1 --heads 2 --channels 8 --steps 20 --val-split 20"
trained one "$tool" tokens $gpt2
grep -q '^test accuracy .*, perplexity [0-9.]*$' out || fail "tokens: not evaluated"
trained a "$ddprun" -n 2 "$tool" tokens $gpt2
rm -f one

# --- numbers ---
numbers="--epochs 12 --val-split 0.2"
trained one "$tool" numbers $numbers --log log
grep '^test' out >evaluations
grep -q '^test loss [0-9.]*$' evaluations || fail "numbers: no line of the test loss alone"
! grep -qi accuracy out log || fail "numbers: an accuracy is shown"
grep -q '"test_loss":[0-9.]*,"samples":60' log || fail "numbers: the log has no test loss"
trained a "$tool" number-arrays $numbers --data-threads 3
trained b "$ddprun" -n 2 "$tool" numbers $numbers
grep '^test' out | cmp - evaluations || fail "numbers: 2 workers evaluate otherwise"
trained c "$ddprun" -n 4 "$tool" numbers $numbers --zero 1
trained d "$tool" numbers $numbers --mode dp --replicas 4
trained e "$tool" numbers $numbers --verbose
! grep -q confusion out || fail "numbers: a confusion matrix is shown"
rm -f one
expect "keep-best and patience" 0 'best     test loss [0-9.]+ after step' "$tool" number-test --epochs 40 $few --checkpoint best --keep 3,best --patience 3
expect "eval-only" 0 '^test loss [0-9.]+$' "$tool" number-test --eval-only --checkpoint best
expect "predict" 0 'predictions of 60 samples of the test set are in n.csv' "$tool" number-test --load a --predict n.csv
[ "$(head -n 1 n.csv)" = index,target0,target1,output0,output1 ] || fail "predict: the header is $(head -n 1 n.csv)"
expect "predict, 2 workers" 0 '' "$ddprun" -n 2 "$tool" number-test --load a --predict m.csv
cmp n.csv m.csv || fail "numbers: other predictions of 2 workers"
expect "predict, eval" 0 '' "$tool" number-test --load a --eval-only
loss=$(sed -n 's/^test loss //p' out)
awk -F , -v loss="$loss" 'NR > 1 { sum += ($2 - $4) ^ 2 + ($3 - $5) ^ 2; n += 2 }
    END { d = sum / n - loss; exit n != 120 || d > 1e-4 || d < -1e-4 }' n.csv || fail "the mean squared error of n.csv is not $loss"

# --- interrupted and resumed ---
long="--epochs 40 --no-eval"
trained one "$tool" numbers $long
expect "stopped" 75 'checkpoint' "$tool" stops $long $few --checkpoint stopped
trained a "$ddprun" -n 2 "$tool" numbers $long --checkpoint stopped --resume
grep -q 'resumed' out || fail "not resumed"
rm -f one

# --- what is wrong ---
# wrong CODE PATTERN KIND OPTION...: alone and on two workers; it is said once, whatever the number of workers
wrong() {
    ends_with=$1 says="error: $2"
    shift 2
    expect "$*" "$ends_with" "$says" "$tool" "$@"
    expect "$*, 2 workers" "$ends_with" "$says" "$ddprun" -n 2 "$tool" "$@"
    [ "$(grep -cE "$says" out)" = 1 ] || fail "$*: said $(grep -cE "$says" out) times"
}
one="--epochs 1 --batch-size 8 --no-eval --quiet --threads 1"
wrong 4 'own data: sample 123: the sensor 7 is gone' fails $one
wrong 4 'own data: sample 123: the sensor 7 is gone' fails $one --checkpoint fails
expect "fails, dp" 4 'sample 123: the sensor 7 is gone' "$tool" fails $one --mode dp
wrong 3 'own data: the read function failed for sample 123: ' fails-silently $one
wrong 2 'own data: the read function returned -10 for sample 123' fails-preempted $one
wrong 2 'own data: the read function returned -7 for sample 123' fails-aborted $one
wrong 2 'own data: the read function returned 7 for sample 123' fails-7 $one
wrong 2 'own data: sample 123 has the label 4: there are 4 classes' label $one
wrong 2 'own data: sample 123 has the label -1: there are 4 classes' label-array --steps 1 --no-eval
wrong 2 'own data: sample 123 has the label 20 at place 2: there are 20 classes' next-token --model gpt2 $one
wrong 2 'embedding: token 20' token --model gpt2 --layers 1 --heads 2 --channels 8 $one
wrong 10 'the loss is nan at step [0-9]+: first in the input samples' nan $one
wrong 10 'the loss is inf at step [0-9]+: first in the input y ' target $one
wrong 2 'own data: count is 0' count
wrong 2 'own data: dims\[0\] is 0' dims
wrong 2 'own data: dtype is 1' dtype
wrong 2 'own data: neither read nor samples is set' samples
wrong 2 'own data: label_count is 1, and neither read nor labels' labels
wrong 2 'own data: there are classes, and label_count is 0' label-count
wrong 2 'own data: struct_bytes is 0: begin with its initialiser' bytes
wrong 2 'own test data: dtype and dims are not those' test-dims
wrong 2 'own test data: 5 classes and label_count 1' test-classes
wrong 2 'model: input 1 must be the labels: DDP_F32, [0-9]+ rows of 2 numbers, as the shape has it; y is DDP_F32, [0-9]+ rows of 1' other-model $one
wrong 2 '--data: this program has data of its own' arrays --data x.npy
wrong 2 '--image-size: this program has data of its own' arrays --image-size 8
wrong 2 '--val-split: own data has a test part of its own' test --val-split 0.1
wrong 2 '--patience: there is nothing to evaluate on, because this program has no test data' arrays --patience 2
wrong 2 'own data holds numbers, and the model gpt2 learns from tokens' arrays --model gpt2

finish
