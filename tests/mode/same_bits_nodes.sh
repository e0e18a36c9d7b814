#!/bin/sh
# SPDX-License-Identifier: MIT
# Same parameters, bit for bit, however many nodes the workers are on, by the programs (check_same_bits has the models and the
# ways to train), resumed from one shape into another and stopped on request. And what is
# said of nodes that were not started alike. All nodes are ddpruns on this machine.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/nodes.inc"
make_data
mlp="--data $work/images --hidden 33,17 --optimizer adamw --clip-grad-norm 0.5 --weight-decay 0.1"
gpt2="--model gpt2 --data $work/text --seq-len 12 --layers 2 --heads 2 --channels 16 --dropout 0.1"
few="--device cpu --batch-size 2 --global-batch 16 --seed 3 --no-eval --threads 1 --quiet"

first=
same "mlp: accumulation" "$trainer" $mlp $few --steps 5
same "mlp: 2 x 2" nodes 2 2 "$trainer" $mlp $few --steps 5 --bucket-mb 0.01
# Nodes meet, give signs of life and train by clocks that nobody sets.
jumps() { LD_PRELOAD=$top/.libs/libchaos_faults.so CHAOS_CLOCK=7200 nodes "$@"; }
same "mlp: 2 x 2, the time of day jumps" jumps 2 2 "$trainer" $mlp $few --steps 5 --log "$work/jumps.json"
same "mlp: 2 x 2, replicas" nodes 2 2 "$trainer" $mlp $few --steps 5 --zero 0
same "mlp: 2 x 2, gradients split" nodes 2 2 "$trainer" $mlp $few --steps 5 --bucket-mb 0.01 --zero 2
same "mlp: 3 x 1" nodes 3 1 "$trainer" $mlp $few --steps 5
same "mlp: 3 + 1" nodes 2 3,1 "$trainer" $mlp $few --steps 5 --bucket-mb 0.01
same "mlp: 1 + 3 + 2, replicas" nodes 3 1,3,2 "$trainer" $mlp $few --steps 5 --zero 0
same "mlp: 2 x 4" nodes 2 4 "$trainer" $mlp $few --steps 5
for FROZEN in f32 bf16; do
    export FROZEN
    first=
    frozen="$top/frozen_client --data $work/text --seq-len 12"
    same "$FROZEN frozen: accumulation" $frozen $few --steps 3
    same "$FROZEN frozen: 2 x 2" nodes 2 2 $frozen $few --steps 3
    same "$FROZEN frozen: 3 + 1" nodes 2 3,1 $frozen $few --steps 3
    same "$FROZEN frozen: 4 x 1" nodes 4 1 $frozen $few --steps 3
    same "$FROZEN frozen: a pipeline over 2 nodes" nodes 2 1 $frozen $few --steps 3 --mode pipeline --stages 2 --lanes 8
done
unset FROZEN
first=
same "own data: accumulation" "$top/own_data_tool" numbers $few --epochs 2
same "own data: 2 x 2" nodes 2 2 "$top/own_data_tool" numbers $few --epochs 2
first=
set -- --device cpu --model resnet --size 20 --data "$work/images" --batch-size 2 --steps 2 --seed 3 --no-eval --quiet --threads 1 --sync-batch-norm
same "sync-batch-norm: 1 x 4" "$ddprun" -n 4 "$trainer" "$@"
same "sync-batch-norm: 2 x 2" nodes 2 2 "$trainer" "$@"

# Stages on several nodes.
first=
set -- "$trainer" $gpt2 $few --steps 3 --clip-grad-norm 0.5
same "pipeline: accumulation" "$@"
same "pipeline: 2 x 2, 4 stages" nodes 2 2 "$@" --stages 4
same "pipeline: 3 + 1, 2 stages" nodes 2 3,1 "$@" --stages 2
same "pipeline: 4 x 1, 2 stages" nodes 4 1 "$@" --stages 2

# Resumed on other nodes; the checkpoint holds the optimizer's state, of which no node had all.
first=
few="${few%--quiet*}--schedule constant --quiet"
same "resumed: without interruption" "$trainer" $mlp $few --steps 6
for shapes in "2 2 3 1" "1 3 2 2" "2 1,2 2 3,1"; do
    set -- $shapes
    rm -rf "$work/checkpoints"
    count=$((count + 1))
    nodes "$1" "$2" "$trainer" $mlp $few --checkpoint "$work/checkpoints" --steps 3 >"$work/out" 2>&1 || fail "$1 x $2: $(head -n 5 "$work/out")"
    same "resumed: $1 x $2 on $3 x $4" nodes "$3" "$4" "$trainer" $mlp $few --checkpoint "$work/checkpoints" --resume --steps 6
done

# A request to one ddprun stops all nodes after one step; the rest runs elsewhere.
rm -rf "$work/checkpoints"
mkdir "$work/checkpoints"
endless="--steps 100000000 --checkpoint $work/checkpoints --checkpoint-every 100000000"
(
    until_true grep -q 'epoch 2:' "$work/node.0"
    kill -TERM "$(cat "$work/pid.1")"
) &
stopper=$!
ends "stopped" 75 2 2 "$trainer" $mlp ${few%--quiet*} $endless
wait $stopper
step=$(basename "$(ls -d "$work"/checkpoints/step-*)" | sed 's/^step-0*//')
first=
if [ -n "$step" ]; then
    last=$((step + 3))
    same "stopped: without interruption" "$trainer" $mlp $few --steps $last
    same "stopped: continued on 1 x 4" "$ddprun" -n 4 "$trainer" $mlp $few --steps $last \
        --checkpoint "$work/checkpoints" --resume
