#!/bin/sh
# SPDX-License-Identifier: MIT
# A small GPT learns a text by heart and says it again: trainer --generate, from our weights, Hugging Face's and
# llm.c's, with bytes and with numbers as tokens.
. "${srcdir:-.}/tests/lib/cli.inc"

i=0
while [ $i -lt 300 ]; do
    echo "one two three four five six seven eight nine ten"
    i=$((i + 1))
done >"$work/text"
expect "training" 0 'saved' "$trainer" --model gpt2 --data "$work/text" --size d2 --seq-len 64 --steps 120 --batch-size 8 \
    --lr 2e-3 --no-eval --save "$work/w.safetensors" --export "$work/model.safetensors"
set -- --generate 35 --temperature 0 --prompt "one two three"
expect "ours" 0 '^one two three four five six seven eight nine' "$trainer" "$@" --load "$work/w.safetensors"
cp "$work/out" "$work/ours"
expect "one thread" 0 '' "$trainer" "$@" --load "$work/w.safetensors" --threads 1
cmp "$work/ours" "$work/out" || fail "one thread: another text"
expect "Hugging Face's form" 0 '' "$trainer" "$@" --load "$work/model.safetensors"
cmp "$work/ours" "$work/out" || fail "Hugging Face's form: another text"
# The sizes come from the file; only --export needs a run.
expect "go on from weights" 0 'exported' "$trainer" --model gpt2 --data "$work/text" --seq-len 32 --steps 1 --lr 1e-12 \
    --no-eval --load "$work/w.safetensors" --export "$work/model.bin"
expect "llm.c's form" 0 '^one two three four five' "$trainer" "$@" --load "$work/model.bin"
printf 'one two three' >"$work/prompt"
expect "a prompt from a file" 0 '^one two three four' "$trainer" --generate 10 --temperature 0 --prompt "$work/prompt" \
    --load "$work/w.safetensors"
# Longer than the context: the last tokens count.
expect "long prompt" 0 'ten$' "$trainer" --generate 4 --temperature 0 --prompt "$(head -n 4 "$work/text" | sed '4s/ ten//')" \
    --load "$work/w.safetensors"
# The same seed gives the same text, another seed another.
"$trainer" --generate 60 --temperature 2 --seed 1 --load "$work/w.safetensors" >"$work/a" || fail "seed 1"
"$trainer" --generate 60 --temperature 2 --seed 1 --load "$work/w.safetensors" >"$work/b" || fail "seed 1 again"
"$trainer" --generate 60 --temperature 2 --seed 2 --load "$work/w.safetensors" >"$work/c" || fail "seed 2"
cmp "$work/a" "$work/b" || fail "the same seed gives another text"
cmp -s "$work/a" "$work/c" && fail "another seed gives the same text"
"$trainer" --generate 60 --temperature 2,top-k=1 --load "$work/w.safetensors" >"$work/a" || fail "top-k=1"
"$trainer" --generate 60 --temperature 0 --load "$work/w.safetensors" >"$work/b" || fail "temperature 0"
cmp "$work/a" "$work/b" || fail "top-k=1 is not the likeliest token"

# Several at once: in order, each as it is alone and with others; until it has the stop string in it.
# sample N FILE: the N-th one
sample() {
    awk -v n="$1" '/^--- sample / { at = $3; next } at == n' "$2"
}
set -- --generate 50 --temperature 1.5 --load "$work/w.safetensors" --seed 3
expect "three" 0 '^--- sample 3 of 3 ---' "$trainer" "$@" --samples 3
cp "$work/out" "$work/three"
[ "$(grep -c '^--- sample' "$work/three")" -eq 3 ] || fail "not three samples"
"$trainer" "$@" --samples 7 >"$work/seven" || fail "seven"
for i in 1 2 3; do
    sample $i "$work/three" >"$work/a"
    sample $i "$work/seven" >"$work/b"
    cmp "$work/a" "$work/b" || fail "sample $i depends on how many there are"
done
sample 1 "$work/three" | cmp - "$work/a" && fail "samples 1 and 3 are the same"
"$trainer" "$@" >"$work/b" || fail "one"
sample 1 "$work/three" | cmp - "$work/b" || fail "the first sample is not that of a single one"
"$trainer" "$@" --samples 7 --stop ' f' >"$work/stopped" || fail "stop"
for i in 1 2 3 4 5 6 7; do
    sample $i "$work/seven" >"$work/a"
    sample $i "$work/stopped" >"$work/b"
    # up to and with the first " f"; all of it where there is none
    python3 -c 'import sys; t = sys.stdin.buffer.read(); n = t.find(b" f"); sys.stdout.buffer.write(t if n < 0 else t[:n + 2] + b"\n")' \
        <"$work/a" | cmp - "$work/b" || fail "sample $i does not end at the stop string"
done
set -- --temperature 0 --load "$work/w.safetensors"
expect "two workers" 0 '^one two three' "$ddprun" -n 2 "$trainer" --generate 15 --prompt "one two three" "$@"
[ "$(grep -c one "$work/out")" -eq 1 ] || fail "two workers: not one text"
expect "stop" 0 '^two th.* four$' "$trainer" --generate 90 --prompt "two" --stop "four" "$@"
expect "the prompt does not stop" 0 '^two three four five$' "$trainer" --generate 90 --prompt "two three four" --stop "five" "$@"
expect "no stop in the prompt" 0 'nine ten$' "$trainer" --generate 90 --prompt "two three" --stop "ten" "$@"
expect "empty stop" 2 '--stop .*must not be empty' "$trainer" --generate 9 --stop "" "$@"
# Far beyond the context of 64: the text goes on.
expect "beyond the context" 0 '' "$trainer" --generate 400 --prompt "one two three" "$@"
[ "$(grep -c 'four five six seven eight nine ten$' "$work/out")" -ge 5 ] || fail "lost beyond the context: $(cat "$work/out")"

