#!/bin/sh
# SPDX-License-Identifier: MIT
# Workers that write random bytes over the job's shared memory, all the time: ddprun, its tables and reports, and
# ddprun status from outside must stand it. ROUNDS=N makes it N rounds.
set -u
ddprun=./ddprun
helper=./launcher_helper
test -x $ddprun && test -x $helper || { echo "run in the build directory"; exit 99; }
. "${srcdir:-.}/tests/lib/result.inc"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK DDP_LOG
rounds=${ROUNDS:-24}
fail()
{
    echo "FAIL: $*"
    head -n 20 "$tmp/err"
    failures=$((failures + 1))
}

# sane CODE WHAT: not a crash, no sanitizer's report
sane()
{
    count=$((count + 1))
    case $1 in
    132 | 134 | 135 | 136 | 139) fail "$2: exit code $1" ;;
    esac
    if grep -qE 'Sanitizer|runtime error' "$tmp/err"; then
        fail "$2: a sanitizer's report"
    fi
}

# ended CODE WANTED WHAT
ended()
{
    sane "$1" "$3"
    test "$1" = "$2" || fail "$3: exit code $1, not $2"
}

echo "# status, from outside"
$ddprun -n 3 sh -c ': >"$0"; test $RANK = 1 && exec ./launcher_helper scrawl 60000; sleep 60' "$tmp/up" 2>"$tmp/job" &
job=$!
until_true test -e "$tmp/up"
i=0 shown=0
while test $i -lt "$rounds"; do
    $ddprun status $job >"$tmp/out" 2>"$tmp/err"
    code=$?
    sane $code status
    test $code = 0 && shown=$((shown + 1))
    i=$((i + 1))
done
test $shown -gt 0 || fail "status never got to the lines"
kill -TERM $job
wait $job
code=$?
cp "$tmp/job" "$tmp/err"
ended $code 143 "a job that was looked at $rounds times"

echo "# tables and reports"
i=0
while test $i -lt $((rounds / 3)); do
    timeout 60 $ddprun -n 2 --straggler-report --timeout 0.03 sh -c \
        'test $RANK = 1 && exec ./launcher_helper scrawl 50; exec sleep 0.2' >"$tmp/out" 2>"$tmp/err"
    code=$?
    sane $code "a failure report"
    case $code in 5 | 6 | 124) ;; *) fail "a failure report: exit code $code" ;; esac
    # time: the table comes in the midst of it, or does not
    timeout 60 $ddprun -n 2 --straggler-report sh -c 'test $RANK = 1 && exec ./launcher_helper scrawl 60000
        sleep 0.05; kill -QUIT $PPID; sleep 0.05; kill -TERM $PPID; sleep 60' >"$tmp/out" 2>"$tmp/err"
    code=$?
    ended $code 143 "a table on SIGQUIT"
    timeout 60 $ddprun -n 2 --max-restarts 1 --grace 0.2 $helper scrawl 20 >"$tmp/out" 2>"$tmp/err"
    code=$?
    ended $code 5 "all workers scribble, twice"
    i=$((i + 1))
done
finish
