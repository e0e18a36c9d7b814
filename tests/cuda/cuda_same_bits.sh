#!/bin/sh
# SPDX-License-Identifier: MIT
# Same parameters, bit for bit, on GPUs: any split of the same eight shards over accumulation steps, workers or replicas,
# for every kind of model, in fp32 and bf16, with dropout, clipping and every way to share the update out; on GPUs of
# their own and on shared ones. With --fast the result is near.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 8
make_data

# model NAME WORKERS OPTIONS...: several workers recompute, which one does not; 0: replicas instead
model() {
    model=$1 workers=$2
    shift 2
    set -- --device cuda --batch-size 1 --global-batch 8 --steps 3 --seed 3 --no-eval --quiet "$@"
    first=
    same "$model: 1 worker x 8" "$trainer" "$@"
    if [ "$workers" -gt 0 ]; then
        same "$model: $workers workers, recomputed" "$ddprun" -n "$workers" $share trainer "$@" --bucket-mb 0.02 --zero 1 \
            --recompute
    else
        replicas 4
        same "$model: dp, 4 replicas x 2" "$trainer" $dp "$@"
    fi
}

mlp="--data $work/images --hidden 33,17"
gpt2="--model gpt2 --data $work/text --seq-len 8 --layers 1 --heads 2 --channels 16"
images="--data $work/images --batch-size 2 --global-batch 16 --steps 2"
awk 'BEGIN { print "a,town,y"; for (i = 0; i < 140; i++) printf "%d,t%d,%d.5\n", i * 7 % 10, i % 67, i * 3 % 11 }' >"$work/words.csv"
model "mlp fp32" 8 $mlp --momentum 0.9,nesterov --weight-decay 1e-2
model "mlp bf16, adamw, clipped" 0 $mlp --dtype bf16 --optimizer adamw --clip-grad-norm 0.1 --weight-decay 0.1
model "mlp fp32, a part cut off, normalized" 0 --val-split 1 --normalize --hidden 9 \
    --data "$here/tests/data/golden/npy/names-sklearn.npz"
model "gpt2 fp32" 0 $gpt2 --layers 2 --dropout 0.1
model "gpt2 bf16, a padded vocabulary" 4 $gpt2 --vocab-size 1030 --dropout 0.1 --dtype bf16
model "mlp fp16, the scale falls" 0 $mlp --dtype fp16,scale=1e9,every=2 --optimizer adamw
model "gpt2 fp16" 4 $gpt2 --dropout 0.1 --dtype fp16,every=2
model "cnn fp16" 2 --model cnn $images --dtype fp16
model "cnn fp32" 0 --model cnn $images
model "cnn bf16" 5 --model cnn $images --dtype bf16
soft="--model cnn $images --augment flip,mixup=0.5,smooth=0.1"
model "cnn fp32, soft labels" 2 $soft
expect "soft labels, on the CPU" 0 '' "$trainer" --device cpu --batch-size 1 --global-batch 8 --steps 3 --seed 3 --no-eval --quiet $soft \
    --save "$work/cpu"
weights_near "$work/first" "$work/cpu" 1e-6 || fail "soft labels: the CPU ends elsewhere"
same "cnn fp32, soft labels: a pipeline" "$ddprun" -n 2 $share trainer --device cuda --seed 3 --no-eval --quiet $soft --mode pipeline --stages 2
model "a table with words" 2 --data "$work/words.csv" --target y --hidden 9
model "resnet bf16" 2 --model resnet --size 20 $images --dtype bf16 --lr 1e-3

