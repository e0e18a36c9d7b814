#!/bin/sh
# SPDX-License-Identifier: MIT
# The trainer on each format: found by its name, learned from, and one clear line when files change under it.
. "${srcdir:-.}/tests/cli.inc"

t="$trainer --batch-size 4 --hidden 8 --steps 3 --threads 1"
golden=$here/tests/golden/npy

# The plan names the data and their number.
expect "NumPy, two files" 0 '^data .*grey-y.npy, 4 samples' $t --data "$golden/grey.npy,$golden/grey-y.npy"
expect "NumPy archive" 0 '^test accuracy' $t --data "$golden/keras-stored.npz"
expect "NumPy archive, compressed" 0 '^test accuracy' $t --data "$golden/medmnist-deflated.npz"
expect "NumPy, no labels" 2 'error: .*version-1.npy has no labels' $t --data "$golden/version-1.npy"
expect "NumPy, a test set" 0 '^test accuracy' $t --data "$golden/grey.npy,$golden/grey-y.npy" \
    --val "$golden/grey.npy,$golden/grey-y.npy"
expect "NumPy, missing labels" 4 'error: .*none.npy' $t --data "$golden/grey.npy,$golden/none.npy"

# CIFAR: records of a label and 3072 pixels; here all zero.
mkdir "$work/cifar"
cifar() {
    head -c $((3073 * 400)) /dev/zero >"$work/cifar/data_batch_1.bin"
    head -c $((3073 * 100)) /dev/zero >"$work/cifar/data_batch_2.bin"
    head -c $((3073 * 10)) /dev/zero >"$work/cifar/test_batch.bin"
}
cifar
expect "CIFAR" 0 '^data .*cifar, 500 samples' $t --data "$work/cifar"
expect "CIFAR, augmented" 0 '^test accuracy' $t --data "$work/cifar" --augment crop,flip --data-threads 2
expect "CIFAR, another name" 3 'error: .*data_batch_1.bin' "$trainer" --data "$work/cifar/data_batch_1.bin" --dataset tokens --tokens gpt2
expect "IDX asked for" 4 'error: .*cifar/train-labels' $t --data "$work/cifar" --dataset idx
expect "a test set of its own" 2 'error: --val' $t --data "$work/cifar" --val "$work/cifar"
truncate -s -1 "$work/cifar/test_batch.bin"
expect "CIFAR, cut" 3 'error: .*test_batch.bin: truncated' $t --data "$work/cifar"

# Shrunk while it is learned: one line, exit code 4; no signal.
shrink() {
    name=$1
    shift
    cifar
    count=$((count + 1))
    "$@" --quiet --data "$work/cifar" --batch-size 1 --hidden 8 --steps 1000000000 --threads 1 >"$work/out" 2>"$work/err" &
    pid=$!
    sleep 0.5
    truncate -s 3073 "$work/cifar/data_batch_1.bin"
    wait $pid
    got=$?
    [ $got -eq 4 ] || fail "$name: exit code $got, expected 4"
    grep -q 'error: .*data_batch_1.bin: the file has changed while it was in use: it had 1229200 bytes and now has 3073' \
        "$work/err" || { fail "$name: no message"; head -n 5 "$work/err"; }
}
shrink "a file that shrinks" "$trainer" --no-eval
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "a file that shrinks: $(wc -l <"$work/err") lines"
shrink "a file that shrinks, many threads" "$trainer" --no-eval --data-threads 4
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "a file that shrinks, many threads: $(wc -l <"$work/err") lines"
shrink "a file that shrinks, 2 workers" "$ddprun" -n 2 trainer --no-eval
finish
