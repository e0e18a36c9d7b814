#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun-cluster(7): srun's commands and the batch scripts, with a Slurm over hosts in network namespaces.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster_docs.inc"
. "$here/tests/launcher/cluster/hosts.inc"
. "$here/tests/launcher/cluster/slurm.inc"
need_commands
slurm_up 2
export DDPRUN_MUNGE_SOCKET="$slurm/munge/socket"
login="$on $switch"
cd "$work" || exit 99

block sh srun >"$work/script"
expect srun 0 '3 steps in' $login sh "$work/script"
is_one_job srun 2
block sh where >"$work/script"
expect where 0 "^\[3\]: 3 of 4 on $(host 1)" $login sh "$work/script"
block sh explain >"$work/script"
expect explain 0 'nodes: 2; this is node 1' $login sh "$work/script"

# batch NAME PATTERN: that script, run as a job to its end, writes this
batch() {
    block file "$1" >"$work/$1"
    expect "$1" 0 '' $login sbatch --wait -o "$work/job" "$work/$1"
    cp "$work/job" "$work/out" && grep -q "$2" "$work/out" || { fail "$1: the job's output does not match: $2"; cat "$work/out"; }
}
batch train.sbatch '3 steps in'
is_one_job train.sbatch 2
[ -s "$work/weights.safetensors" ] || fail "train.sbatch: no weights"

# The time limit's signal, in the middle of training: one checkpoint, code 75, and the job is in the queue again.
block file requeue.sbatch >"$work/requeue.sbatch"
job=$(DOCS_TRAINER='--steps 1000000 --checkpoint-every 1000000 --lr 0.001 --log-every 100' $login sbatch --parsable -o "$work/requeue.out" "$work/requeue.sbatch")
state() {
    $login squeue -h -j "$job" -o %T
}
has() {
    grep -q "$1" "$work/requeue.out" 2>/dev/null
}
is_pending() {
    [ "$(state)" = PENDING ]
}
count=$((count + 1))
until_true has 'step 100/' || fail "requeue.sbatch does not train: $(cat "$work/requeue.out")"
$login scancel --signal=USR1 "$job"
until_true is_pending || fail "requeue.sbatch: not in the queue again but $(state): $(tail -n 5 "$work/requeue.out")"
[ "$(ls "$work/run1" | grep -c '^step-')" -eq 1 ] ||
    fail "requeue.sbatch: not one checkpoint: $(ls "$work/run1"; cat "$work/requeue.out")"
$login scancel "$job"

# Cancelled by its user, the job does not come back.
count=$((count + 1))
rm "$work/requeue.out"
job=$(DOCS_TRAINER='--steps 1000000 --checkpoint-every 1000000 --lr 0.001 --log-every 100' $login sbatch --parsable -o "$work/requeue.out" "$work/requeue.sbatch")
until_true has 'step [1-9][0-9]*00/' || fail "requeue.sbatch does not resume: $(cat "$work/requeue.out")"
$login scancel "$job"
is_cancelled() {
    $login scontrol show job "$job" | grep -q 'JobState=CANCELLED' && ! $login squeue -h -j "$job" 2>/dev/null | grep -q .
}
until_true is_cancelled || fail "requeue.sbatch: cancelled, but $($login scontrol show job "$job" | grep JobState)"

python=
for candidate in python3 /usr/bin/python3; do
    [ -n "$python" ] || ! $candidate -c 'import torch.distributed' 2>/dev/null || python=$candidate
done
if [ -n "$python" ]; then
    PYTHON_EXEC=$(command -v $python) OMP_NUM_THREADS=1
    export PYTHON_EXEC OMP_NUM_THREADS
    cat >"$work/train.py" <<'END'
import torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(3)
dist.all_reduce(ones)
if dist.get_rank() == 0:
    print("sum", ones.tolist())
END
    batch torch.sbatch 'sum \[4.0, 4.0, 4.0\]'
else
    not_run "torch.sbatch: no Python here has PyTorch"
fi
finish
