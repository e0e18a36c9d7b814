#!/bin/sh
# SPDX-License-Identifier: MIT
# --load: files, checkpoints, directories of checkpoints and models of Hugging Face, also in several files; what model
# follows from them and from the data; what contradicts them; text and tokens that do not fit their vocabulary.
. "${srcdir:-.}/tests/lib/cli.inc"

cat "$here"/src/mode/*.c "$here"/src/graph/*.c >"$work/text"
npy() {
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
}
# images NAME SIDE CLASSES: 60 images of 3 x SIDE x SIDE
images() {
    { npy "(60, 3, $2, $2)" && head -c $((60 * 3 * $2 * $2)) "$work/text"; } >"$work/$1.npy"
    { npy '(60,)' && tr -cd 'a-z' <"$work/text" | tr 'a-z' "$3" | head -c 60; } >"$work/$1-y.npy"
}
images small 8 '\000\000\000\000\000\000\000\000\001'
images large 12 '\000\000\000\000\000\000\000\000\001'
images many 8 '\000\001\002\003\004\005\006\007\002'

few='--batch-size 4 --steps 1 --no-eval --threads 1'
tiny='--layers 2 --heads 2 --channels 16 --context 24 --seq-len 16'
cd "$work" || exit 99
mkdir hf

# --- the model that follows from the data, and from weights ------------------------------------------------------

# shellcheck disable=SC2086 # options, here and below
train() { "$trainer" $few --quiet "$@" >"$work/out" 2>&1 || fail "trainer $*: $(cat "$work/out")"; }
expect "a text alone" 0 'model +gpt2' "$trainer" $few --data text $tiny
train --data text $tiny --steps 6 --checkpoint run --checkpoint-every 2 --save gpt2.safetensors --export hf/model.safetensors
train --data text $tiny --steps 6 --export gpt2.bin
tr -cd 'a-z' <text | sed 's/./&\x00/g' >tokens.bin # numbers of 16 bits from 97 to 122
expect "tokens alone" 0 'model +gpt2' "$trainer" $few --data tokens.bin --vocab-size 300 $tiny
expect "--dataset tokens" 0 'model +gpt2' "$trainer" $few --data text --dataset tokens $tiny
expect "images alone" 0 'model +mlp' "$trainer" $few --data small.npy,small-y.npy
expect "another model for a text" 2 'text holds tokens, and the model mlp learns from numbers: use --model gpt2' "$trainer" $few --model mlp --data text
expect "missing data" 4 'nowhere: cannot open the data' "$trainer" $few --data nowhere
expect "missing data, and an option of gpt2" 4 'nowhere: cannot open the data' "$trainer" $few --heads 2 --data nowhere
expect "a pattern without files" 4 'nowhere/\*.txt: no file matches' "$trainer" $few --data 'nowhere/*.txt'
printf '\211PNG\r\n\032\n\000\000' >one.png
expect "one image" 3 'one.png: this is an image: name the directory' "$trainer" $few --data one.png
expect "--config alone" 0 'model +gpt2' "$trainer" $few --data text --config hf/config.json
grep -q 'samples of 24 tokens' out || fail "--config alone: not its positions: $(cat out)"

# What is loaded, in whatever form: the same first loss, in each mode, and the same text
first=
for from in gpt2.safetensors gpt2.bin hf hf/ hf/model.safetensors run run/step-00000006 run/step-00000006/model.safetensors "$work/run/"; do
    same "load $from" "$trainer" $few --load "$from" --data text --seq-len 16 --global-batch 8
    same "load $from, 2 workers" "$ddprun" -n 2 trainer $few --load "$from" --data text --seq-len 16 --global-batch 8
    expect "generate from $from" 0 '' "$trainer" --generate 8 --temperature 0 --prompt "int " --load "$from"
    [ -e generated ] || cp out generated
    cmp -s out generated || fail "generate from $from: $(cat out)"
done
same "dp" "$trainer" $few --load run --data text --seq-len 16 --global-batch 8 --mode dp --replicas 2
first=
expect "what is loaded is named" 0 'weights  from run/step-00000006/model.safetensors' "$trainer" $few --load run --data text
ln -s step-00000004 run/best
train --load run/step-00000004 --data text --save 4
first=4
cp 4 first
same "a link to a checkpoint" "$trainer" $few --load run/best --data text
# The position that a sample ends at follows from the model where --seq-len is not given.
expect "a shorter context" 0 'samples of 24 tokens' "$trainer" $few --load hf --data text

for model in 'mlp --hidden 7,5' 'mlp --hidden none' cnn 'resnet --size 32'; do
    kind=${model%% *}
    train --model $model --data small.npy,small-y.npy --save "$kind.safetensors"
    expect "$model follows" 0 "model +$kind" "$trainer" $few --data small.npy,small-y.npy --load "$kind.safetensors"
    train --model $model --data small.npy,small-y.npy --load "$kind.safetensors" --save 1
    train --data small.npy,small-y.npy --load "$kind.safetensors" --save 2
    cmp 1 2 || fail "$model follows: other bits than with its options"
done
train --hidden 7,5 --data small.npy,small-y.npy --save mlp.safetensors
expect "a resnet of larger images" 0 '' "$trainer" $few --data large.npy,large-y.npy --load resnet.safetensors

# A plan needs no data: the weights know the samples.
expect "a plan of a gpt2" 0 'none: samples of 24 tokens, of 256' "$trainer" --plan --load run
expect "a plan of a cnn" 0 'none: samples of .*3.*8.*8.*2 classes' "$trainer" --plan --load cnn.safetensors

# --- what contradicts it ----------------------------------------------------------------------------------------

refuse() {
    refused=$1 pattern=$2
    shift 2
    expect "$refused" 2 "$pattern" "$trainer" $few "$@"
    expect "$refused, 2 workers" 2 "$pattern" "$ddprun" -n 2 trainer $few "$@"
}
refuse "another model" '--model mlp contradicts --load hf, which holds the model gpt2' --model mlp --load hf --data small.npy,small-y.npy
refuse "other data" 'small.npy,small-y.npy holds numbers, and the model gpt2 learns from tokens' --load hf --data small.npy,small-y.npy
refuse "other layers" '--layers 3 contradicts --load hf, whose gpt2 has layers 2' --layers 3 --load hf --data text
refuse "other heads" '--heads 4 contradicts --load hf, whose gpt2 has heads 2' --heads 4 --load hf --data text
refuse "other context" '--context 99 contradicts --load run, whose gpt2 has context 24' --context 99 --load run --data text
refuse "other size" '--size d4, with layers 4, contradicts --load hf, whose gpt2 has 2' --size d4 --load hf --data text
refuse "other vocabulary" '--vocab-size 300 contradicts --load run, whose vocabulary is of 256 tokens' --vocab-size 300 --load run --data text
refuse "other widths" '--hidden 7 contradicts --load mlp.safetensors, whose mlp has hidden 7,5' --hidden 7 --load mlp.safetensors --data small.npy,small-y.npy
refuse "other resnet" '--size 20, with layers 20, contradicts --load resnet.safetensors, whose resnet has 32' --size 20 --load resnet.safetensors \
    --data small.npy,small-y.npy
refuse "other images" 'large.npy,large-y.npy has samples of 3 x 12 x 12, in 2 classes, and the mlp that --load mlp.safetensors holds is for samples of 3 x 8 x 8, in 2 classes' \
    --load mlp.safetensors --data large.npy,large-y.npy
expect "more classes" 3 'many-y.npy: label [0-9]* is [0-9]: there are 2 classes' "$trainer" $few --load mlp.safetensors --data many.npy,many-y.npy
train --data many.npy,many-y.npy --hidden 3 --save many.safetensors
expect "fewer classes" 0 '' "$trainer" $few --load many.safetensors --data small.npy,small-y.npy
refuse "--hidden for gpt2" '--hidden belongs to the model mlp, and the model is gpt2' --hidden 3 --load hf --data text
sed 's/"n_head": 2/"n_head": 4/' hf/config.json >other.json
refuse "another --config" '--config other.json contradicts --load run, whose gpt2 has 2 heads and not 4' --config other.json --load run --data text
# A description that is nonsense
while read -r description; do
    header="{\"__metadata__\":{\"ddprun.model\":\"$description\"}}"
    { printf "\\$(printf %03o ${#header})\\0\\0\\0\\0\\0\\0\\0" && printf %s "$header"; } >nonsense
    expect "described as $description" 3 'nonsense: the [a-z0-9]* that it describes cannot be built: ' "$trainer" $few --load nonsense \
        --data small.npy,small-y.npy
done <<'END'
mlp
mlp dims=1000000000 classes=1000000000
cnn dims=5 classes=2
cnn dims=3,1,1 classes=2
resnet layers=21 dims=3,8,8 classes=2
resnet dims=3,8,8 classes=2
gpt2
gpt2 layers=1 channels=8 dims=4 classes=256
gpt2 layers=1 heads=3 channels=8 context=4 dims=4 classes=256
gpt2 layers=1 heads=2 channels=8 context=4 dims=8 classes=256
article
END
# Options that say what the file says are no contradiction.
expect "the same size" 0 '' "$trainer" $few --data text --model gpt2 $tiny --config hf/config.json --load hf
train --data text --size d2 --seq-len 16 --save d2.safetensors
expect "--size d2" 0 '' "$trainer" $few --data text --seq-len 16 --size d2 --load d2.safetensors

# config.json beside the weights: heads, GELU, epsilon and dropout are taken from it; it must fit.
cp -r hf other
mkdir bare
cp hf/model.safetensors bare
for key in '"n_head": 2/"n_head": 4' '"gelu_new"/"gelu"' '"layer_norm_epsilon": [^,]*/"layer_norm_epsilon": 0.01' \
    '"resid_pdrop": [^,]*/"resid_pdrop": 0.5' ; do
    sed "s/$key/; s/\"embd_pdrop\": [^,]*/\"embd_pdrop\": $(case $key in *resid*) echo 0.5 ;; *) echo 0 ;; esac)/" hf/config.json >other/config.json
    train --load other --data text --save 1
    train --load bare --config other/config.json --data text --save 2
    train --load hf --data text --save 3
    cmp -s 1 2 || fail "$key: beside the file other bits than with --config"
    cmp -s 1 3 && fail "$key: has no effect beside the file"
