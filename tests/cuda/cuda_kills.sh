#!/bin/sh
# SPDX-License-Identifier: MIT
# Workers on GPUs that are killed or stopped, inside a collective most of the time: the job is down at once, with the right
# code, and nothing is left. KILLS=N makes it N of each kind.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/kills.inc"
. "$here/tests/cuda/cuda.inc"
kills=${KILLS:-4}
gpus 4

job_options="--device cuda --model article --epochs 100000000 --quiet"
mkdir "$work/dir"

# started N: the job of N workers runs, and has taken some steps or is about to
started() {
    "$ddprun" -n "$1" $share --grace 1 "$trainer" $job_options --save "$work/dir/f" >"$work/out" 2>&1 &
    job=$!
    workers $job "$1"
    pause_ms $((300 + i * 137 % 500))
}

# down NAME CODE: the job ends in time, with that code; nobody and nothing is left
down() {
    name=$1 want=$2
    wait $job
    code=$?
    took=$(($(now_ms) - start))
    [ $code -eq "$want" ] || fail "$name: exit code $code, not $want: $(cat "$work/out")"
    [ $took -le "$within_ms" ] || fail "$name: the job was down after $took ms"
    gone "$name" $list
    only "$name"
}

i=0
while [ $i -lt "$kills" ]; do
    n=$((2 + i % 3))
    count=$((count + 1))
    started $n
    start=$(now_ms)
    kill -9 "$(echo $list | cut -d ' ' -f $((1 + i % n)))"
    down "kill $i of $n workers" 137
    count=$((count + 1))
    started $n
    start=$(now_ms)
    kill -TERM $job
    down "end $i of $n workers" 143
    i=$((i + 1))
done
finish
