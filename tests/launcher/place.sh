#!/bin/sh
# SPDX-License-Identifier: MIT
# Which node of a job ddprun takes itself for: from its options, and from the variables of srun, mpirun and mpiexec as real ones
# have set them. Nothing is started and nothing is sent here: --dry-run and --explain-launch say what was found.
# shellcheck disable=SC2086 # variables and options are lists of words
. "${srcdir:-.}/tests/lib/cli.inc"
for name in $(env | sed -n 's/^\(\(SLURM\|OMPI\|PMI\|PMIX\|PET\|MPI\|MASTER\)_[A-Z_]*\)=.*/\1/p') DDPRUN_KEY GLOO_SOCKET_IFNAME \
    NCCL_SOCKET_IFNAME SLURMD_NODENAME; do
    unset "$name"
done

# What a launcher sets, of what matters here.
batch='SLURM_JOB_ID=7 SLURM_NNODES=2 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=dn[0-1] SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=2'
salloc='SLURM_JOB_ID=7 SLURM_NNODES=2 SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST=dn[0-1]'
step="$salloc SLURM_STEP_ID=3 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=dn[0-1] SLURM_LOCALID=0 SLURM_LAUNCH_NODE_IPADDR=10.77.0.1"
srun0="$step SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=0 SLURM_NODEID=0 SLURMD_NODENAME=dn0"
srun1="$step SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=1 SLURM_NODEID=1 SLURMD_NODENAME=dn1"
pmix='PMIX_NAMESPACE=slurm.pmix.7.3 PMIX_RANK=1'
one="SLURM_JOB_ID=7 SLURM_NNODES=2 SLURM_STEP_ID=3 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_STEP_NODELIST=dn1 SLURM_PROCID=0"
ompi='OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_UNIVERSE_SIZE=4'
ompi_pmix="$ompi PMIX_NAMESPACE=1234.1 PMIX_RANK=1"
hydra='PMI_SIZE=2 PMI_RANK=1 PMI_FD=6 MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0'
by_hand='--nnodes 2 --node-rank 1 --master-addr n0.test'

# place NAME VARIABLES WANT OPTION...: WANT is "RANK,NODE/NODES" of the first worker, with one worker a node
place() {
    name=$1 variables=$2 want=$3
    shift 3
    expect "$name" 0 '' env $variables "$ddprun" -n 1 "$@" --dry-run true
    got=$(sed -n 's/^rank [0-9]*: .*environment RANK=\([0-9]*\) .* GROUP_RANK=\([0-9]*\) GROUP_WORLD_SIZE=\([0-9]*\) .*/\1,\2\/\3/p' "$work/out")
    [ "$got" = "$want" ] || fail "$name: $got, not $want"
}

# refused NAME VARIABLES PATTERN OPTION...: one line, with exit code 2
refused() {
    name=$1 variables=$2 pattern=$3
    shift 3
    expect "$name" 2 "^ddprun: error: $pattern" env $variables "$ddprun" -n 1 "$@" --dry-run true
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail "$name: several lines: $(cat "$work/out")"
}

# named NAME VARIABLES PATTERN OPTION...: the same, said by another task, which leaves the explanation to task 0
named() {
    name=$1 variables=$2 pattern=$3
    shift 3
    refused "$name" "$variables" "$pattern: the error of task 0 says what to do$" "$@"
}

# explained NAME VARIABLES PATTERN OPTION...: a line of --explain-launch
explained() {
    name=$1 variables=$2 pattern=$3
    shift 3
    expect "$name" 0 "$pattern" env $variables "$ddprun" "$@" --explain-launch --insecure-link
}

