#!/bin/sh
# SPDX-License-Identifier: MIT
# What the trainer does on GPUs beside training steps: evaluation, text generation, plan and summary,
# metrics, a trace, losses that are not finite, replicas that are compared; with and without recorded steps.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 2
make_data
t="$trainer --device cuda --seed 1"
d="$ddprun -n 2 $share trainer --device cuda --seed 1"
mlp="--data $work/images --hidden 16 --batch-size 4"
gpt2="--model gpt2 --data $work/text --seq-len 12 --layers 1 --heads 2 --channels 16 --batch-size 2"

# Evaluation: as on the CPU, with any number of workers.
# evaluated NAME COMMAND...: the last evaluation is the first one's of its group, to the printed digit
evaluated() {
    expect "$@"
    grep -oE '(accuracy|test loss|loss) [0-9.]+' "$work/out" | tail -n 2 >"$work/found"
    [ -s "$work/found" ] || fail "$1: no evaluation: $(cat "$work/out")"
    [ -e "$work/evaluation" ] || cp "$work/found" "$work/evaluation"
    cmp -s "$work/found" "$work/evaluation" || fail "$1: $(cat "$work/found"), not $(cat "$work/evaluation")"
}
evaluated "evaluation, CPU" 0 '' "$ddprun" -n 2 trainer --device cpu --seed 1 $mlp --steps 3
evaluated "evaluation" 0 '' $t $mlp --steps 3 --acc-steps 2
evaluated "evaluation, 2 workers" 0 '' $d $mlp --steps 3
replicas 2
evaluated "evaluation, dp" 0 '' $t $mlp $dp --steps 3
rm "$work/evaluation"
evaluated "evaluation, bf16" 0 '' $t $mlp --dtype bf16 --steps 3 --acc-steps 2
evaluated "evaluation, bf16, 2 workers" 0 '' $d $mlp --dtype bf16 --steps 3
evaluated "evaluation, bf16, dp" 0 '' $t $mlp --dtype bf16 $dp --steps 3
rm "$work/evaluation"

# A model that was trained: the same figures and predictions on one GPU, on two, in both ways, and near the CPU's.
for dtype in fp32 bf16; do
    data="$mlp --dtype $dtype"
    expect "a model, $dtype" 0 'saved' $t $data --steps 5 --verbose --save "$work/w.safetensors"
    sed -n '/^test accuracy/,/recall/p' "$work/out" >"$work/figures"
    for how in "$t" "$d" "$t $dp"; do
        expect "evaluated, $dtype: $how" 0 '' $how $data --eval-only -v --load "$work/w.safetensors" --predict "$work/p.npy"
        sed -n '/^test accuracy/,/recall/p' "$work/out" | cmp - "$work/figures" || fail "evaluated, $dtype: $how: $(cat "$work/out")"
        [ -e "$work/first.npy" ] || cp "$work/p.npy" "$work/first.npy"
        cmp "$work/p.npy" "$work/first.npy" || fail "predictions, $dtype: $how: other bytes"
    done
    expect "predictions, CPU, $dtype" 0 '' "$trainer" --device cpu $data --load "$work/w.safetensors" --predict "$work/p.npy"
    for file in p first; do
        tail -c +129 "$work/$file.npy" | od -An -v -tf4 -w4 >"$work/$file.txt"
    done
    bound=1e-5
    [ $dtype = fp32 ] || bound=2e-2
    near "$(wc -l <"$work/p.txt")" $bound "$work/p.txt" "$work/first.txt" || fail "predictions, $dtype: not near the CPU's"
    rm "$work/first.npy"
done

# Text: what is likeliest is so everywhere.
expect "a text model" 0 'saved' $t $gpt2 --steps 8 --lr 1e-2 --no-eval --save "$work/w.safetensors"
set -- --load "$work/w.safetensors" --prompt "line 7" --generate 12 --temperature 0
expect "text, CPU" 0 '^line 7' "$trainer" --device cpu "$@"
cp "$work/out" "$work/said"
expect "text" 0 '^line 7' $t "$@"
cmp -s "$work/said" "$work/out" || fail "text: $(cat "$work/out"), not $(cat "$work/said")"

# Several at once, beyond the context; a sample is what it is alone.
expect "texts" 0 '^--- sample 3 of 3 ---' $t "$@" --generate 40 --temperature 1 --samples 3
sed -n '2,/^--- sample 2/p' "$work/out" | sed '$d' >"$work/first"
expect "text alone" 0 '^line 7' $t "$@" --generate 40 --temperature 1
cmp -s "$work/first" "$work/out" || fail "one of three: $(cat "$work/first"), not $(cat "$work/out")"

# Texts during training change nothing, on one GPU, on two, and in bf16.
for dtype in fp32 bf16; do
    set -- $gpt2 --dtype $dtype --steps 4 --no-eval
    expect "no texts, $dtype" 0 'saved' $t "$@" --acc-steps 2 --save "$work/plain"
    expect "texts, $dtype" 0 '^--- step 4 ---' $t "$@" --acc-steps 2 --save "$work/told" --sample-every 2,length=9
    cmp "$work/plain" "$work/told" || fail "--sample-every changes training in $dtype"
    grep -A 1 -e '--- step' "$work/out" >"$work/texts"
    expect "texts, 2 workers, $dtype" 0 '^--- step 4 ---' $d "$@" --save "$work/told" --sample-every 2,length=9
    cmp "$work/plain" "$work/told" || fail "--sample-every changes training on 2 workers in $dtype"
    sed 's/^\[0\] //' "$work/out" | grep -A 1 -e '--- step' | cmp - "$work/texts" || fail "2 workers write another text, $dtype"
