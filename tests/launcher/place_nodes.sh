#!/bin/sh
# SPDX-License-Identifier: MIT
# What workers of two nodes get, and where their output goes: two ddpruns on this machine, started by hand or with the variables
# that srun and mpirun set.
# shellcheck disable=SC2016,SC2086 # the workers' shells expand the variables; variables and options are lists of words
. "${srcdir:-.}/tests/lib/cli.inc"
for name in $(env | sed -n 's/^\(\(SLURM\|OMPI\|PMI\|PMIX\|PET\|MPI\|MASTER\)_[A-Z_]*\)=.*/\1/p') DDPRUN_KEY GLOO_SOCKET_IFNAME \
    NCCL_SOCKET_IFNAME SLURMD_NODENAME; do
    unset "$name"
done
port=$((21000 + $$ % 8000))

# both NAME CODE VARIABLES ARGUMENT...: two ddpruns; =R in variables is the node. Their output is in node.0 and node.1.
both() {
    name=$1 code=$2 variables=$3
    shift 3
    count=$((count + 1))
    port=$((port + 1))
    for node in 0 1; do
        {
            echo input of node $node | timeout $((60 * patience)) env $(echo "$variables" | sed "s/=R/=$node/g") "$ddprun" \
                --insecure-link --node-timeout 20 --master-port $port "$@" >"$work/node.$node" 2>"$work/errors.$node"
            echo $? >"$work/code.$node"
        } &
    done
    wait
    for node in 0 1; do
        [ "$(cat "$work/code.$node")" -eq "$code" ] || fail "$name: node $node: exit code $(cat "$work/code.$node"): $(cat "$work/errors.$node")"
    done
}

# printed NODE LINE...: these lines, in any order
printed() {
    node=$1
    shift
    printf '%s\n' "$@" | sort >"$work/want"
    sort "$work/node.$node" | cmp -s - "$work/want" || fail "$name: node $node: $(cat "$work/node.$node")"
}

hand='PET_NNODES=2 PET_NODE_RANK=R PET_MASTER_ADDR=127.0.0.1'
step='SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=127.0.0.1,n1 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=R SLURM_NODEID=R'
ompi='OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=R OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 MASTER_ADDR=127.0.0.1'
hydra='PMI_SIZE=2 PMI_RANK=R PMI_FD=6 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0 MASTER_ADDR=127.0.0.1'

echo "# the environment, whoever started the nodes"
for start in "$hand" "$step" "$ompi" "$hydra"; do
    both "ranks: $start" 0 "$start" -n 2 sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $MASTER_ADDR $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"'
    printed 0 '[0]: 0 0 4 2 0 2 127.0.0.1 lo =lo' '[1]: 1 1 4 2 0 2 127.0.0.1 lo =lo'
    printed 1 '[2]: 2 0 4 2 1 2 127.0.0.1 lo =lo' '[3]: 3 1 4 2 1 2 127.0.0.1 lo =lo'
    # A worker is no task of the launcher, nor a node.
    both "a worker's own ddprun: $start" 0 "$start" -n 1 sh -c 'env | grep -E "^(OMPI|PMI|PMIX)_|SLURM_STEP_NUM_NODES|PET_NNODES" >&2; "$0" -n 2 sh -c "echo \$RANK/\$WORLD_SIZE"' "$ddprun"
    printed 0 '[0]: [0]: 0/2' '[0]: [1]: 1/2'
    printed 1 '[1]: [0]: 0/2' '[1]: [1]: 1/2'
    grep -v 'insecure-link' "$work"/errors.? >"$work/errors" && fail "$name: $(cat "$work/errors")"
done
both "one port, chosen by node 0" 0 "$hand" -n 2 sh -c 'echo $MASTER_PORT'
[ "$(cat "$work"/node.? | sed 's/.* //' | sort -u | wc -l)" -eq 1 ] || fail "MASTER_PORT: $(cat "$work"/node.?)"
grep -q " $port\$" "$work/node.0" && fail "MASTER_PORT is the port of the link"
both "interfaces of the user" 0 "$hand GLOO_SOCKET_IFNAME=a NCCL_SOCKET_IFNAME=b" -n 1 sh -c 'echo $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME'
printed 1 '[1]: a b'

echo "# output and input"
both "standard input is rank 0's" 0 "$hand" -n 2 sh -c 'cat'
printed 0 '[0]: input of node 0'
[ -s "$work/node.1" ] && fail "standard input: node 1: $(cat "$work/node.1")"
both "a template" 0 "$hand" -n 2 --role w --log-line-prefix-template '${role_name}${rank}.${local_rank} ' echo x
printed 1 'w2.0 x' 'w3.1 x'
both "local ranks that are shown" 0 "$hand" -n 2 --local-ranks-filter 1 sh -c 'echo $RANK'
printed 0 '[1]: 1'
printed 1 '[3]: 3'
both "log files" 0 "$hand" -n 2 --log-dir "$work/logs" --rdzv-id run7 sh -c 'echo out of $RANK; echo error of $RANK >&2'
(cd "$work/logs" && for rank in 0 1 2 3; do cat run7_*/attempt_0/$rank/std*.log; done) >"$work/got" 2>&1
[ "$(cat "$work/got")" = "$(printf 'error of %d\nout of %d\n' 0 0 1 1 2 2 3 3)" ] || fail "$name: $(cat "$work/got")"
rm -rf "$work/logs"
both "streams of local ranks" 0 "$hand" -n 2 --log-dir "$work/logs" --redirects 1:1 sh -c 'echo out of $RANK'
printed 1 '[2]: out of 2'
(cd "$work/logs" && cat none_*/attempt_0/1/stdout.log none_*/attempt_0/3/stdout.log) >"$work/got" 2>&1
[ "$(cat "$work/got")" = "$(printf 'out of %d\n' 1 3)" ] || fail "$name: $(cat "$work/got")"
both "bindings" 0 "$hand" -n 1 --report-bindings true
grep -q 'rank 1: not bound' "$work/errors.1" || fail "$name: $(cat "$work/errors.1")"
finish
