#!/bin/sh
# SPDX-License-Identifier: MIT
# A tiny GPT-2 in the files of Hugging Face and llm.c (golden/gpt2.py made them): the loss is the one that NumPy
# computes, and each form turns into the others byte for byte. Needs no Python.
. "${srcdir:-.}/tests/lib/cli.inc"
golden=$here/tests/weights/golden/gpt2
shape=2,2,8,256,16

while read -r file loss; do
    expect "$file" 0 'step 1: loss' "$trainer" --model gpt2 --config "$golden/config.json" --load "$golden/$file" --data "$golden/text" \
        --tokens bytes --seq-len 16 --batch-size 4 --steps 1 --lr 0 --weight-decay 0 --no-shuffle --no-eval --threads 1 --verbose
    shown=$(sed -n 's/.*step 1: loss \([0-9.]*\).*/\1/p' "$work/out")
    awk -v a="$shown" -v b="$loss" 'BEGIN { exit !(a - b < 2e-4 && b - a < 2e-4 && a > 0) }' || fail "$file: the loss is $shown, NumPy has $loss"
done <"$golden/losses.txt"

# turns NAME FORMAT FROM GOLDEN: the data of the file written are those of the golden
turns() {
    expect "$1" 0 '' ./gpt2_tool $shape "$2" "$golden/$3" "$work/$4"
    header=0
    [ "$2" = hf ] && header=8
    [ "$header" -eq 0 ] || header=$((8 + $(od -An -tu4 -N 4 "$work/$4")))
    tail -c +$((header + 1)) "$work/$4" >"$work/data"
    tail -c "$(wc -c <"$work/data")" "$golden/$4" | cmp -s - "$work/data" || fail "$1: other bytes than $4"
}
turns "Hugging Face to llm.c" llmc model.safetensors model.bin
turns "Hugging Face to llm.c's bf16" llmc-bf16 model.safetensors model-bf16.bin
turns "llm.c to Hugging Face" hf model.bin model.safetensors
turns "llm.c to llm.c" llmc model.bin model.bin
finish
