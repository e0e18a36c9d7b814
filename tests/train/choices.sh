#!/bin/sh
# SPDX-License-Identifier: MIT
# Questions with choices: as often right as transformers says, with the same bits in every mode; and what is refused.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "there is no $python"
tests=${srcdir:-.}/tests/train
"$python" "$tests/preferences.py" make "$work/made" && "$python" "$tests/choices.py" make "$work/made" || exit 99
expect 'a base' 0 '' ./hf_llama_tool fill "$work/made" "$work/model" f32 100000
run="--model llama --load $work/model --data $work/made/train.jsonl --val $work/made/questions.jsonl --seq-len 64 --batch-size 4"

# alike NAME PROGRAM...: the line that golden/choices.txt has, and the loss to the last bit
alike() {
    name=$1
    shift
    rm -f "$work/log"
    expect "$name" 0 'samples of the test set' "$@" $run --eval-only --log "$work/log"
    grep -qxF "$(cat "$tests/golden/choices.txt")" "$work/out" || { fail "$name: not as golden/choices.txt"; grep '^test' "$work/out"; }
    sed -n 's/.*\("test_loss":.*"samples":200\).*\("test_accuracy_norm".*\)}/\1 \2/p' "$work/log" >"$work/$name"
    [ -s "$work/$name" ] || fail "$name: the log has no evaluation"
    cmp -s "$work/one" "$work/$name" || fail "$name: other bits: $(cat "$work/one" "$work/$name")"
}
alike one "$trainer"
alike two "$ddprun" -n 2 trainer
alike three "$ddprun" -n 3 trainer
alike dp "$trainer" --mode dp --replicas 2
alike pipeline "$trainer" --mode pipeline --stages 2
alike threads "$trainer" --threads 3

# While something is trained: prompts, texts or preferences.
sed 's/"prompt".*"completion"/"text"/' "$work/made/train.jsonl" >"$work/texts.jsonl"
for i in 1 2 3 4 5; do cat "$work/texts.jsonl"; done >"$work/many.jsonl"
trained() {
    name=$1
    shift
    expect "$name" 0 'step 4/4: test accuracy [0-9.]+ %, by length [0-9.]+ %, test loss' "$trainer" $run --steps 4 --eval-every 2 --patience 3 --lr 0.01 "$@"
    [ "$(grep -c 'test accuracy .* by length .* test loss' "$work/out")" -eq 2 ] || fail "$name: not two evaluations"
}
trained prompts
cp "$work/made/train.jsonl" "$work/more.jsonl"
trained "a mixture" --data "$work/made/train.jsonl:2,$work/more.jsonl:1"
trained texts --data "$work/many.jsonl"
trained preferences --data "$work/made/pairs.jsonl" --objective dpo

# refuse NAME MESSAGE OPTION...
refuse() {
    name=$1 message=$2
    shift 2
    expect "$name" 2 "error: $message" "$trainer" $run "$@"
}
refuse 'a part' '--eval-steps: --val .*all are evaluated' --steps 1 --eval-steps 1
refuse 'a long one' '.*questions.jsonl: line [0-9]+: [0-9]+ tokens of a prompt and answer are more than half of --seq-len 16' --seq-len 16 --eval-only
expect gpt2 2 'error: --val .*use --model llama' "$trainer" --model gpt2 --size d2 --tokenizer "$work/model" --seq-len 64 --data "$work/many.jsonl" \
    --val "$work/made/questions.jsonl"
expect 'to be trained' 3 'error: .*a question with choices: those are evaluated, with --val' "$trainer" $run --data "$work/made/questions.jsonl"
line() {
    { head -n 1 "$work/made/questions.jsonl"; printf '%s\n' "$2"; } >"$work/wrong.jsonl"
    expect "$1" 3 "error: .*wrong.jsonl: line 2.*$3" "$trainer" $run --val "$work/wrong.jsonl" --eval-only
}
line 'no prompt' '{"choices": ["a", "b"], "answer": 0}' 'a question has a string'
line 'one choice' '{"prompt": "q", "choices": ["a"], "answer": 0}' 'two to 1000 strings'
line 'an empty choice' '{"prompt": "q", "choices": ["a", ""], "answer": 0}' 'none of them empty'
line 'an answer too far' '{"prompt": "q", "choices": ["a", "b"], "answer": 2}' '"answer" is not the number .* from 0 to 1'
line 'an answer in words' '{"prompt": "q", "choices": ["a", "b"], "answer": "a"}' '"answer" is not the number'
line 'an empty prompt' '{"prompt": " ", "choices": ["a", "b"], "answer": 1}' 'the prompt has no token of its own'
line 'no JSON' '{"prompt"' 'column'
finish