done
sed 's/"n_layer": 2/"n_layer": 3/' hf/config.json >other/config.json
expect "config.json of another model" 3 'other/model.safetensors contradicts other/config.json: it has 2 layers, and the other says 3' \
    "$trainer" $few --load other --data text
rm other/config.json
expect "without config.json" 0 '' "$trainer" $few --load other --data text
mkdir drops
cp hf/model.safetensors drops
sed 's/"\(resid\|embd\)_pdrop": [^,]*/"\1_pdrop": 0.5/' hf/config.json >drops/config.json
expect "generate from a model with dropout" 0 '' "$trainer" --generate 8 --temperature 0 --prompt "int " --load drops
cmp -s out generated || fail "generate from a model with dropout: $(cat out)"
expect "without config.json, --heads" 0 '' "$trainer" $few --load other --data text --heads 4

# --- text and tokens that do not fit ----------------------------------------------------------------------------

train --data tokens.bin --vocab-size 300 $tiny --export other/model.safetensors
refuse "a text for another vocabulary" \
    'text is a text, whose bytes .* vocabulary of 300 that --load other has: name .* tokenizer .*, or train a model of bytes without --load' \
    --load other --data text
refuse "a text for a --config" 'whose bytes .* vocabulary of 300 that --config other/config.json has.* without --config' \
    --config other/config.json --data text
