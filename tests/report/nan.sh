#!/bin/sh
# SPDX-License-Identifier: MIT
# Losses that are not finite: the first tensor is named, the same in every mode; updates that are left out are.
. "${srcdir:-.}/tests/lib/cli.inc"
need_fashion

common="--hidden 32,16 --batch-size 16 --global-batch 64 --lr 1000 --schedule constant --no-eval"
first='error: the loss is (nan|inf) at step [0-9]+: first in the output of linear, tensor fc[123] \(.*\), shard [0-3]:'

# message NAME COMMAND...: the message is the same as the first one's.
message() {
    name=$1
    shift
    expect "$name" 10 "$first" "$@"
    grep -oE 'the loss is .*' "$work/out" >"$work/message"
    [ "$(wc -l <"$work/message")" -eq 1 ] || fail "$name: not one message"
    [ -e "$work/one" ] || cp "$work/message" "$work/one"
    cmp -s "$work/one" "$work/message" || fail "$name: $(cat "$work/message"), expected $(cat "$work/one")"
}
message "one worker" "$trainer" $common --steps 40
message "dp" "$trainer" $common --steps 40 --mode dp --replicas 2
message "two workers" "$ddprun" -n 2 trainer $common --steps 40
message "four workers" "$ddprun" -n 4 trainer $common --steps 40
bad=$(sed -n 's/.* at step \([0-9]*\):.*/\1/p' "$work/one")

# The weights are those before the first bad step, from where on nothing changes.
expect "before" 0 "" "$trainer" $common --steps $((bad - 1)) --save "$work/before"
expect "skip" 0 "warning: $((40 - bad + 1)) of 40 updates were skipped" \
    "$trainer" $common --steps 40 --nan skip --save "$work/skip"
cmp -s "$work/before" "$work/skip" || fail "skip: the weights have changed after step $bad"
[ "$(grep -c 'at step' "$work/out")" -eq 3 ] || fail "skip: not three steps are explained"
expect "skip, two workers" 0 "updates were skipped" \
    "$ddprun" -n 2 trainer $common --steps 40 --nan skip --save "$work/skip2"
cmp -s "$work/before" "$work/skip2" || fail "skip, two workers: other weights"
expect "warn" 0 "warning: the loss is (nan|inf) at step $bad: a lower --lr may help" \
    "$trainer" $common --steps 40 --nan warn --save "$work/warn"
cmp -s "$work/before" "$work/warn" && fail "warn: no update after the bad one"
expect "log of a stopped run" 10 "$first" "$trainer" $common --steps 40 --log "$work/log"
grep -q '"step":'"$bad"',.*"loss":null' "$work/log" || fail "log: no line of the bad step"
tail -n 1 "$work/log" | grep -q '"event":"end",.*"status":"loss or gradient not finite"' || fail "log: no end"

# Huge samples with weights of zero: the loss is finite, each shard's gradient too, and their sum is not.
# bytes OCTAL...: these bytes
bytes() {
    # shellcheck disable=SC2059 # the format is the bytes
    printf "$(printf '\\%s' "$@")"
}
# npy TYPE: the header of an array of 64
npy() {
    bytes 223 && printf NUMPY && bytes 1 0 166 0
    printf '%-117s\n' "{'descr': '$1', 'fortran_order': False, 'shape': (64,), }"
}
{ npy '<f4' && for i in $(seq 64); do bytes 377 377 377 176; done; } >"$work/x.npy" # half of the largest float32
{ npy '|u1' && bytes 1 && for i in $(seq 63); do bytes 0; done; } >"$work/y.npy"
header='{"fc1.bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
header=$header'"fc1.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},'
header=$header'"fc2.bias":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},'
header=$header'"fc2.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]}}'
{
    bytes "$(printf %o ${#header})" 0 0 0 0 0 0 0
    printf %s "$header"
    bytes 0 0 200 77 0 0 200 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 # 1, 1; 0, 0; 0, 0
    bytes 0 0 200 77 0 0 200 277 0 0 200 277 0 0 200 77         # 1, -1, -1, 1
} >"$work/weights"
huge="--data $work/x.npy,$work/y.npy --load $work/weights --hidden 2 --batch-size 8 --global-batch 64 --steps 3 --no-eval"
sum="the gradient's norm is inf at step 1: each shard is finite, their sum is not"
for start in trainer "trainer --mode dp --replicas 2" "ddprun -n 2 trainer"; do
    # shellcheck disable=SC2086 # options
    expect "norm, $start" 0 "warning: 3 of 3 updates were skipped" "$top"/$start $huge --nan skip --save "$work/f"
    grep -q "warning: $sum" "$work/out" || fail "norm, $start: no '$sum'"
    [ "$(tail -c 40 "$work/f" | od -An -tx1)" = "$(tail -c 40 "$work/weights" | od -An -tx1)" ] || fail "norm, $start: the weights have changed"
done
# shellcheck disable=SC2086 # options
expect "norm, stop" 10 "error: $sum" "$trainer" $huge --clip-grad-norm 1

# A jump of the loss, by a learning rate that comes in too high.
expect "spike" 0 "warning: loss spike: [0-9.e+]+ at step [0-9]+, where [0-9.e+]+ \+- [0-9.e+]+ was usual" \
    "$trainer" --hidden 64,64 --steps 300 --warmup-steps 900 --lr 30 --no-eval --nan warn
[ "$(grep -c spike "$work/out")" -le 3 ] || fail "spike: more often than each hundred steps"
finish
