#!/bin/sh
# SPDX-License-Identifier: MIT
# The algorithms of products that a simulated cublasLt has several of, which differ in bits: chosen by timing, the same on all
# ranks, in all modes and in the next run, kept in a file that is not trusted.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
[ $simulated = yes ] || skip "a GPU's library cannot be told which of its algorithms is fast"
gpus 4
make_text 200
export DDP_CUDASIM_ALGORITHMS=4
# A step of few rows, which are rounded to bf16 or not; the tail is a shape of its own.
gpt2="--device cuda --model gpt2 --data $work/text --seq-len 8 --layers 2 --heads 2 --channels 16 --batch-size 2
    --global-batch 8 --steps 1 --seed 3 --no-eval --quiet"
fresh() { rm -rf "$XDG_CACHE_HOME"; }
# differ NAME FILE FILE
differ() {
    count=$((count + 1))
    ! cmp -s "$2" "$3" || fail "$1: the same bits"
}
# lines NAME COUNT: lines of the one file of choices
lines() {
    count=$((count + 1))
    got=$(cat "$XDG_CACHE_HOME"/ddprun/* 2>/dev/null | grep -c '^m=')
    [ "$got" -eq "$2" ] || fail "$1: $got choices, expected $2"
}

# What is the fastest decides the bits, and they stay when another would be faster, in every mode.
DDP_CUDA_TUNE=0 "$trainer" $gpt2 --save "$work/untuned" || fail "untuned: exit code $?"
[ ! -e "$XDG_CACHE_HOME" ] || fail "untuned: a cache"
for fast in 1 3; do
    fresh
    DDP_CUDASIM_FAST=$fast "$trainer" $gpt2 --save "$work/fast.$fast" || fail "fast $fast: exit code $?"
    lines "fast $fast" 15
done
differ "the third is the fastest" "$work/fast.1" "$work/fast.3"
# again NAME COMMAND...: the bits of the third algorithms
again() {
    first="the third is the fastest"
    cp "$work/fast.3" "$work/first"
    same "$@"
}
export DDP_CUDASIM_FAST=1
again "the next run" "$trainer" $gpt2
again "2 workers, the next run" "$ddprun" -n 2 $share trainer $gpt2
cp -r "$XDG_CACHE_HOME" "$work/kept"
for command in "$ddprun -n 4 $share trainer" "$ddprun -n 2 $share trainer --mode pipeline" "$trainer --mode pipeline --stages 2" \
    "$ddprun -n 4 $share trainer --mode pipeline --stages 2" "$trainer --mode dp --replicas 4"; do
    # ranks alike: with a fresh cache, each of them times nothing that another has timed
    fresh
    again "$command" env DDP_CUDASIM_FAST=3 $command $gpt2
    lines "$command" 15
    again "$command, the next run" $command $gpt2
done
# Timings that nothing decides: whatever is chosen, all ranks take it, and the next run does.
for type in fp32 bf16; do
    fresh
    first=
    same "noise, $type: 4 workers" env DDP_CUDASIM_FAST= "$ddprun" -n 4 $share trainer $gpt2 --dtype $type
    same "noise, $type: 1 worker" "$trainer" $gpt2 --dtype $type
    same "noise, $type: a pipeline" "$ddprun" -n 2 $share trainer --mode pipeline $gpt2 --dtype $type
done

# A file that cannot be: nothing is timed, and the first that works is taken.
first="untuned"
cp "$work/untuned" "$work/first"
same "no folder" env XDG_CACHE_HOME=/dev/null DDP_CUDASIM_FAST=3 "$trainer" $gpt2
same "no home" env XDG_CACHE_HOME= HOME= DDP_CUDASIM_FAST=3 "$trainer" $gpt2
same "relative" env XDG_CACHE_HOME=cache HOME= DDP_CUDASIM_FAST=3 "$trainer" $gpt2
[ ! -e cache ] || fail "relative: a cache in the working directory"
fresh
mkdir -p "$XDG_CACHE_HOME/ddprun"
if need_modes; then
    chmod 500 "$XDG_CACHE_HOME/ddprun"
    # shellcheck disable=SC2086  # words
    same "may not be written" env DDP_CUDASIM_FAST=3 $heed_modes "$trainer" $gpt2
    chmod 700 "$XDG_CACHE_HOME/ddprun"
fi
same "full" env DDP_CUDASIM_FAST=3 LD_PRELOAD= sh -c 'mkdir -p "$XDG_CACHE_HOME/ddprun/products-Simulated-GPU-0-sm90-cublaslt-130100"; exec "$@"' sh \
    "$trainer" $gpt2
grep -q 'warning: .*: algorithms of products are not chosen by timing' "$work/out" || fail "full: no warning: $(cat "$work/out")"

# HOME, where XDG_CACHE_HOME says nothing.
mkdir "$work/home"
again "home" env XDG_CACHE_HOME= HOME="$work/home" DDP_CUDASIM_FAST=3 "$trainer" $gpt2
[ -s "$work/home/.cache/ddprun/products-Simulated-GPU-0-sm90-cublaslt-130100" ] || fail "home: no file"

# Damaged lines: ignored with one warning; those that are left hold, and the rest is timed anew.
fresh
cp -r "$work/kept" "$XDG_CACHE_HOME"
file=$(echo "$XDG_CACHE_HOME"/ddprun/*)
sed -i -e '3s/k=/k=1/' -e '5s/algorithm=../algorithm=ff/' -e '7s/.*/\x00\xff/' "$file"
again "damaged" env DDP_CUDASIM_FAST=3 "$ddprun" -n 2 $share trainer $gpt2
count=$((count + 1))
[ "$(grep -c 'warning: .*: 3 damaged lines are ignored' "$work/out")" -eq 1 ] || fail "damaged: $(cat "$work/out")"
lines "damaged" 15
again "mended" "$trainer" $gpt2
[ ! -s "$work/out" ] || fail "mended: $(cat "$work/out")"
: >"$file"
again "emptied" env DDP_CUDASIM_FAST=3 "$trainer" $gpt2
# Refused algorithms are not chosen; the plain kernel is the last resort.
fresh
expect "refused" 0 'algorithm [34] of 4 is the fastest' env DDP_LOG=debug DDP_CUDASIM_REFUSE=2 DDP_CUDASIM_FAST= "$trainer" $gpt2
! grep -q 'algorithm [12] of 4 is the fastest' "$work/out" || fail "refused: one of the refused is the fastest"
fresh
expect "all refused" 0 'warning: GPU 0: cublasLt has no algorithm for the matrix product' env DDP_CUDASIM_REFUSE=4 "$trainer" $gpt2
count=$((count + 1))
[ "$(grep -c 'warning: ' "$work/out")" -eq "$(grep 'warning: ' "$work/out" | sort -u | wc -l)" ] ||
    fail "all refused: a shape is told twice: $(cat "$work/out")"

# Two jobs at once, with shapes of their own and some in common: the file has all, and each repeats its bits.
fresh
for width in 16 24; do
    DDP_CUDASIM_FAST=$((width / 8)) "$trainer" $gpt2 --channels $width --save "$work/at-once.$width" 2>"$work/at-once.err.$width" &
done
DDP_CUDASIM_FAST=4 "$trainer" $gpt2 --save "$work/at-once.other" 2>"$work/at-once.err.other"
wait
for width in 16 24; do
    [ ! -s "$work/at-once.err.$width" ] || fail "at once, $width: $(cat "$work/at-once.err.$width")"
done
lines "at once" 30
for width in 16 24; do
    first="at once, $width"
    cp "$work/at-once.$width" "$work/first"
    same "again, $width" "$trainer" $gpt2 --channels $width
done
count=$((count + 1))
cmp -s "$work/at-once.16" "$work/at-once.other" || fail "at once: two jobs with the same shapes have other bits"
finish