echo "# by hand"
place "nobody" A=b 0,0/1
place "options" A=b 1,1/2 $by_hand
place "torchrun's spellings" A=b 1,1/2 --nnodes=2:2 --node_rank=1 --master_addr n0 --master_port 1234
place "PET variables" 'PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=n0 PET_MASTER_PORT=9' 1,1/2
place "options before PET variables" 'PET_NNODES=3 PET_NODE_RANK=2 PET_MASTER_ADDR=n0' 1,1/2 --nnodes 2 --node-rank 1
place "a rendezvous" A=b 1,1/2 --nnodes 2 --node-rank 1 --rdzv-backend c10d --rdzv-endpoint n0:7
place "one node" 'MASTER_ADDR=n0 MASTER_PORT=1' 0,0/1 --nnodes 1 --node-rank 0
explained "the default port" A=b 'node 0 listens at: n0.test \(--master-addr or PET_MASTER_ADDR\), port 29500$' $by_hand
explained "a port" A=b ' port 1234$' $by_hand --master-port 1234
explained "a rendezvous' address" A=b 'listens at: n0 \(--rdzv-endpoint or PET_RDZV_ENDPOINT\), port 7$' --nnodes 2 --node-rank 1 --rdzv-endpoint n0:7
explained "the address wins" PET_RDZV_ENDPOINT=n0:7 'listens at: n9 .*, port 29500$' --nnodes 2 --node-rank 1 --master-addr n9
explained "its port does too" PET_RDZV_ENDPOINT=n0:7 'listens at: n0 .*, port 8$' --nnodes 2 --node-rank 1 --master-port 8
explained "MASTER_ADDR" 'MASTER_ADDR=n0 MASTER_PORT=7' 'listens at: n0 \(MASTER_ADDR\), port 7$' --nnodes 2 --node-rank 1
explained "an option before it" 'MASTER_ADDR=n0 MASTER_PORT=7' 'listens at: n0.test .*, port 29500$' $by_hand
explained "--local-addr of node 0" A=b 'listens at: n5 \(--local-addr or PET_LOCAL_ADDR\), port 29500$' --nnodes 2 --node-rank 0 --master-addr n0 --local-addr n5
explained "--local-addr elsewhere" A=b 'listens at: n0.test ' $by_hand --local-addr n5
refused "no rank" A=b '--nnodes 2 needs --node-rank' --nnodes 2 --master-addr n0
refused "a rank alone" A=b '--node-rank 1 needs --nnodes' --node-rank 1
refused "a rank too high" A=b '--node-rank 2: must be from 0 to 1 with --nnodes 2' --nnodes 2 --node-rank 2 --master-addr n0
refused "a rank of one node" A=b '--node-rank 1: must be 0 with --nnodes 1' --nnodes 1 --node-rank 1
refused "a negative rank" A=b '--node-rank -1: ' --nnodes 2 --node-rank -1
explained "a range" A=b 'nodes: 2 to 4, which come and go; this is node 0' --nnodes 2:4 --node-rank 0 --master-addr n0
explained "a range and no rank" PET_NNODES=2:4 'nodes: 2 to 4, .*; this is not node 0' --master-addr n0
refused "a range the wrong way round" A=b '--nnodes 4:2: must name the least number of nodes first' --nnodes 4:2
refused "a range from no nodes" PET_NNODES=0:4 'PET_NNODES=0:4: must be a number of nodes'
refused "a range without an address" A=b 'nothing says where node 0 is' --nnodes 2:4
refused "no nodes" A=b '--nnodes 0: must be a number of nodes' --nnodes 0
refused "no address" A=b 'nothing says where node 0 is: give --master-addr' --nnodes 2 --node-rank 1
refused "standalone" A=b '--standalone is a job on this machine: leave it out with --nnodes 2' --nnodes 2 --standalone
refused "standalone with a rank" A=b '--node-rank 1: must be 0 with --standalone' --standalone --node-rank 1
refused "a wrong rendezvous" A=b '--rdzv-endpoint n0:x: must be the address of node 0' --nnodes 2 --node-rank 1 --rdzv-endpoint n0:x
refused "a wrong MASTER_PORT" 'MASTER_ADDR=n0 MASTER_PORT=x' 'MASTER_PORT=x: must be' --nnodes 2 --node-rank 1
refused "a long address" A=b '--master-addr: must have at most 255' --nnodes 2 --node-rank 1 --master-addr "$(printf '%0300d' 1)"
refused "too many workers" A=b '4096 nodes, with 2 workers on this one: a job has at most 4096' --nnodes 4096 --node-rank 1 --master-addr n0 -n 2
refused "a number that overflows" 'PMI_SIZE=1073741824 PMI_RANK=1 MASTER_ADDR=n0' '1073741824 nodes, with 4 workers on this one: a job has at most' -n 4
refused "fewer workers" A=b '--nproc 1:2 is for one machine: several nodes continue with fewer by --nnodes MIN:MAX' $by_hand -n 1:2 --max-restarts 1
DDP_FAULTS=kill:rank=1 place "a fault of another node" A=b 0,0/2 --nnodes 2 --node-rank 0 --master-addr n0

