#!/bin/sh
# SPDX-License-Identifier: MIT
# Workers on GPUs that hang: stopped at any moment, inside a collective most of the time, or gone too early. `ddprun status`
# and --timeout say who waits for whom and where, with one communicator or several; all are down in time, and nothing is
# left.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/kills.inc"
. "$here/tests/cuda/cuda.inc"
gpus 3
make_data
mkdir "$work/dir"
left() { ls -A /dev/shm /dev/mqueue 2>/dev/null | grep -E "ddp|cudasim" | sort; }
left >"$work/before"

article="--model article --epochs 100000000"
# Weights in buckets, sums of batch norm on a communicator of their own.
resnet="--model resnet --size 20 --data $work/images --batch-size 1 --sync-batch-norm --lr 1e-9 --no-eval --steps 100000000"

# start OPTIONS...: a job of three workers, which has finished a step: to set up GPUs takes as long as it takes
start() {
    "$ddprun" -n 3 $share --timeout 2 --grace 1 "$@" --quiet --save "$work/dir/f" >"$work/out" 2>&1 &
    job=$!
    workers $job 3
    tries=0
    until "$ddprun" status $job 2>/dev/null | grep -qE '^ +0 +[0-9]+ [a-z]+ +[a-z]+ +([2-9]|[1-9][0-9])' || [ $tries -ge 6000 ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    [ $tries -lt 6000 ] || fail "$*: no step is done: $("$ddprun" status $job 2>&1)"
    start=$(now_ms)
}

# down NAME CODE PATTERN: the job ends in time, says so, and leaves nobody and nothing
down() {
    name=$1 want=$2 pattern=$3
    wait $job
    code=$?
    took=$(($(now_ms) - start))
    [ $code -eq "$want" ] || fail "$name: exit code $code, not $want: $(cat "$work/out")"
    [ $took -le $((within_ms + 2000)) ] || fail "$name: the job was down after $took ms"
    grep -qE -- "$pattern" "$work/out" || fail "$name: not '$pattern': $(cat "$work/out")"
    gone "$name" $list
    only "$name"
    left | cmp -s - "$work/before" || fail "$name: shared memory was left: $(left)"
}

operation='[a-z-]+\+? [0-9]+'
for options in "$article --zero 1" "$article --fast" "$article" "$resnet --zero 1" "$resnet"; do
    name="stopped, $options"
    count=$((count + 1))
    start "$trainer" --device cuda $options
    victim=$((count % 3))
    kill -STOP "$(echo $list | cut -d ' ' -f $((1 + victim)))"
    # Behind the others when it was stopped; or with them, in what then does not end; or with some of them.
    wanted="(not arrived at $operation; ranks? [0-9 ]+ (has|have) waited [0-9]+ s|all ranks have arrived at $operation)"
    wanted="$wanted(; rank $victim is in $operation)?; rank $victim is stopped"
    tries=0
    until "$ddprun" status $job >"$work/status" 2>&1 && grep -qE "$wanted" "$work/status" || [ $tries -ge $((50 * patience)) ]; do
        sleep 0.02
        tries=$((tries + 1))
    done
    grep -qE "$wanted" "$work/status" || fail "$name: status says: $(cat "$work/status")"
    grep -qE "^ +$victim +[0-9]+ stopped" "$work/status" || fail "$name: status does not show it stopped"
    down "$name" 124 "$wanted"
done

for options in "$article" "$resnet"; do
    name="gone too early, $options"
    count=$((count + 1))
    DDP_FAULTS=exit:rank=1,step=3,code=0 start "$trainer" --device cuda $options
    down "$name" 1 'rank 1 .*exited with code 0 without closing the job'

    name="killed, $options"
    count=$((count + 1))
    start "$trainer" --device cuda $options
    kill -9 "$(echo $list | cut -d ' ' -f 3)"
    down "$name" 137 'rank 2 .*was killed by SIGKILL'
    ! grep -q ': error: .*NCCL' "$work/out" || fail "$name: the others blame NCCL: $(cat "$work/out")"
done
finish
