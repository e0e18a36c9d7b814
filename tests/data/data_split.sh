#!/bin/sh
# SPDX-License-Identifier: MIT
# --val-split and --normalize: the same bits in every mode and after --resume, what they refuse, and the lines that say what
# data lack.
. "${srcdir:-.}/tests/lib/cli.inc"

# npy TYPE SHAPE: the header of an array
npy() {
    dictionary="{'descr': '$1', 'fortran_order': False, 'shape': ($2), }"
    printf '\223NUMPY\001\000'"\\$(printf %03o $((${#dictionary} + 1)))"'\000%s\n' "$dictionary"
}
# says NAME CODE LINES PATTERN COMMAND...: as expect, and standard error has so many lines
says() {
    says_name=$1 code=$2 lines=$3 pattern=$4
    shift 4
    expect "$says_name" "$code" "$pattern" "$@"
    [ "$(grep -cE '^trainer: |^\[[0-9]\]: trainer: ' "$work/out")" -eq "$lines" ] && return
    fail "$says_name: not $lines lines"
    sed 's/^/    /' "$work/out" | head -n 5
}

# 600 images of 3 channels with numbers of 16 bits, and their labels
{ npy '<u2' '600, 3, 4, 4' && seq 100000 | head -c $((600 * 96)); } >"$work/x.npy"
{ npy '|u1' '600,' && seq 100000 | tr '0-9\n' '\000-\011\000' | head -c 600; } >"$work/y.npy"
# The same images as one row of numbers, and as bytes.
{ npy '<u2' '600, 48' && seq 100000 | head -c $((600 * 96)); } >"$work/rows.npy"
{ npy '|u1' '600, 96' && seq 100000 | head -c $((600 * 96)); } >"$work/bytes.npy"
data=$work/x.npy,$work/y.npy

# --- the same bits
common="--threads 1 --quiet --seed 3 --hidden 8 --batch-size 9 --steps 30 --no-eval"
for set in x rows; do
    first=
    set -- $common --data "$work/$set.npy,$work/y.npy" --val-split 0.25 --normalize --data-threads 2
    same "$set: 1 worker x 4" "$trainer" "$@" --acc-steps 4
    same "$set: 2 workers x 2" "$ddprun" -n 2 trainer "$@" --acc-steps 2
    same "$set: 4 workers" "$ddprun" -n 4 trainer "$@"
    same "$set: 4 workers, each its own update" "$ddprun" -n 4 trainer "$@" --zero 0
    same "$set: dp" "$trainer" --mode dp --replicas 4 "$@"
done
first=
same "whether the part is used changes nothing" "$trainer" --threads 1 --quiet --data "$data" --val-split 50 --normalize --steps 20
same "whether the part is used changes nothing: --no-eval" \
    "$trainer" --threads 1 --quiet --data "$data" --val-split 50 --normalize --steps 20 --no-eval
seq 20000 | head -c 60000 >"$work/one.txt"
gzip -c "$work/one.txt" >"$work/one.txt.gz"
first=
text="--model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 16 --batch-size 4 --steps 20 --threads 1 --quiet"
same "text" "$trainer" $text --data "$work/one.txt" --acc-steps 2
same "text: a tenth is the default" "$trainer" $text --data "$work/one.txt" --acc-steps 2 --val-split 0.1
same "text: compressed, 2 workers" "$ddprun" -n 2 trainer $text --data "$work/one.txt.gz"
same "text: compressed, dp" "$trainer" --mode dp --replicas 2 $text --data "$work/one.txt.gz"

# --- how many samples are for what, the mean of what is learned alone
t="$trainer --threads 1 --hidden 8 --steps 2 --batch-size 10"
expect "a share" 0 '^data .*y.npy, 540 samples' $t --data "$data" --val-split 0.1 --normalize
grep -q '^test accuracy' "$work/out" || fail "a share: no evaluation"
expect "a number" 0 '^data .*y.npy, 543 samples' $t --data "$data" --val-split 57
"$trainer" --threads 1 --data "$data" --val-split 0.2 --normalize --steps 30 --seed 1 >"$work/a" 2>&1
"$trainer" --threads 1 --data "$data" --val-split 0.2 --normalize --steps 30 --seed 1 --acc-steps 1 >"$work/b" 2>&1
[ "$(grep -c '^test' "$work/a")" -gt 0 ] && [ "$(grep '^test' "$work/a")" = "$(grep '^test' "$work/b")" ] ||
    fail "another part the second time"

