#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun killed at random moments, alone and with its keepers, in a directory in which nothing may be left: where it can
# make a control group for its job, and where it cannot. KILLS: how many of each.
test -x ./ddprun && test -x ./orphans || { echo "run in the build directory"; exit 99; }
. "${srcdir:-.}/tests/lib/result.inc"
work=$(mktemp -d) || exit 99
TMPDIR=$(mktemp -d) || exit 99
export TMPDIR
chmod 1777 "$TMPDIR"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
kills=${KILLS:-40}
group=
cleanup()
{
    tries=0 # keepers may be just leaving it
    until test -z "$group" || test $tries = 250 || rmdir "$group"/*/ "$group" 2>/dev/null || ! test -d "$group"; do
        tries=$((tries + 1))
        sleep 0.02
    done
    rm -rf "$TMPDIR" "$work"
}
trap cleanup EXIT

# inside ARGUMENTS...: in the test's group
inside()
{
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
}

# The groups of jobs
groups()
{
    (cd "$group" && ls -d ddprun-*/ 2>/dev/null)
}

# A group of version 2 below that of this shell, with no other jobs in it.
for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    parent=$root$(sed -n 's/^0:://p' /proc/self/cgroup)
    group=${parent%/}/orphans-test-$$
    mkdir "$group" 2>/dev/null || { group=; continue; }
    test -w "$group/cgroup.kill" && inside true 2>/dev/null && break
    rmdir "$group"
    group=
done

# Without: as a user who may not make groups, or in a group that may have none below it.
as_user="setpriv --reuid 61872 --regid 61872 --clear-groups --inh-caps=-all"
if test "$(id -u)" = 0 && $as_user ./ddprun --version >"$work/version" 2>&1; then
    echo "without a control group: as user 61872"
    $as_user ./orphans "$kills" ${SEED:+"$SEED"} >"$work/without" 2>&1 &
elif test -n "$group" && mkdir "$group/none" && echo 0 >"$group/none/cgroup.max.descendants"; then
    echo "without a control group: none is allowed"
    (group=$group/none; inside ./orphans "$kills" ${SEED:+"$SEED"}) >"$work/without" 2>&1 &
elif test -n "$group"; then
    echo "cannot forbid groups below $group"; exit 99
else
    ./orphans "$kills" ${SEED:+"$SEED"} >"$work/without" 2>&1 &
fi
without=$!

failed=0
if test -n "$group"; then
    echo "in a control group:"
    # shellcheck disable=SC2016  # the worker's shell expands it
    inside ./ddprun -n 1 sh -c 'grep -q "^0::.*/ddprun-[0-9]*$" /proc/self/cgroup' || { echo "FAIL: the job has no control group"; failed=1; }
    inside ./orphans "$kills" "${SEED:-}" cgroup || failed=1
    inside ./ddprun -n 1 true || failed=1 # removes what was made at the moment of a kill
    test -z "$(groups)" || { echo "FAIL: control groups are left: $(groups)"; failed=1; }
    # Keepers remove it too.
    # shellcheck disable=SC2016
    inside ./ddprun -n 1 sh -c 'echo $PPID >"$0.new"; mv "$0.new" "$0"; sleep 77' "$work/up" 2>/dev/null &
    until_true test -e "$work/up" || failed=1
    test -n "$(groups)" || { echo "FAIL: no control group is seen"; failed=1; }
    kill -9 "$(cat "$work/up")"
    wait $!
    no_groups() { test -z "$(groups)"; }
    until_true no_groups || { echo "FAIL: a control group is left by a kill"; failed=1; }
else
    echo "skipped: no control group can be made here"
fi
wait $without || failed=1
echo "without a control group:"
cat "$work/without"
left=$(ls -A "$TMPDIR")
test -z "$left" || { echo "FAIL: left in TMPDIR: $left"; failed=1; }
exit $failed