# Texts during training: nothing else changes, in any mode.
set -- --model gpt2 --data "$work/text" --size d2 --seq-len 32 --steps 6 --global-batch 8 --batch-size 2 --no-eval --lanes 4
expect "plain" 0 'saved' "$trainer" "$@" --save "$work/plain"
texts="--sample-every 3,length=12 --samples 2 --prompt one"
expect "texts" 0 '^--- step 6, sample 2 of 2 ---' "$trainer" "$@" --save "$work/told" $texts --log "$work/log"
cmp "$work/plain" "$work/told" || fail "--sample-every changes training"
grep -A 1 -e '--- step' "$work/out" >"$work/texts"
[ "$(grep -c -e '--- step' "$work/out")" -eq 4 ] || fail "not two texts of two steps"
python3 - "$work/log" "$work/texts" <<'END' || fail "the log has other texts"
import json, sys
shown = open(sys.argv[2]).read()
texts = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "sample"]
assert [(e["step"], e["sample"], e["samples"]) for e in texts] == [(3, 1, 2), (3, 2, 2), (6, 1, 2), (6, 2, 2)], texts
for e in texts:
    assert e["text"].startswith("one") and e["text"].split("\n")[0] in shown, e
END
for way in "trainer" "trainer --zero 0"; do
    expect "texts, $way" 0 '^--- step 6, sample 2 of 2 ---' "$ddprun" -n 2 $way "$@" --save "$work/told" $texts
    cmp "$work/plain" "$work/told" || fail "--sample-every changes training: $way"
    grep -A 1 -e '--- step' "$work/out" | cmp - "$work/texts" || fail "$way: other texts"
done
expect "texts, dp" 0 '^--- step 6, sample 2 of 2 ---' "$trainer" --mode dp --replicas 2 "$@" --save "$work/told" $texts
cmp "$work/plain" "$work/told" || fail "--sample-every changes training: dp"
expect "texts, quiet" 0 '' "$trainer" -q "$@" $texts
[ ! -s "$work/out" ] || fail "--quiet prints texts"
expect "resumed" 0 '' "$trainer" "$@" $texts --checkpoint "$work/points" --checkpoint-every 2
rm -r "$work/points/step-00000006"
expect "resumed" 0 '^--- step 6, sample 1 of 2 ---' "$trainer" "$@" $texts --checkpoint "$work/points" --resume --save "$work/told"
cmp "$work/plain" "$work/told" || fail "--sample-every changes a resumed training"
expect "texts of a model that diverged" 0 'no text after step 3: .* not finite' "$trainer" "$@" --lr 1e6 --clip-grad-norm 0 \
    --nan warn --sample-every 3
expect "no model of language" 2 '--sample-every: only gpt2 and llama write texts, and the model is mlp' "$trainer" --sample-every 3 --data "$work/none"
expect "no such part" 2 '--sample-every 3,size=9: "size=9" is unknown: --sample-every takes N\[,length=L\]' "$trainer" --model gpt2 --sample-every 3,size=9
expect "a part without its value" 2 '"length" is unknown' "$trainer" --model gpt2 --sample-every 3,length
expect "a wrong part" 2 '--sample-every ...,length=0: must be a whole number from 1' "$trainer" --model gpt2 --sample-every 3,length=0
expect "one or the other" 2 'exclude each other: give one' "$trainer" --generate 3 --sample-every 3 --load "$work/w.safetensors"

# Tokens that are numbers.
i=0
while [ $i -lt 600 ]; do
    printf '\003\000\007\000\005\000\001\000'
    i=$((i + 1))
done >"$work/numbers.bin"
expect "numbers" 0 'saved' "$trainer" --model gpt2 --data "$work/numbers.bin" --tokens uint16 --vocab-size 9 --layers 1 \
    --heads 1 --channels 32 --seq-len 16 --steps 150 --batch-size 8 --lr 5e-3 --no-eval --save "$work/n.safetensors"
expect "numbers again" 0 '^7 5 1 3 7 5 1 3 7$' "$trainer" --generate 6 --temperature 0 --prompt "7, 5 1" --load "$work/n.safetensors"
expect "stop at numbers" 0 '^7 5 1 3$' "$trainer" --generate 6 --temperature 0 --prompt "7" --stop "1, 3" --load "$work/n.safetensors"
expect "no such stop" 2 "stop: '9' is not a token" "$trainer" --generate 6 --stop "1 9" --load "$work/n.safetensors"
expect "no such token" 2 "prompt: '9' is not a token: .* 0 to 8" "$trainer" --generate 6 --prompt "7 9" --load "$work/n.safetensors"
expect "no numbers" 2 "prompt: 'seven' is not a token" "$trainer" --generate 6 --prompt "seven" --load "$work/n.safetensors"

expect "no weights" 2 '--generate: name the trained weights with --load' "$trainer" --generate 5
expect "missing file" 4 'nowhere: ' "$trainer" --generate 5 --load "$work/nowhere"
head -c 1000 "$work/w.safetensors" >"$work/cut"
expect "half a file" 3 'cut: ' "$trainer" --generate 5 --load "$work/cut"
: >"$work/empty"
expect "empty prompt" 4 'empty: the file is empty|is empty' "$trainer" --generate 5 --prompt "$work/empty" --load "$work/w.safetensors"
finish
