#!/bin/sh
# SPDX-License-Identifier: MIT
# GPUs of several nodes, between which NCCL exchanges gradients: the same bits as on one node, however the update is shared
# out; a worker that dies or stops on one node ends all. All nodes are ddpruns on this machine, which NCCL takes for hosts.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
. "$here/tests/lib/nodes.inc"
. "$here/tests/train/loop_weights.inc"
gpus 4
make_data

mlp="--device cuda --data $work/images --hidden 33,17 --optimizer adamw --clip-grad-norm 0.5"
gpt2="--device cuda --model gpt2 --data $work/text --seq-len 8 --layers 1 --heads 2 --channels 16 --dropout 0.1 --dtype bf16"
few="--batch-size 1 --global-batch 8 --steps 4 --seed 3 --no-eval --quiet --schedule constant"
for model in "$mlp" "$gpt2"; do
    first=
    same "1 worker" "$trainer" $model $few
    same "2 x 2" nodes 2 2 $share "$trainer" $model $few --bucket-mb 0.05 --zero 1
    same "3 x 1" nodes 3 1 "$trainer" $model $few --zero 1
    same "3 + 1" nodes 2 3,1 $share "$trainer" $model $few --zero 1
    same "4 x 1, replicas" nodes 4 1 "$trainer" $model $few --zero 0
    same "2 x 2, 2 stages" nodes 2 2 $share "$trainer" $model $few --stages 2
    same "3 + 1, 2 stages" nodes 2 3,1 $share "$trainer" $model $few --stages 2
    same "4 x 1, 2 stages" nodes 4 1 "$trainer" $model $few --stages 2
done
same "2 x 1, GPUs named" nodes 2 1 "$trainer" $model $few --devices 0
same "2 x 2 on one GPU each" nodes 2 2 env -u NCCL_HOSTID "$trainer" $model $few --devices 0,0
[ $simulated = no ] || gpus 1
same "2 x 2 --oversubscribe" nodes 2 2 --oversubscribe "$trainer" $model $few
[ $simulated = no ] || gpus 4
ends "as many names as workers of a node" 2 2 2 $share "$trainer" $mlp $few --devices 0
said "as many names as workers of a node" '--devices names 1 device for 2 workers on this node'

first=
same "resumed: 1 x 4" "$ddprun" -n 4 $share "$trainer" $mlp $few --checkpoint "$work/one" --zero 1
ends "resumed: first steps on 4 x 1" 0 4 1 "$trainer" $mlp $few --steps 2 --checkpoint "$work/four" --zero 1
same "resumed: 4 x 1 on 2 x 2" nodes 2 2 $share "$trainer" $mlp $few --checkpoint "$work/four" --resume --zero 1

# A loop of the program's own (loop_client) puts weights in and takes gradients out.
modes() {
    case $action in
    put_late | explained)
        run accum 1 "$@"
        run "4 x 1, replicas" "nodes 4 1" "$@" --zero 0
        ;;
    *) run "2 x 2" "nodes 2 2 $share" "$@" --zero 1 ;;
    esac
}
few="--device cuda --data $work/images --hidden 9 --batch-size 1 --global-batch 8 --no-eval --quiet --dtype bf16"
weights "own loop" $few
gradients "own loop" "" $few --momentum 0

endless="--device cuda --model article --epochs 100000000 --quiet"
DDP_FAULTS=kill:rank=3,step=50 ends "killed on node 1" 137 2 2 $share "$trainer" $endless
for node in 0 1; do
    said "killed on node 1" 'rank 3 .* on node 1 .* SIGKILL' $node
done
DDP_FAULTS=stop:rank=2,step=50 ends "stopped on node 1" 124 2 2 $share --timeout 2 --grace 1 "$trainer" $endless
finish
