#!/bin/sh
# SPDX-License-Identifier: MIT
# --lanes: for a number of lanes the same bits in every mode, for every split that the plan names, for any number of
# threads and on resuming; the memory that the plan promises, and one line where something does not fit.
. "${srcdir:-.}/tests/lib/cli.inc"
cat "$here"/src/mode/*.c "$here"/src/graph/*.c >"$work/text"

gpt2="--model gpt2 --data $work/text --tokens bytes --seq-len 16 --layers 2 --heads 2 --channels 32"
common="--batch-size 2 --steps 5 --seed 3 --no-eval --quiet --optimizer adamw --clip-grad-norm 0.5"

# --- every split in whole lanes --------------------------------------------------------------------------------------

for lanes in 1 2 3 8 64; do
    first=
    # shellcheck disable=SC2086 # options
    set -- $gpt2 $common --dropout 0.1 --lanes $lanes --global-batch 32
    same "$lanes lanes: 1 worker x 16" "$trainer" "$@" --threads 1
    [ $lanes -lt 2 ] || same "$lanes lanes: 2 workers, copies" "$ddprun" -n 2 trainer "$@" --zero 0
    [ $lanes -lt 3 ] || same "$lanes lanes: 3 workers" "$ddprun" -n 3 trainer "$@" --threads 1
    [ $lanes -lt 8 ] || same "$lanes lanes: 7 workers" "$ddprun" -n 7 trainer "$@" --threads 1 --bucket-mb 0.02
    [ $lanes -lt 64 ] || same "$lanes lanes: 16 workers" "$ddprun" -n 16 trainer "$@" --threads 1 --bucket-mb 0.02
    cp "$work/first" "$work/lanes.$lanes"
done
cmp -s "$work/lanes.1" "$work/lanes.2" && fail "1 lane and 2 lanes give the same bits: nothing was tested"
cmp -s "$work/lanes.2" "$work/lanes.8" && fail "2 lanes and 8 lanes give the same bits: nothing was tested"

# --- batch norm's statistics and short batches -----------------------------------------------------------------------

# npy SHAPE: the header of an array of bytes
npy() {
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
}
{ npy '(210, 3, 8, 8)' && head -c $((210 * 192)) "$work/text"; } >"$work/x.npy"
{ npy '(210,)' && tr -cd 'a-z' <"$work/text" | tr 'a-z' '\000\000\000\000\000\000\000\000\001' | head -c 210; } >"$work/y.npy"
images="--data $work/x.npy,$work/y.npy"
# shellcheck disable=SC2086 # options
set -- --model resnet $images $common --steps 9 --lanes 1 --global-batch 32
first=
same "resnet, 1 lane: 1 worker x 16" "$trainer" "$@"
same "resnet, 1 lane: dp, 1 replica" "$trainer" --mode dp --replicas 1 "$@"

# Running statistics are means over all shards of a lane.
for lanes in 1 16; do
    expect "statistics, $lanes lanes" 0 '' "$trainer" "$@" --optimizer sgd --lr 1e-12 --weight-decay 0 --steps 1 --lanes $lanes \
        --save "$work/statistics.$lanes"
done
weights_near "$work/statistics.1" "$work/statistics.16" 1e-5 || fail "1 lane has other statistics than 16"

# --- shards that do not divide evenly over lanes, or lanes over workers ----------------------------------------------

# shellcheck disable=SC2086 # options
set -- $gpt2 $common
first=
same "12 shards: 1 worker x 12" "$trainer" "$@" --acc-steps 12
same "12 shards: 3 workers x 4" "$ddprun" -n 3 trainer "$@" --acc-steps 4
same "12 shards: 6 workers x 2" "$ddprun" -n 6 trainer "$@" --acc-steps 2
same "12 shards: dp, 3 replicas x 4" "$trainer" --mode dp --replicas 3 "$@" --acc-steps 4
first=
same "13 shards: 1 worker" "$trainer" "$@" --global-batch 26
same "13 shards: 5 workers" "$ddprun" -n 5 trainer "$@" --global-batch 26 --zero 0
first=
same "13 lanes: 1 worker" "$trainer" "$@" --global-batch 26 --lanes 16
same "13 lanes: 3 replicas of 2 stages" "$ddprun" -n 6 trainer "$@" --global-batch 26 --lanes 16 --stages 2

# --- going on from a checkpoint --------------------------------------------------------------------------------------

# go_on NAME LANES COMMAND...: the reference's bits, from the checkpoint
go_on() {
    name=$1
    shift
    same "$name" "$@" --resume-from "$work/dir/step-00000002"
}
for lanes in 2 16; do
    first=
    # shellcheck disable=SC2086 # options
    set -- $gpt2 $common --dropout 0.1 --global-batch 32
    same "$lanes lanes, not interrupted" "$trainer" "$@" --lanes $lanes
    rm -rf "$work/dir"
    same "$lanes lanes, with checkpoints" "$trainer" "$@" --lanes $lanes --checkpoint "$work/dir" --checkpoint-every 2 --keep 0
    go_on "$lanes lanes of the checkpoint" "$trainer" "$@"
    go_on "$lanes lanes, 2 workers" "$ddprun" -n 2 trainer "$@"
done
expect "another --lanes" 2 'error: .*cannot resume .*: lanes 16 \(now 8\)' \
    "$trainer" "$@" --lanes 8 --resume-from "$work/dir/step-00000002"

# On 3 workers, then 2, then 5: none of the numbers divides 13 shards, or 8 lanes into subtrees.
rm -rf "$work/dir"
first=
# shellcheck disable=SC2086 # options
set -- $gpt2 $common --dropout 0.1 --global-batch 26 --schedule constant
same "13 shards, not interrupted" "$trainer" "$@"
set -- "$@" --checkpoint "$work/dir" --resume
expect "3 workers begin" 0 '' "$ddprun" -n 3 trainer "$@" --steps 2
expect "2 workers go on" 0 '' "$ddprun" -n 2 trainer "$@" --steps 4
same "5 workers end" "$ddprun" -n 5 trainer "$@"
# shellcheck disable=SC2086 # options
set -- $gpt2 $common --dropout 0.1 --global-batch 32

rm -rf "$work/dir"
expect "a checkpoint with 1 lane" 0 '' "$trainer" "$@" --lanes 1 --checkpoint "$work/dir" --checkpoint-every 2 --keep 0
expect "1 lane does not fit 2 workers" 0 'warning: .*step-00000002: lanes 1 \(now 2, to fit 2 workers\): .* not to the bit' \
    "$ddprun" -n 2 trainer "$@" --resume-from "$work/dir/step-00000002"

# --- the plan --------------------------------------------------------------------------------------------------------

# plan NAME LINE COMMAND...: what --plan says
plan() {
    name=$1 line=$2
    shift 2
    expect "plan: $name" 0 "$line" "$@" --plan
}
# shellcheck disable=SC2086 # options
set -- $gpt2 --batch-size 2
plan "1 worker" '^lanes +8 \(4 arrays of gradients a worker\), the same bits with 1 to 8 workers$' "$trainer" "$@" --acc-steps 16
plan "3 workers" '^lanes +8 \(3 arrays of gradients a worker, 5 added up over all\), the same bits with 1 to 8 workers$' \
    "$ddprun" -n 3 trainer "$@" --global-batch 32
plan "3 workers, their shards" '^batch +2 samples x 16 shards \(4 to 6 a worker\) = global batch 32$' \
    "$ddprun" -n 3 trainer "$@" --global-batch 32
plan "1 lane" '^lanes +1 \(1 array of gradients a worker\), the same bits with 1 worker$' "$trainer" "$@" --acc-steps 16 --lanes 1
expect "more workers than lanes" 2 'error: 16 workers are more than the 8 lanes that gradients are added up in: use --lanes 16, or at most 8 workers$' \
    "$ddprun" -n 16 trainer "$@"
expect "more replicas than lanes" 2 'error: 3 replicas are more than the 1 lane that .*: use --lanes 3, or at most 1 replica$' \
    "$trainer" --mode dp --replicas 3 "$@" --lanes 1
plan "replicas" '^lanes +8 \(3 arrays of gradients a replica, 5 added up over all\), the same bits with 1 to 8 replicas$' \
    "$trainer" --mode dp --replicas 3 "$@" --acc-steps 4
plan "local steps" '^lanes +6 \(3 arrays of gradients a worker, 4 added up over all\), the same bits with 2 workers$' \
    "$ddprun" -n 2 trainer "$@" --acc-steps 3 --sync-every 2
plan "3 lanes" '^lanes +3 \(1 array of gradients a worker, 3 added up over all\), the same bits with 1 to 3 workers$' \
    "$ddprun" -n 3 trainer "$@" --global-batch 32 --lanes 3

# gradients OPTION...: what the plan says of them
gradients() {
    "$trainer" --model gpt2 --data "$work/text" --tokens bytes --seq-len 64 --batch-size 2 --plan "$@" |
        sed -n 's/^memory .* gradients \(.*\) + optimizer .*/\1/p'
}
one=$(gradients)
[ -n "$one" ] || fail "the plan names no gradients"
[ "$(gradients --acc-steps 16 --lanes 1)" = "$one" ] || fail "16 steps in one lane take more memory than one step"
[ "$(gradients --acc-steps 1000 --lanes 1)" = "$one" ] || fail "1000 steps in one lane take more memory than one step"
[ "$(gradients --acc-steps 1000)" = "$(gradients --acc-steps 8)" ] || fail "1000 steps take more memory than 8"
[ "$(gradients --acc-steps 8)" != "$one" ] || fail "8 lanes take no memory: nothing was tested"

expect "no lane" 2 'error: --lanes' "$trainer" "$@" --lanes 0
expect "too many lanes" 2 'error: --lanes' "$trainer" "$@" --lanes 2048
finish
