#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun in narrow places: long argument lists, no descriptors, no processes, no /proc, no memory, odd signals, as the
# first process of a container. It works, or says why in one line with a documented exit code, and leaves nothing.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/signals.inc"
set -u
ddprun=./ddprun
helper=./launcher_helper
test -x $ddprun && test -x $helper || { echo "run in the build directory"; exit 99; }
tmp=$(mktemp -d) || exit 99
chmod 755 "$tmp"
export LC_ALL=C
unset RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS CUDA_VISIBLE_DEVICES DDP_LOG
DDPRUN_TEST_MARK=hardening.$$.$(basename "$tmp")
export DDPRUN_TEST_MARK
# Looking for leaks takes a thread, a descriptor and /proc.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
group=
failures=0

marked()
{
    grep -lsaF "$DDPRUN_TEST_MARK" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        command=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || continue
        case $command in
            '' | *hardening.sh* | 'grep -lsaF '*) ;;
            *) echo "$pid $command" ;;
        esac
    done 2>/dev/null
}

cleanup()
{
    marked | while read -r pid rest; do kill -9 "$pid"; done
    test -z "$group" || rmdir "$group"
    rm -rf "$tmp"
}
trap cleanup EXIT

fail()
{
    echo "FAIL: $*"
    sed 's/^/    err: /' "$tmp/err" 2>/dev/null | cut -c 1-300 | head -5
    failures=$((failures + 1))
}

# ended CODE WANTED WHAT
ended()
{
    test "$1" = "$2" || fail "$3: exit code $1, not $2"
}

# says TEXT: standard error has it, in exactly one line that begins with "ddprun: ".
says()
{
    test "$(grep -c "^ddprun: .*$1" "$tmp/err")" = 1 || fail "no (single) line with: $1"
}

# works_or_says CODE TEXT WHAT: exit code 0 and no words; or 125, the words, and nothing else said as an error.
works_or_says()
{
    case $1 in
    0) test ! -s "$tmp/err" || fail "$3: works, but says something" ;;
    125) { grep -q "^ddprun: error: .*$2" "$tmp/err" && test "$(wc -l <"$tmp/err")" = 1; } || fail "$3: not the one line: $2" ;;
    *) fail "$3: exit code $1" ;;
    esac
}

gone()
{
    tries=20
    while left=$(marked) && test -n "$left"; do
        tries=$((tries - 1))
        test $tries -gt 0 || { fail "$1: left behind: $left"; return; }
        sleep 0.05
    done
}

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
# The soft limit is no obstacle, and workers have theirs as it was.
prlimit --nofile=20: $ddprun -n 30 sh -c 'ulimit -n' >"$tmp/out" 2>"$tmp/err"
ended $? 0 "a soft limit of 20 descriptors"
test "$(grep -c ': 20$' "$tmp/out")" = 30 || fail "limits of workers: $(head -n 3 "$tmp/out")"
gone "few descriptors"

echo "# signals blocked by the parent"
$helper blocked $ddprun -n 2 $helper signals >"$tmp/out" 2>"$tmp/err"
ended $? 0 "all signals blocked"
test ! -s "$tmp/out" || fail "workers inherit: $(cat "$tmp/out")"
$helper blocked $ddprun -n 2 sh -c ': >"$0.$RANK"; sleep 60' "$tmp/up" 2>"$tmp/err" &
pid=$!
until test -e "$tmp/up.0" && test -e "$tmp/up.1"; do sleep 0.02; done
kill -TERM $pid
wait $pid
ended $? 143 "SIGTERM, blocked by the parent"
gone "blocked signals"

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
    echo "skipped: no other user can run $ddprun here"
fi

in_space=
for try in 'unshare -m' 'unshare -rm'; do
    $try true 2>/dev/null && { in_space=$try; break; }
done
echo "# no /proc"
if test -n "${DDP_SANITIZE:-}"; then
    echo "skipped: sanitizers complain without /proc"
elif test -n "$in_space" && $in_space mount -t tmpfs none /proc 2>/dev/null; then
    # here ARGUMENTS...: runs ddprun where /proc is empty
    here()
    {
        $in_space sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@" >"$tmp/out" 2>"$tmp/err"
    }
    here $ddprun -n 2 true; ended $? 0 "no /proc"
    test ! -s "$tmp/err" || fail "no /proc, and words"
    here $ddprun -n 2 sh -c 'sleep 61 & test $RANK = 0 && exit 7; sleep 61'; ended $? 7 "no /proc"; gone "no /proc"
    here $ddprun -n 2 --timeout 0.3 $helper hang 1; ended $? 124 "no /proc"
    says 'rank 1 has not arrived at all-reduce 1042'
    here $ddprun status; ended $? 125 "status without /proc"; says 'through /proc, which is missing'
    here $ddprun -n 1 sh -c 'setsid sleep 2 & sleep 0.2'; ended $? 0 "no /proc"; says 'because /proc is missing'
    here $ddprun -n 2 sh -c ': >"$0.$RANK"; sleep 61 & sleep 61' "$tmp/pr" &
    pid=$!
    until test -e "$tmp/pr.0" && test -e "$tmp/pr.1"; do sleep 0.02; done
    sleep 0.1
    marked | while read -r pid command; do
        case $command in ./ddprun*) kill -9 "$pid" ;; esac
    done
    wait $pid 2>/dev/null
    sleep 2 # the one that was left above
    gone "SIGKILL without /proc"
