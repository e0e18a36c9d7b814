#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun under a real Slurm, a host of its own for each node: who is a node of what, exit codes, requests to stop, preemption,
# proofs by MUNGE.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/cli.inc"
. "$here/tests/cluster/hosts.inc"
. "$here/tests/cluster/slurm.inc"
slurm_up 4
export DDP_PLUGIN_PATH="$top/.libs" DDPRUN_MUNGE_SOCKET="$slurm/munge/socket"
login="$on $switch"
srun="$login srun --ntasks-per-node=1"
pmix=
if $login srun --mpi=list 2>&1 | grep -q pmix && [ -e "$top/.libs/libddp-pmix.so" ]; then
    pmix=--mpi=pmix
else
    not_run "srun --mpi=pmix: Slurm has no plugin for PMIx, or ddprun has none"
fi

for mpi in --mpi=none $pmix; do
    expect "srun $mpi -N2" 0 '' $srun $mpi -N2 "$ddprun" -n 2 "$tell"
    told "srun $mpi -N2" 2 2
    expect "srun $mpi -N4" 0 '' $srun $mpi -N4 "$ddprun" -n 1 "$tell"
    told "srun $mpi -N4" 4 1
    # The cause is said on both nodes, and the worker's exit code is srun's.
    expect "srun $mpi, exit 7" 7 '' $srun $mpi -N2 "$ddprun" -n 2 sh -c '[ $RANK = 3 ] && exit 7; exec sleep 60'
    [ "$(grep -c 'rank 3 .*exit.* 7' "$work/out")" -eq 2 ] || { fail "srun $mpi: not the same cause twice"; cat "$work/out"; }
    expect "srun $mpi, SIGKILL" 137 'rank 0 .*SIGKILL' $srun $mpi -N2 "$ddprun" -n 2 sh -c '[ $RANK = 0 ] && kill -9 $$; exec sleep 60'
done
expect "two tasks a node" 2 'ntasks-per-node=1' $login srun -N2 --ntasks-per-node=2 "$ddprun" -n 1 true
expect "one node" 0 '' $srun -N1 -w "$(host 0)" "$ddprun" -n 2 "$tell"
told "one node" 1 2 127.0.0.1

# What Slurm starts on one node only is one node, however many the job has.
expect "salloc" 0 '' $login salloc -N2 "$ddprun" -n 2 "$tell"
told_host=$switch
told "salloc" 1 2 127.0.0.1
told_host=
printf '#!/bin/sh\n%s -n 2 %s\n' "$ddprun" "$tell" >"$work/batch"
expect "sbatch" 0 '' $login sbatch --wait -N2 -o "$work/batch.out" "$work/batch"
told "sbatch" 1 2 127.0.0.1
finish
