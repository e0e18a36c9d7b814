#!/bin/sh
# SPDX-License-Identifier: MIT
# One hash of the saved weights for every model, data type and optimizer, whatever the instruction set, the compiler and the
# processor: golden/one_hash.txt has them. In a build directory `srcdir=.. ../tests/train/one_hash.sh table` writes it anew.
# ONE_HASH_SETS has other instruction sets to try than all. ONE_HASH_OTHER is a trainer for another processor, which resumes what
# this one began, and the other way round.
. "${srcdir:-.}/tests/lib/cli.inc"
table=$here/tests/train/golden/one_hash.txt

# Data that is the same everywhere. With 800 inputs a product's sum is long enough to be cut into parts.
make_text 100
mkdir "$work/images"
{ printf '\0\0\010\003\0\0\0\100\0\0\0\010\0\0\0\010' && head -c 4096 "$work/text"; } >"$work/images/train-images-idx3-ubyte"
{ printf '\0\0\010\001\0\0\0\100' && head -c 640 "$work/text" | tr -cd 0-9 | head -c 64 | tr 0-9 '\0-\011'; } \
    >"$work/images/train-labels-idx1-ubyte"
awk 'BEGIN { for (x = i = 1; i <= 256; i++) { x = (x * 1103 + 12345) % 65536; printf "%d%s", x, i % 4 ? "," : "\n" } }' \
    >"$work/table.csv"
images="--data $work/images --batch-size 4 --global-batch 8"
text="--data $work/text --seq-len 40 --batch-size 2 --global-batch 4"

options() {
    case $1 in
    article) echo "--model article" ;;
    mlp-sgd) echo "--model mlp --hidden 800,33 $images --optimizer sgd --momentum 0.9,nesterov --weight-decay 1e-2" ;;
    mlp-adam) echo "--model mlp --hidden 33,17 $images --optimizer adam --schedule step,every=1,gamma=0.7" ;;
    mlp-adamw) echo "--model mlp --hidden 33,17 $images --optimizer adamw --schedule cosine --clip-grad-norm 0.05" ;;
    table) echo "--model mlp --hidden 19 --data $work/table.csv --target 4 --normalize --batch-size 4 --global-batch 8 --weight-decay 0.3,on=matrices" ;;
    cnn) echo "--model cnn $images --augment crop,flip" ;;
    resnet) echo "--model resnet --size 20 --data $work/images --batch-size 2 --global-batch 4" ;;
    gpt2) echo "--model gpt2 --layers 2 --heads 2 --channels 32 $text --optimizer adamw --dropout 0.1" ;;
    llama) echo "--model llama --size d2 $text --optimizer adamw" ;;
    lora) echo "--model llama --size d2 $text --optimizer adamw --lora r=4,targets=all-linear,dropout=0.1" ;;
    frozen) echo "--model llama --size d2 $text --lora targets=all-linear --frozen-dtype bf16 --warmup-steps 3 --recompute" ;;
    esac
}

# on SET: on an instruction set, on the processor's best one, or on the other processor.
on() {
    program=$trainer
    unset DDP_ISA
    case $1 in
    best) ;;
    other) program=$ONE_HASH_OTHER ;;
    *) export DDP_ISA="$1" ;;
    esac
}

# train SET ROW DTYPE ARGUMENT...: $got is the hash of the weights, and of nothing else that the file says.
train() {
    isa=$1 row=$2 dtype=$3 got=
    shift 3
    on "$isa"
    rm -f "$work/weights"
    # shellcheck disable=SC2046 # words
    expect "$row $dtype on $isa" 0 '' "$program" $(options "$row") --dtype "$dtype" --steps 4 --threads 1 --no-eval \
        --save "$work/weights" "$@"
    [ ! -e "$work/weights" ] ||
        got=$(tail -c +$((9 + $(od -An -tu8 -N 8 "$work/weights"))) "$work/weights" | sha256sum | cut -d ' ' -f 1)
}

if [ "${1:-}" = table ]; then
    for row in article mlp-sgd mlp-adam mlp-adamw table cnn resnet gpt2 llama lora frozen; do
        for dtype in fp32 bf16; do
            train best $row $dtype
            echo "$got $row $dtype" >>"$work/table"
        done
        case $row in
        cnn | gpt2 | frozen)
            train best $row fp16
            echo "$got $row fp16" >>"$work/table"
            ;;
        esac
    done
    [ "$failures" -gt 0 ] || cp "$work/table" "$table"
    finish
fi

while read -r hash row dtype; do
    for isa in ${ONE_HASH_SETS:-plain avx2 best}; do
        train $isa "$row" "$dtype"
        [ "$got" = "$hash" ] || fail "$row $dtype on $isa: other bits than golden/one_hash.txt"
    done
    # A checkpoint names no processor: half of the steps on one, the rest on another, which also computes the first one's again.
    case "$row $dtype" in 'gpt2 fp32' | 'cnn bf16')
        for isas in 'plain best' 'best plain' ${ONE_HASH_OTHER:+'best other' 'other best'}; do
            run=$work/$row-${isas% *}-${isas#* }
            train "${isas% *}" "$row" "$dtype" --checkpoint "$run" --checkpoint-every 2 --keep 0 --log "$run.log" --hash-every 2
            train "${isas#* }" "$row" "$dtype" --resume-from "$run/step-00000002"
            [ "$got" = "$hash" ] || fail "$row $dtype, begun and resumed on $isas: other bits than golden/one_hash.txt"
            expect "$row $dtype on $isas" 0 'equal after step 4, computed again from .*step-00000002' "$program" verify "$run.log"
        done ;;
    esac
done <"$table"
[ "$(sort -u "$table" | wc -l)" -eq 25 ] && [ "$(cut -d ' ' -f 1 "$table" | sort -u | wc -l)" -ge 24 ] ||
    fail "golden/one_hash.txt: not a hash for each row"
finish