echo "# srun"
place "a batch script" "$batch" 0,0/1
place "the shell of salloc" "$salloc" 0,0/1
place "task 0" "$srun0" 0,0/2
place "task 1" "$srun1" 1,1/2
place "a step of one node" "$one" 0,0/1
place "a task alone, because asked" "$srun1" 0,0/1 --nnodes 1
place "a task alone, as torchrun says it" "$srun1" 0,0/1 --standalone
place "options that agree" "$srun1" 1,1/2 --nnodes 2 --node-rank 1
place "several steps of one node" "$one" 1,1/2 $by_hand
place "zeros in names" "$(echo "$srun0" | sed 's/dn\[0-1\]/n[007-008]/g; s/dn0/n007/')" 0,0/2
explained "a batch script" "$batch" 'nodes: 1, this machine: this is a batch script or the shell of salloc .*srun --ntasks-per-node=1'
# 20000 + (job * 7 + step) mod 10000
explained "the address" "$srun1" 'listens at: dn0 \(the first host of SLURM_STEP_NODELIST\), port 20052, or one of the next 7'
explained "another job" "$srun1 SLURM_JOB_ID=1234567" 'port 21972, '
explained "a port" "$srun1" 'listens at: dn0 .*, port 99$' --master-port 99
explained "another network" "$srun1" 'listens at: dn0-ib \(--master-addr or PET_MASTER_ADDR\), port 20052, or' --master-addr dn0-ib
explained "MASTER_ADDR of a script" "$srun1 MASTER_ADDR=10.77.0.1 MASTER_PORT=7" 'listens at: dn0 .*, port 20052, or'
explained "who" "$srun1" '^started: by srun: SLURM_STEP_NUM_NODES and SLURM_PROCID$'
explained "with PMIx" "$srun1 $pmix DDP_PLUGIN_PATH=$work" "^there is a PMIx server, but not ddprun's plugin for it"
if [ -e "$top/tests/launcher/.libs/libddp-pmix.so" ]; then # a plugin of the tests, which is only loaded here
    explained "with PMIx and the plugin" "$srun1 $pmix DDP_PLUGIN_PATH=$top/tests/launcher/.libs" '^node 0 tells the others through PMIx where it listens$'
    explained "its key" "$srun1 $pmix DDP_PLUGIN_PATH=$top/tests/launcher/.libs" '^secured by: a key from PMIx$'
fi
refused "two tasks a node" "$step SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0" 'SLURM_STEP_TASKS_PER_NODE=2\(x2\): .*srun --ntasks-per-node=1, or give --nnodes 1'
refused "uneven tasks" "$step SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=0" 'SLURM_STEP_TASKS_PER_NODE=2,1: .*--ntasks-per-node=1'
refused "no tasks" "$step SLURM_PROCID=0" 'SLURM_STEP_TASKS_PER_NODE=: '
place "two tasks a node, because asked" "$step SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_PROCID=3" 0,0/1 --nnodes 1
refused "other nodes" "$srun0" '--nnodes 4, but srun started 2 tasks, one a node: leave --nnodes out' --nnodes 4
refused "another rank" "$srun1" '--node-rank 0, but srun says that this is node 1: leave --node-rank out' --node-rank 0
refused "a rank beyond" "$step SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_PROCID=2" 'SLURM_PROCID=2: must be a whole number from 0 to 1'
refused "no rank" "$step SLURM_STEP_TASKS_PER_NODE=1(x2)" 'SLURM_PROCID is not set'
refused "no number" 'SLURM_STEP_NUM_NODES=two' 'SLURM_STEP_NUM_NODES=two: must be a whole number'
refused "no list" "$srun0 SLURM_STEP_NODELIST=" 'SLURM_STEP_NODELIST=: is not a list of hosts'
refused "a wrong list" "$srun0 SLURM_STEP_NODELIST=dn[0" 'SLURM_STEP_NODELIST=dn\[0: is not a list of hosts'
place "a wrong list, and an address" "$srun1 SLURM_STEP_NODELIST=dn[0" 1,1/2 --master-addr dn0
refused "task 0 elsewhere" "$srun0 SLURMD_NODENAME=dn1" 'task 0 of the step is on dn1, but .* begins with dn0, .*--master-addr dn1'
place "task 0 elsewhere, and an address" "$srun0 SLURMD_NODENAME=dn1" 0,0/2 --master-addr dn1

