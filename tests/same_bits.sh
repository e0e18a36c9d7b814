#!/bin/sh
# SPDX-License-Identifier: MIT
# Same parameters, bit for bit: any split of the same eight shards over workers, accumulation steps or replicas, with
# one and two threads each, and with short batches at the end of epochs.
. "${srcdir:-.}/tests/cli.inc"
small_fashion

common="--data $work/small --batch-size 32 --global-batch 256 --seed 1 --no-eval --quiet"

for threads in 1 2; do
    set -- $common --steps 60 --threads $threads
    same "1 worker x 8, $threads threads" "$trainer" "$@"
    same "2 workers x 4, $threads threads" "$ddprun" -n 2 trainer "$@"
    same "4 workers x 2, $threads threads" "$ddprun" -n 4 trainer "$@"
    same "8 workers x 1, $threads threads" "$ddprun" -n 8 trainer "$@"
    same "dp, 8 replicas, $threads threads" "$trainer" --mode dp --replicas 8 "$@"
    same "dp, 4 replicas x 2, $threads threads" "$trainer" --mode dp --replicas 4 "$@"
done
first=
set -- $common --steps 60 --hidden 33,17 --nesterov --weight-decay 1e-4 --schedule cosine --warmup-steps 5
same "tail: 1 worker x 8" "$trainer" "$@"
same "tail: 2 workers x 4" "$ddprun" -n 2 trainer "$@" --bucket-mb 0.01
same "tail: 8 workers x 1" "$ddprun" -n 8 trainer "$@" --bucket-mb 0.001
same "tail: dp, 2 replicas x 4" "$trainer" --mode dp --replicas 2 "$@"
# Every way to share the update out, with a norm over all parts, and slices of buckets that are small and large.
first=
set -- $common --steps 20 --hidden 200,33,17 --optimizer adamw --clip-grad-norm 0.5 --weight-decay 0.1 --decay-on matrices
same "update: 1 worker x 8" "$trainer" "$@"
for workers in 2 8; do
    same "update: $workers workers, small buckets" "$ddprun" -n $workers trainer "$@" --bucket-mb 0.03
    same "update: $workers replicas" "$ddprun" -n $workers trainer "$@" --zero 0 --bucket-mb 0.1
done
same "update: dp, 4 replicas x 2" "$trainer" --mode dp --replicas 4 "$@"
first=
set -- $common --steps 10 --optimizer adam --weight-decay 0.1
same "adam: 1 worker x 8" "$trainer" "$@"
same "adam: 4 workers x 2" "$ddprun" -n 4 trainer "$@"
same "adam: 4 replicas" "$ddprun" -n 4 trainer "$@" --zero 0
# Images changed at random, read by more than one thread.
first=
set -- $common --steps 10 --augment crop,flip
same "augment: 1 worker x 8" "$trainer" "$@" --data-threads 3
same "augment: 4 workers x 2" "$ddprun" -n 4 trainer "$@"
same "augment: dp, 2 replicas x 4" "$trainer" --mode dp --replicas 2 "$@" --data-threads 2
# Images in files, decoded by more than one thread, kept in memory or, the large ones, decoded each time.
first=
"$top/image_tool" "$work/images" 3 50 0 3 1 || exit 99
set -- --data "$work/images" --image-size 20 --model cnn --batch-size 4 --global-batch 32 --steps 8 --no-eval --quiet --threads 1
same "images: 1 worker x 8" "$trainer" "$@" --data-threads 3
same "images: 1 worker x 8, one thread" "$trainer" "$@"
same "images: 4 workers x 2" "$ddprun" -n 4 trainer "$@" --data-threads 2
same "images: 8 workers x 1, replicas" "$ddprun" -n 8 trainer "$@" --zero 0
same "images: dp, 4 replicas x 2" "$trainer" --mode dp --replicas 4 "$@" --data-threads 2
first=
set -- --data "$work/images" --image-size 800 --hidden none --batch-size 2 --global-batch 8 --steps 2 --no-eval --quiet --threads 1
same "large images: 1 worker x 4" "$trainer" "$@" --data-threads 3
same "large images: 2 workers x 2" "$ddprun" -n 2 trainer "$@"
# Numbers of shards that are not a power of two: one shard a worker, and three aligned blocks of two.
for shards in 3 5 7; do
    first=
    set -- --data "$work/small" --batch-size 16 --steps 30 --hidden 40 --seed 2 --no-eval --quiet --threads 1
    same "$shards shards: 1 worker" "$trainer" "$@" --acc-steps $shards
    same "$shards shards: $shards workers" "$ddprun" -n $shards trainer "$@"
    same "$shards shards: dp" "$trainer" --mode dp --replicas $shards "$@"
done
first=
same "6 shards: 1 worker x 6" "$trainer" "$@" --acc-steps 6
same "6 shards: 3 workers x 2" "$ddprun" -n 3 trainer "$@" --acc-steps 2 --bucket-mb 0.01
same "6 shards: dp, 3 replicas x 2" "$trainer" --mode dp --replicas 3 "$@" --acc-steps 2
finish
