#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun status: which jobs it shows to whom, and how it tells workers apart that run, wait, are stopped, or are dead.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/signals.inc"
set -u
ddprun=./ddprun
test -x $ddprun || { echo "run in the build directory"; exit 99; }
tmp=$(mktemp -d) || exit 99
chmod 777 "$tmp"
export LC_ALL=C
unset RANK WORLD_SIZE LOCAL_RANK DDP_LOG
job= other=
trap 'kill -9 $job $other 2>/dev/null; rm -rf "$tmp"' EXIT
failures=0
fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' "$tmp/out" | head -8
    failures=$((failures + 1))
}

# shows PATTERN: status of the job does, within a while
shows()
{
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
    until test -s "$tmp/pid.$rank"; do sleep 0.02; done
done
shows "^ +0 +$(cat "$tmp/pid.0") waiting +not joined "
shows "^ +1 +$(cat "$tmp/pid.1") running +not joined "
kill -STOP "$(cat "$tmp/pid.2")"
shows "^ +2 +$(cat "$tmp/pid.2") stopped +not joined "
kill -STOP $job # so that it does not see the next one die
kill -KILL "$(cat "$tmp/pid.3")"
shows "^ +3 +$(cat "$tmp/pid.3") dead +not joined "
grep -qE '^no rank is inside a collective operation; rank 2 is stopped$' "$tmp/out" || fail "no reason"
kill -CONT "$(cat "$tmp/pid.2")" $job
wait $job
test $? = 137 || fail "exit code"
$ddprun status $job >"$tmp/out" 2>&1 && fail "status of a job that has ended"

# Two users.
switch="setpriv --reuid 61872 --regid 61872 --clear-groups"
if test "$(id -u)" = 0 && $switch $ddprun --version >/dev/null 2>&1; then
    $ddprun -n 1 sh -c ': >"$0"; exec sleep 60' "$tmp/up" 2>"$tmp/err" &
    job=$!
    $switch $ddprun -n 1 sh -c ': >"$0"; exec sleep 60' "$tmp/other" 2>"$tmp/err" &
    other=$!
    until test -e "$tmp/up" && test -e "$tmp/other"; do sleep 0.02; done
    $ddprun status >"$tmp/out" 2>&1
    grep -q "^job $job:" "$tmp/out" || fail "one's own job is not shown"
    grep -q "^job $other:" "$tmp/out" && fail "another user's job is shown"
    $ddprun status $other >"$tmp/out" 2>&1 && fail "another user's job is shown by its number"
    $switch $ddprun status >"$tmp/out" 2>&1
    grep -q "^job $other:" "$tmp/out" || fail "the other user's own job is not shown to him"
    grep -q "^job $job:" "$tmp/out" && fail "a job is shown to another user"
    $switch $ddprun status $job >"$tmp/out" 2>&1
    test $? = 1 || fail "status of another user's job: exit code"
    grep -q "status $job: no such job of yours" "$tmp/out" || fail "status of another user's job: words"
    kill $job $other
    wait $job $other
    job= other=
else
    echo "skipped: no other user can run $ddprun here"
fi
test $failures = 0 || { echo "$failures failures"; exit 1; }
