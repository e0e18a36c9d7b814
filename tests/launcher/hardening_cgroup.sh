#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun in control groups that this script makes: too little memory, and a share of the processors.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/launcher/hardening.inc"

# own CONTROLLER: the path of this shell's group in that hierarchy of version 1; "" for that of version 2
own()
{
    awk -F : -v wanted="$1" '{ n = split($2, names, ","); for (i = 1; i <= n; i++) if (names[i] == wanted) print $3 }
        wanted == "" && $1 == 0 { print $3 }' /proc/self/cgroup
}

# make_group CONTROLLER FILE...: makes $group with a controller, in this shell's group or in the root of a hierarchy, where it
# has one of the files ($limit) and takes processes
make_group()
{
    controller=$1
    shift
    for parent in "/sys/fs/cgroup/$controller$(own "$controller")" "/sys/fs/cgroup/$controller" "/sys/fs/cgroup$(own '')" /sys/fs/cgroup; do
        group=$parent/ddprun-test-$$
        test -d "$parent" && mkdir "$group" 2>/dev/null || continue
        for limit; do
            test -w "$group/$limit" && sh -c 'echo $$ >"$0/cgroup.procs"' "$group" 2>/dev/null && groups="$group $groups" && return
        done
        rmdir "$group"
    done
    return 1
}

# inside ARGUMENTS...: in the group
inside()
{
    sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@" >"$tmp/out" 2>"$tmp/err"
}

echo "# a memory cgroup that is too small"
if make_group memory memory.max memory.limit_in_bytes && echo 67108864 >"$group/$limit"; then
    for swap in memory.swap.max memory.memsw.limit_in_bytes; do
        test ! -w "$group/$swap" || echo $(($(echo $swap | grep -c memsw) * 67108864)) >"$group/$swap" 2>/dev/null
    done
    inside $ddprun -n 2 sh -c 'test $RANK = 0 && exec sleep 60; exec ./launcher_helper eat 500'
    ended $? 137 "the cgroup's out-of-memory killer"
    says 'rank 1 .* was killed by SIGKILL.*; the kernel killed it because memory ran out (its cgroup may use 64 MiB)'
    inside $ddprun -n 2 sh -c 'test $RANK = 0 && exec sleep 60; ./launcher_helper eat 500; exit 3'
    ended $? 3 "the cgroup's out-of-memory killer took a child of a worker"
    says "out-of-memory killer ended a process meanwhile (its cgroup may use 64 MiB)"
    DDPRUN_KEY=of-$$-and-no-other
    export DDPRUN_KEY
    two="--nnodes 2 --master-addr 127.0.0.1 --master-port $((20000 + $$ % 10000)) -n 1"
    $ddprun $two --node-rank 0 sleep 60 >"$tmp/out0" 2>"$tmp/err0" &
    node0=$!
    inside $ddprun $two --node-rank 1 ./launcher_helper eat 500
    ended $? 137 "the cgroup's out-of-memory killer on one node of two"
    wait $node0
    ended $? 137 "the other node"
    cat "$tmp/err0" >>"$tmp/err"
    [ "$(grep -c 'rank 1 .* on node 1 .* the kernel killed it because memory ran out (its cgroup may use 64 MiB)' "$tmp/err")" = 2 ] ||
        fail "two nodes do not both name the killer: $(cat "$tmp/err")"
    inside $ddprun -n 2 sh -c 'test $RANK = 0 && exit 3; sleep 60'
    ended $? 3 "a failure in a cgroup"
    grep -q memory: "$tmp/err" && fail "want of memory is claimed without a kill"
    gone "cgroup"
    # So little that ddprun itself may be hit: an end, whichever, and nothing left.
    # time: what a worker lasts
    for bytes in 4194304 2097152 1048576 262144; do
        echo $bytes >"$group/$limit" 2>/dev/null || continue
        timeout 20 sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" $ddprun -n 4 sh -c 'sleep 0.1' >"$tmp/out" 2>"$tmp/err"
        code=$?
        echo "$bytes bytes: exit code $code"
        case $code in 0 | 125 | 126 | 137) ;; *) fail "a cgroup of $bytes bytes: exit code $code" ;; esac
        gone "a cgroup of $bytes bytes"
    done
else
    not_run "a memory cgroup: none can be made here"
fi

echo "# a share of the processors"
# cores N WHAT: ddprun in the group finds so many
cores()
{
    inside $ddprun --dry-run -n cpu true
    ended $? 0 "$2"
    grep -q "^workers: $1, on $1 usable cores*\$" "$tmp/out" || fail "$2: $(grep '^workers' "$tmp/out"), not $1 cores"
}
all=$($ddprun --dry-run -n cpu true | sed -n 's/^workers: .* on \([0-9]*\) usable.*/\1/p')
if test "$all" -lt 2; then
    not_run "a share of the processors: $all is usable anyway"
elif make_group cpu cpu.max cpu.cfs_quota_us; then
    # quota SHARE: in hundredths of a core, of each tenth of a second
    quota()
    {
        if test $limit = cpu.max; then echo "$(($1 * 1000)) 100000"; else echo $(($1 * 1000)); fi >"$group/$limit"
    }
    cores "$all" "no quota"
    quota 100; cores 1 "a quota of 1 core"
    quota 199; cores 1 "a quota of 1.99 cores"
    quota 20; cores 1 "a quota of 0.2 cores"
    quota $((all * 100 - 50)); cores $((all - 1)) "a quota of half a core less than all"
    quota $((all * 100)); cores "$all" "a quota of all cores"
    quota $((all * 300)); cores "$all" "a quota of more than all cores"
    quota 100
    inside $ddprun -n 2 sh -c 'test $OMP_NUM_THREADS = 1'
    ended $? 0 "threads of two workers"
    if mkdir "$group/below"; then
        group=$group/below
        groups="$group $groups"
        cores 1 "a quota of the group above"
    fi
else
    not_run "a share of the processors: no cpu cgroup can be made here"
fi
finish
