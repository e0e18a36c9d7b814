#!/bin/sh
# SPDX-License-Identifier: MIT
# GGUF files from the command line: converted, trained from and into, as the base of adapters; tokenizers that come back; what is
# refused.
. "${srcdir:-.}/tests/lib/cli.inc"
make_corpus
corpus=$work/corpus/gguf

# same NAME FILE OTHER
same() {
    count=$((count + 1))
    cmp -s "$2" "$3" || fail "$1: ${2##*/} and ${3##*/} differ"
}

# base NAME KEYS: a directory with a small model, whose hidden size is no multiple of 32 for ffn_down
base() {
    mkdir -p "$work/shape"
    echo "{\"vocab_size\": 96, \"hidden_size\": 32, \"intermediate_size\": 40, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,
        \"num_key_value_heads\": 2, \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, $2}" >"$work/shape/config.json"
    expect "base $1" 0 '' ./hf_llama_tool fill "$work/shape" "$work/$1" f32 0
}
base llama '"model_type": "llama", "tie_word_embeddings": true, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}'
base phi3 '"model_type": "phi3", "sliding_window": null'
base window '"model_type": "mistral", "sliding_window": 5'
base nope '"model_type": "smollm3", "no_rope_layers": [0, 1]'

# Conversions both ways keep every bit of float32 and of what float32 was made from.
for model in llama phi3; do
    expect "$model to GGUF" 0 "there will be no tokenizer in it.*no tokenizer in it: a tokenizer.json" \
        "$trainer" --load "$work/$model" --export "$work/$model.gguf"
    expect "$model back" 0 '^exported' "$trainer" --load "$work/$model.gguf" --export "$work/$model.dir"
    same "$model" "$work/$model/model.safetensors" "$work/$model.dir/model.safetensors"
    for type in f16 bf16 q8_0 q4_0; do
        expect "$model to $type" 0 '^exported' "$trainer" --load "$work/$model.gguf" --export "$work/$type.gguf,type=$type"
        expect "$model from $type" 0 '^exported' "$trainer" --load "$work/$type.gguf" --export "$work/wide.gguf,type=f32"
        # A value that has been rounded rounds to itself; the scale of a q4_0 block need not.
        [ $type = q4_0 ] && continue
        expect "$model to $type again" 0 '' "$trainer" --load "$work/wide.gguf" --export "$work/again.gguf,type=$type"
        same "$model, $type" "$work/$type.gguf" "$work/again.gguf"
    done
done
expect 'info' 0 '^weights     q8_0, 1 file of 0.00 GiB$' "$trainer" info "$work/q8_0.gguf"
for line in '^file        /.*q8_0.gguf$' '^model       phi3: 2 layers of 32 channels' '^tokenizer   none$'; do
    grep -q "$line" "$work/out" || fail "info: no $line"
done
expect 'what was loaded stays' 0 '^exported' "$trainer" --load "$work/bf16.gguf" --export "$work/kept.gguf"
same 'what was loaded stays' "$work/bf16.gguf" "$work/kept.gguf"

# A model in several files is loaded by the first one.
expect 'split' 0 '' ./gguf_tool split "$work/llama.gguf" "$work/s" 3
expect 'from shards' 0 '^exported' "$trainer" --load "$work/s-00001-of-00003.gguf" --export "$work/joined.gguf"
same 'from shards' "$work/joined.gguf" "$work/llama.gguf"
expect 'info of shards' 0 '^weights     f32, 3 files of 0.00 GiB$' "$trainer" info "$work/s-00001-of-00003.gguf"
expect 'another shard' 3 'it is shard 2 of 3 of a model: load the first one, whose name ends in -00001-of-00003.gguf$' \
    "$trainer" info "$work/s-00002-of-00003.gguf"
cp "$work/s-00001-of-00003.gguf" "$work/renamed.gguf"
expect 'a shard with another name' 3 'renamed.gguf: it is the first of 3 shards, .*must end in -00001-of-00003.gguf$' "$trainer" info "$work/renamed.gguf"
./gguf_tool split "$work/llama.gguf" "$work/o" 4 || fail 'split in four'
mv "$work/s-00003-of-00003.gguf" "$work/kept.gguf"
expect 'a shard is missing' 4 'shard 3 of the 3 of this model is missing: .*/s-00003-of-00003.gguf$' "$trainer" info "$work/s-00001-of-00003.gguf"
[ "$(wc -l <"$work/out")" -eq 1 ] || fail 'a shard is missing: not one line'
cp "$work/s-00002-of-00003.gguf" "$work/s-00003-of-00003.gguf"
expect 'a shard twice' 3 's-00003-of-00003.gguf: by its name it is shard 3 of 3, and by its keys shard 2 of 3$' "$trainer" info "$work/s-00001-of-00003.gguf"
cp "$work/o-00003-of-00004.gguf" "$work/s-00003-of-00003.gguf"
expect 'a shard of another' 3 'shard 3 of 3, and by its keys shard 3 of 4$' "$trainer" info "$work/s-00001-of-00003.gguf"
./gguf_tool split "$work/phi3.gguf" "$work/p" 3 || fail 'split of phi3'
cp "$work/p-00003-of-00003.gguf" "$work/s-00003-of-00003.gguf"
expect 'a shard of another model' 3 'its shards have [0-9]* tensors, and split.tensors.count says [0-9]*$' "$trainer" info "$work/s-00001-of-00003.gguf"
head -c 2000 "$work/kept.gguf" >"$work/s-00003-of-00003.gguf"
expect 'a shard is cut' 3 's-00003-of-00003.gguf: the file is cut' "$trainer" info "$work/s-00001-of-00003.gguf"
rm "$work/kept.gguf"

