#!/bin/sh
# SPDX-License-Identifier: MIT
# A small GPT learns a text by heart and says it again: trainer --generate, from our weights, Hugging Face's and
# llm.c's, with bytes and with numbers as tokens.
. "${srcdir:-.}/tests/cli.inc"

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
"$trainer" --generate 60 --temperature 2 --top-k 1 --load "$work/w.safetensors" >"$work/a" || fail "top-k 1"
"$trainer" --generate 60 --temperature 0 --load "$work/w.safetensors" >"$work/b" || fail "temperature 0"
cmp "$work/a" "$work/b" || fail "--top-k 1 is not the likeliest token"

# Tokens that are numbers.
i=0
while [ $i -lt 600 ]; do
    printf '\003\000\007\000\005\000\001\000'
    i=$((i + 1))
done >"$work/numbers.bin"
expect "numbers" 0 'saved' "$trainer" --model gpt2 --data "$work/numbers.bin" --tokens uint16 --vocab-size 9 --layers 1 \
    --heads 1 --channels 32 --seq-len 16 --steps 150 --batch-size 8 --lr 5e-3 --no-eval --save "$work/n.safetensors"
expect "numbers again" 0 '^7 5 1 3 7 5 1 3 7$' "$trainer" --generate 6 --temperature 0 --prompt "7, 5 1" --load "$work/n.safetensors"
expect "no such token" 2 "prompt: '9' is not a token: .* 0 to 8" "$trainer" --generate 6 --prompt "7 9" --load "$work/n.safetensors"
expect "no numbers" 2 "prompt: 'seven' is not a token" "$trainer" --generate 6 --prompt "seven" --load "$work/n.safetensors"

expect "no weights" 2 '--generate: name the trained weights with --load' "$trainer" --generate 5
expect "missing file" 4 'nowhere: ' "$trainer" --generate 5 --load "$work/nowhere"
head -c 1000 "$work/w.safetensors" >"$work/cut"
expect "half a file" 3 'cut: ' "$trainer" --generate 5 --load "$work/cut"
: >"$work/empty"
expect "empty prompt" 4 'empty: the file is empty|is empty' "$trainer" --generate 5 --prompt "$work/empty" --load "$work/w.safetensors"
finish
