#!/bin/sh
# SPDX-License-Identifier: MIT
# usage, in the build directory: srcdir=SOURCES cluster_slurm.sh ROUNDS DATA
# How long srun takes for nothing and for one step of training, on a Slurm of two hosts; for bench/cluster.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster/hosts.inc"
. "$here/tests/launcher/cluster/slurm.inc"
rounds=$1 data=$2
export LD_LIBRARY_PATH="$top/.libs" DDP_PLUGIN_PATH="$top/.libs" OMP_NUM_THREADS=1
[ -x "$top/.libs/trainer" ] && trainer=$top/.libs/trainer # past libtool's shell script
[ -x "$top/.libs/ddprun" ] && ddprun=$top/.libs/ddprun
slurm_up 2
export DDPRUN_MUNGE_SOCKET="$slurm/munge/socket"

# seconds NAME SRUN_OPTION COMMAND...
seconds() {
    name=$1
    shift
    begin=$(date +%s.%N)
    "$on" "$switch" srun -N 2 --ntasks-per-node=1 "$@" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
    echo "$name:$(echo "$(date +%s.%N) - $begin" | bc)"
}
while [ "$rounds" -gt 0 ]; do
    for mpi in none pmix; do
        seconds "srun --mpi=$mpi true" --mpi=$mpi true
        seconds "srun --mpi=$mpi ddprun trainer --steps 1" --mpi=$mpi "$ddprun" -n 1 "$trainer" --data "$data" --steps 1 --no-eval
    done
    rounds=$((rounds - 1))
done