echo "# mpirun and mpiexec"
place "Open MPI" "$ompi" 1,1/2 --master-addr n0
place "Open MPI with PMIx" "$ompi_pmix" 1,1/2
place "one task" "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=1 PMIX_RANK=0" 0,0/1
# The variables of the step are those of mpirun's daemons.
place "Open MPI in an allocation" "$srun0 $ompi_pmix" 1,1/2
explained "Open MPI in an allocation" "$srun0 $ompi_pmix" "^started: by Open MPI's mpirun"
place "one task in an allocation" "$srun0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1" 0,0/1
explained "PMIx alone says where" "$ompi_pmix DDP_PLUGIN_PATH=$work" '^  nothing else says where node 0 is: --master-addr is needed then$'
explained "MASTER_ADDR" "$ompi_pmix MASTER_ADDR=n0" 'listens at: n0 \(MASTER_ADDR\), port 29500$'
refused "Open MPI without PMIx" "$ompi OMPI_COMM_WORLD_RANK=0" 'nothing says where node 0 is: give --master-addr, .*, on each node'
refused "two tasks a node" "$ompi OMPI_COMM_WORLD_LOCAL_SIZE=2" 'OMPI_COMM_WORLD_LOCAL_SIZE=2: .*with mpirun -N 1, or give --nnodes 1'
place "two tasks a node, because asked" "$ompi OMPI_COMM_WORLD_LOCAL_SIZE=2" 0,0/1 --nnodes 1
refused "nothing of this node" 'OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0' 'OMPI_COMM_WORLD_LOCAL_SIZE is not set'
refused "other nodes" "$ompi_pmix OMPI_COMM_WORLD_RANK=0" '--nnodes 3, but mpirun started 2 tasks' --nnodes 3
place "MPICH" "$hydra" 1,1/2 --master-addr n0
place "MPICH in an allocation" "$srun0 $hydra" 1,1/2 --master-addr n0
refused "MPICH without an address" "$hydra PMI_RANK=0" 'nothing says where node 0 is'
refused "MPICH, two tasks a node" "$hydra MPI_LOCALNRANKS=2" 'MPI_LOCALNRANKS=2: .*mpiexec -ppn 1'
refused "MPICH has no PMIx" "$hydra $pmix PMI_RANK=0" 'nothing says where node 0 is'
place "PMI of Slurm" "$srun1 PMI_SIZE=2 PMI_RANK=1 PMI_FD=6" 1,1/2
place "PMI of Slurm, a step of one node" "$one PMI_SIZE=1 PMI_RANK=0 PMI_FD=6" 0,0/1

