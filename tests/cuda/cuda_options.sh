#!/bin/sh
# SPDX-License-Identifier: MIT
# Every option of the trainer on GPUs, in each mode: what works ends in the same bits in all three, together with everything
# else that works, and from a checkpoint on; what does not belong there says so. An option that is named nowhere here, nor in
# what other scripts test of GPUs, is a failure.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 2
make_data
modes="accum ddp dp"
replicas 2
head -c 100 "$work/text" >"$work/val"
printf '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 16, "vocab_size": 256, %s}\n' \
    '"embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1' >"$work/config.json"

# run MODE OPTIONS...: four shards a step
run() {
    m=$1
    shift
    case $m in
    accum) timeout $((60 * patience)) "$trainer" --device cuda --acc-steps 4 "$@" ;;
    ddp) timeout $((60 * patience)) "$ddprun" -n 2 $share trainer --device cuda --acc-steps 2 "$@" ;;
    dp) timeout $((60 * patience)) "$trainer" --device cuda --acc-steps 2 $dp "$@" ;;
    esac >"$work/out" 2>&1
}

# works NAME OPTIONS...: the same file in every mode, without a word of warning
works() {
    name=$1
    shift
    for mode in $modes; do
        count=$((count + 1))
        rm -rf "$work/f" "$work/log" "$work/board" "$work/dir"
        run $mode "$@" --save "$work/f" || fail "$name, $mode: exit code $?: $(head -n 5 "$work/out")"
        ! grep -qE ': (error|warning): ' "$work/out" || fail "$name, $mode: $(grep -E ': (error|warning): ' "$work/out")"
        [ $mode != accum ] || mv "$work/f" "$work/first"
        [ $mode = accum ] || cmp -s "$work/f" "$work/first" || fail "$name: $mode ends in other bits"
    done
}

board=
! grep -q 'define HAVE_PROTOBUF_C 1' config.h || board="--tensorboard $work/board"
images="--data $work/images --dataset idx --batch-size 2 --hidden 16 --seed 3 --data-threads 2 --augment crop,flip"
works "images" $images --dtype bf16 --shuffle --drop-last --steps 10 --optimizer sgd,ema=0.9 --lr 0.01,scale --momentum 0.8,nesterov \
    --weight-decay 0.1,on=matrices --clip-grad-norm 1 --schedule step,gamma=0.5,every=1 \
    --warmup-steps 2 --checkpoint "$work/dir" --checkpoint-every 3 --keep 1 --eval --log-every 1 --nan skip \
    --log "$work/log" $board --trace "$work/trace,steps=2-5" --verbose
works "images, milestones" $images --no-shuffle --global-batch 8 --epochs 2 --lr 0.01 --schedule step,at=1 --nan warn --quiet
works "convolutions" --model cnn --data "$work/images" --batch-size 1 --steps 2 --lr 0.001 --no-eval
"$top/image_tool" "$work/pictures" 2 6 0 3 1 || exit 99
works "pictures" --model cnn --data "$work/pictures" --image-size 8 --val-split 4 --eval-every 2 --eval-steps 1 --batch-size 2 \
    --steps 3 --lr 0.001 --quiet
text="--model gpt2 --data $work/text --dataset tokens --tokens bytes --vocab-size 256 --seq-len 12 --batch-size 1 --no-eval"
works "text in float16" $text --layers 1 --heads 2 --channels 16 --dropout 0.1 --dtype fp16,scale=1024,every=2 --steps 4
works "text" $text --layers 1 --heads 2 --channels 16 --context 16 --dropout 0.1 --dtype bf16 --steps 4 --schedule cosine,min=1e-4 \
    --optimizer adamw,beta1=0.8,beta2=0.9,eps=1e-7 --warmup-steps 1 --export "$work/x.safetensors"
works "text, from a file" $text --config "$work/config.json" --load "$work/x.safetensors" --dropout 0 --optimizer adam \
    --val "$work/val" --eval --steps 2 --export "$work/x.bin,format=llmc"
works "a model by size" $text --size d2 --channels 16 --heads 2 --steps 1
works "the article" --model article --data-size 50 --batch-size 2 --epochs 2

# A table, whose weights are hashed on the way: the hashes of each mode are those of the others.
printf 'a,b,c,y\n' >"$work/t.csv"
for i in 1 2 3 4 5 6 7 8; do
    echo "$i,$((i * i % 7)),x,$((i * 3 % 5)).5"
done >>"$work/t.csv"
table="--data $work/t.csv --target y --columns a,c --header --hidden 8 --batch-size 1 --steps 2 --no-eval"
works "a table, one column ignored" --data "$work/t.csv" --target y --ignore c --hidden 8 --batch-size 1 --steps 2 --no-eval --log "$work/log" --hash-every 1
for mode in $modes; do
    rm -f "$work/log"
    run $mode $table --log "$work/log" --hash-every 1 || fail "--hash-every, $mode: $(cat "$work/out")"
    expect "verify, $mode" 0 '' "$trainer" verify "$work/log" --step 2 --device cuda
