#!/bin/sh
# SPDX-License-Identifier: MIT
# Processes killed, stopped and interrupted at moments spread over their whole life: the job is down at once, the saved
# file is the old one or the new one, and nothing is left. KILLS=N makes it N kills of each kind.
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/kills.inc"
kills=${KILLS:-12}
article='--model article --epochs 100000000 --quiet --threads 1'
mkdir "$work/dir"

# A worker is killed: exit code 137, everybody gone, no file.
i=0
while [ $i -lt "$kills" ]; do
    count=$((count + 1))
    n=$((2 + i % 7))
    "$ddprun" -n $n "$trainer" $article --save "$work/dir/f" >"$work/out" 2>&1 &
    job=$!
    workers $job $n
    pause_ms $((i * 37 % 250))
    victim=$(echo $list | cut -d ' ' -f $((1 + i % n)))
    start=$(now_ms)
    kill -9 "$victim"
    wait $job
    code=$?
    took=$(($(now_ms) - start))
    [ $code -eq 137 ] || fail "kill $i of $n workers: exit code $code: $(cat "$work/out")"
    [ $took -le "$within_ms" ] || fail "kill $i of $n workers: the job was down after $took ms"
    gone "kill $i of $n workers" $list
    only "kill $i of $n workers"
    i=$((i + 1))
done

# The trainer is killed on its way to the end of a save: the old file or the new one, whole.
big='--model article --data-size 64 --batch-size 64 --epochs 1 --quiet --threads 1'
"$trainer" $big --seed 1 --save "$work/old" || fail "save"
"$trainer" $big --seed 2 --save "$work/new" || fail "save"
cmp -s "$work/old" "$work/new" && fail "two seeds gave the same weights"
start=$(now_ms)
"$trainer" $big --seed 2 --save "$work/dir/f" || fail "save"
life=$(($(now_ms) - start))
i=0
while [ $i -lt "$kills" ]; do
    count=$((count + 1))
    cp "$work/old" "$work/dir/f"
    "$trainer" $big --seed 2 --save "$work/dir/f" &
    pause_ms $((life * i / kills + life * i % 7))
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    cmp -s "$work/dir/f" "$work/old" || cmp -s "$work/dir/f" "$work/new" || fail "save, kill $i: the file is damaged"
    i=$((i + 1))
done
# What a kill between linkat() and rename() may have left, the next save takes away.
"$trainer" $big --seed 2 --save "$work/dir/f" || fail "save after kills"
cmp -s "$work/dir/f" "$work/new" || fail "save after kills: other weights"
only "save" f
rm "$work/dir/f"

# A worker sleeps for a while: the others wait, and the job ends well, with the same weights.
count=$((count + 1))
steps='--model article --data-size 64 --epochs 20000 --lr 1e-7 --quiet --threads 1'
"$ddprun" -n 2 "$trainer" $steps --save "$work/awake" || fail "a job without a stop"
"$ddprun" -n 2 "$trainer" $steps --save "$work/slept" >"$work/out" 2>&1 &
job=$!
workers $job 2
victim=$(echo $list | cut -d ' ' -f 1)
pause_ms 100
kill -STOP "$victim"
pause_ms 1500
kill -CONT "$victim"
wait $job || fail "a worker stopped for a while: exit code $?: $(cat "$work/out")"
cmp -s "$work/awake" "$work/slept" || fail "a worker stopped for a while: other weights"

# Interrupted: 128 + the signal, from the job and from the trainer alone.
for signal in TERM:143 INT:130 HUP:129; do
    count=$((count + 1))
    # A shell starts background commands with SIGINT ignored; env gives it back.
    env --default-signal=INT "$ddprun" -n 3 "$trainer" $article --save "$work/dir/f" >"$work/out" 2>&1 &
    job=$!
    workers $job 3
    pause_ms 100
    kill -"${signal%:*}" $job
    wait $job
    code=$?
    [ $code -eq "${signal#*:}" ] || fail "ddprun, SIG${signal%:*}: exit code $code: $(cat "$work/out")"
    gone "ddprun, SIG${signal%:*}" $list
    env --default-signal=INT "$trainer" $article --save "$work/dir/f" &
    pause_ms 200
    kill -"${signal%:*}" $!
    wait $! 2>/dev/null
    code=$?
    [ $code -eq "${signal#*:}" ] || fail "trainer, SIG${signal%:*}: exit code $code"
    only "SIG${signal%:*}"
done
finish
