#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun status: how it tells workers apart that run, wait, are stopped, or are dead.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
set -u
ddprun=./ddprun
test -x $ddprun || { echo "run in the build directory"; exit 99; }
. "${srcdir:-.}/tests/lib/result.inc"
tmp=$(mktemp -d) || exit 99
export LC_ALL=C
unset RANK WORLD_SIZE LOCAL_RANK DDP_LOG
job=
trap 'kill -9 $job 2>/dev/null; rm -rf "$tmp"' EXIT
fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' "$tmp/out" | head -8
    failures=$((failures + 1))
}

# shows PATTERN: status of the job does, within a while
shows()
{
    count=$((count + 1))
    tries=200
    until $ddprun status $job >"$tmp/out" 2>&1 && grep -qE "$1" "$tmp/out"; do
        tries=$((tries - 1))
        test $tries -gt 0 || { fail "status does not show: $1"; return; }
        sleep 0.02
    done
}

# A program that never heard of libddp.
$ddprun -n 4 sh -c 'echo $$ >"$0.$RANK"; test $RANK = 1 && while :; do :; done; exec sleep 60' "$tmp/pid" 2>"$tmp/err" &
job=$!
for rank in 0 1 2 3; do
    until_true test -s "$tmp/pid.$rank" || fail "rank $rank does not start"
done
shows "^ +0 +$(cat "$tmp/pid.0") waiting +not joined "
shows "^ +1 +$(cat "$tmp/pid.1") running +not joined "
kill -STOP "$(cat "$tmp/pid.2")"
shows "^ +2 +$(cat "$tmp/pid.2") stopped +not joined "
kill -STOP $job # so that it does not see the next one die
kill -KILL "$(cat "$tmp/pid.3")"
shows "^ +3 +$(cat "$tmp/pid.3") dead +not joined "
awk 'NR > 1 && NR < 7 && length > 72 { exit 1 }' "$tmp/out" || fail "the table is wide"
grep -qE '^no rank is inside a collective operation; rank 2 is stopped$' "$tmp/out" || fail "no reason"
kill -CONT "$(cat "$tmp/pid.2")" $job
wait $job
test $? = 137 || fail "exit code"
$ddprun status $job >"$tmp/out" 2>&1 && fail "status of a job that has ended"
finish
