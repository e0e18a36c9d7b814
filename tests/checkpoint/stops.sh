#!/bin/sh
# SPDX-License-Identifier: MIT
# Requests to stop, by Ctrl-C and by other signals, at every point of a run's life: work is saved, a finished run stays
# finished, ddprun remembers. The moments are random in tests/chaos.
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"

dir=$work/dir

# Images of noise: a wide model spends its time in products.
mkdir "$work/data"
for part in train t10k; do
    {
        printf '\0\0\10\3\0\0\2\0\0\0\0\34\0\0\0\34'
        head -c $((512 * 784)) /dev/urandom
    } >"$work/data/$part-images-idx3-ubyte"
    {
        printf '\0\0\10\1\0\0\2\0'
        head -c 512 /dev/zero
    } >"$work/data/$part-labels-idx1-ubyte"
done
wide="--device cpu --data $work/data --hidden 784,784 --batch-size 64 --global-batch 128 --threads 1 --no-eval"
slow="--device cpu --data $work/data --hidden 3000,3000 --batch-size 512 --global-batch 2048 --threads 1 --no-eval"
often='--checkpoint-every 1000000'

# begin COMMAND...: in the background, as a person at a terminal would start it; $pid
begin() {
    rm -rf "$dir" "$work/log"
    env --default-signal=INT "$@" >"$work/out" 2>"$work/err" &
    pid=$!
}

stepping() {
    grep -q '"step"' "$work/log" 2>/dev/null
}

# ended NAME CODE CHECKPOINTS PATTERN: how the last one ended, and what it said
ended() {
    count=$((count + 1))
    wait "$pid"
    got=$?
    there=$(ls "$dir" 2>/dev/null | grep -c '^step-')
    [ $got -eq "$2" ] || fail "$1: exit code $got, not $2: $(tail -n 3 "$work/err")"
    [ "$there" -eq "$3" ] || fail "$1: $there checkpoints, not $3"
    [ -z "$4" ] || grep -qE "$4" "$work/err" "$work/out" || fail "$1: nothing matches $4: $(cat "$work/err")"
}

for start in "$trainer" "$ddprun -n 2 trainer"; do
    name=$(basename "${start%% *}")
    # Between steps and in them
    for signal in INT TERM USR1; do
        begin $start $wide --steps 1000000 --checkpoint "$dir" $often --log "$work/log"
        until_true stepping || fail "$name: no step is done"
        kill -$signal $pid
        ended "$name, SIG$signal" 75 1 'to continue: the same command with --resume'
    done
    grep -q 'SIGUSR1: stopping after this step$' "$work/err" || [ "$name" = trainer ] || fail "ddprun: $(cat "$work/err")"

    # The second Ctrl-C does not wait.
    begin $start $slow --steps 1000000 --checkpoint "$dir" $often --log "$work/log"
    until_true stepping || fail "$name: no slow step is done"
    kill -INT $pid
    until_true grep -q 'SIGINT: stopping after this step; again: ending at once' "$work/err" || fail "$name: $(cat "$work/err")"
    kill -INT $pid
    wait $pid
    got=$?
    [ $got -eq 130 ] || [ $got -eq 137 ] || fail "$name, SIGINT twice: exit code $got"

    # Without checkpoints it ends as it always has.
    begin $start $wide --steps 1000000 --log "$work/log"
    until_true stepping || fail "$name: no step is done"
    kill -INT $pid
    ended "$name, SIGINT without --checkpoint" 130 0 ''
done

# A script's job in the background ignores Ctrl-C.
rm -rf "$dir" "$work/log"
env --ignore-signal=INT "$trainer" $wide --steps 1000000 --checkpoint "$dir" $often --log "$work/log" >"$work/out" 2>"$work/err" &
pid=$!
until_true stepping || fail "no step is done"
kill -INT $pid
sleep 0.2 # time: enough to stop, if it did; a machine that is slow misses it
kill -0 $pid || fail "a job that ignores SIGINT was stopped by it"
kill -TERM $pid
ended "a job that ignores SIGINT" 75 1 ''

# As soon as a program can take it, long before the first step; libtool's script around the trainer cannot.
holds_back() {
    case $(readlink "/proc/$pid/exe") in */trainer | */ddprun) ;; *) return 1 ;; esac # not the shell, which blocks all before it
    grep -qE '^Sig(Blk|Cgt):.*[2367abef]..$' "/proc/$pid/status" 2>/dev/null # SIGUSR1
}
real=$trainer
[ ! -x "$top/.libs/trainer" ] || real="$top/.libs/trainer"
for start in "$real" "$ddprun -n 2 $real"; do
    for signal in USR1 TERM INT; do
        LD_LIBRARY_PATH="$top/.libs" begin $start $wide --steps 1000000 --checkpoint "$dir" $often
        until_true holds_back || fail "$start does not hold requests back"
        kill -$signal $pid
        ended "$start: SIG$signal at the start" 75 1 ''
    done
done

# Requests one after another, until the last line of main() and in ddprun's last moments too
for start in "$trainer" "$ddprun -n 2 trainer"; do
    for try in 1 2 3; do
        begin $start $wide --steps 1000000 --checkpoint "$dir" $often --log "$work/log"
        until_true stepping || fail "$start: no step is done"
        while kill -USR1 $pid 2>/dev/null; do
            sleep 0.002
        done
        ended "$start: SIGUSR1 all the time, try $try" 75 1 ''
        begin $start $wide --steps 2 --checkpoint "$dir" --log "$work/log"
        until_true stepping || fail "$start: no step is done"
        while kill -TERM $pid 2>/dev/null; do
            sleep 0.002
        done
        wait $pid
        got=$?
        # Under ddprun the second request ends the job after the grace period at most.
        [ $got -eq 0 ] || [ $got -eq 75 ] || fail "$start: SIGTERM all the time at the end: exit code $got: $(cat "$work/err")"
    done
done

# ddprun remembers a request: in the pause before a restart, and from before it
DDP_FAULTS=kill:rank=1,step=3 begin "$ddprun" -n 2 --max-restarts 5 trainer $wide --steps 1000000 --checkpoint "$dir" \
    --checkpoint-every 1 --resume
until_true grep -q restarting "$work/err" || fail "no restart: $(cat "$work/err")"
kill -USR1 $pid
until_true grep -qE 'stopped on request' "$work/out" || kill -9 $pid
wait $pid
[ $? -eq 75 ] || fail "SIGUSR1 in the pause before a restart: exit code $?: $(cat "$work/err")"
count=$((count + 1))
finish