done

# A llama of a directory, in full and with adapters, on chats and on tokens.
mkdir "$work/shape"
cat >"$work/shape/config.json" <<'END'
{"model_type": "llama", "vocab_size": 272, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
 "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "tie_word_embeddings": true}
END
expect "a directory of weights" 0 '' "$top/hf_llama_tool" fill "$work/shape" "$work/base" f32 0
for i in 1 2 3 4 5 6 7 8; do
    echo '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "hello"}]}'
done >"$work/chats.jsonl"
llama="--load $work/base --batch-size 1 --no-eval --steps 2 --lr 0.01"
chats="--data $work/chats.jsonl --tokenizer $here/tests/data/golden/texts --chat-template chatml --seq-len 24"
works "chats" $llama $chats --packing pad,long=cut --show-masks 1 --export "$work/tuned,dtype=bf16,shard=2K"
works "adapters" $llama $chats --lora r=2,alpha=4,targets=all-linear,dropout=0.1 --frozen-dtype bf16 --dtype bf16 --recompute \
    --export "$work/adapters"
works "adapters, merged" $llama $chats --adapters "$work/adapters" --export "$work/merged,merge"
printf '{"prompt": "a", "chosen": "b", "rejected": "c"}\n%.0s' 1 2 3 4 5 6 7 8 >"$work/pairs.jsonl"
works "preferences" --load "$work/base" --data "$work/pairs.jsonl" --tokenizer "$here/tests/data/golden/texts" --seq-len 24 --steps 1 \
    --packing pad --no-eval --objective dpo

set -- --device cuda --load "$work/x.bin" --prompt "line 7" --generate 8
expect "likeliest text" 0 '^line 7' "$trainer" "$@" --temperature 0
cp "$work/out" "$work/said"
expect "text of one choice" 0 '^line 7' "$trainer" "$@" --temperature 0.7,top-k=1
cmp -s "$work/out" "$work/said" || fail "top-k=1: $(cat "$work/out"), not $(cat "$work/said")"
expect "text that does not stop" 0 '^line 7' "$trainer" "$@" --temperature 0 --stop "what it does not say"
cmp -s "$work/out" "$work/said" || fail "--stop: $(cat "$work/out"), not $(cat "$work/said")"

# Checkpoints of one mode, resumed in the next; SIGTERM in between.
set -- $images --steps 6 --quiet --no-eval --optimizer adamw --schedule constant
run accum "$@" --save "$work/first" || fail "uninterrupted: $(cat "$work/out")"
before=accum
for mode in ddp dp accum; do
    count=$((count + 1))
    rm -rf "$work/dir" "$work/f"
    run $before "$@" --steps 3 --checkpoint "$work/dir" || fail "checkpoint, $before: $(cat "$work/out")"
    run $mode "$@" --checkpoint "$work/dir" --resume --save "$work/f" || fail "resume, $mode: $(cat "$work/out")"
    cmp -s "$work/f" "$work/first" || fail "$before, then $mode: other bits"
    before=$mode
done
# A longer run, planned anew, and interrupted.
for mode in $modes; do
    count=$((count + 1))
    rm -rf "$work/dir" "$work/f"
    set -- $images --quiet --no-eval --schedule cosine --checkpoint "$work/dir" --checkpoint-every 2 --keep 0
    run accum "$@" --steps 3 || fail "3 steps: $(cat "$work/out")"
    run $mode "$@" --steps 6 --resume --extend --save "$work/longer" || fail "--extend, $mode: $(cat "$work/out")"
    rm -r "$work/dir/step-00000006"
    run accum "$@" --steps 6 --resume --save "$work/f" || fail "extended, $mode: $(cat "$work/out")"
    cmp -s "$work/f" "$work/longer" || fail "--extend, $mode: other bits after an interruption"
done
for mode in $modes; do
    count=$((count + 1))
    rm -rf "$work/dir" "$work/log" "$work/f"
    set -- $images --quiet --no-eval --optimizer adamw --schedule constant
    run $mode "$@" --steps 100000000 --checkpoint "$work/dir" --checkpoint-every 100000000 --log "$work/log" --log-every 1 &
    job=$!
    tries=0
    until grep -q '"event":"step"' "$work/log" 2>/dev/null || [ $tries -ge $((1000 * patience)) ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    kill -TERM "$(cat "/proc/$job/task/$job/children")" # `timeout`, which hands it on
    wait $job
    got=$?
    step=$(ls "$work/dir" | sed -n 's/^step-0*//p')
    [ $got -eq 75 ] && [ -n "$step" ] || fail "SIGTERM, $mode: exit code $got, checkpoint '$step': $(cat "$work/out")"
    run $mode "$@" --steps $((step + 2)) --resume-from "$work/dir" --save "$work/f" || fail "$mode: $(cat "$work/out")"
    run $mode "$@" --steps $((step + 2)) --save "$work/whole" || fail "$mode: $(cat "$work/out")"
    cmp -s "$work/f" "$work/whole" || fail "SIGTERM, $mode: other bits than without"
done

# A loss that is not finite names the same tensor in each mode; an update left out changes nothing.
for mode in $modes; do
    count=$((count + 1))
    run $mode $images --lr 1e4 --schedule constant --steps 30 --no-eval
    got=$?
    [ $got -eq 10 ] && grep -qE 'error: the loss is (nan|inf) at step [0-9]+: first in the output of linear, tensor fc2' \
        "$work/out" || fail "not finite, $mode: exit code $got: $(cat "$work/out")"
done

# refused MODES CODE PATTERN OPTIONS...
refused() {
    in=$1 code=$2 pattern=$3
    shift 3
    for mode in $in; do
        count=$((count + 1))
        run $mode $images --steps 1 --no-eval "$@"
        got=$?
        [ $got -eq "$code" ] && grep -qE -- "$pattern" "$work/out" ||
            fail "$*, $mode: exit code $got: $(head -n 5 "$work/out")"
    done
}
alone="accum dp"
refused "$alone" 2 'error: --fast belongs to --mode ddp, which adds gradients over NCCL' --fast
refused "$alone" 2 'error: --bucket-mb belongs to --mode ddp' --bucket-mb 1
refused "$alone" 2 'error: --zero 1 splits the update over the workers of --mode ddp' --zero 1
refused "$alone" 2 'error: --sync-batch-norm needs workers .*--mode (accum|dp) has one worker' --sync-batch-norm
refused "$modes" 9 'error: --dtype TYPE,wire=bf16: GPUs add gradients up in float32: use --device cpu, or leave wire= out' --dtype fp32,wire=bf16
refused "accum ddp" 2 'error: --replicas belongs to --mode dp' --replicas 2
refused "$modes" 0 'warning: --threads has no effect on GPUs' --threads 2
refused "dp" 2 'error: --distributed means --mode ddp' --distributed
refused "ddp" 2 'error: --mode accum runs in one process' --mode accum
refused "accum" 2 'error: --devices names 2 devices, and --mode accum computes on one' --devices 0,0

# A worker is lost: the others and the one in its place begin with the copy.
count=$((count + 1))
run ddp $images --steps 6 --no-eval --save "$work/whole" || fail "nothing is lost: $(cat "$work/out")"
DDP_FAULTS=kill:rank=1,step=5 timeout $((60 * patience)) "$ddprun" -n 2 $share --max-restarts 1 trainer --device cuda --acc-steps 2 \
    $images --steps 6 --no-eval --copy-every 2 --save "$work/f" >"$work/out" 2>&1 || fail "--copy-every: $(cat "$work/out")"
cmp -s "$work/f" "$work/whole" || fail "--copy-every: other bits"
grep -q 'from memory\|copy' "$work/out" || fail "--copy-every: not from memory: $(cat "$work/out")"

# Those of --mode ddp: the ordered sums whatever else is asked for, and in NCCL's order within rounding.
ddp() {
    name=$1
    shift
    count=$((count + 1))
    rm -f "$work/f"
    run ddp $images --steps 6 --quiet --no-eval --optimizer adamw --schedule constant "$@" --save "$work/f" ||
        fail "$name: $(cat "$work/out")"
}
for options in "" "--zero 0" "--zero 1 --bucket-mb 0.001" "--distributed"; do
    ddp "ddp $options" $options
    cmp -s "$work/f" "$work/first" || fail "ddp $options: other bits"
done
for options in "" "--zero 0" "--clip-grad-norm 100"; do
    ddp "fast $options" --fast $options
    weights_near "$work/f" "$work/first" 1e-4 || fail "fast $options: ends elsewhere"
done

# All are named: here, or there. What ends the program, and what is the default everywhere, needs no GPU.
"$trainer" --help all | grep -oE '^ +(-[a-z], +)?--(\[no-\])?[a-z0-9-]+' | sed -E 's/.*--(\[no-\])?//' |
    grep -vxE 'help|version' | sort -u >"$work/options"
count=$((count + 1))
[ "$(wc -l <"$work/options")" -gt 60 ] || fail "--help names few options: $(cat "$work/options")"
while read -r option; do
    grep -qE -- "--(no-)?$option([^a-z-]|\$)" "$here/tests/cuda/cuda_options.sh" "$here/tests/cuda/cuda_trainer.sh" \
        "$here/tests/cuda/cuda_same_bits.sh" "$here/tests/cuda/cuda_checkpoint.sh" "$here/tests/cuda/cuda_plan.sh" \
        "$here/tests/cuda/cuda_pipeline.sh" ||
        fail "--$option: no test on GPUs"
done <"$work/options"
finish