# Training from a file is training from its directory, in full and with adapters, and so is what it writes.
awk 'BEGIN { for (i = 0; i < 800; i++) printf "\\%03o\\000", (i * i * 7 + i * 31) % 96 }' >"$work/octal"
# shellcheck disable=SC2059
printf "$(cat "$work/octal")" >"$work/tokens.bin"
steps="--data $work/tokens.bin --tokens uint16 --seq-len 16 --steps 3 --batch-size 1 --global-batch 4 --lanes 4 --lr 1e-2 --seed 3 --no-eval --quiet"
lora='--lora r=4,alpha=8,targets=all-linear,rslora'
for from in llama llama.gguf; do
    expect "training from $from" 0 '' "$trainer" $steps --load "$work/$from" --export "$work/full.$from.gguf"
    expect "adapters from $from" 0 '' "$trainer" $steps --load "$work/$from" $lora --export "$work/lora.$from.gguf"
    expect "PEFT from $from" 0 '' "$trainer" $steps --load "$work/$from" $lora --export "$work/$from.peft"
    expect "merged from $from" 0 '' "$trainer" $steps --load "$work/$from" $lora --export "$work/merged.$from.gguf,merge"
done
for what in full lora merged; do
    same "$what" "$work/$what.llama.gguf" "$work/$what.llama.gguf.gguf"
done
expect 'another mode' 0 '' "$ddprun" -n 2 trainer $steps --load "$work/llama.gguf" --export "$work/two.gguf"
same 'two workers' "$work/two.gguf" "$work/full.llama.gguf"
expect 'a pipeline' 0 '' "$ddprun" -n 2 trainer $steps --mode pipeline --load "$work/llama.gguf" --export "$work/two.gguf"
same 'a pipeline' "$work/two.gguf" "$work/full.llama.gguf"
expect 'merged later' 0 '' "$trainer" --load "$work/llama.gguf" --adapters "$work/llama.peft" --export "$work/later.gguf,merge"
same 'merged later' "$work/later.gguf" "$work/merged.llama.gguf"
expect 'adapters converted' 0 '' "$trainer" --load "$work/llama" --adapters "$work/llama.peft" --export "$work/converted.gguf"
same 'adapters converted' "$work/converted.gguf" "$work/lora.llama.gguf"
expect 'adapters that name their base' 0 '' "$trainer" --load "$work/llama.gguf.peft" --export "$work/later.gguf,merge"
same 'adapters that name their base' "$work/later.gguf" "$work/merged.llama.gguf"
expect 'the base in float16' 0 '' "$trainer" --quiet --load "$work/llama.gguf" --export "$work/f16.gguf,type=f16"
other='these adapters were trained on a base with other weights than '
for base in full.llama f16 llama; do
    expect "adapters on $base" 0 "$([ $base != full.llama ] || echo "$other")" \
        "$trainer" --load "$work/$base.gguf" --adapters "$work/llama.gguf.peft" --export "$work/later.gguf,merge"
    [ $base = full.llama ] || ! grep -q "$other" "$work/out" || fail "adapters on $base: taken for another base"
done
expect 'info of adapters' 0 '^adapters    rank 4, alpha 16$' "$trainer" info "$work/lora.llama.gguf"
expect 'adapters from GGUF' 0 '^exported' "$trainer" --load "$work/llama" --adapters "$work/lora.llama.gguf" --export "$work/later.gguf,merge"
same 'adapters from GGUF' "$work/later.gguf" "$work/merged.llama.gguf"
expect 'adapters from GGUF to PEFT' 0 '^exported' "$trainer" --load "$work/llama" --adapters "$work/lora.llama.gguf" --export "$work/again.peft"
same 'adapters from GGUF to PEFT' "$work/again.peft/adapter_model.safetensors" "$work/llama.peft/adapter_model.safetensors"
for from in llama.peft lora.llama.gguf; do
    expect "adapters of $from go on" 0 '' "$trainer" $steps --load "$work/llama.gguf" --adapters "$work/$from" --export "$work/on.$from.gguf"
