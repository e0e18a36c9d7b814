#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun under a real Slurm, a host of its own for each node: who is a node of what, exit codes, requests to stop, preemption,
# proofs by MUNGE.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster/hosts.inc"
. "$here/tests/launcher/cluster/slurm.inc"
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
    expect "srun $mpi, SIGKILL" 137 'rank 0 .*SIGKILL' $srun $mpi -N2 "$ddprun" -n 2 sh -c \
        '[ $RANK = 0 ] && kill -9 $$; exec sleep 60'
done
expect "two tasks a node" 2 'ntasks-per-node=1' $login srun -N2 --ntasks-per-node=2 "$ddprun" -n 1 true
expect "one node" 0 '' $srun -N1 -w "$(host 0)" "$ddprun" -n 2 "$tell"
told "one node" 1 2 127.0.0.1

# A step that does without a node that is lost.
printf '#!/bin/sh\necho $RANK/$WORLD_SIZE >>%s/members\nwhile [ ! -e %s/over ]; do sleep 0.02; done\n' "$work" "$work" >"$work/worker"
chmod +x "$work/worker"
timeout $((60 * patience)) $srun --mpi=none --no-kill --kill-on-bad-exit=0 -N3 "$ddprun" --nnodes 2:3 -n 1 "$work/worker" >"$work/out" 2>&1 &
members() {
    [ -e "$work/members" ] && [ "$(grep -c "/$1\$" "$work/members")" -eq "$1" ]
}
until_true members 3 || fail "srun --no-kill: $(cat "$work/out")"
for pid in $(ip netns pids "$(host 0)"); do
    [ "$(cat "/proc/$pid/comm")" != ddprun ] || kill -9 "$pid"
done
until_true members 2 || fail "srun --no-kill: does not go on: $(cat "$work/out")"
: >"$work/over"
wait $!
code=$?
count=$((count + 1))
[ $code -eq 137 ] && [ "$(wc -l <"$work/members")" -eq 5 ] || fail "srun --no-kill: exit code $code: $(cat "$work/out" "$work/members")"

# What Slurm starts on one node only is one node, however many the job has.
expect "salloc" 0 '' $login salloc -N2 "$ddprun" -n 2 "$tell"
told_host=$switch
told "salloc" 1 2 127.0.0.1
told_host=
printf '#!/bin/sh\n%s -n 2 %s\n' "$ddprun" "$tell" >"$work/batch"
expect "sbatch" 0 '' $login sbatch --wait -N2 -o "$work/batch.out" "$work/batch"
told "sbatch" 1 2 127.0.0.1

expect "srun --explain-launch" 0 'this is node 1' $srun -N2 "$ddprun" --explain-launch
grep -q 'by srun: SLURM_STEP_NUM_NODES' "$work/out" && grep -q "$(host 0) (.*SLURM_STEP_NODELIST" "$work/out" ||
    { fail "srun --explain-launch"; cat "$work/out"; }

# Without PMIx the nodes show each other credentials of MUNGE. by_hand RANK COMMAND...: as in a step of Slurm.
by_hand() {
    rank=$1
    shift
    timeout $((60 * patience)) "$on" "$(host "$rank")" env SLURM_JOB_ID=71 SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 \
        SLURM_STEP_NODELIST="${hosts}n[0-1]" SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_PROCID="$rank" \
        SLURMD_NODENAME="$(host "$rank")" "$@" >"$work/by_hand.$rank" 2>&1
}
by_hand 1 "$ddprun" -n 1 true &
by_hand 0 "$ddprun" -n 1 true || fail "two nodes with MUNGE: $(cat "$work/by_hand.0")"
wait $! || fail "two nodes with MUNGE: $(cat "$work/by_hand.1")"
other='setpriv --reuid 61871 --regid 61871 --clear-groups --inh-caps=-all'
if $other "$ddprun" --version >/dev/null 2>&1 && chmod 755 "$work" && $other test -w "$DDPRUN_MUNGE_SOCKET"; then
    by_hand 1 $other "$ddprun" -n 1 --node-timeout 3 true &
    by_hand 0 "$ddprun" -n 1 --node-timeout 3 true && fail "another user's node was let in"
    wait $! && fail "another user's node has joined"
    grep -q 'MUNGE says: Unauthorized' "$work/by_hand.0" || { fail "why another user's node is refused"; cat "$work/by_hand.0"; }
    count=$((count + 1))
