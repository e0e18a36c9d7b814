#!/bin/sh
# SPDX-License-Identifier: MIT
# Same parameters, bit for bit, by the programs: check_same_bits has the ways to train, and what is trained.
. "${srcdir:-.}/tests/lib/cli.inc"
small_fashion

common="--data $work/small --batch-size 32 --global-batch 256 --seed 1 --no-eval --quiet"

set -- $common --steps 60 --hidden 33,17 --momentum 0.9,nesterov --weight-decay 1e-4 --schedule cosine --warmup-steps 5
same "1 worker x 8" "$trainer" "$@" --threads 1
same "2 workers x 4, 2 threads" "$ddprun" -n 2 trainer "$@" --threads 2 --bucket-mb 0.01
same "8 workers x 1, small buckets" "$ddprun" -n 8 trainer "$@" --bucket-mb 0.001
same "dp, 8 replicas" "$trainer" --mode dp --replicas 8 "$@"
# Every way to share the update out, with a norm over all parts.
first=
set -- $common --steps 20 --hidden 200,33,17 --optimizer adamw --clip-grad-norm 0.5 --weight-decay 0.1,on=matrices
same "update: 1 worker x 8" "$trainer" "$@"
same "update: 8 workers" "$ddprun" -n 8 trainer "$@" --bucket-mb 0.03
same "update: 4 workers, gradients too" "$ddprun" -n 4 trainer "$@" --zero 2 --bucket-mb 0.03
same "update: 2 replicas" "$ddprun" -n 2 trainer "$@" --zero 0 --bucket-mb 0.1
# Images in files, decoded by more than one thread, kept in memory or, the large ones, decoded each time.
first=
"$top/image_tool" "$work/images" 3 50 0 3 1 || exit 99
set -- --data "$work/images" --image-size 20 --model cnn --batch-size 4 --global-batch 32 --steps 8 --no-eval --quiet --threads 1
same "images: 1 worker x 8" "$trainer" "$@" --data-threads 3
same "images: 4 workers x 2" "$ddprun" -n 4 trainer "$@" --data-threads 2
same "images: dp, 4 replicas x 2" "$trainer" --mode dp --replicas 4 "$@" --data-threads 2
first=
set -- --data "$work/images" --image-size 800 --model mlp --hidden none --batch-size 2 --global-batch 8 --steps 2 --no-eval --quiet --threads 1
same "large images: 1 worker x 4" "$trainer" "$@" --data-threads 3
same "large images: 2 workers x 2" "$ddprun" -n 2 trainer "$@"
# Numbers of shards that are not a power of two: one shard a worker.
for shards in 3 7; do
    first=
    set -- --data "$work/small" --batch-size 16 --steps 30 --hidden 40 --seed 2 --no-eval --quiet --threads 1
    same "$shards shards: 1 worker" "$trainer" "$@" --acc-steps $shards
    same "$shards shards: $shards workers" "$ddprun" -n $shards trainer "$@"
done
same "7 shards: dp" "$trainer" --mode dp --replicas 7 "$@"

# Another seed drops other elements; none at all is another result again.
make_text 400
first=
set -- --model gpt2 --data "$work/text" --seq-len 24 --layers 2 --heads 3 --channels 48 --batch-size 2 --steps 2 --no-eval --quiet
same "no dropout" "$trainer" "$@"
"$trainer" "$@" --dropout 0.1 --save "$work/f" >"$work/out" 2>&1 || fail "dropout: exit code $?"
cmp -s "$work/first" "$work/f" && fail "dropout: does nothing"
finish
