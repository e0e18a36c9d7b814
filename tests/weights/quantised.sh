#!/bin/sh
# SPDX-License-Identifier: MIT
# Bases of adapters that lie in blocks: the same bits in every mode, those of a GGUF file as they are, merges, text, and what does
# not go.
. "${srcdir:-.}/tests/lib/cli.inc"

# base NAME HIDDEN DTYPE: a directory with a model of that hidden size
base() {
    mkdir -p "$work/shape"
    echo "{\"model_type\": \"llama\", \"vocab_size\": 96, \"hidden_size\": $2, \"intermediate_size\": $2, \"num_hidden_layers\": 2,
        \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5}" \
        >"$work/shape/config.json"
    expect "base $1" 0 '' ./hf_llama_tool fill "$work/shape" "$work/$1" "$3" 0
}
base base 96 bf16
base wide 256 f32
awk 'BEGIN { for (i = 0; i < 800; i++) printf "\\%03o\\000", (i * i * 7 + i * 31) % 96 }' >"$work/octal"
# shellcheck disable=SC2059
printf "$(cat "$work/octal")" >"$work/tokens.bin"
steps="--data $work/tokens.bin --tokens uint16 --seq-len 16 --steps 3 --batch-size 1 --global-batch 4 --lanes 4 --lr 1e-2 --seed 3 --no-eval"
lora='--lora r=4,alpha=8,targets=all-linear'

# trains NAME REFERENCE COMMAND...: exports adapters that are those of the reference, where there is one
trains() {
    name=$1 other=$2
    shift 2
    expect "$name" 0 '' "$@" --export "$work/$name"
    [ -z "$other" ] || cmp -s "$work/$name/adapter_model.safetensors" "$work/$other/adapter_model.safetensors" ||
        fail "$name: other bits than $other"
}
differ() {
    count=$((count + 1))
    cmp -s "$1" "$2" && fail "${1#"$work/"} and ${2#"$work/"} are the same"
}
trains bf16 '' "$trainer" $steps $lora --load "$work/base"
for type in nf4 q8_0 q4_0; do
    set -- $steps $lora --load "$work/base" --frozen-dtype $type
    trains $type '' "$trainer" "$@" --threads 1
    trains $type-threads $type "$trainer" "$@" --threads 3
    trains $type-workers $type "$ddprun" -n 2 trainer "$@"
    trains $type-pipeline $type "$ddprun" -n 2 trainer "$@" --mode pipeline
    trains $type-again $type "$trainer" "$@" --recompute
    DDP_ISA=plain trains $type-plain $type "$trainer" "$@"
    trains $type-bf16 '' "$trainer" "$@" --dtype bf16 --threads 1
    DDP_ISA=plain trains $type-bf16-plain $type-bf16 "$trainer" "$@" --dtype bf16
    for other in bf16 nf4 q8_0; do
        [ $other = $type ] || differ "$work/$type/adapter_model.safetensors" "$work/$other/adapter_model.safetensors"
    done
    # What was trained is what is merged, at once and later, and what text is made with.
    expect "$type, merged" 0 'is quantised' "$trainer" "$@" --export "$work/merged,merge"
    expect "$type, merged later" 0 'is quantised' "$trainer" --load "$work/base" --adapters "$work/$type" --frozen-dtype $type --export "$work/later,merge"
    cmp -s "$work/merged/model.safetensors" "$work/later/model.safetensors" || fail "$type: merged later: other bits"
    expect "$type, merged into the file's values" 0 '' "$trainer" --load "$work/base" --adapters "$work/$type" --export "$work/plain,merge"
    differ "$work/plain/model.safetensors" "$work/merged/model.safetensors"
    expect "$type, text" 0 '^[0-9 ]+$' "$trainer" --load "$work/base" --adapters "$work/$type" --frozen-dtype $type --prompt '1 2 3' --generate 4 --temperature 0
done
expect 'the plan' 0 'frozen weights 102 kB' "$trainer" $steps $lora --load "$work/base" --frozen-dtype nf4 --plan

# A GGUF file: its blocks as they are, with the bits of training on what they stand for.
"$trainer" --load "$work/wide" --export "$work/wide.gguf" >"$work/out" 2>&1 || fail 'a GGUF file'
expect 'K types' 0 '' ./gguf_tool mix "$work/wide.gguf" "$work/mix.gguf"
for type in q8_0 q4_0; do
    expect "GGUF of $type" 0 '' "$trainer" --load "$work/wide" --export "$work/$type.gguf,type=$type"
done
for type in q8_0 q4_0 mix; do
    trains $type.fp32 '' "$trainer" $steps $lora --load "$work/$type.gguf" --frozen-dtype fp32
    trains $type.auto $type.fp32 "$trainer" $steps $lora --load "$work/$type.gguf"
    trains $type.pipeline $type.fp32 "$ddprun" -n 2 trainer $steps $lora --load "$work/$type.gguf" --mode pipeline
    expect "$type, planned" 0 "frozen weights" "$trainer" $steps $lora --load "$work/$type.gguf" --plan
    sed -n 's/.*frozen weights \([0-9.]* [kM]B\).*/\1/p' "$work/out" >>"$work/sizes"
    expect "$type, text" 0 '^[0-9 ]+$' "$trainer" --load "$work/$type.gguf" --adapters "$work/$type.auto" --prompt '1 2 3' --generate 4
done
[ "$(tr '\n' , <"$work/sizes")" = '1.0 MB,644 kB,678 kB,' ] || fail "frozen weights of $(tr '\n' , <"$work/sizes")"
trains q4_k '' "$trainer" $steps $lora --load "$work/mix.gguf" --frozen-dtype q4_k
trains nf4.gguf '' "$trainer" $steps $lora --load "$work/mix.gguf" --frozen-dtype nf4

# What does not go.
expect 'q4_k is not made' 2 'blocks of q4_k are read, not made' "$trainer" $steps $lora --load "$work/base" --frozen-dtype q4_k
expect 'q4_k of another file' 2 'blocks of q4_k are read, not made' "$trainer" $steps $lora --load "$work/q8_0.gguf" --frozen-dtype q4_k
expect 'q4_k without a file' 2 'blocks of q4_k are read, not made' "$trainer" $steps $lora --model llama --size d2 --frozen-dtype q4_k
expect 'nothing is frozen' 2 'nothing is frozen' "$trainer" $steps --load "$work/base" --frozen-dtype nf4
"$trainer" --load "$work/base" --export "$work/base.gguf" >"$work/out" 2>&1 || fail 'a GGUF file'
expect 'rows of 96 in GGUF' 9 'not whole blocks of nf4: choose another' "$trainer" $steps $lora --load "$work/base.gguf" --frozen-dtype nf4
head -c 60000 "$work/mix.gguf" >"$work/cut.gguf"
expect 'a cut file' 3 'cut.gguf' "$trainer" $steps $lora --load "$work/cut.gguf"
finish