# --- resumed, and refused with another part or scale
r="$trainer --threads 1 --quiet --hidden 8 --batch-size 10 --schedule constant --data $data --no-eval"
first=
same "not interrupted" $r --val-split 0.2 --normalize --steps 20
expect "interrupted" 0 '' $r --val-split 0.2 --normalize --steps 11 --checkpoint "$work/c"
same "resumed" $r --val-split 0.2 --normalize --steps 20 --resume-from "$work/c"
expect "another part" 2 'cannot resume.*samples 480 \(now 450\).*val split 0.2 \(now 0.25\)' \
    $r --val-split 0.25 --normalize --steps 20 --resume-from "$work/c"
expect "not normalized" 2 'cannot resume.*normalize yes \(now ' $r --val-split 0.2 --steps 20 --resume-from "$work/c"
expect "no part" 2 'cannot resume.*val split 0.2 \(now ' $r --normalize --steps 20 --resume-from "$work/c"

# --- refused
for amount in 0 -1 1.5 nan x 1e300; do
    says "--val-split $amount" 2 1 "error: --val-split $amount: must be a share" $t --data "$data" "--val-split=$amount"
done
says "--val-split of all" 2 1 'error: --val-split 600: .*has 600 samples, and at least one' $t --data "$data" --val-split 600
says "--val-split and --val" 2 1 'error: --val and --val-split exclude' $t --data "$data" --val-split 0.5 --val "$data"
says "--val-split without labels" 2 1 'error: --val-split: article has no labels' $trainer --model article --val-split 0.5
expect "--val-split and a test part, 2 workers" 2 'error: --val-split: .*keras-stored.npz has a test part of its own' \
    "$ddprun" -n 2 $t --data "$here/tests/data/golden/npy/keras-stored.npz" --val-split 0.5 --no-eval
says "--normalize of tokens" 2 1 'error: --normalize belongs to numbers, and .*one.txt holds tokens' \
    $trainer $text --data "$work/one.txt" --normalize

# --- what is said
unscaled='warning: .*y.npy: models learn badly from numbers far beyond 1, such as .*--normalize'
none='note: .*y.npy has no test part, so nothing is evaluated: name one with --val PATH, set some data aside with --val-split 0.1, or'
says "unscaled, no test part" 0 2 "$unscaled" $t --data "$data"
expect "no test part" 0 "$none" $t --data "$data"
says "no test part, 2 workers" 0 1 "$none" "$ddprun" -n 2 $t --data "$data" --normalize
says "unscaled" 0 1 "$unscaled" $t --data "$data" --val-split 0.1
says "all is well" 0 0 '^test accuracy' $t --data "$data" --val-split 0.1 --normalize
says "no evaluation is wanted" 0 0 '' $t --data "$data" --no-eval --normalize
says "quiet" 0 0 '' $t --data "$data" --quiet --normalize
expect "weights" 0 '' $t --data "$data" --quiet --normalize --save "$work/w"
says "no test part to predict" 0 1 'it has numbers far beyond 1.*: give --normalize if the model was trained' $t --data "$data" --load "$work/w" --predict "$work/p.csv"
says "bytes are scaled" 0 0 '^test accuracy' $t --data "$work/bytes.npy,$work/y.npy" --val-split 0.1
says "--normalize without effect" 0 1 'warning: --normalize has no effect: the pixels of' \
    $t --data "$work/bytes.npy,$work/y.npy" --val-split 0.1 --normalize

# --- formats whose test files are missing
mkdir "$work/cifar" "$work/idx"
head -c $((3073 * 50)) /dev/zero >"$work/cifar/data_batch_1.bin"
says "CIFAR without a test set" 4 1 'test_batch.bin: .*--val-split 0.1.*--no-eval' $t --data "$work/cifar"
expect "CIFAR, a part cut off" 0 '^data .*cifar, 40 samples' $t --data "$work/cifar" --val-split 0.2
{ printf '\0\0\010\003\0\0\0\144\0\0\0\3\0\0\0\3' && seq 1000 | head -c 900; } >"$work/idx/train-images-idx3-ubyte"
{ printf '\0\0\010\001\0\0\0\144' && seq 1000 | tr '0-9\n' '\000-\011\000' | head -c 100; } >"$work/idx/train-labels-idx1-ubyte"
says "IDX without a test set" 4 1 't10k-.*no such file.*--val-split 0.1.*--no-eval' $t --data "$work/idx"
expect "IDX, a part cut off" 0 '^data .*idx, 75 samples' $t --data "$work/idx" --val-split 0.25
finish
