#!/bin/sh
# SPDX-License-Identifier: MIT
# --objective: losses and metrics are TRL's, the same bits in every mode, resumed and recomputed, and what does not go together.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "there is no $python"
tests=${srcdir:-.}/tests/train

"$python" "$tests/preferences.py" make "$work/made" || exit 99
expect 'a base' 0 '' ./hf_llama_tool fill "$work/made" "$work/model" f32 100000
pairs=$work/made/pairs.jsonl

# train LOG [WORD...]: 5 steps as the golden values have them
train() {
    log=$1
    shift
    rm -f "$work/$log"
    timeout $((60 * patience)) "$@" --model llama --load "$work/model" --seq-len 64 --steps 5 --schedule constant \
        --optimizer adamw,beta2=0.999 --weight-decay 0 --clip-grad-norm 0 --log "$work/$log" $options >"$work/out" 2>&1 && return
    fail "$log: $*"
    sed 's/^/    /' "$work/out" | head -n 10
}

# golden RUN OPTION...
golden() {
    run=$1
    shift
    options="--packing pad --batch-size 8 --no-eval --quiet --data $pairs --lr 1e-3 $*"
    train "$run" "$trainer"
    "$python" "$tests/preferences.py" check "$tests/golden/preferences.txt" "$run" "$work/$run" || fail "$run: other values than TRL's"
}
golden dpo --objective dpo
golden lora --objective dpo --adapters "$work/made/adapters" --lr 1e-2
golden ipo --objective ipo
golden orpo --objective orpo
golden simpo --objective simpo,beta=2,gamma=0.5
golden kto --objective kto --data "$work/made/rated.jsonl"
golden kto-weights --objective kto,beta=0.2,desirable=1.5 --data "$work/made/rated.jsonl"
# Prompts that are what both answers begin with.
golden dpo --objective dpo --data "$work/made/whole.jsonl"

# same WHAT COMMAND...: as in the log alone
same() {
    what=$1
    shift
    train other "$@"
    "$python" "$tests/preferences.py" same "$work/alone" "$work/other" || fail "$what: other bits"
}
for objective in dpo,beta=0.2 orpo; do
    options="--packing pad --batch-size 2 --global-batch 8 --no-eval --data $pairs --lr 1e-3 --objective $objective"
    train alone "$trainer"
    same "$objective, 3 threads" "$trainer" --threads 3
    same "$objective, 2 workers" "$ddprun" -n 2 "$trainer"
    same "$objective, 4 workers, --zero 0" "$ddprun" -n 4 "$trainer" --zero 0
    same "$objective, dp" "$trainer" --mode dp --replicas 2
    same "$objective, recomputed" "$trainer" --recompute
    same "$objective, a pipeline" "$trainer" --mode pipeline --stages 2
    same "$objective, a pipeline of workers" "$ddprun" -n 2 "$trainer" --mode pipeline --stages 2
done
# Local steps of two workers that have the same pairs: the steps of one, with the same metrics.
awk '{ print; print }' "$pairs" >"$work/twice.jsonl"
options="--packing pad --batch-size 4 --no-shuffle --no-eval --lr 1e-3 --objective dpo"
train alone "$trainer" --data "$pairs"
same 'local steps' "$ddprun" -n 2 "$trainer" --data "$work/twice.jsonl" --sync-every 2
# Metrics are those of all workers.
grep '^simpo ' "$tests/golden/preferences.txt" | cut -d ' ' -f 1-3 >"$work/begin"
options="--packing pad --batch-size 4 --no-eval --lr 1e-3 --data $pairs --objective simpo,beta=2,gamma=0.5 --sync-every 2"
train simpo "$ddprun" -n 2 "$trainer"
"$python" "$tests/preferences.py" check "$work/begin" simpo "$work/simpo" || fail 'local steps: other values than TRL'"'"'s'
# Several pairs in a row; and an evaluation, in any number of workers.
options="--batch-size 1 --global-batch 2 --data $pairs --val $pairs --eval-every 2 --lr 1e-3 --objective kto,beta=0.2 --batch-size 2 \
    --global-batch 4 --data $work/made/rated.jsonl --val $work/made/rated.jsonl"