refuse "bytes for another vocabulary" 'whose bytes .* vocabulary of 300' --load other --data text --tokens bytes
expect "tokens that fit" 0 '' "$trainer" $few --load other --data tokens.bin
expect "a vocabulary of its own" 0 'warning: --vocab-size 300: text is a text, whose bytes are taken as tokens from 0 to 255' \
    "$trainer" $few $tiny --data text --vocab-size 300
printf '\377\001' | cat - tokens.bin >beyond.bin
refuse "tokens that do not fit" \
    'tokens do not fit the model of --load hf: beyond.bin: token 0 is 511: the vocabulary has 256 tokens, from 0: .* without --load' \
    --load hf --data beyond.bin

# Evaluation of bytes as tokens says nothing.
refuse "tokens and a text" '--val text is a text, and --data tokens.bin is a file of tokens: both must be' --data tokens.bin --val text --eval $tiny
refuse "a text and tokens" '--val beyond.bin is a file of tokens, and --data text is a text' --data text --val beyond.bin --eval $tiny
expect "two texts" 0 'test accuracy' "$trainer" --data text --val text --steps 1 $tiny --threads 1
expect "two files of tokens" 0 'test accuracy' "$trainer" --data tokens.bin --val tokens.bin --vocab-size 300 --steps 1 $tiny --threads 1

# --- checkpoints that are damaged, and what holds no weights ----------------------------------------------------

cp -r run damaged
printf x | dd of=damaged/step-00000006/model.safetensors bs=1 seek=700 conv=notrunc status=none
expect "a damaged checkpoint" 3 'not a complete checkpoint: damaged/step-00000006/model.safetensors: it is damaged' \
    "$trainer" $few --load damaged/step-00000006 --data text