# Most of a model is frozen; each way to compute meets each type.
for types in "f32 fp32" "bf16 fp32" "f32 bf16" "bf16 bf16" "nf4 fp32" "nf4 bf16" "nf4 fp16"; do
    export FROZEN="${types% *}"
    dtype=${types#* }
    first=
    set -- --device cuda --data "$work/text" --seq-len 8 --batch-size 1 --global-batch 8 --steps 3 --seed 3 --quiet \
        --no-eval --dtype "$dtype"
    same "$FROZEN frozen, $dtype: 1 worker x 8" "$top/frozen_client" "$@"
    if [ "$types" = "nf4 fp32" ]; then # blocks have the values that they have on the CPU
        expect "$FROZEN frozen, on the CPU" 0 '' "$top/frozen_client" "$@" --device cpu --save "$work/cpu"
        weights_near "$work/first" "$work/cpu" 1e-6 || fail "$FROZEN frozen, $dtype: not near what the CPU gives"
    fi
    if [ "$types" = "f32 fp32" ] || [ "$types" = "bf16 bf16" ]; then
        same "$FROZEN frozen, $dtype: 2 workers x 4, zero" "$ddprun" -n 2 $share "$top/frozen_client" "$@" --zero 1
        replicas 4
        same "$FROZEN frozen, $dtype: dp, 4 replicas x 2" "$top/frozen_client" $dp "$@"
    else
        same "$FROZEN frozen, $dtype: 4 workers x 2" "$ddprun" -n 4 $share "$top/frozen_client" "$@"
        same "$FROZEN frozen, $dtype: a pipeline" "$ddprun" -n 2 $share "$top/frozen_client" "$@" --mode pipeline --stages 2 \
            --lanes 8
    fi
done
unset FROZEN

# Labels that are numbers, of a program's own data.
for dtype in fp32 bf16; do
    first=
    set -- numbers --device cuda --batch-size 2 --global-batch 16 --steps 3 --seed 3 --val-split 20 --dtype $dtype
    same "own data $dtype: 1 worker x 8" "$top/own_data_tool" "$@"
    same "own data $dtype: 2 workers x 4" "$ddprun" -n 2 $share "$top/own_data_tool" "$@"
    grep -q '^test loss [0-9.]*$' "$work/out" || fail "own data $dtype: not evaluated"
    replicas 4
    same "own data $dtype: dp, 4 replicas x 2" "$top/own_data_tool" "$@" $dp
done
expect "own data: predict" 0 'predictions of 20' "$top/own_data_tool" numbers --device cuda --val-split 20 --load "$work/first" --dtype bf16 \
    --predict "$work/numbers.npy"

# Lanes of several shards: partial sums wait in page-locked memory and travel beside the operations, or lie on the GPU
# where no more memory can be locked.
for lanes in 1 4; do
    first=
    set -- --device cuda $gpt2 --dropout 0.1 --batch-size 1 --global-batch 12 --steps 2 --seed 3 --no-eval --quiet \
        --lanes $lanes
    same "$lanes lanes: 1 worker x 12" "$trainer" "$@"
    same "$lanes lanes: one by one" env DDP_CUDA_GRAPHS=0 "$trainer" "$@"
    [ $simulated = no ] || same "$lanes lanes: eager streams" env DDP_CUDASIM_STREAMS=eager "$trainer" "$@"
    [ $lanes -eq 1 ] && continue
    if [ $simulated = yes ]; then # the third locked memory is the first partial sum
        same "$lanes lanes: locked memory fails" env DDP_CUDASIM_FAIL=cudaHostAlloc:3 "$trainer" "$@"
        [ ! -s "$work/out" ] || fail "locked memory fails: $(head -n 3 "$work/out")"
    fi
    same "$lanes lanes: 2 workers x 6" "$ddprun" -n 2 $share trainer "$@" --bucket-mb 0.02 --zero 1
    same "$lanes lanes: 4 workers x 3" "$ddprun" -n 4 $share trainer "$@"
    same "$lanes lanes: 3 workers" "$ddprun" -n 3 $share trainer "$@" --zero 1 --bucket-mb 0.02
    replicas 3
    same "$lanes lanes: dp, 3 replicas" "$trainer" $dp "$@"
done

# Batch norm over all workers: the same bits however the update is shared out, near one worker with the whole batch.
set -- --device cuda --model resnet --size 20 --data "$work/images" --seed 1 --optimizer sgd --lr 1e-5 --weight-decay 0 \
    --schedule constant --no-eval --quiet --steps 2
first=
same "sync-batch-norm: 2 workers" "$ddprun" -n 2 $share trainer "$@" --batch-size 1 --sync-batch-norm --zero 1
same "sync-batch-norm: 2 workers, replicas" "$ddprun" -n 2 $share trainer "$@" --batch-size 1 --sync-batch-norm --zero 0
count=$((count + 1))
"$trainer" "$@" --batch-size 2 --save "$work/f" >"$work/out" 2>&1 || fail "resnet: $(cat "$work/out")"
weights_near "$work/f" "$work/first" 1e-4 || fail "sync-batch-norm: 2 workers differ from one with the whole batch"

# Ways to share the update out, and other splits; the CPU ends near the same weights.
set -- --device cuda $mlp --batch-size 1 --global-batch 8 --steps 4 --seed 3 --no-eval --quiet --optimizer adamw
first=
same "update: 1 worker x 8" "$trainer" "$@"
same "update: 4 workers x 2, replicas" "$ddprun" -n 4 $share trainer "$@" --zero 0
same "update: 1 worker under ddprun" "$ddprun" -n 1 trainer "$@"
same "update: 4 workers x 2" "$ddprun" -n 4 $share trainer "$@" --bucket-mb 0.001 --zero 1
count=$((count + 1))
"$trainer" "$@" --device cpu --save "$work/f" >"$work/out" 2>&1 || fail "on the CPU: $(cat "$work/out")"
weights_near "$work/f" "$work/first" 1e-3 || fail "the CPU ends elsewhere"
count=$((count + 1))
"$ddprun" -n 3 $share trainer "$@" --fast --save "$work/f" >"$work/out" 2>&1 || fail "--fast: $(cat "$work/out")"
weights_near "$work/f" "$work/first" 1e-3 || fail "--fast ends elsewhere"

# Shared GPUs.
[ $simulated = no ] || gpus 2
same "update: 8 workers on 2 GPUs" "$ddprun" -n 8 --oversubscribe trainer "$@" --zero 1
same "update: 2 workers on 1 GPU" "$ddprun" -n 2 trainer "$@" --devices 0,0
same "update: dp, 2 replicas on 1 GPU" "$trainer" "$@" --mode dp --devices 0,0

# In bf16 workers collect most weights as they are read, and the others when somebody wants them: a checkpoint, the end.
[ $simulated = no ] || gpus 4
head -c 150 "$work/text" >"$work/short"
split_gpt2="--device cuda --model gpt2 --data $work/text --val $work/short --seq-len 8 --layers 2 --heads 2 --channels 32
    --dropout 0.1 --batch-size 1 --global-batch 4 --steps 4 --seed 3 --quiet --clip-grad-norm 0.5 --optimizer adamw"
for dtype in fp32 bf16; do
    first=
    set -- $split_gpt2 --dtype $dtype
    two="-n 2 $share trainer $* --bucket-mb 1 --zero" four="-n 4 $share trainer $* --bucket-mb 0.05 --zero"
    [ $dtype = fp32 ] && looks=$two plain=$four || looks=$four plain=$two
    same "$dtype: 1 worker" "$trainer" "$@" --no-eval
    rm -rf "$work/zero"
    same "$dtype, zero 1, evaluated: $looks" "$ddprun" $looks 1 --eval-every 1 --checkpoint "$work/zero" \
        --checkpoint-every 1 --keep 0
    same "$dtype, zero 1: $plain" "$ddprun" $plain 1 --no-eval
    same "$dtype, zero 1, resumed: $plain" "$ddprun" $plain 1 --no-eval --resume-from "$work/zero/step-00000002"
    same "$dtype, zero 0, resumed: $looks" "$ddprun" $looks 0 --no-eval --resume-from "$work/zero/step-00000003"
done
# One all-gather a step, of 2 bytes for most of the 34,048 parameters, and 4 for those of norms and embeddings.
expect "traced" 0 '' "$ddprun" -n 2 $share trainer $split_gpt2 --dtype bf16 --zero 1 --no-eval --bucket-mb 0.01 --trace "$work/trace,steps=3-3"
sed -n 's/.*"name":"all-gather".*"pid":0.*"bytes":\([0-9]*\).*/\1/p' "$work/trace" | sort -u >"$work/moved"
[ "$(wc -l <"$work/moved")" = 1 ] && [ "$(cat "$work/moved")" -lt $((34048 * 3)) ] || fail "traced: all-gathers of $(cat "$work/moved")"

# Local steps: evaluated and resumed in between, on GPUs of their own and on one; the CPU and --fast end near.
set -- --device cuda --model resnet --size 20 --data "$work/images" --batch-size 2 --steps 7 --seed 3 --quiet \
    --lr 1e-4 --schedule constant --sync-every 3,from=2,lr=0.7,momentum=0.9
first=
same "local steps" "$ddprun" -n 2 $share trainer "$@" --no-eval
same "local steps, evaluated" "$ddprun" -n 2 $share trainer "$@" --eval-every 3 --eval-steps 1 \
    --checkpoint "$work/local" --checkpoint-every 4 --keep 0
same "local steps, resumed" "$ddprun" -n 2 $share trainer "$@" --no-eval --resume-from "$work/local/step-00000004"
same "local steps, on 1 GPU" "$ddprun" -n 2 trainer "$@" --devices 0,0 --no-eval
count=$((count + 1))
"$ddprun" -n 2 $share trainer "$@" --no-eval --device cpu --save "$work/f" >"$work/out" 2>&1 ||
    fail "local steps, CPU: $(cat "$work/out")"
weights_near "$work/f" "$work/first" 1e-3 || fail "local steps: the CPU ends elsewhere"
first=
set -- --device cuda $mlp --batch-size 2 --acc-steps 2 --steps 7 --seed 3 --quiet --schedule constant \
    --sync-every 3,from=2 --no-eval
same "local steps of an mlp" "$ddprun" -n 3 $share trainer "$@"
same "local steps of an mlp, on 1 GPU" "$ddprun" -n 3 trainer "$@" --devices 0,0,0
count=$((count + 1))
"$ddprun" -n 3 $share trainer "$@" --fast --save "$work/f" >"$work/out" 2>&1 ||
    fail "local steps, --fast: $(cat "$work/out")"
weights_near "$work/f" "$work/first" 1e-3 || fail "local steps: --fast ends elsewhere"

# A padded vocabulary ends near that of the CPU, which pads none; without eps, zeros would not stay zero.
set -- $gpt2 --vocab-size 1030 --batch-size 2 --global-batch 8 --steps 8 --seed 3 --no-eval --quiet --optimizer adamw,eps=1e-3 \
    --clip-grad-norm 0.1 --weight-decay 0.1
expect "padded: CPU" 0 '' "$trainer" "$@" --device cpu --save "$work/cpu"
expect "padded: GPU" 0 '' "$trainer" "$@" --device cuda --save "$work/f"
weights_near "$work/f" "$work/cpu" 1e-4 || fail "padded: the CPU ends elsewhere"
expect "padded: without eps" 0 '' "$trainer" "$@" --device cuda --optimizer adamw,eps=0
finish
