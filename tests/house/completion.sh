#!/bin/sh
# SPDX-License-Identifier: MIT
# The completion of trainer's values, with bash-completion: the sizes are those of the model, which all exist.
. "${srcdir:-.}/tests/lib/cli.inc"
command -v bash >/dev/null && [ -r /usr/share/bash-completion/bash_completion ] || skip "bash-completion is not installed"

# complete LINE: what the last word of the line may become, sorted, in one line
complete() {
    bash -c '
        . /usr/share/bash-completion/bash_completion
        . "$1"
        COMP_LINE=$2 COMP_POINT=${#2}
        read -ra COMP_WORDS <<<"${2//=/ = }"
        [[ $2 == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _trainer
        printf "%s\n" "${COMPREPLY[@]}"
    ' bash "$here/completion/trainer" "$1" | sort | tr '\n' ' '
}
# completes LINE WORDS
completes() {
    count=$((count + 1))
    got=$(complete "$1")
    [ "$got" = "$2 " ] || fail "'$1' is completed by: $got"
}
gpt2='124M 1558M 355M 774M d12 d2 d24 d36 d4 d48 d6' resnet='110 18 20 32 34 44 50 56 auto'
llama='d2 d4 d6 llama2-7b llama3.1-8b llama3.2-1b mistral-7b qwen2.5-0.5b qwen3-0.6b qwen3-1.7b qwen3-8b smollm2-135m smollm2-360m'
completes 'trainer --model gpt2 --size ' "$gpt2"
completes 'trainer --model llama --size ' "$llama"
completes 'trainer --plan --model=resnet --size ' "$resnet"
completes "trainer --size d" "d12 d2 d24 d36 d4 d48 d6"
completes "trainer --size 1" "110 124M 1558M 18"
completes 'trainer --model gpt2 --model resnet --size 3' '32 34'
completes 'trainer --model mlp --size ' ''
completes 'trainer --plan-mem' '--plan-memory'
completes 'trainer in' 'info'
mkdir -p "$work/models/one"
completes "trainer info $work/mod" "$work/models"
completes "trainer info $work/models/one " ''
bert='base mini minilm-l6 small tiny'
completes 'trainer --model bert --size ' "$bert"
for size in $bert; do
    expect "bert $size" 0 '' "$trainer" --model bert --plan --size "$size"
done
for size in $gpt2; do
    expect "gpt2 $size" 0 '' "$trainer" --model gpt2 --plan --size "$size"
done
for size in $llama; do
    expect "llama $size" 0 '' "$trainer" --model llama --plan --size "$size"
done
for size in $resnet; do
    expect "resnet $size" 0 '' "$trainer" --model resnet --plan --size "$size"
done
finish