done

# A vocabulary that is padded on GPUs shows in no file: they are the CPU's, byte for byte, before training has changed weights.
set -- $gpt2 --vocab-size 1030 --lr 0 --steps 1 --no-eval
for device in cpu cuda; do
    for format in hf llmc llmc-bf16; do
        expect "$format of $device" 0 '' "$trainer" --device $device "$@" --export "$work/$device.$format,format=$format"
    done
    rm -rf "$work/dir"
    expect "saved by $device" 0 '' "$trainer" --device $device "$@" --save "$work/$device.saved" --checkpoint "$work/dir"
    cp "$work/dir/step-00000001/model.safetensors" "$work/$device.checkpoint"
    expect "planned for $device" 0 '' "$trainer" --device $device "$@" --plan
    grep "^model" "$work/out" >"$work/$device.plan"
done
for file in hf llmc llmc-bf16 saved checkpoint plan; do
    cmp "$work/cpu.$file" "$work/cuda.$file" && [ -s "$work/cpu.$file" ] || fail "padded: $file"
done

# What is printed and written.
expect "plan" 0 'workers  2 replicas on cuda: ' $t $mlp $dp --plan
expect "plan, bf16" 0 'bf16 activations' $t $gpt2 --dtype bf16 --plan
expect "memory" 0 '^memory .* on the host .* on GPUs as planned' $t $mlp --steps 3 --no-eval
expect "log" 0 '' $d $mlp --steps 4 --no-eval --log "$work/log"
grep -q '"device":"cuda"' "$work/log" || fail "log: no device"
[ "$(grep -c '"event":"step"' "$work/log")" -eq 4 ] || fail "log: not 4 steps"
expect "trace" 0 '' $d $mlp --steps 6 --no-eval --trace "$work/trace"
for what in all-reduce backward update; do
    grep -q "\"name\":\"$what" "$work/trace" || fail "trace: nothing of $what"
done

# GPUs learn as the CPU does, which rounds operands only; in bf16 GPUs round activations too: each step's loss is near, and
# falls. The scale of float16 is the same after each step.
for dtype in bf16 fp16,scale=1e7,every=9; do
    for device in cpu cuda; do
        rm -f "$work/$device.log"
        expect "$dtype on $device" 0 '' "$trainer" --device $device --seed 1 $gpt2 --dtype $dtype --steps 24 --lr 1e-2 --no-eval \
            --log "$work/$device.log"
        grep '"event":"step"' "$work/$device.log" | sed 's/.*"loss":\([0-9.e+-]*\).*/\1/' >"$work/$device.losses"
        grep -o '"loss_scale":[0-9.e+-]*' "$work/$device.log" >"$work/$device.scales"
    done
    count=$((count + 1))
    paste "$work/cpu.losses" "$work/cuda.losses" | awk '
        NR == 1 { first = $2 }
        { d = $1 - $2; if (d < 0) d = -d; if (!(d < 0.01 * $1)) bad++; same += d == 0; last = $2 }
        END { exit !(NR == 24 && !bad && same < NR && last < 0.8 * first) }' ||
        fail "$dtype: the losses differ: $(paste "$work/cpu.losses" "$work/cuda.losses" | tr '\n' ' ')"
    cmp "$work/cpu.scales" "$work/cuda.scales" || fail "$dtype: other scales"
done

# Steps that are replayed from a recording are the steps that were recorded.
set -- $gpt2 --dropout 0.1 --steps 8 --no-eval --quiet --acc-steps 2
first=
same "recorded" $t "$@"
same "not recorded" env DDP_CUDA_GRAPHS=0 $t "$@"
same "one operation after another" env DDP_CUDA_SYNC=1 $t "$@"
same "recorded, 2 workers" $d "$@" --acc-steps 1
same "not recorded, 2 workers" env DDP_CUDA_GRAPHS=0 $d "$@" --acc-steps 1
first=
same "recorded, bf16" $t "$@" --dtype bf16
same "not recorded, bf16" env DDP_CUDA_GRAPHS=0 $t "$@" --dtype bf16
same "a trace, bf16" $t "$@" --dtype bf16 --trace "$work/trace"
first=
same "recorded, fp16" $t "$@" --dtype fp16,scale=1e9,every=2
same "not recorded, fp16" env DDP_CUDA_GRAPHS=0 $t "$@" --dtype fp16,scale=1e9,every=2
grep -q '"name":"add, layer_norm"' "$work/trace" || fail "trace: nothing of sums with norms"

# A loss that is not finite: the tensor is named, and left-out updates change nothing.
nan="$mlp --lr 1000 --schedule constant --steps 30 --no-eval"
expect "not finite" 10 'error: the loss is (nan|inf) at step [0-9]+: first in the output of linear' $t $nan
expect "not finite, 2 workers" 10 'error: the loss is (nan|inf) at step [0-9]+: first in the output of linear' $d $nan
expect "not finite, bf16" 10 'error: the loss is (nan|inf) at step [0-9]+: first in ' $t $nan --dtype bf16
expect "left out" 0 'warning: [0-9]+ of 30 updates were skipped' $t $nan --nan skip

finish
