#!/bin/sh
# SPDX-License-Identifier: MIT
# What can be wrong with GPUs: one clear line that names the flag, the documented exit code, nobody left behind. Only
# simulated GPUs exist in any number and can be broken at will.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
[ $simulated = yes ] || skip "needs simulated GPUs"
t="$trainer --quiet --device cuda --model article"
d="trainer --quiet --device cuda --model article"

# The plugin.
expect "no plugin" 9 'error: .*libddp-cuda.so does not exist: install the package ddprun-cuda' \
    env DDP_PLUGIN_PATH="$work" $t --epochs 1
: >"$work/libddp-cuda.so"
expect "a broken plugin" 9 'error: cannot load .*libddp-cuda.so' env DDP_PLUGIN_PATH="$work" $t --epochs 1
expect "auto, a broken plugin" 0 '' env DDP_PLUGIN_PATH="$work" $trainer --quiet --model article --epochs 1

# The number of GPUs.
gpus 2
expect "no GPU" 9 'error: --device cuda: .*GPU' env CUDA_VISIBLE_DEVICES= $t --epochs 1
expect "auto, no GPU" 0 'workers  1 worker x .* cpu thread' env CUDA_VISIBLE_DEVICES= $trainer --model article --epochs 1
expect "auto" 0 'workers  1 worker on cuda: ' $trainer --model article --epochs 1
expect "auto, dp" 0 'workers  2 replicas on cuda: ' $trainer --model article --mode dp --epochs 1
expect "a GPU too many" 9 'error: --devices: there is no GPU 2: 2 are visible' $t --epochs 1 --mode dp --devices 0,2
expect "replicas" 9 'error: --replicas 3: only 2 GPUs are visible.*--devices 0,0' $t --epochs 1 --mode dp --replicas 3
expect "replicas on one GPU" 0 'warning: --devices: several of 3 replicas share a GPU' \
    $trainer --device cuda --model article --epochs 1 --mode dp --devices 0,1,0
expect "replicas and devices" 2 'error: --devices names 2 devices, and --replicas is 3' \
    $t --epochs 1 --mode dp --replicas 3 --devices 0,1
expect "accum and devices" 2 'error: --devices names 2 devices, and --mode accum' $t --epochs 1 --devices 0,1
expect "bad devices" 2 'error: --devices 0,,1' $t --epochs 1 --devices 0,,1
expect "devices of the CPU" 9 'error: --devices names GPUs, and --device is cpu' $t --epochs 1 --device cpu --devices 0
expect "workers" 9 'error: 3 workers, and only 2 GPUs are visible.*--nproc 2.*--oversubscribe' "$ddprun" -n 3 $d --epochs 1
expect "workers and devices" 2 'error: --devices names 3 devices for 2 workers' "$ddprun" -n 2 $d --epochs 1 --devices 0,1,0
expect "workers on one GPU" 9 'error: 2 workers, and only 1 GPU is visible.*--nproc 1.*--oversubscribe' \
    env CUDA_VISIBLE_DEVICES=1 "$ddprun" -n 2 $d --epochs 1
expect "oversubscribed" 0 'warning: --oversubscribe: 3 workers share 2 GPUs' "$ddprun" -n 3 --oversubscribe $d --epochs 1
expect "shared by name" 0 'warning: --devices: 2 workers share 1 GPU:' "$ddprun" -n 2 $d --epochs 1 --devices 1,1
expect "one GPU each" 0 '' "$ddprun" -n 2 --virtual-local-rank $d --epochs 1
# shellcheck disable=SC2016  # the worker's shell expands it
expect "one GPU each, by a script" 0 '' "$ddprun" -n 2 sh -c 'CUDA_VISIBLE_DEVICES=$LOCAL_RANK exec "$@"' sh "$top/"$d --epochs 1

expect "a GPU that is not there" 9 'error: --devices: there is no GPU 9: 2 are visible, counted from 0' \
    $t --epochs 1 --devices 9
expect "a GPU that is not there, auto" 9 'error: --devices: there is no GPU 9: 2 are visible' \
    $trainer --quiet --model article --epochs 1 --devices 9
expect "a GPU that is not there, workers" 9 'error: --devices: there is no GPU 9: 2 are visible' \
    "$ddprun" -n 2 $d --epochs 1 --devices 0,9

# What hides GPUs: an error where they are asked for, a warning, once, where they would be taken.
# hidden NAME FAILURES WORDS
hidden() {
    expect "$1" 9 "^trainer: error: --device cuda: $3" env DDP_CUDASIM_FAIL="$2" $t --epochs 1
    expect "$1, auto" 0 "warning: training on the CPU: $3" \
        env DDP_CUDASIM_FAIL="$2" "$ddprun" -n 2 trainer --quiet --model article --epochs 1
    [ "$(grep -c 'warning: ' "$work/out")" -eq 1 ] || fail "$1, auto: not one warning: $(cat "$work/out")"
    expect "$1, auto with devices" 9 "error: --devices names GPUs, and $3" \
        env DDP_CUDASIM_FAIL="$2" $trainer --quiet --model article --epochs 1 --devices 0
    expect "$1, cpu" 0 '' env DDP_CUDASIM_FAIL="$2" $trainer --quiet --model article --epochs 1 --device cpu
    [ ! -s "$work/out" ] || fail "$1, cpu: $(cat "$work/out")"
}
hidden "an old driver" cudaGetDeviceCount:1:35 'the NVIDIA driver is too old: it supports CUDA up to 13.0, and this'
hidden "a broken driver" cudaGetDeviceCount:1:999 'the NVIDIA driver does not work: '
# There simply is none.
for cause in cudaGetDeviceCount:1:100 cudaGetDeviceCount:1:35,cudaDriverGetVersion:1; do
    expect "no GPU, $cause" 0 '' env DDP_CUDASIM_FAIL=$cause $trainer --quiet --model article --epochs 1
    [ ! -s "$work/out" ] || fail "no GPU, $cause: $(cat "$work/out")"