else
    echo "skipped: no mount namespaces here"
fi

echo "# as the first process of a container"
in_container=
for try in 'unshare --pid --fork --mount-proc' 'unshare -r --pid --fork --mount-proc'; do
    $try true 2>/dev/null && { in_container=$try; break; }
done
if test -n "$in_container"; then
    $in_container $ddprun -n 2 sh -c 'test $RANK = 0 || exec sleep 60
        i=0; while test $i -lt 20; do (sleep 0.1 &); i=$((i + 1)); done; sleep 0.5
        cat /proc/[0-9]*/stat 2>/dev/null | grep -c ") Z " >"$0.zombies"; cat /proc/1/comm >"$0.first"; exit 7' "$tmp/c" 2>"$tmp/err"
    ended $? 7 "in a container"
    test "$(cat "$tmp/c.first")" = ddprun || fail "ddprun was not the first process"
    test "$(cat "$tmp/c.zombies")" = 0 || fail "$(cat "$tmp/c.zombies") zombies in a container"
    # signals, from inside, where the first process gets only what it has asked for, and from outside
    $in_container $ddprun -n 2 sh -c 'test $RANK = 0 && { sleep 0.2; kill -TERM 1; }; sleep 60; sleep 60' 2>"$tmp/err"
    ended $? 143 "SIGTERM from inside a container"
    $in_container $ddprun -n 2 sh -c 'trap "echo got it; exit 4" USR1; : >"$0.$RANK"; sleep 60 & wait' "$tmp/in" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    until test -e "$tmp/in.0" && test -e "$tmp/in.1"; do sleep 0.02; done
    marked | while read -r inner command; do
        case $command in ./ddprun*) kill -USR1 "$inner" ;; esac
    done
    wait $pid
    ended $? 4 "SIGUSR1 from outside a container"
    grep -q 'got it' "$tmp/out" || fail "SIGUSR1 did not reach the workers of a container"
    gone "container"
else
    echo "skipped: no process namespaces here"
fi

echo "# a memory cgroup that is too small"
# The group of this shell, or the root of the hierarchy: where one can be made below with a limit.
for parent in "/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)" /sys/fs/cgroup/memory \
    "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)" /sys/fs/cgroup; do
    group=$parent/ddprun-test-$$
    test -d "$parent" && mkdir "$group" 2>/dev/null || { group=; continue; }
    for limit in memory.max memory.limit_in_bytes; do
        test -w "$group/$limit" && echo 67108864 >"$group/$limit" 2>/dev/null &&
            sh -c 'echo $$ >"$0/cgroup.procs"' "$group" 2>/dev/null && break 2
    done
    rmdir "$group"
    group=
done
if test -n "$group"; then
    for swap in memory.swap.max memory.memsw.limit_in_bytes; do
        test ! -w "$group/$swap" || echo $(($(echo $swap | grep -c memsw) * 67108864)) >"$group/$swap" 2>/dev/null
    done
    # inside ARGUMENTS...: in the group
    inside()
    {
        sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@" >"$tmp/out" 2>"$tmp/err"
    }
    inside $ddprun -n 2 sh -c 'test $RANK = 0 && exec sleep 60; exec ./launcher_helper eat 500'
    ended $? 137 "the cgroup's out-of-memory killer"
    says 'rank 1 .* was killed by SIGKILL.*; the kernel ended it for want of memory (its cgroup may use 64 MiB)'
    inside $ddprun -n 2 sh -c 'test $RANK = 0 && exec sleep 60; ./launcher_helper eat 500; exit 3'
    ended $? 3 "the cgroup's out-of-memory killer took a child of a worker"
    says "out-of-memory killer has struck meanwhile (its cgroup may use 64 MiB)"
    inside $ddprun -n 2 sh -c 'test $RANK = 0 && exit 3; sleep 60'
    ended $? 3 "a failure in a cgroup"
    grep -q memory: "$tmp/err" && fail "want of memory is claimed without a kill"
    gone "cgroup"
    # So little that ddprun itself may be hit: an end, whichever, and nothing left.
    for bytes in 4194304 2097152 1048576 262144; do
        echo $bytes >"$group/$limit" 2>/dev/null || continue
        timeout 20 sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" $ddprun -n 4 sh -c 'sleep 0.1' >"$tmp/out" 2>"$tmp/err"
        code=$?
        echo "$bytes bytes: exit code $code"
        case $code in 0 | 125 | 126 | 137) ;; *) fail "a cgroup of $bytes bytes: exit code $code" ;; esac
        gone "a cgroup of $bytes bytes"
    done
else
    echo "skipped: no memory cgroup can be made here"
fi

test $failures = 0 || { echo "$failures failures"; exit 1; }
