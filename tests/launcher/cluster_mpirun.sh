#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun under Open MPI's mpirun, and under MPICH's mpiexec, a host of its own for each node: node 0 is found through PMIx or
# --master-addr, workers see nothing of MPI, exit codes.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster/hosts.inc"
. "$here/tests/launcher/cluster/open_mpi.inc"
open_mpi_up 3
export DDP_PLUGIN_PATH="$top/.libs" DDPRUN_KEY=0123456789abcdef0123456789abcdef

if [ -e "$top/.libs/libddp-pmix.so" ]; then
    open_mpi_expect "mpirun -N 1" 0 '' 0:2,1:2 -N 1 "$ddprun" -n 2 "$tell"
    told "mpirun -N 1" 2 2
    open_mpi_expect "three nodes" 0 '' 0:1,1:1,2:1 -N 1 "$ddprun" -n 1 "$tell"
    told "three nodes" 3 1
    open_mpi_expect "exit 7" 7 '' 0:2,1:2 -N 1 "$ddprun" -n 2 sh -c '[ $RANK = 3 ] && exit 7; exec sleep 60'
    [ "$(grep -c 'rank 3 .*exit.* 7' "$work/out")" -eq 2 ] || { fail "mpirun: not the same cause twice"; cat "$work/out"; }
    open_mpi_expect "SIGKILL" 137 'rank 0 .*SIGKILL' 0:2,1:2 -N 1 "$ddprun" -n 2 sh -c \
        '[ $RANK = 0 ] && kill -9 $$; exec sleep 60'
    # A daemon of mpirun's that is killed takes its PMIx server along: nobody looks after that node any more.
    open_mpi 0:2,1:2 -N 1 "$ddprun" -n 1 sh -c ': >"$0.$RANK"; exec sleep 60' "$work/daemon" >"$work/out" 2>&1 &
    until_true test -e "$work/daemon.1" || fail "mpirun: no worker on host 1"
    for pid in $(ip netns pids "$(host 1)"); do
        ! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qE "^([^ ]*/)?$daemon " || kill_pids "$pid"
    done
    wait $!
    # Open MPI 5 says so, and may nevertheless exit with 0.
    [ $? -ne 0 ] || grep -qa 'lost communication with a remote daemon' "$work/out" ||
        { fail "mpirun: its daemon was killed, and all is well"; cat "$work/out"; }
    hosts_empty "mpirun: its daemon was killed"
else
    not_run "node 0 through PMIx: this build has no libddp-pmix.so (install libpmix-dev)"
fi

# Without the plugin there is one way, and it is said once a node.
export DDP_PLUGIN_PATH="$work"
open_mpi_expect "no plugin" 125 'install the package ddprun-pmix, or give --master-addr' 0:1,1:1 -N 1 "$ddprun" -n 1 true
open_mpi_expect "--master-addr" 0 '' 0:2,1:2 -N 1 -x DDPRUN_KEY "$ddprun" -n 2 --master-addr "$(host 0)" "$tell"
told "--master-addr" 2 2
open_mpi_expect "two tasks a node" 2 '-N 1' 0:2,1:2 -N 2 "$ddprun" -n 1 true
open_mpi_expect "one task" 0 '' 0:2 -n 1 "$ddprun" -n 2 "$tell"
told "one task" 1 2 127.0.0.1

# MPICH's mpiexec has no PMIx: ddprun asks for the address.
if command -v mpiexec.hydra >/dev/null; then
    hydra="$on $(host 0) mpiexec.hydra -launcher ssh -launcher-exec $work/agent -iface eth0 -hosts $(host 0),$(host 1) -ppn 1"
    # When its tasks end at once, mpiexec may die of SIGPIPE, writing to a proxy that has ended, and leave the other: MPICH 4.0.
    cat >"$work/again" <<'END'
#!/bin/sh
for try in 1 2 3 4 5; do
    "$@"
    got=$?
    [ $got -eq 141 ] || exit $got
    pkill -KILL -f "hydra_pmi_proxy.*${0%/*}/agent"
done
exit $got
END
    chmod +x "$work/again"
    expect "mpiexec without an address" 2 'master-addr' "$work/again" $hydra "$ddprun" -n 1 true
    expect "mpiexec" 0 '' $hydra "$ddprun" -n 2 --master-addr "$(host 0)" "$tell"
    told "mpiexec" 2 2
    expect "mpiexec, exit 7" 7 '' $hydra "$ddprun" -n 2 --master-addr "$(host 0)" sh -c '[ $RANK = 3 ] && exit 7; exec sleep 60'
    hosts_empty "mpiexec"
else
    not_run "MPICH's mpiexec: mpiexec.hydra is not installed: mpich"
fi
finish
