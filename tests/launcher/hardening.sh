#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun in narrow places: long argument lists, few descriptors, odd signals. It works, or says why in one line with a
# documented exit code, and leaves nothing.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/launcher/hardening.inc"

echo "# an argument list as long as the system takes"
long=$(head -c 100000 /dev/zero | tr '\0' a)
# with_length BYTES: ddprun and one worker with so many bytes of arguments
with_length()
{
    rest=$(head -c $(($1 % 100000)) /dev/zero | tr '\0' b)
    set -- $(($1 / 100000))
    while test $# -le $1; do set -- "$@" "$long"; done
    shift
    $ddprun -n 2 sh -c 'exit 3' sh "$rest" "$@" 2>"$tmp/err"
}
low=0 high=7000000
while test $((high - low)) -gt 50; do # the longest that ddprun itself can be started with
    middle=$(((low + high) / 2))
    with_length $middle 2>/dev/null
    case $? in
    3) low=$middle ;;
    126) if grep -q '^ddprun: ' "$tmp/err"; then break; else high=$middle; fi ;;
    *) fail "$middle bytes of arguments: exit code $?"; break ;;
    esac
done
test $low -gt 100000 || fail "at most $low bytes of arguments work"
with_length $middle 2>/dev/null
ended $? 126 "$middle bytes of arguments, which workers have no room for"
says 'Argument list too long'
gone "long arguments"

echo "# few descriptors"
some=0
# shellcheck disable=SC3045
for n in 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 20 24 28; do
    (ulimit -n $n; exec $ddprun -n 4 sh -c 'echo $RANK') >"$tmp/out" 2>"$tmp/err"
    code=$?
    grep -q 'error while loading shared libraries' "$tmp/err" && continue # too few for any program
    works_or_says $code 'Too many open files' "$n descriptors"
    test $code != 0 || some=$((some + 1))
done
test $some -gt 0 || fail "28 descriptors are too few"
# The soft limit does not matter, and workers have theirs as it was.
prlimit --nofile=20: $ddprun -n 30 sh -c 'ulimit -n' >"$tmp/out" 2>"$tmp/err"
ended $? 0 "a soft limit of 20 descriptors"
test "$(grep -c ': 20$' "$tmp/out")" = 30 || fail "limits of workers: $(head -n 3 "$tmp/out")"
prlimit --nofile=20: $ddprun -n 30 --max-restarts 1 sh -c 'ulimit -n; test $TORCHELASTIC_RESTART_COUNT = 1' >"$tmp/out" 2>"$tmp/err"
ended $? 0 "a soft limit of 20 descriptors and a restart"
grep ': [0-9]*$' "$tmp/out" | grep -v ': 20$' >"$tmp/other" && fail "limits after a restart: $(head -n 3 "$tmp/other")"
gone "few descriptors"

echo "# signals blocked by the parent"
$helper blocked $ddprun -n 2 $helper signals >"$tmp/out" 2>"$tmp/err"
ended $? 0 "all signals blocked"
test ! -s "$tmp/out" || fail "workers inherit: $(cat "$tmp/out")"
$helper blocked $ddprun -n 2 sh -c ': >"$0.$RANK"; sleep 60' "$tmp/up" 2>"$tmp/err" &
pid=$!
until_true test -e "$tmp/up.0" && until_true test -e "$tmp/up.1" || fail "the workers do not start"
kill -TERM $pid
wait $pid
ended $? 143 "SIGTERM, blocked by the parent"
gone "blocked signals"
finish
