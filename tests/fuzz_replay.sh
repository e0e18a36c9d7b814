#!/bin/sh
# SPDX-License-Identifier: MIT
# Every file of the corpora through its parser: good-* accepted, bad-* rejected.
set -u
corpus=${srcdir:-.}/tests/corpus
status=0
for target in idx npy zip safetensors options tokens image tokenizer llmc hf_config hf_llama peft index checkpoint description text record table link place choices run_log trace; do
    printf '%s: ' "$target"
    ./"replay_$target" "$corpus/$target"/* 2>"replay_$target.err" || { status=1; cat "replay_$target.err"; }
    rm -f "replay_$target.err"
done
exit $status
