#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun in narrow places that take another user or namespaces: few processes, no /proc, as the first process of a
# container. It works, or says why in one line with a documented exit code, and leaves nothing.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/launcher/hardening.inc"

echo "# limit of processes"
as_user=
if test "$(id -u)" = 0; then
    # root has no limit; a user that nobody is
    as_user="setpriv --reuid 61871 --regid 61871 --clear-groups --inh-caps=-all"
fi
if $as_user $ddprun --version >/dev/null 2>&1; then
    some=0
    for n in 1 2 3 4 5 6 7 8 10 12; do
        $as_user prlimit --nproc=$n:$n $ddprun -n 4 $helper eat 0 >"$tmp/out" 2>"$tmp/err"
        code=$?
        works_or_says $code 'ulimit -u' "$n processes"
        test $code = 0 || some=$((some + 1))
    done
    test $some -gt 0 || fail "the limit of processes was never reached"
    gone "few processes"
else
    not_run "a limit of processes: no other user can run $ddprun here"
fi

in_space=
for try in 'unshare -m' 'unshare -rm'; do
    $try true 2>/dev/null && { in_space=$try; break; }
done
echo "# no /proc"
if test -n "${DDP_SANITIZE:-}"; then
    not_run "no /proc: sanitizers complain"
elif test -n "$in_space" && $in_space mount -t tmpfs none /proc 2>/dev/null; then
    # here ARGUMENTS...: runs ddprun where /proc is empty
    here()
    {
        $in_space sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@" >"$tmp/out" 2>"$tmp/err"
    }
    here $ddprun -n 2 true; ended $? 0 "no /proc"
    test ! -s "$tmp/err" || fail "no /proc, and words"
    here $ddprun -n 2 sh -c 'sleep 61 & test $RANK = 0 && exit 7; sleep 61'; ended $? 7 "no /proc"; gone "no /proc"
    here $ddprun -n 2 --timeout 0.3 --setup-timeout 0.3 $helper hang 1; ended $? 124 "no /proc"
    says 'rank 1 has not arrived at all-reduce 1042'
    here $ddprun status; ended $? 125 "status without /proc"; says 'cannot find jobs because /proc is missing'
    here $ddprun -n 1 sh -c 'setsid sh -c ": >\"\$0\"; exec sleep 2" "$0" & until test -e "$0"; do sleep 0.02; done' "$tmp/left"; ended $? 0 "no /proc"; says 'because /proc is missing'
    here $ddprun -n 2 sh -c 'sleep 61 & : >"$0.$RANK"; sleep 61' "$tmp/pr" &
    pid=$!
    until_true test -e "$tmp/pr.0" && until_true test -e "$tmp/pr.1" || fail "no /proc: the workers do not start"
    marked | while read -r pid command; do
        case $command in ./ddprun*) kill -9 "$pid" ;; esac
    done
    wait $pid 2>/dev/null
    gone "SIGKILL without /proc"
else
    not_run "no /proc: no mount namespaces here"
fi

echo "# as the first process of a container"
in_container=
for try in 'unshare --pid --fork --mount-proc' 'unshare -r --pid --fork --mount-proc'; do
    $try true 2>/dev/null && { in_container=$try; break; }
done
if test -n "$in_container"; then
    $in_container $ddprun -n 2 sh -c 'test $RANK = 0 || exec sleep 60
        i=0; while test $i -lt 20; do (sleep 0.1 &); i=$((i + 1)); done
        until test $i -gt 500 || test $(cat /proc/[0-9]*/stat 2>/dev/null | grep -c "(sleep)") -le 1; do i=$((i + 1)); sleep 0.02; done
        cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z " >"$0.zombies"; cat /proc/1/comm >"$0.first"; exit 7' "$tmp/c" 2>"$tmp/err"
    ended $? 7 "in a container"
    test "$(cat "$tmp/c.first")" = ddprun || fail "ddprun was not the first process"
    test "$(cat "$tmp/c.zombies")" = 0 || fail "$(cat "$tmp/c.zombies") zombies in a container"
    # signals, from inside, where the first process gets only what it has asked for, and from outside
    $in_container $ddprun -n 2 sh -c ': >"$0.$RANK"; test $RANK = 0 && { until test -e "$0.1"; do sleep 0.02; done; kill -TERM 1; }
        sleep 60; sleep 60' "$tmp/both" 2>"$tmp/err"
    ended $? 143 "SIGTERM from inside a container"
    $in_container $ddprun -n 2 sh -c 'trap "echo got it; exit 4" USR1; : >"$0.$RANK"; sleep 60 & wait' "$tmp/in" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    until_true test -e "$tmp/in.0" && until_true test -e "$tmp/in.1" || fail "in a container: the workers do not start"
    marked | while read -r inner command; do
        case $command in ./ddprun*) kill -USR1 "$inner" ;; esac
    done
    wait $pid
    ended $? 4 "SIGUSR1 from outside a container"
    grep -q 'got it' "$tmp/out" || fail "SIGUSR1 did not reach the workers of a container"
    gone "container"
else
    not_run "a container: no process namespaces here"
fi
finish