else
    fail "stopped: there is no checkpoint"
fi

# Evaluations, predictions and texts.
"$trainer" $mlp $few --steps 4 --save "$work/weights" >"$work/out" 2>&1 || fail "weights: $(cat "$work/out")"
for shape in "1 1" "2 2" "3 1" "2 3,1"; do
    set -- $shape
    ends "predict on $1 x $2" 0 "$1" "$2" "$trainer" --load "$work/weights" --data "$work/images" --predict "$work/p$1$2.csv" \
        --eval-only --batch-size 7 --threads 1 --device cpu
    grep -E '^test|accuracy' "$work/node.0" | sed 's/ in [0-9.]* s//; s/, [0-9.]* s.*//' >"$work/e$1$2"
    count=$((count + 2))
    cmp -s "$work/p11.csv" "$work/p$1$2.csv" || fail "predictions of $1 x $2 differ"
    cmp -s "$work/e11" "$work/e$1$2" || fail "the evaluation of $1 x $2 differs"
done

# A trace a node.
ends "trace" 0 2 2,1 "$trainer" $mlp $few --steps 2 --trace "$work/trace.json"
count=$((count + 1))
grep -q 'rank 0' "$work/trace.json" && grep -q 'rank 2' "$work/trace.node1.json" || fail "each node has a trace"

# --- refused, or warned of ---
for mode in dp accum; do
    ends "mode $mode" 2 2 1 "$trainer" --mode $mode --model article --device cpu
    said "mode $mode" "--mode $mode runs in one process, but ddprun started 2 workers on 2 nodes: use --mode ddp"
done
node_extra_1="--lr 0.5"
ends "other options" 2 2 1 "$trainer" $mlp $few --steps 2 --lr 0.4
said "other options" "--lr is not the same on node 1 .* as on node 0 .*: start all nodes with the same options"
node_extra_1="--log $work/log"
ends "an option more" 2 2 2 "$trainer" $mlp $few --steps 2
said "an option more" "--log is not the same on node 1 "
cp -r "$work/images" "$work/others"
printf X | dd of="$work/others/train-images-idx3-ubyte" bs=1 seek=4000 conv=notrunc 2>/dev/null
node_extra_1="--data $work/others"
ends "other data" 2 2 1 "$trainer" $few --steps 2 --data "$work/images"
said "other data" "the data are not the same on node 1 "
node_extra_1=

# One rank says what others have found too, and all nodes show it.
ends "not a number" 10 2 2 "$trainer" $mlp $few --steps 40 --optimizer sgd --lr 1000 --schedule constant
for node in 0 1; do
    said "not a number" 'the loss is (nan|inf) at step [0-9]+: first in .*, shard [0-7] \(rank [0-3] on node [01] \(' $node
done

# shellcheck disable=SC2016  # the workers' shells expand it
ends "another program" 1 2 1 --timeout 8 --setup-timeout 8 sh -c 'test $RANK = 1 || exec "$0" --model article --device cpu' "$trainer"
said "another program" 'error: .*rank 1 has ended without joining the other ranks, which wait for it'

# A directory of checkpoints that is not one.
node_dirs=yes
mkdir "$work/dir.0" "$work/dir.1"
printf '1,2,3\n4,5,6\n7,8,9\n1,3,5\n' | tee "$work/dir.0/table.csv" | sed 's/9/8/' >"$work/dir.1/table.csv"
ends "other data of a program's own" 2 2 1 "$top/examples/own_data" table.csv --steps 1 --batch-size 1 --no-eval
said "other data of a program's own" "the data are not the same on node 1 "
ends "not shared" 0 2 1 "$trainer" $mlp $few --steps 2 --checkpoint here
said "not shared" 'warning: --checkpoint here is not shared: what is written on node 0 .* is not seen on node 1 '
mv "$work/dir.0/here" "$work/dir.1/here"
ends "on another node" 2 2 1 "$trainer" $mlp $few --steps 4 --checkpoint here --resume
said "on another node" '--resume: here has no checkpoint on node 0 .*, which reads them, but it has on node 1 '
rm -rf "$work"/dir.?/here
ln -s ../shared "$work/dir.0/here"
ln -s ../shared "$work/dir.1/here"
mkdir "$work/shared"
ends "shared" 0 2 1 "$trainer" $mlp $few --steps 2 --checkpoint here
count=$((count + 1))
! grep -q 'not shared' "$work/node.0" || fail "shared: warned of all the same"
[ -z "$(find "$work/shared" -name '.mark*')" ] || fail "a mark is left"
node_dirs=
# A worker may be a script that trains twice: its second process has another address on the wire.
ends "two trainings" 0 2 1 sh -c '"$@" && exec "$@"' sh "$trainer" --model article --epochs 1 --quiet
finish
