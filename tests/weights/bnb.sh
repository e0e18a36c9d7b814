#!/bin/sh
# SPDX-License-Identifier: MIT
# Directories that bitsandbytes quantised to nf4: their values, as the base of adapters as they lie, and what is wrong with them.
. "${srcdir:-.}/tests/lib/cli.inc"
awk 'BEGIN { for (i = 0; i < 800; i++) printf "\\%03o\\000", (i * i * 7 + i * 31) % 96 }' >"$work/octal"
# shellcheck disable=SC2059
printf "$(cat "$work/octal")" >"$work/tokens.bin"
steps="--data $work/tokens.bin --tokens uint16 --seq-len 16 --steps 3 --batch-size 1 --global-batch 4 --lanes 4 --lr 1e-2 --seed 3 --no-eval"
lora='--lora r=4,alpha=8,targets=all-linear'

# same NAME FILE OTHER
same() {
    count=$((count + 1))
    cmp -s "$2" "$3" || fail "$1: ${2#"$work/"} and ${3#"$work/"} differ"
}

# make TARGET DTYPE DOUBLE [FAULT]
make() {
    rm -rf "${work:?}/$1" "$work/$1.plain"
    "${PYTHON:-python3}" "$here/tests/weights/bnb.py" "$work/$@" || fail "bnb.py $*"
}
for kind in bfloat16.1 bfloat16.0 float32.1; do
    make $kind ${kind%.*} ${kind#*.}
    # What is exported has the values, and does not say that it is quantised.
    for from in $kind $kind.plain; do
        expect "$from in floats" 0 '^exported' "$trainer" --load "$work/$from" --export "$work/$from.floats"
    done
    same "$kind in floats" "$work/$kind.floats/model.safetensors" "$work/$kind.plain.floats/model.safetensors"
    grep -q quantization_config "$work/$kind.floats/config.json" && fail "$kind: the export says that it is quantised"
    # Adapters of a base as it lies are those of its values.
    for from in $kind $kind.plain; do
        expect "$from, trained" 0 '' "$trainer" $steps $lora --load "$work/$from" --frozen-dtype fp32 --export "$work/$from.fp32"
    done
    same "$kind, trained" "$work/$kind.fp32/adapter_model.safetensors" "$work/$kind.plain.fp32/adapter_model.safetensors"
    expect "$kind, as it lies" 0 '' "$trainer" $steps $lora --load "$work/$kind" --export "$work/$kind.auto"
    expect "$kind, two workers" 0 '' "$ddprun" -n 2 trainer $steps $lora --load "$work/$kind" --export "$work/$kind.two"
    expect "$kind, a pipeline" 0 '' "$ddprun" -n 2 trainer $steps $lora --load "$work/$kind" --mode pipeline --export "$work/$kind.pipeline"
    expect "$kind, named" 0 '' "$trainer" $steps $lora --load "$work/$kind" --frozen-dtype nf4 --export "$work/$kind.nf4"
    for other in two pipeline nf4; do
        same "$kind, $other" "$work/$kind.$other/adapter_model.safetensors" "$work/$kind.auto/adapter_model.safetensors"
    done
    expect "$kind, planned" 0 'frozen weights' "$trainer" $steps $lora --load "$work/$kind" --plan
    sed -n 's/.*frozen weights \([0-9.]* [kM]B\).*/\1/p' "$work/out" >>"$work/sizes"
    expect "$kind, merged" 0 '' "$trainer" --load "$work/$kind" --adapters "$work/$kind.auto" --export "$work/$kind.merged.gguf,merge"
done
expect 'the plain base, planned' 0 'frozen weights' "$trainer" $steps $lora --load "$work/bfloat16.1.plain" --plan
sed -n 's/.*frozen weights \([0-9.]* [kM]B\).*/\1/p' "$work/out" >>"$work/sizes"
echo "frozen weights: $(tr '\n' ' ' <"$work/sizes")"
expect 'in full' 0 '' "$trainer" $steps --load "$work/bfloat16.1" --export "$work/full.gguf"
expect 'in full, from values' 0 '' "$trainer" $steps --load "$work/bfloat16.1.plain" --export "$work/full.plain.gguf"
same 'in full' "$work/full.gguf" "$work/full.plain.gguf"

# wrong FAULT DTYPE DOUBLE PATTERN
wrong() {
    make bad "$2" "$3" "$1"
    expect "$1" 3 "$4" "$trainer" --load "$work/bad" --export "$work/none"
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail "$1: not one line"
}
wrong method bfloat16 1 'quantization_config: of quantised weights only'
wrong fp4 bfloat16 1 'quantization_config: of quantised weights only'
wrong absmax bfloat16 1 'up_proj.weight.absmax is missing$'
wrong quant_map bfloat16 1 'up_proj.weight.quant_map is missing$'
wrong nested_absmax bfloat16 1 'up_proj.weight.nested_absmax is missing$'
wrong nested_quant_map bfloat16 1 'up_proj.weight.nested_quant_map is missing$'
wrong quant_state.bitsandbytes__nf4 bfloat16 1 'up_proj.weight.quant_state.bitsandbytes__nf4 is missing'
wrong short bfloat16 0 'up_proj.weight has 12287 bytes of codes, by config.json it has 12288$'
wrong scales bfloat16 0 'up_proj.weight.absmax is not a list of 384 values of U8 or F32$'
wrong map bfloat16 0 'up_proj.weight.quant_map does not have the values of nf4$'
wrong nan bfloat16 0 'up_proj.weight.absmax has a value that is not finite, at index 0$'
wrong extra bfloat16 0 'has no parameter for tensor model.norm.weight.absmax$'
wrong json bfloat16 0 'quant_state.bitsandbytes__nf4'
wrong dtype bfloat16 1 'values of the dtype "float16": only bfloat16 and float32'
wrong blocksize bfloat16 1 'quant_type "nf4" with a blocksize of 128: only nf4 with 64'
wrong type bfloat16 1 'quant_type "fp4" with'
wrong shape bfloat16 1 'its shape is not the \(192,128\) of config.json$'
wrong nested bfloat16 1 'nested_blocksize'
finish