done
same 'adapters go on' "$work/on.llama.peft.gguf" "$work/on.lora.llama.gguf.gguf"
expect 'a model as adapters' 3 'general.type is not "adapter": a model belongs to --load' \
    "$trainer" --load "$work/llama" --adapters "$work/llama.gguf" --export "$work/d.gguf"
expect 'adapters of another base' 3 'not those of a base with general.architecture "phi3"' \
    "$trainer" --load "$work/phi3" --adapters "$work/lora.llama.gguf" --export "$work/d.gguf"

# A gpt2, to and from GGUF, by conversion and by training.
gpt2='--model gpt2 --layers 2 --heads 2 --channels 32'
mkdir "$work/gpt2"
expect 'a gpt2' 0 '' "$trainer" $steps $gpt2 --vocab-size 96 --export "$work/gpt2/model.safetensors"
expect 'a gpt2 to GGUF' 0 '' "$trainer" $steps $gpt2 --vocab-size 96 --export "$work/gpt2.gguf"
expect 'a gpt2 converted' 0 '^exported' "$trainer" --load "$work/gpt2" --export "$work/converted.gguf"
same 'a gpt2 converted' "$work/converted.gguf" "$work/gpt2.gguf"
expect 'a gpt2 back' 0 '^exported' "$trainer" --load "$work/gpt2.gguf" --export "$work/back.safetensors"
same 'a gpt2 back' "$work/back.safetensors" "$work/gpt2/model.safetensors"
expect 'info of a gpt2' 0 'gpt2' "$trainer" info "$work/gpt2.gguf"
for from in gpt2 gpt2.gguf; do
    expect "training from $from" 0 '' "$trainer" $steps --load "$work/$from" --export "$work/more.$from.gguf"
done
expect 'two workers' 0 '' "$ddprun" -n 2 trainer $steps --load "$work/gpt2.gguf" --export "$work/two.gguf"
same 'training a gpt2' "$work/more.gpt2.gguf" "$work/more.gpt2.gguf.gguf"
same 'training a gpt2, two workers' "$work/more.gpt2.gguf" "$work/two.gguf"
expect 'a gpt2 of q8_0' 0 '' "$trainer" --load "$work/gpt2" --export "$work/q8_0.gguf,type=q8_0"
expect 'a gpt2 from q8_0' 0 '' "$trainer" --load "$work/q8_0.gguf" --export "$work/wide.gguf"
expect 'a gpt2 to q8_0 again' 0 '' "$trainer" --load "$work/wide.gguf" --export "$work/again.gguf,type=q8_0"
same 'a gpt2 of q8_0' "$work/q8_0.gguf" "$work/again.gguf"
expect 'the heads are not known' 2 'it does not say how many heads' "$trainer" --load "$work/back.safetensors" --export "$work/d.gguf"
expect 'merge of a gpt2' 2 'merge belongs to the model llama' "$trainer" --load "$work/gpt2" --export "$work/d.gguf,merge"
expect 'a type of safetensors' 2 'type belongs to GGUF files' "$trainer" $steps --load "$work/gpt2" --export "$work/d.safetensors,type=f16"
printf 'a,label\n1,x\n2,y\n3,x\n4,y\n' >"$work/t.csv"
expect 'an mlp' 0 '' "$trainer" --data "$work/t.csv" --target label --batch-size 1 --steps 1 --quiet --no-eval --save "$work/mlp.safetensors"
sed -i 's/gelu_new/gelu/' "$work/gpt2/config.json"
expect 'another gelu' 2 'd.gguf: GGUF has a gpt2 with the activation gelu_new' "$trainer" --load "$work/gpt2" --export "$work/d.gguf"
expect 'another gelu, trained' 2 'with the activation gelu_new' "$trainer" $steps --config "$work/gpt2/config.json" --export "$work/d.gguf"
expect 'neither' 2 'mlp.safetensors is neither: give --data too' "$trainer" --load "$work/mlp.safetensors" --export "$work/d.gguf"
[ ! -e "$work/d.gguf" ] || fail 'a file is there that was refused'