else
    not_run "a node of another user: none can run $ddprun here"
fi
DDPRUN_MUNGE_SOCKET=$work/nobody expect "no munged" 125 'munge.*--key-file' $srun --mpi=none -N2 "$ddprun" -n 1 true
DDPRUN_MUNGE_SOCKET=$work/nobody expect "--insecure-link" 0 '' $srun --mpi=none -N2 "$ddprun" -n 1 --insecure-link true

# The trainer: the same bytes as on one machine, and requests to stop.
[ -e "$top/.libs/libddp-ucx.so" ] || skip "training over nodes: this build has no libddp-ucx.so (install libucx-dev)"
small_fashion
train="$trainer --data $work/small --batch-size 32 --global-batch 128 --seed 1 --no-eval --quiet --threads 1"
same "one machine" "$ddprun" -n 4 $train --steps 40
same "srun -N2, two workers each" $srun --mpi=none -N2 "$ddprun" -n 2 $train --steps 40
same "srun -N4" $srun $pmix -N4 "$ddprun" -n 1 $train --steps 40

stepping() {
    grep -q '"step"' "$work/log" 2>/dev/null
}

checkpoints() {
    ls "$work/kept" 2>/dev/null | grep -c '^step-'
}
train="$train --schedule constant --checkpoint $work/kept --checkpoint-every 1000000 --resume --log $work/log"
# Slurm signals every process of the step, and ddprun passes the signal on.
for cancel in --signal=USR1 --signal=TERM ''; do
    rm -rf "$work/log" "$work/kept"
    timeout $((60 * patience)) $srun -N2 "$ddprun" -n 1 $train --steps 1000000 >"$work/out" 2>&1 &
    until_true stepping || fail "scancel $cancel: no step is done: $(cat "$work/out")"
    $login scancel $cancel "$($login squeue -h -o %i)"
    wait $!
    code=$?
    count=$((count + 1))
    [ $code -eq 75 ] || { fail "scancel $cancel: exit code $code"; cat "$work/out"; }
    [ "$(checkpoints)" -eq 1 ] || fail "scancel $cancel: $(checkpoints) checkpoints"
done

# A job of higher priority takes the nodes; the preempted one goes back into the queue and goes on, on one node instead of two.
rm -rf "$work/log" "$work/kept"
cat >"$work/batch" <<END
#!/bin/sh
steps=1000000
if [ -n "\${SLURM_RESTART_COUNT:-}" ]; then
    steps=\$((\$(ls "$work/kept" | sed -n 's/^step-0*//p') + 20))
    echo \$steps >"$work/steps"
fi
srun --ntasks-per-node=1 "$ddprun" -n 1 $train --steps \$steps --save "$work/requeued"
[ \$? -ne 75 ] || scontrol requeue "\$SLURM_JOB_ID" # it has ended in time, so Slurm would not do it
END
expect "sbatch --requeue" 0 'Submitted' \
    $login sbatch --requeue --exclusive -N2 --open-mode=append -o "$work/batch.out" "$work/batch"
until_true stepping || fail "sbatch --requeue: no step is done: $(cat "$work/batch.out")"
job=$($login squeue -h -o %i)
expect "preemption" 0 '' $login srun -p high --exclusive -N4 true
waiting() {
    [ "$($login squeue -h -j "$job" -o %T)" = PENDING ]
}
until_true waiting || fail "preemption: $($login squeue -h -j "$job" -o '%T %r')"
# Slurm itself would wait two minutes. What starts in the second in which the job was ended before is refused by its slurmd.
$login scontrol update job="$job" NumNodes=1 StartTime=now+3 || fail "preemption: the job cannot be changed"
until_true test -s "$work/requeued"
[ -s "$work/requeued" ] || { fail "the preempted job does not go on: $($login scontrol show job "$job")"; cat "$work/batch.out"; }
first=
same "not preempted" "$ddprun" -n 2 $trainer --data "$work/small" --batch-size 32 --global-batch 128 --seed 1 --no-eval --quiet \
    --threads 1 --schedule constant --steps "$(cat "$work/steps")"
cmp "$work/first" "$work/requeued" || { fail "preempted: other bits"; cat "$work/batch.out"; }
finish