rm damaged/best
expect "the one before" 0 'weights  from damaged/step-00000004' "$ddprun" -n 2 trainer $few --load damaged --data text
[ "$(grep -c 'warning: skipped a damaged checkpoint: damaged/step-00000006/model.safetensors: ' out)" -eq 1 ] || fail "not one warning: $(cat out)"
rm damaged/step-*/state.json
expect "no whole checkpoint" 3 'damaged: all 3 checkpoints there are damaged' "$trainer" $few --load damaged --data text
mkdir empty
expect "an empty directory" 3 'empty: no weights in this directory: neither a checkpoint .*model.safetensors.index.json' \
    "$trainer" $few --load empty --data text
: >empty/pytorch_model.bin
expect "a pickle" 3 'empty: pytorch_model.bin cannot be read.*safe_serialization=True' "$trainer" --generate 3 --load empty
expect "nothing" 4 'nowhere: ' "$trainer" $few --load nowhere --data text
# A checkpoint of the run wins over --load, which is for the first start.
train --load hf --data text --seq-len 16 --checkpoint both --steps 2
expect "--load and --resume" 0 'resumed from both/step-00000002: 2 of 3 steps' "$trainer" $few --load hf --data text --seq-len 16 \
    --checkpoint both --resume --extend --steps 3

# --- a model in several files -----------------------------------------------------------------------------------

cat >cut.py <<'END'
"""usage: cut.py MODEL.safetensors DIRECTORY: as Hugging Face cuts large models, into two files with an index"""
import json
import os
import struct
import sys

source, directory = sys.argv[1:]
data = open(source, "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
header.pop("__metadata__", None)
names = sorted(header)
index = {"metadata": {"total_size": len(data) - 8 - length}, "weight_map": {}}
os.makedirs(directory, exist_ok=True)
for i, part in enumerate((names[::2], names[1::2]), 1):
    file = f"model-{i:05}-of-00002.safetensors"
    head, body = {"__metadata__": {"format": "pt"}}, b""
    for name in part:
        begin, end = header[name]["data_offsets"]
        head[name] = dict(header[name], data_offsets=[len(body), len(body) + end - begin])
        body += data[8 + length + begin:8 + length + end]
        index["weight_map"][name] = file
    text = json.dumps(head).encode()
    with open(os.path.join(directory, file), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + body)
with open(os.path.join(directory, "model.safetensors.index.json"), "w") as out:
    json.dump(index, out)
END
python=${PYTHON:-python3}
if "$python" cut.py hf/model.safetensors cut 2>/dev/null; then
    cp hf/config.json cut
    first=
    same "one file" "$trainer" $few --load hf --data text --global-batch 8
    same "several files" "$trainer" $few --load cut --data text --global-batch 8
    same "the index" "$trainer" $few --load cut/model.safetensors.index.json --data text --global-batch 8
    same "several files, 2 workers" "$ddprun" -n 2 trainer $few --load cut --data text --global-batch 8
    expect "generate from several files" 0 '' "$trainer" --generate 8 --temperature 0 --prompt "int " --load cut
    cmp -s out generated || fail "generate from several files: $(cat out)"
    index=cut/model.safetensors.index.json
    cp $index good.json
    spoil() {
        name=$1 pattern=$2
        shift 2
        sed "$@" good.json >$index
        expect "index, $name" 3 "$pattern" "$trainer" $few --load cut --data text
        cp good.json $index
    }
    spoil "outside" "tensor '.*': '../model-00001-of-00002.safetensors' is not the name of a file beside the index" 's|"model-00001|"../model-00001|'
    spoil "the other file" "is not in model-00002" '0,/model-00001/s//model-00002/'
    spoil "a tensor less" 'it lists .* tensors of model-0000[12].*, which has' 's/"transformer.ln_f.bias": "[^"]*", //'
    spoil "no map" 'weight_map is not an object' 's/weight_map/map/'
    spoil "no text" 'bad JSON' 's/{//'
    rm cut/model-00002*
    expect "a file is missing" 4 'cut/model-00002-of-00002.safetensors: cannot read' "$trainer" $few --load cut --data text
else
    not_run "a model in several files: there is no $python"
fi
cd "$top" || exit 99
expect "info of a directory of gpt2" 0 "^model       gpt2 .* layers=2 heads=2" "$trainer" info "$here/tests/weights/golden/gpt2"
finish
