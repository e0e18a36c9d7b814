#!/bin/sh
# SPDX-License-Identifier: MIT
# trainer info of what is not a model: tables, lines of JSON, logs, arrays, token files, texts, directories of data.
. "${srcdir:-.}/tests/lib/cli.inc"
make_data
printf 'a,town,y\n1,x,2\n,y,3\n' >"$work/t.csv"
expect "a table" 0 '^data        a table: 2 rows of 3 columns$' "$trainer" info "$work/t.csv"
grep -q '^  a  *numbers, 1 missing$' "$work/out" && grep -q '^  town  *words$' "$work/out" || fail "columns: $(cat "$work/out")"
printf '{"text":"a","label":1}\n\n{"text":"b","label":0}\n' >"$work/d.jsonl"
expect "lines of JSON" 0 '^data        2 values of JSON, the first with text label$' "$trainer" info "$work/d.jsonl"
printf '{"text":"a"}\n{"text\n' >"$work/bad.jsonl"
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n' >"$work/vocab.txt"
expect "a vocabulary" 0 '^vocabulary  5 tokens of WordPiece$' "$trainer" info "$work/vocab.txt"
expect "a bad line" 3 'bad.jsonl: object 2 is not JSON' "$trainer" info "$work/bad.jsonl"
expect "a run" 0 '' "$trainer" --threads 1 --data "$work/images" --steps 3 --log "$work/log" --quiet --no-eval --save "$work/w"
expect "its log" 0 '^log         of 1 run, with 3 steps and 0 evaluations$' "$trainer" info "$work/log"
expect "its weights" 0 '^model       mlp ' "$trainer" info "$work/w"
expect "a directory of data" 0 '^data        idx: [0-9]* samples of 1 x ' "$trainer" info "$work/images"
expect "an archive" 0 '^x_train.npy uint8 of \(4, 3, 5\)$' "$trainer" info "$here/tests/data/golden/npy/keras-stored.npz"
printf 'abcdefgh' >"$work/t.bin"
expect "tokens" 0 '^data        4 tokens of 16 bits$' "$trainer" info "$work/t.bin"
expect "a text" 0 '^data        a text of [0-9,]* bytes$' "$trainer" info "$work/text"
printf '\0\0\010\001\0\0\0\003abc' >"$work/labels"
expect "IDX" 0 '^array       uint8 of \(3\)$' "$trainer" info "$work/labels"
printf 'ab\0\001cdefghij' >"$work/other"
expect "something else" 3 'other: neither text nor a known token file' "$trainer" info "$work/other"
mkdir "$work/none"
expect "nothing" 3 'none: no weights in this directory' "$trainer" info "$work/none"
finish
