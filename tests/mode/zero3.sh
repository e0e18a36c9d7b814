#!/bin/sh
# SPDX-License-Identifier: MIT
# --zero 3 over nodes: the bits of accumulation, evaluation, files and checkpoints out of parts, and weights that go.
# shellcheck disable=SC2086 # options
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/nodes.inc"
make_data
gpt2="--model gpt2 --data $work/text --layers 3 --heads 2 --device cpu --seed 3 --threads 1"
few="$gpt2 --no-eval --seq-len 12 --channels 64 --dropout 0.1 --batch-size 2 --quiet --schedule constant --optimizer adamw --clip-grad-norm 0.5"
few="$few --global-batch 16 --lanes 8"
split="--zero 3 --bucket-mb 0.02"

# Workers of 3 have different numbers of shards: those with fewer take part in what the others read.
for more in "" "--recompute --dtype bf16" "--lanes 4"; do
    first=
    set -- "$trainer" $few --steps 3 $more
    same "${more:-plain}: accumulation" "$@"
    same "${more:-plain}: 1 + 2" nodes 2 1,2 "$@" $split
    same "${more:-plain}: 4 x 1" nodes 4 1 "$@" $split
done
# Evaluations bring blocks together too. 5 batches: a worker has more than another, or none.
first=
set -- "$trainer" $few --steps 4 --val-split 0.2 --eval --eval-every 1
same "evaluated: accumulation" "$@"
same "evaluated: 2 x 2" nodes 2 2 "$@" $split
scores() {
    sed -n 's/.*test accuracy/test accuracy/p'
}
for more in "" "--dtype bf16"; do
    count=$((count + 1))
    set -- "$trainer" $gpt2 --seq-len 12 --channels 64 --batch-size 2 --global-batch 16 --lanes 8 --steps 2 --val-split 0.2 --eval --eval-every 1 $more
    "$@" | scores >"$work/scores"
    nodes 3 1 "$@" $split | scores >"$work/scores3"
    [ -s "$work/scores" ] && cmp "$work/scores" "$work/scores3" || fail "evaluated ${more}: other scores: $(cat "$work/scores3")"
done

# Frozen weights in each type that a base may have.
llama="--model llama --size d2 --data $work/text --seq-len 12 --device cpu --seed 3 --threads 1 --no-eval --batch-size 2 --quiet --schedule constant"
llama="$llama --global-batch 16 --lanes 8 --lora r=4,targets=all-linear,dropout=0.1"
for base in "" "--dtype bf16 --recompute" "--frozen-dtype bf16" "--frozen-dtype nf4 --dtype bf16"; do
    first=
    set -- "$trainer" $llama --steps 3 $base
    same "frozen ${base}: accumulation" "$@"
    same "frozen ${base}: 1 + 2" nodes 2 1,2 "$@" $split
done

# What forward passes write is in the front of the flat array.
first=
set -- "$trainer" --device cpu --model resnet --data "$work/images" --batch-size 2 --steps 2 --seed 3 --no-eval --quiet --threads 1
same "resnet: accumulation" "$@" --size 20 --global-batch 8
same "resnet: 2 x 2" nodes 2 2 "$@" --size 20 --global-batch 8 $split
first=
same "sync-batch-norm: 1 x 4" "$ddprun" -n 4 "$@" --size 20 --sync-batch-norm
same "sync-batch-norm: 2 x 2" nodes 2 2 "$@" --size 20 --sync-batch-norm $split

same_resumed "$split" "$trainer" $few
count=$((count + 1))
"$trainer" $few --steps 2 --save "$work/a.safetensors" >"$work/out" 2>&1 || fail "saved: $(head -n 5 "$work/out")"
nodes 2 1 "$trainer" $few --steps 2 --save "$work/b.safetensors" $split >"$work/out" 2>&1 || fail "2 x 1, saved: $(head -n 5 "$work/out")"
cmp -s "$work/a.safetensors" "$work/b.safetensors" || fail "a saved file differs"

# peak STAGE: MB of the worker that held most, and as planned without the program; weights are 101 MB, a block's 13
peak() {
    nodes 2 1 "$trainer" $gpt2 --no-eval --layers 8 --channels 512 --heads 4 --seq-len 4 --batch-size 1 --steps 2 --bucket-mb 1 --zero "$1" |
        sed -n 's/^memory  *\([0-9.]*\) MB at the peak of a worker: \([0-9.]*\) MB.*/\1 \2/p'
}
if [ -n "${DDP_SANITIZE:-}" ]; then
    not_run "memory: a sanitizer hides it"
else
    count=$((count + 1))
    echo "$(peak 2) $(peak 3)" | awk '{ saved = $1 - $3; planned = $2 - $4; print; exit !(planned > 30 && saved > planned - 10 && saved < planned + 10) }' \
        >"$work/peaks" || fail "memory: peak and plan of --zero 2 and of 3: $(cat "$work/peaks")"
fi
expect "one node" 0 '--zero 3 splits weights over nodes, and there is one: as --zero 2' "$ddprun" -n 2 "$trainer" $few --steps 1 --zero 3
expect "on GPUs" 2 '--zero 3 splits weights and gradients in the memory of the host, .* cuda: use --zero 1' \
    "$trainer" --device cuda --mode ddp --zero 3 --plan --model gpt2
# of_nodes NAME CODE PATTERN COMMAND...: what 2 nodes say
of_nodes() {
    name=$1 code=$2 pattern=$3
    shift 3
    count=$((count + 1))
    nodes 2 1 "$trainer" --device cpu --data "$work/text" --plan --zero 3 "$@" >"$work/out" 2>&1
    [ "$node_code" -eq "$code" ] && grep -q -e "$pattern" "$work/out" || fail "$name: exit code $node_code: $(head -n 5 "$work/out")"
}
ends "does not fit" 5 2 1 "$trainer" $gpt2 --no-eval --layers 1 --channels 65536 --heads 64 --zero 3
said "does not fit" 'out of memory: .* its largest block begins with h[.0-9a-z_]* and takes 206.* GB in each node'
of_nodes "plan" 0 '^update .*split over the workers with the gradients, and the weights over the nodes' --model gpt2
of_nodes "sampled" 0 '^memory  *weights 344 MB' --model gpt2 --size 124M --no-eval --sample-every 5
of_nodes "evaluated" 0 '^memory  *weights 2[0-9][0-9] MB' --model gpt2 --size 124M --val-split 0.2
finish
