#!/bin/sh
# SPDX-License-Identifier: MIT
# --zero 2: the bits of accumulation, resumed from and into other ways to share the update out, and gradients that go.
# shellcheck disable=SC2086 # options
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/nodes.inc"
make_data
few="--model gpt2 --data $work/text --seq-len 12 --layers 3 --heads 2 --channels 64 --dropout 0.1 --device cpu --batch-size 2 --seed 3"
few="$few --no-eval --threads 1 --quiet --schedule constant --optimizer adamw --clip-grad-norm 0.5 --global-batch 16 --lanes 8"
split="--zero 2 --bucket-mb 0.02"
for more in "" "--recompute" "--dtype bf16" "--lanes 4"; do
    first=
    set -- "$trainer" $few --steps 3 $more
    same "${more:-plain}: accumulation" "$@"
    same "${more:-plain}: 1 x 4" "$ddprun" -n 4 "$@" $split
    same "${more:-plain}: 2 x 2" nodes 2 2 "$@" $split
    same "${more:-plain}: 1 + 2" nodes 2 1,2 "$@" $split
done

# Statistics of more than a bucket, which forward passes write; sums of batch norm while buckets are on their way.
first=
set -- "$trainer" --device cpu --model resnet --data "$work/images" --batch-size 2 --steps 2 --seed 3 --no-eval --quiet --threads 1
same "resnet 56: accumulation" "$@" --size 56 --global-batch 8
same "resnet 56: 2 x 2" nodes 2 2 "$@" --size 56 --global-batch 8 $split
first=
same "sync-batch-norm: 1 x 4" "$ddprun" -n 4 "$@" --size 20 --sync-batch-norm
same "sync-batch-norm: 2 x 2" nodes 2 2 "$@" --size 20 --sync-batch-norm --bucket-mb 0.02
same "sync-batch-norm: 1 x 4, gradients split" "$ddprun" -n 4 "$@" --size 20 --sync-batch-norm --zero 2 --bucket-mb 0.2

same_resumed "$split" "$trainer" $few

# peak STAGE: of the worker that held most, in MB; gradients are 51 MB
peak() {
    nodes 2 1 "$trainer" --device cpu --model gpt2 --data "$work/text" --layers 4 --heads 4 --channels 512 --seq-len 4 --batch-size 1 --steps 2 \
        --no-eval --threads 1 --zero "$1" --bucket-mb 1 | sed -n 's/^memory  *\([0-9.]*\) MB at the peak.*/\1/p'
}
if [ -n "${DDP_SANITIZE:-}" ]; then
    not_run "memory: a sanitizer hides it"
else
    count=$((count + 1))
    whole=$(peak 1) thin=$(peak 2)
    # Half of them are another worker's, less what is on its way: 2 buckets and the largest parameter.
    awk -v w="$whole" -v t="$thin" 'BEGIN { exit !(t > 0 && t < w - 15) }' || fail "memory: $thin MB with --zero 2, $whole MB with 1"
fi
expect "local steps" 2 '--sync-every 4: each worker .*--zero 0' "$ddprun" -n 2 "$trainer" $few --sync-every 4 --zero 2
expect "on GPUs" 2 '--zero 2 splits gradients in the memory of the host, .* cuda: use --zero 1' \
    "$trainer" --device cuda --mode ddp --zero 2 --plan --model gpt2
expect "plan" 0 '^update .*split over the workers with the gradients, on one copy' "$ddprun" -n 2 "$trainer" --device cpu --plan --model gpt2 --zero 2
expect "table" 0 'ddp  *8  *2  *fp32' "$ddprun" -n 2 "$trainer" --device cpu --model gpt2 --plan-memory 8G --zero 2
finish