# Tokenizers: what a file gives is what the tokenizer.json gave.
printf '["Hello, world!", " two  spaces", "it'"'"'s 12345 \\n\\n caf\\u00e9", "<|im_start|>x<|im_end|>", "\\u4f60\\u597d\\ud83d\\ude00"]' >"$work/texts"
sed 's/"vocab_size": 96/"vocab_size": 500/' "$work/llama/config.json" >"$work/shape/config.json"
for kind in gpt2 llama3 qwen digits legacy; do
    rm -rf "$work/t"
    expect "$kind" 0 '' ./hf_llama_tool fill "$work/shape" "$work/t" f32 0
    cp "$here/tests/data/text/golden/tokenizers/$kind.json" "$work/t/tokenizer.json"
    echo '{"chat_template": "{{ x }}"}' >"$work/t/tokenizer_config.json"
    [ $kind = legacy ] && echo '{"chat_template": "{{ x }}", "eos_token": "<|im_end|>"}' >"$work/t/tokenizer_config.json"
    expect "$kind to GGUF" 0 '' "$trainer" --load "$work/t" --export "$work/t.gguf"
    case $kind in
    qwen) grep -q 'NFC' "$work/out" || fail 'NFC is not warned of' ;;
    *) grep -q 'warning' "$work/out" && fail "$kind: a warning" ;;
    esac
    expect "$kind again" 0 '' "$trainer" --load "$work/t.gguf" --export "$work/t2.gguf"
    same "$kind" "$work/t.gguf" "$work/t2.gguf"
    for from in t t.gguf; do
        ./tokenizer_tool cases "$work/$from" <"$work/texts" >"$work/$from.ids" || fail "$kind: no ids of $from"
    done
    same "$kind: ids" "$work/t.ids" "$work/t.gguf.ids"
    expect "$kind: back to a directory" 0 '^exported' "$trainer" --load "$work/t.gguf" --export "$work/back"
    ./tokenizer_tool cases "$work/back" <"$work/texts" >"$work/back.ids" || fail "$kind: no ids of the directory"
    same "$kind: ids of the directory" "$work/t.ids" "$work/back.ids"
    expect "$kind: its template" 0 '^template    tokenizer_config.json' "$trainer" info "$work/back"
    expect "$kind: its tokenizer" 0 '^tokenizer   in the file$' "$trainer" info "$work/t.gguf"
    expect "$kind: info" 0 '^template    t.gguf, refused: .*the chat template does not write what the assistant says' "$trainer" info "$work/t.gguf"
    expect "$kind: text" 0 'Hello' "$trainer" --load "$work/t.gguf" --generate 3 --prompt Hello
done
cp "$here/tests/data/text/golden/tokenizers/splits.json" "$work/t/tokenizer.json"
rm "$work/t/tokenizer_config.json"
expect 'another way to cut texts' 0 'warning.*the file says "default"' "$trainer" --load "$work/t" --export "$work/t.gguf"
expect 'which is not read' 0 'cuts texts, "default", is not supported: texts cannot' "$trainer" --load "$work/t.gguf" --generate 1 --prompt '1 2'

# An export into a directory leaves GGUF files there, and copies none.
mkdir "$work/kept"
cp "$work/phi3/config.json" "$work/kept"
echo mine >"$work/kept/mine.gguf"
echo other >"$work/phi3/other.gguf"
expect 'into a directory' 0 '' "$trainer" --load "$work/phi3" --export "$work/kept"
[ "$(cat "$work/kept/mine.gguf")" = mine ] || fail 'a GGUF file is gone'
[ ! -e "$work/kept/other.gguf" ] || fail 'a GGUF file is copied'

# What does not go.
expect 'a window' 0 'warning.*the window of 5 tokens of a mistral' "$trainer" --load "$work/window" --export "$work/w.gguf"
expect 'layers without positions' 2 'each fourth layer' "$trainer" --load "$work/nope" --export "$work/n.gguf"
expect 'a type without GGUF' 2 'type belongs to GGUF files' "$trainer" --load "$work/llama" --export "$work/d,type=q8_0"
expect 'a dtype with GGUF' 2 'dtype: a GGUF file is written in one piece' "$trainer" --load "$work/llama" --export "$work/d.gguf,dtype=bf16"
expect 'shards of GGUF' 2 'shard: a GGUF file is written in one piece' "$trainer" --load "$work/llama" --export "$work/d.gguf,shard=5M"
expect 'an unknown type' 2 'type=q4_k: what follows the path' "$trainer" --load "$work/llama" --export "$work/d.gguf,type=q4_k"
expect 'a type of adapters' 2 'type: adapters are exported in one file of float32' \
    "$trainer" $steps --load "$work/llama" $lora --export "$work/d.gguf,type=f16"
expect 'another model' 2 'belongs to the models gpt2 and llama' "$trainer" --model mlp --export "$work/d.gguf"
expect 'no room' 4 'No such file|cannot' "$trainer" --load "$work/llama" --export /proc/none/d.gguf
for bad in "$corpus"/bad-*; do
    case ${bad##*/} in
    bad-nan | bad-lora-* | bad-gpt2-extra | bad-gpt2-head | bad-gpt2-missing) continue ;; # info reads no values, nor which weights there are
    esac
    expect "info of ${bad##*/}" 3 '' "$trainer" info "$bad"
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail "${bad##*/}: not one line"
done
finish
