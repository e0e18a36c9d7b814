#!/bin/sh
# SPDX-License-Identifier: MIT
# Steps recorded as CUDA graphs: the same bits as operations one by one, with several shards a step, short last batches,
# dropout, buckets that start within backward; traced; and on the simulation that they really are used.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 2
make_text 7
gpt2="--device cuda --model gpt2 --data $work/text --seq-len 8 --layers 1 --heads 2 --channels 16 --dropout 0.1
    --batch-size 3 --seed 3 --no-eval --quiet"
workers="-n 2 trainer --bucket-mb 0.005"
for split in 4 7; do
    first=
    set -- $gpt2 --global-batch $((3 * split)) --epochs 2
    same "$split shards, one by one" env DDP_CUDA_GRAPHS=0 "$trainer" "$@"
    same "$split shards, graphs" "$trainer" "$@"
    same "$split shards, synchronous" env DDP_CUDA_SYNC=1 "$trainer" "$@"
    same "$split shards, traced in the middle" "$trainer" "$@" --trace "$work/trace" --trace-steps 3-4
    [ $split = 7 ] || same "$split shards, 2 workers" "$ddprun" $share $workers "$@" --zero 1
    [ $split = 7 ] || same "$split shards, 2 workers, replicas" "$ddprun" $share $workers "$@" --zero 0
    [ $split = 7 ] && continue
    replicas 2
    same "$split shards, dp" "$trainer" "$@" $dp
    same "$split shards, dp, one by one" env DDP_CUDA_GRAPHS=0 "$trainer" "$@" $dp
    replicas 4
    same "$split shards, dp, 4 replicas" "$trainer" "$@" $dp
done

# trace NAME FILE ...: as trace_check.py has it, and the tracks of the GPUs
trace() {
    name=$1
    shift
    expect "$name" 0 "" grep -q '"GPU [01] compute"' "$1"
    if command -v python3 >/dev/null; then
        expect "$name" 0 "are in order" python3 "$here/tests/report/trace_check.py" "$@"
    else
        not_run "$name: there is no python3"
    fi
}
set -- $gpt2 --global-batch 12 --steps 3
expect "trace" 0 "" "$trainer" "$@" --trace "$work/trace"
trace "trace" "$work/trace" 1 3 step linear merge "fill input"
expect "trace of 2 workers" 0 "" "$ddprun" $share $workers "$@" --trace "$work/trace"
trace "trace of 2 workers" "$work/trace" 2 3 step linear merge "fill input" all-reduce
expect "trace of replicas" 0 "" "$trainer" "$@" --mode dp --replicas 4 --devices 0,0,0,0 --trace "$work/trace"
trace "trace of replicas" "$work/trace" 1 3 step linear "fill input"

if [ $simulated = yes ]; then
    expect "graphs are used" 1 "a recorded step: GPU 0: " env DDP_CUDASIM_FAIL=cudaGraphLaunch:9 "$trainer" "$@"
    expect "no graphs" 0 "" env DDP_CUDA_GRAPHS=0 DDP_CUDASIM_FAIL=cudaGraphLaunch:1 "$trainer" "$@"
    replicas 2
    expect "graphs are used, dp" 1 "a recorded step: GPU [01]: " env DDP_CUDASIM_FAIL=cudaGraphLaunch:9 "$trainer" "$@" $dp
    # What cannot be recorded is run, without a word.
    first=
    same "one by one" env DDP_CUDA_GRAPHS=0 "$trainer" "$@"
    for call in cudaStreamBeginCapture:1 cudaStreamBeginCapture:3 cudaStreamEndCapture:1 cudaStreamEndCapture:4 \
        cudaGraphInstantiate:1 cudaGraphInstantiate:3; do
        same "$call fails" env DDP_CUDASIM_FAIL=$call "$trainer" "$@"
        [ ! -s "$work/out" ] || fail "$call fails: $(head -n 3 "$work/out")"
        case $call in
        cudaStreamBeginCapture:1 | cudaStreamEndCapture:4 | cudaGraphInstantiate:1)
            same "$call fails, dp" env DDP_CUDASIM_FAIL=$call "$trainer" "$@" $dp
            ;;
        *) same "$call fails, 2 workers" env DDP_CUDASIM_FAIL=$call "$ddprun" $share $workers "$@" ;;
        esac
    done
fi
finish
