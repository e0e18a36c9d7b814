#!/bin/sh
# SPDX-License-Identifier: MIT
# A mistake that all workers find is told once, in full, and nothing is added to it. What differs between workers is told by
# each, and log files have all that each worker wrote.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/cli.inc"
tries=5

# once NAME CODE PATTERN ARGUMENT...: ddprun ends with this code, and all that it shows is one line, with PATTERN
once() {
    name=$1 code=$2 pattern=$3
    shift 3
    for try in $(seq $tries); do
        expect "$name" "$code" "$pattern" $ddprun "$@"
        [ "$(wc -l <"$work/out")" = 1 ] || { fail "$name: not one line"; sed 's/^/    /' "$work/out"; break; }
    done
}

# Options, data, places: the trainer refuses them on every rank.
once "an option" 2 '^\[[0-9]\]: trainer: error: --lr abc: must be' -n 4 "$trainer" --lr abc
once "data" 4 'trainer: rank [0-9]: error: missing: cannot open the data' -n 4 "$trainer" --data missing
once "a combination" 2 'trainer: .*error: --resume needs' -n 4 "$trainer" --model article --epochs 1 --resume
once "restarts" 2 'error: --lr abc' -n 2 --max-restarts 2 "$trainer" --lr abc

# Log files have it of each; a rank that is not shown does not speak for the others.
expect "with files" 2 'error: --lr abc' $ddprun -n 3 --log-dir "$work/logs" sh -c "\"\$0\" --lr abc; sleep 1; exit 2" "$trainer"
[ "$(cat "$work"/logs/*/attempt_0/*/stderr.log | grep -c 'error: --lr abc')" = 3 ] || fail "not in all files"
for try in $(seq $tries); do
    expect "a filter" 2 '^\[2\]: trainer: error: --lr abc|^trainer: error: --lr abc' \
        $ddprun -n 3 --local-ranks-filter 2 sh -c "\"\$0\" --lr abc; sleep 0.3; exit 2" "$trainer"
done

# A worker that fails later is named.
expect "in a step" 4 'rank 1 .*exited with code 4 in phase compute, step 3.*; ending the other worker' \
    $ddprun -n 2 --inject exit:rank=1,step=3,code=4 "$trainer" --model article --epochs 9
finish