done

# What does not go together.
expect "fast alone" 2 'error: --fast belongs to --mode ddp' $t --epochs 1 --fast

# Memory, and calls that fail: an error with the call's reason, never a crash or a hang.
expect "out of memory" 5 'error: --device cuda: out of memory on GPU 0: .*--batch-size' \
    env DDP_CUDASIM_MEMORY=20000000 $t --epochs 1 --data-size 3000 --batch-size 3000

# broken CALL COMMAND...: an error of the program's own, in time
broken() {
    call=$1
    shift
    count=$((count + 1))
    DDP_CUDASIM_FAIL=$call timeout $((30 * patience)) "$@" >"$work/out" 2>&1
    got=$?
    if [ $got -eq 0 ] || [ $got -ge 100 ] || ! grep -q ': error: ' "$work/out"; then
        fail "$call fails: exit code $got"
        sed 's/^/    /' "$work/out" | head -n 10
    fi
}
for call in cudaMalloc:4 cudaMemcpyAsync:3 cudaEventRecord:2 cudaStreamCreateWithFlags:1 cublasLtCreate:1; do
    broken $call $t --epochs 1
done
for call in ncclCommInitRankConfig:1 ncclSend:2 ncclGetUniqueId:1 cudaMalloc:2; do
    broken $call "$ddprun" -n 2 $d --epochs 1
done
expect "a damaged memory" 1 '^trainer: error: .*GPU 0: .*ECC error.*: its memory is damaged: leave this GPU out' \
    env DDP_CUDASIM_FAIL=cudaEventQuery:3:214 $t --epochs 1

# One rank's trouble: that rank tells it, in one line, and all end in time. Twice each: with one communicator, and with one
# for batch norm's sums beside it.
make_data
resnet="--model resnet --size 20 --data $work/images --batch-size 1 --sync-batch-norm --lr 1e-9 --no-eval --steps 4"
# one_broken FAILURE WORDS OPTIONS...
one_broken() {
    failure=$1 words=$2
    shift 2
    count=$((count + 1))
    rank=$((count % 2))
    # shellcheck disable=SC2016  # the worker's shell expands it
    timeout $((30 * patience)) "$ddprun" -n 2 sh -c '[ "$RANK" != "$1" ] || export DDP_CUDASIM_FAIL="$2"; shift 2; exec "$@"' sh \
        $rank "$failure" "$trainer" --quiet --device cuda "$@" >"$work/out" 2>&1
    got=$?
    grep -E ': (error|warning): ' "$work/out" | grep -v ddprun: >"$work/said"
    if [ $got -eq 0 ] || [ $got -ge 100 ] || [ "$(wc -l <"$work/said")" -ne 1 ] ||
        ! grep -qE "rank $rank: error: .*$words" "$work/said"; then
        fail "$failure at rank $rank of $*: exit code $got"
        sed 's/^/    /' "$work/out" | head -n 10
    fi
}
for options in "--model article --epochs 9" "$resnet"; do
    one_broken cudaMalloc:1 'GPU [01]: out of memory' $options
    one_broken cudaEventQuery:9:214 'GPU [01]: .*ECC error' $options
    one_broken ncclCommInitRankConfig:1 'NCCL: set-up: ' $options
    one_broken ncclBroadcast:1 'NCCL: broadcast of ' $options
    one_broken ncclAllGather:1 'NCCL: set-up: ' $options # it connects the ranks
    one_broken ncclSend:3 'NCCL: all-(reduce|gather) ' $options
    one_broken cudaStreamWaitEvent:4:1 'GPU [01]: ' $options
done
one_broken ncclCommInitRankConfig:2 'NCCL: set-up: ' $resnet
one_broken cudaEventCreateWithFlags:200 '' $resnet
one_broken ncclAllReduce:3 'NCCL: all-reduce ' $resnet --fast
one_broken ncclReduceScatter:3 'NCCL: reduce-scatter ' $resnet --fast --zero 1
# Only rank 0 makes ids.
count=$((count + (count + 1) % 2))
one_broken ncclGetUniqueId:1 'NCCL: set-up: ' $resnet
count=$((count + (count + 1) % 2))
one_broken ncclGetUniqueId:2 'NCCL: set-up: ' $resnet
# Memory that NCCL cannot register, and communicators that do not end well, stop nobody.
for call in ncclMemAlloc:1 ncclCommRegister:1 ncclCommFinalize:1 ncclCommDestroy:1 ncclCommFinalize:2; do
    count=$((count + 1))
    DDP_CUDASIM_FAIL=$call timeout $((30 * patience)) "$ddprun" -n 2 "$trainer" --quiet --device cuda $resnet >"$work/out" 2>&1
    got=$?
    [ $got -eq 0 ] || fail "$call fails: exit code $got: $(cat "$work/out")"
done
finish