echo "# what all tasks find is explained once, and none ends in silence"
named "two tasks a node" "$step SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3" 'SLURM_STEP_TASKS_PER_NODE=2\(x2\)'
explained "a range" "$srun0" 'nodes: 1 to 3, which come and go; this is node 0' --nnodes 1:3
refused "a range that is too high" "$srun0" '--nnodes 3:4, but srun started 2 tasks, one a node: start' --nnodes 3:4
refused "a range under mpirun" "$ompi_pmix OMPI_COMM_WORLD_RANK=0" '--nnodes 1:2, but mpirun started 2 tasks, whose number does not change' --nnodes 1:2
named "other nodes" "$srun1" '--nnodes 4, but srun started 2 tasks, one a node' --nnodes 4
named "no list" "$srun1 SLURM_STEP_NODELIST=dn[" 'SLURM_STEP_NODELIST=dn\['
named "Open MPI without PMIx" "$ompi" 'nothing says where node 0 is'
named "Open MPI, two tasks a node" "$ompi OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1" 'OMPI_COMM_WORLD_LOCAL_SIZE=2'
named "MPICH, two tasks a node" "$hydra MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1" 'MPI_LOCALNRANKS=2'

echo "# what is explained"
expect "variables that are set" 0 '^  SLURM_STEP_NODELIST=dn\[0-1\]$' env $srun1 "$ddprun" --explain-launch --insecure-link no-such-program
explained "no terminal's escapes" "MASTER_ADDR=$(printf 'a\033[2J')" '  MASTER_ADDR=a\\x1b\[2J$'
explained "nor in an address" "MASTER_ADDR=$(printf 'a\033[2J')" '^  a\\x1b\[2J cannot be resolved' --nnodes 2 --node-rank 1
explained "a key is not shown" DDPRUN_KEY=0123456789abcdef0123 '  DDPRUN_KEY \(not shown\)' $by_hand
explained "how it is secured" DDPRUN_KEY=0123456789abcdef0123 '^secured by: a key' $by_hand
grep -q 0123456789 "$work/out" && fail "the key is shown"
explained "no key" A=b '^secured by: no key \(--insecure-link\)' $by_hand
explained "loopback" A=b '127.0.1.1, the loopback interface: all nodes must run on this machine' --nnodes 2 --node-rank 0 --master-addr 127.0.1.1
explained "a name for loopback" A=b 'localhost is .*, the loopback interface: all nodes must' --nnodes 2 --node-rank 0 --master-addr localhost
# A host's name beside 127.0.1.1 in /etc/hosts, as Debian's installer writes it: here only where root may hide that file.
echo "127.0.1.1 trap.test" >"$work/hosts"
echo "mount --bind $work/hosts /etc/hosts && exec \"\$@\"" >"$work/trapped"
if unshare --mount sh "$work/trapped" true 2>/dev/null; then
    trap_test="--insecure-link --explain-launch --nnodes 2 --master-addr trap.test"
    expect "the trap on another node" 0 'Remove trap.test from the line with 127.0.1.1 in /etc/hosts, or give --master-addr' \
        unshare --mount sh "$work/trapped" "$ddprun" $trap_test --node-rank 1
    expect "the trap on node 0" 0 'trap.test is 127.0.1.1 here: that is this machine itself' \
        unshare --mount sh "$work/trapped" "$ddprun" $trap_test --node-rank 0
else
    not_run "a name that means loopback: this needs root"
fi
explained "an unknown name" A=b 'no-such-host.invalid cannot be resolved on this machine' --nnodes 2 --node-rank 1 --master-addr no-such-host.invalid
explained "an address of another machine" A=b '192\.0\.2\.77, which is not an address of this machine' --nnodes 2 --node-rank 0 --master-addr 192.0.2.77
expect "a contradiction shows the variables" 2 '^  SLURM_STEP_NUM_NODES=2$' env $srun0 "$ddprun" --nnodes 4 --explain-launch

echo "# what workers get"
# The plan of a node as it is before the nodes have met.
expect "the other node" 0 '^rank 1: as rank 3, with RANK=1 GROUP_RANK=0 ROLE_RANK=1$' "$ddprun" -n 2 $by_hand --dry-run true
expect "the last node" 0 '^rank 5: as rank 1, with RANK=5 GROUP_RANK=2 ROLE_RANK=5$' "$ddprun" -n 2 --nnodes 3 --node-rank 0 --master-addr n0 --dry-run true
expect "this node" 0 '^rank 3: environment RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 ROLE_RANK=3 ROLE_NAME=default ROLE_WORLD_SIZE=4 ' \
    "$ddprun" -n 2 $by_hand --dry-run true
finish
