#!/bin/sh
# SPDX-License-Identifier: MIT
# The CPU quotas that ddprun finds in control groups of both versions, pretended ones: files that are mounted over the real
# ones. Real groups: hardening_cgroup.sh.
# shellcheck disable=SC2016  # the inner shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
for space in 'unshare -m' 'unshare -rm' none; do
    $space sh -c 'mount -t tmpfs none /sys/fs/cgroup && mount --bind "$0" /proc/$$/cgroup' "$0" 2>/dev/null && break
done
[ "$space" != none ] || skip "pretended control groups: nothing can be mounted here"
all=$("$ddprun" --dry-run -n cpu true | sed -n 's/^workers: .* on \([0-9]*\) usable.*/\1/p')
[ "$all" -ge 2 ] || skip "quotas of processors: $all is usable anyway"

# cores N NAME GROUPS FILE=TEXT...: ddprun, in these groups (lines of /proc/self/cgroup) and with these files in
# /sys/fs/cgroup, finds N cores
cores() {
    want=$1 name=$2
    printf '%b\n' "$3" >"$work/groups"
    shift 3
    count=$((count + 1))
    $space sh -c 'ddprun=$0 groups=$1
        shift
        mount -t tmpfs none /sys/fs/cgroup && mount --bind "$groups" /proc/$$/cgroup || exit 99
        for file; do
            mkdir -p "/sys/fs/cgroup/$(dirname "${file%%=*}")" && echo "${file#*=}" >"/sys/fs/cgroup/${file%%=*}" || exit 99
        done
        exec "$ddprun" --dry-run -n cpu true' "$ddprun" "$work/groups" "$@" >"$work/out" 2>&1 || fail "$name: exit code $?"
    grep -q "^workers: $want, on $want usable" "$work/out" || fail "$name: not $want cores: $(grep "^workers" "$work/out" || head -n 3 "$work/out")"
}

echo "# version 2"
cores "$all" "no group" '0::/'
cores "$all" "no limit" '0::/' 'cpu.max=max 100000'
cores 1 "the root, as containers see it" '0::/' 'cpu.max=100000 100000'
cores 1 "a group" '0::/a/b' 'a/b/cpu.max=150000 100000'
cores 1 "a group above" '0::/a/b' 'a/b/cpu.max=max 100000' 'a/cpu.max=50000 50000'
cores 1 "the tightest, above" '0::/a/b' 'a/b/cpu.max=900000 100000' 'a/cpu.max=100000 100000'
cores 1 "the tightest, below" '0::/a/b' 'a/b/cpu.max=100000 100000' 'a/cpu.max=900000 100000'
cores 1 "less than a core" '0::/a' 'a/cpu.max=1000 100000'
cores "$all" "another group" '0::/a' 'b/cpu.max=100000 100000'
cores "$all" "as much as there is" '0::/a' "a/cpu.max=$((all * 100000)) 100000"
cores "$all" "more than there is" '0::/a' 'a/cpu.max=9000000000000 100000'
cores "$all" "no number" '0::/a' 'a/cpu.max=many 100000'
cores "$all" "half a line" '0::/a' 'a/cpu.max=100000'
cores "$all" "no period" '0::/a' 'a/cpu.max=100000 0'

echo "# version 1"
v1='4:memory:/a\n3:cpu,cpuacct:/a/b\n0::/x'
cores "$all" "no limit" "$v1" cpu/a/b/cpu.cfs_quota_us=-1 cpu/a/b/cpu.cfs_period_us=100000
cores 1 "a group" "$v1" cpu/a/b/cpu.cfs_quota_us=100000 cpu/a/b/cpu.cfs_period_us=100000
cores 1 "a group above" "$v1" cpu/a/b/cpu.cfs_quota_us=-1 cpu/a/b/cpu.cfs_period_us=100000 cpu/a/cpu.cfs_quota_us=5000 \
    cpu/a/cpu.cfs_period_us=5000
cores 1 "the root, as containers see it" "$v1" cpu/cpu.cfs_quota_us=199999 cpu/cpu.cfs_period_us=100000
cores 1 "the only controller" '1:cpu:/a' cpu/a/cpu.cfs_quota_us=100000 cpu/a/cpu.cfs_period_us=100000
cores "$all" "the group of another controller" '1:cpuset,cpuacct:/a\n2:cpu:/' cpu/a/cpu.cfs_quota_us=100000 cpu/a/cpu.cfs_period_us=100000
cores 1 "both versions" "$v1" cpu/a/b/cpu.cfs_quota_us=-1 cpu/a/b/cpu.cfs_period_us=100000 'x/cpu.max=100000 100000'
finish