train alone "$trainer"
grep '"evaluation"' "$work/alone" | grep -o '"test_[a-z/]*":[^,}]*' >"$work/figures"
[ "$(grep -c 'test_rewards/margins' "$work/figures")" = 3 ] || fail "no rewards in evaluations"
same "packed, 2 workers" "$ddprun" -n 2 "$trainer"
grep '"evaluation"' "$work/other" | grep -o '"test_[a-z/]*":[^,}]*' | cmp - "$work/figures" || fail "2 workers evaluate otherwise"
# Resumed, the reference is that of the first step.
options="--packing pad --batch-size 2 --global-batch 8 --no-eval --data $pairs --lr 1e-3 --objective dpo"
train alone "$trainer" --dtype bf16
train first "$trainer" --dtype bf16 --checkpoint "$work/steps" --checkpoint-every 3 --quiet
rm -r "$work/steps/step-00000005"
train second "$ddprun" -n 2 "$trainer" --dtype bf16 --checkpoint "$work/steps" --resume
grep '"event":"step"' "$work/alone" | tail -n 2 | grep -o '"loss":[^,]*\|"rewards/[a-z]*":[^,]*' >"$work/figures"
grep '"event":"step"' "$work/second" | grep -o '"loss":[^,]*\|"rewards/[a-z]*":[^,]*' | cmp - "$work/figures" || fail "resumed: other figures"
rm -r "$work/steps/step-00000005"
"$python" - "$work/model/model.safetensors" <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(-8, 2)
    file.write(b"\0\0\0\0")
END
# shellcheck disable=SC2086
expect 'resumed from another reference' 2 'weights of the reference' "$trainer" --model llama --load "$work/model" --seq-len 64 \
    --steps 5 --schedule constant --optimizer adamw,beta2=0.999 --weight-decay 0 --clip-grad-norm 0 --dtype bf16 $options \
    --checkpoint "$work/steps" --resume

# refuse NAME CODE PATTERN OPTION...
refuse() {
    name=$1 code=$2 pattern=$3
    shift 3
    expect "$name" "$code" "error: .*$pattern" "$trainer" --model llama --load "$work/model" --seq-len 64 --steps 1 --no-eval "$@"
}
refuse 'no such objective' 2 'must be dpo, ipo, orpo, simpo or kto' --objective ppo --data "$pairs"
refuse 'label smoothing' 2 'there is no label_smoothing: TRL' --objective dpo,label_smoothing=0.1 --data "$pairs"
refuse 'a gamma of DPO' 2 'gamma belongs to simpo' --objective dpo,gamma=1 --data "$pairs"
refuse 'no beta' 2 'beta must be a number above 0' --objective dpo,beta=0 --data "$pairs"
expect 'another model' 2 'learned by --model llama, and the model is gpt2' "$trainer" --model gpt2 --objective dpo --data "$pairs"
printf '\000\000' >"$work/t.bin"
refuse 'tokens' 2 't.bin: --objective learns from lines of preferences' --objective dpo --data "$work/t.bin"
echo 'a text' >"$work/t.txt"
refuse 'a text' 3 't.txt: a text: --objective learns from lines' --objective dpo --data "$work/t.txt"
refuse 'dropout' 2 'learned without dropout' --objective dpo --data "$pairs" --lora r=2,alpha=2,dropout=0.1
refuse 'a batch of one' 2 'give --batch-size 2' --objective kto --data "$work/made/rated.jsonl" --batch-size 1
refuse 'rated answers' 3 'line 1: a rated answer, which --objective kto' --objective dpo --data "$work/made/rated.jsonl"
refuse 'no objective' 3 'line 1: a chosen answer: preferences are learned with --objective' --data "$work/made/whole.jsonl"
# lines NAME PATTERN LINE: the second line is bad
lines() {
    { head -n 1 "$pairs"; echo "$3"; } >"$work/bad.jsonl"
    refuse "$1" 3 "bad.jsonl: line 2: $2" --objective dpo --data "$work/bad.jsonl"
}
lines 'no rejected' 'no "rejected" in it' '{"prompt": "a", "chosen": "b"}'
lines 'equal answers' 'chosen and rejected are the same' '{"prompt": "a", "chosen": "b", "rejected": "b"}'
lines 'of two kinds' '.*must all be strings' '{"prompt": "a", "chosen": [{"role": "user", "content": "b"}], "rejected": "c"}'
lines 'nothing of its own' '.*no message of its own' \
    '{"chosen": [{"role": "user", "content": "b"}], "rejected": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]}'
lines 'a number' '"chosen" is neither' '{"prompt": "a", "chosen": 5, "rejected": "c"}'
refuse 'long prompts' 3 'no pair fits into --seq-len 4' --objective dpo --data "$pairs" --seq-len 4
refuse 'long answers' 2 'line 1: .* tokens are more than half' --objective dpo --data "$pairs" --seq-len 10 --packing documents,long=refuse
expect 'some fit' 0 'answers are cut' "$trainer" --model llama --load "$work/model" --seq-len 14 --steps 1 --no-eval --objective dpo --data "$pairs"
expect 'what is trained' 0 '5 trained' "$trainer" --model llama --load "$work/model" --seq-len 64 --plan --objective dpo --data "$pairs" \
    --show-masks 1
expect 'a plan without data' 0 '^prefer   dpo, beta 0.1$' "$trainer" --model llama --load "$work/model" --plan --objective dpo --shape 64
finish
