#!/bin/sh
# SPDX-License-Identifier: MIT
# A signal that ends the job, sent while ddprun waits before it starts the workers again, or before that: it ends at once, with the
# signal's exit code, and starts nothing any more.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"
now_ms() { date +%s%3N; }

# paused SIGNAL: sends it in the fifth pause, of 3.2 seconds; leaves in $work/SIGNAL.result the exit code, the milliseconds
# until the end, the attempts before the signal and at the end
paused() {
    # A shell's background job ignores some signals; the helper restores them.
    ./launcher_helper normal "$ddprun" -n 2 --max-restarts 5 sh -c 'test $RANK = 1 && exec sleep 60; echo x >>"$0"; exit 3' "$work/$1.attempts" \
        >"$work/$1.out" 2>"$work/$1.err" </dev/null &
    pid=$!
    tries=1500
    until grep -q 'restarting all workers (5 of 5)' "$work/$1.err" || [ $((tries -= 1)) -eq 0 ]; do sleep 0.02; done
    before=$(grep -c x "$work/$1.attempts")
    start=$(now_ms)
    kill -"$1" $pid
    wait $pid
    got=$?
    echo "$got $(($(now_ms) - start)) $before $(grep -c x "$work/$1.attempts")" >"$work/$1.result"
}
for signal in TERM INT HUP; do
    (ulimit -c 0; trap - EXIT; paused $signal) &
done
wait
for pair in 'TERM 143' 'INT 130' 'HUP 129'; do
    signal=${pair% *}
    count=$((count + 1))
    read -r got ms before attempts <"$work/$signal.result"
    echo "SIG$signal: exit code $got after $ms ms; $attempts attempts"
    [ "$got" = "${pair#* }" ] || fail "SIG$signal: exit code $got, not ${pair#* }: $(tail -n 3 "$work/$signal.err")"
    [ "$attempts" = "$before" ] || fail "SIG$signal: $before attempts before it, and $attempts at the end"
    [ "$ms" -lt 2500 ] || fail "SIG$signal: the job ended only after $ms ms"
done

# Earlier, while the workers of the failed attempt still end.
late='test "$TORCHELASTIC_RESTART_COUNT" = 0 || exec sleep 60; test $RANK = 1 || exit 3
    trap "" TERM; until test -e "$0"; do sleep 0.05; done'
./launcher_helper normal "$ddprun" -n 2 --max-restarts 3 --grace 60 sh -c "$late" "$work/go" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
until_true grep -q 'exited with code 3' "$work/err"
kill -TERM $pid
touch "$work/go"
wait $pid
got=$?
count=$((count + 1))
[ $got = 143 ] || fail "TERM while workers end: exit code $got: $(cat "$work/err")"
[ "$(grep -c restarting "$work/err")" = 0 ] || fail "TERM while workers end: it restarts them"
finish
