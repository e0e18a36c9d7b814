#!/bin/sh
# SPDX-License-Identifier: MIT
# Every file of the corpora (tests/lib/corpus.py) through its parser: good-* accepted, bad-* rejected.
. "${srcdir:-.}/tests/lib/cli.inc"
make_corpus
for directory in "$work/corpus"/*/; do
    target=$(basename "$directory")
    expect "$target" 0 '^[1-9].* files, 0 wrong$' "./replay_$target" "$directory"*
done
[ "$count" -eq "$(find "$here/tests" -name "fuzz_*.c" | wc -l)" ] || fail "a parser has no corpus"
finish
