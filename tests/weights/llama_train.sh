#!/bin/sh
# SPDX-License-Identifier: MIT
# Training of tiny models of the Llama kind from directories of Hugging Face, in full and by LoRA: the same bits in every mode,
# checkpoints of adapters, what is exported, merged and loaded again, and what does not go together. Needs no Python.
. "${srcdir:-.}/tests/lib/cli.inc"

# tokens COUNT BELOW: uint16 at random
tokens() {
    awk -v count="$1" -v below="$2" 'BEGIN {
        for (x = 7; count-- > 0; ) {
            x = (x * 25173 + 13849) % 16777216
            printf "\\%03o\\000", int(x / 4096) % below
        } }' >"$work/octal"
    # shellcheck disable=SC2059
    printf "$(cat "$work/octal")"
}
tokens 1600 96 >"$work/tokens.bin"
tokens 400 120 >"$work/large.bin"

mkdir "$work/shape"
cat >"$work/shape/config.json" <<'END'
{"model_type": "llama", "vocab_size": 96, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
 "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
 "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}
END
expect 'a base' 0 '' ./hf_llama_tool fill "$work/shape" "$work/base" f32 0
echo 'a readme' >"$work/base/README.md"
sed 's/"hidden_size": 24/"hidden_size": 32/' "$work/shape/config.json" >"$work/config.json"
mkdir "$work/shape2"
cp "$work/config.json" "$work/shape2"
expect 'another base' 0 '' ./hf_llama_tool fill "$work/shape2" "$work/wider" f32 0

data="--data $work/tokens.bin --seq-len 16 --lr 1e-2 --seed 3 --no-eval --quiet"
eight="$data --batch-size 1 --global-batch 8 --lanes 8 --steps 3"
adapters="--lora r=4,alpha=8,targets=all-linear,dropout=0.1,rslora"

# exports NAME COMMAND...: trains, compares the exported directory with the first of its group; reference= begins another group
reference= export_as=
exports() {
    rm -rf "$work/e"
    expect "$@" --export "$work/e$export_as"
    if [ -z "$reference" ]; then
        reference=$1
        rm -rf "$work/reference"
        mv "$work/e" "$work/reference"
    elif ! diff -r "$work/reference" "$work/e" >/dev/null; then
        fail "$1: other bits than $reference"
    fi
}

# every_mode NAME OPTIONS...
every_mode() {
    kind=$1
    shift
    exports "$kind: 1 worker x 8" 0 '' "$trainer" $eight "$@" --threads 1
    exports "$kind: 3 threads" 0 '' "$trainer" $eight "$@" --threads 3
    exports "$kind: 2 workers x 4" 0 '' "$ddprun" -n 2 trainer $eight "$@" --threads 1
    exports "$kind: 4 workers x 2, 3 threads" 0 '' "$ddprun" -n 4 trainer $eight "$@" --threads 3
    exports "$kind: 8 workers x 1" 0 '' "$ddprun" -n 8 trainer $eight "$@" --threads 1
    exports "$kind: replicas of the optimizer" 0 '' "$ddprun" -n 2 trainer $eight "$@" --zero 0
    exports "$kind: one optimizer" 0 '' "$ddprun" -n 2 trainer $eight "$@" --zero 1
    exports "$kind: dp" 0 '' "$trainer" $eight "$@" --mode dp --replicas 4
    exports "$kind: a pipeline of 2" 0 '' "$ddprun" -n 2 trainer $eight "$@" --mode pipeline
    exports "$kind: a pipeline of 2, recomputed" 0 '' "$ddprun" -n 2 trainer $eight "$@" --mode pipeline --recompute
    exports "$kind: recomputed" 0 '' "$trainer" $eight "$@" --recompute
    exports "$kind: recomputed by 4 workers" 0 '' "$ddprun" -n 4 trainer $eight "$@" --recompute
}
every_mode 'full' --load "$work/base"
cp -r "$work/reference" "$work/full"
reference=
every_mode 'LoRA' --load "$work/base" $adapters
cp -r "$work/reference" "$work/adapters"
reference=
narrow="$eight --load $work/base $adapters --frozen-dtype bf16"
exports 'bf16 base' 0 '' "$trainer" $narrow
exports 'bf16 base, 2 workers' 0 '' "$ddprun" -n 2 trainer $narrow
exports 'bf16 base, replicas' 0 '' "$ddprun" -n 2 trainer $narrow --zero 0
exports 'bf16 base, pipeline' 0 '' "$ddprun" -n 2 trainer $narrow --mode pipeline
diff -r "$work/adapters" "$work/reference" >/dev/null && fail "--frozen-dtype bf16 does nothing"
reference=
exports 'bf16, full' 0 '' "$trainer" $eight --load "$work/base" --dtype bf16
exports 'bf16, full, 2 workers' 0 '' "$ddprun" -n 2 trainer $eight --load "$work/base" --dtype bf16

# The files of a directory are those of its source.
cmp -s "$work/full/README.md" "$work/base/README.md" || fail "a file of the base was not exported"
[ "$(ls "$work/adapters" | tr '\n' ' ')" = 'adapter_config.json adapter_model.safetensors ' ] || fail "adapters are exported as other files"
grep -q "\"base_model_name_or_path\": \"$work/base\"" "$work/adapters/adapter_config.json" || fail "the base is not named"

# loss NAME OPTIONS...: of what is loaded, in $loss
loss() {
    name=$1
    shift
    rm -f "$work/log"
    expect "$name" 0 '' "$trainer" --data "$work/tokens.bin" --val "$work/tokens.bin" --seq-len 16 --eval-only --quiet --log "$work/log" "$@"
    loss=$(sed -n 's/.*"test_loss":\([0-9.e+-]*\).*/\1/p' "$work/log")
    [ -n "$loss" ] || fail "$name: no loss"
}

# as_good NAME OPTIONS...: the loss of what is loaded is that of $work/loss, within 1e-5
as_good() {
    loss "$@"
    echo "$loss" >"$work/other"
    near 1 1e-5 "$work/loss" "$work/other" >"$work/out" || fail "$1: $(cat "$work/out")"
}

# Adapters load with their base, which they name, or with the one that is named; merged they are a model of its own.
loss 'adapters with their base' --load "$work/adapters"
echo "$loss" >"$work/loss"
as_good 'a base with adapters' --load "$work/base" --adapters "$work/adapters"
loss 'the base' --load "$work/base"
echo "$loss" >"$work/other"
near 1 1e-3 "$work/loss" "$work/other" >"$work/out" && fail "the adapters change nothing"
# Weights of the same shape that are others are noticed; the same weights in bf16 are the same base.
apply() {
    expect "$1" 0 "$2" "$trainer" --load "$3" --adapters "$work/adapters" --generate 2 --prompt '1 2'
}
other='warning: .*/adapters: these adapters were trained on a base with other weights than '
apply 'adapters on another base' "$other$work/full" "$work/full"
expect 'the base in bf16' 0 '' "$trainer" --quiet --load "$work/base" --export "$work/narrow,dtype=bf16"
for base in base narrow; do
    apply "adapters on $base" '' "$work/$base"
    grep -q "$other" "$work/out" && fail "adapters on $base: taken for another base"
done
merge="$eight --load $work/base $adapters"
export_as=,merge
reference=
exports 'merged' 0 '' "$trainer" $merge
exports 'merged by a pipeline' 0 '' "$ddprun" -n 2 trainer $merge --mode pipeline
exports 'merged by 2 workers' 0 '' "$ddprun" -n 2 trainer $merge --zero 0
export_as=
as_good 'merged' --load "$work/reference"
cmp -s "$work/reference/README.md" "$work/base/README.md" || fail "merged: a file of the base was not exported"
strong="$data --batch-size 8 --steps 20 --load $work/base --lora targets=all-linear --lr 0.1"
expect 'strong adapters' 0 '' "$trainer" $strong --export "$work/strong"
expect 'strong adapters, merged' 0 '' "$trainer" $strong --export "$work/merged,merge"
expect 'merged without data' 0 '' "$trainer" --quiet --load "$work/base" --adapters "$work/strong" --export "$work/converted,merge"
diff -r "$work/merged" "$work/converted" >/dev/null || fail "merged without data: other bits than at the end of a training"
expect 'merged, with options that have no effect' 0 'warning: --device has no effect with --export alone' "$trainer" --quiet --load "$work/base" \
    --adapters "$work/strong" --export "$work/idle,merge" --threads 2 --device cpu
diff -r "$work/merged" "$work/idle" >/dev/null || fail "merged with --threads and --device: other bits than at the end of a training"
expect 'training without data' 2 'error: --steps: .* give --data too, or leave --steps out' "$trainer" --load "$work/base" --export "$work/none" --steps 3
[ ! -e "$work/none" ] || fail "training without data: it leaves $work/none"
for from in "$work/strong" "$work/base --adapters $work/strong" "$work/merged" "$work/base"; do
    expect "text of $from" 0 '' "$trainer" --load $from --generate 20 --prompt '1 2' --temperature 0
    cat "$work/out"
done >"$work/texts"
[ "$(sort -u "$work/texts" | wc -l)" -eq 2 ] && [ "$(head -n 3 "$work/texts" | sort -u | wc -l)" -eq 1 ] ||
    { fail "texts of adapters and of the merged model differ, or are the base's"; cat "$work/texts"; }
expect 'adapters learn faster' 0 '"learning_rate":(2e-4|0.0002),' "$trainer" --data "$work/tokens.bin" --seq-len 16 --steps 1 --no-eval --quiet \
    --schedule constant --load "$work/adapters" --log /dev/stdout
expect 'adapters go on' 0 '' "$trainer" $eight --load "$work/adapters" --export "$work/more"
grep -q '"r": 4,' "$work/more/adapter_config.json" || fail "adapters that go on are of another rank"
cmp -s "$work/adapters/adapter_model.safetensors" "$work/more/adapter_model.safetensors" && fail "adapters did not go on"

# Layers without positions, all of them.
mkdir "$work/unrotated"
sed 's/"llama",/"smollm3", "no_rope_layers": [0, 0],/; s/"rope_scaling".*/"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}/; /"high_freq_factor"/d' \
    "$work/shape/config.json" >"$work/unrotated/config.json"
reference=
exports 'no positions' 0 '' "$trainer" $eight --config "$work/unrotated/config.json"
exports 'no positions, a pipeline' 0 '' "$ddprun" -n 2 trainer $eight --config "$work/unrotated/config.json" --mode pipeline
expect 'no positions, text' 0 '' "$trainer" --load "$work/reference" --generate 20 --prompt '1 2'

# What is written where: onto the source, in shards, in bf16.
cp -r "$work/base" "$work/own"
cp -r "$work/full" "$work/reference.full"
expect 'onto the source' 0 '' "$trainer" $eight --load "$work/own" --threads 1 --export "$work/own"
diff -r "$work/full" "$work/own" >/dev/null || fail "onto the source: other files than in a new directory"
cp -r "$work/adapters" "$work/again"
expect 'adapters onto themselves' 0 '' "$trainer" $eight --load "$work/again" --export "$work/again"
cmp -s "$work/more/adapter_model.safetensors" "$work/again/adapter_model.safetensors" || fail "adapters onto themselves: other bits"
loss 'full' --load "$work/full"
echo "$loss" >"$work/loss"
expect 'shards' 0 '' "$trainer" $eight --load "$work/base" --export "$work/shards,shard=10K"
[ -f "$work/shards/model.safetensors.index.json" ] && [ ! -f "$work/shards/model.safetensors" ] || fail "there are no shards"
as_good 'shards' --load "$work/shards"
expect 'bf16' 0 '' "$trainer" $eight --load "$work/base" --export "$work/narrow,dtype=bf16"
expect 'info of bf16' 0 '^weights +bf16' "$trainer" info "$work/narrow"
loss 'bf16' --load "$work/narrow"
echo "$loss" >"$work/other"
near 1 2e-2 "$work/loss" "$work/other" >"$work/out" || fail "bf16: $(cat "$work/out")"
expect 'bf16 stays bf16' 0 '' "$trainer" $eight --load "$work/narrow" --export "$work/narrow"
expect 'info of bf16 again' 0 '^weights +bf16' "$trainer" info "$work/narrow"
expect 'bf16 as float32' 0 '' "$trainer" $eight --load "$work/narrow" --export "$work/narrow,dtype=fp32"
expect 'info of float32' 0 '^weights +float32' "$trainer" info "$work/narrow"
expect 'a size' 0 '' "$trainer" $eight --model llama --size d2 --vocab-size 96 --export "$work/sized,dtype=bf16"
grep -q '"initializer_range": 0.02[0,]' "$work/sized/config.json" || fail "a size is exported without the deviation of its weights"
expect 'a published size has its vocabulary' 0 '^model    llama, 8190735360 parameters' "$trainer" --model llama --size qwen3-8b --plan
expect 'a published size and bytes' 2 'NEWS is a text, .* of the vocabulary of 49152 that --size smollm2-135m has' "$trainer" --model llama \
    --size smollm2-135m --data "$here/NEWS" --plan
expect 'info of a size' 0 '2 layers of 128 channels' "$trainer" info "$work/sized"

# Checkpoints hold adapters alone. After a kill the run ends with the same bits; with another base it is refused.
long="$data --batch-size 2 --global-batch 8 --lanes 4 --steps 60 $adapters"
saved="--checkpoint $work/saved --checkpoint-every 2"
expect 'without interruption' 0 '' "$trainer" $long --load "$work/base" --export "$work/whole"
"$trainer" $long $saved --load "$work/base" --export "$work/resumed" >"$work/out" 2>&1 &
victim=$!
any_checkpoint() { ls "$work"/saved/step-* >/dev/null 2>&1; }
until_true any_checkpoint || fail "no checkpoint was written"
kill -KILL $victim
wait $victim 2>/dev/null
largest=$(wc -c "$work"/saved/step-*/model.safetensors | awk '$2 != "total" && $1 > most { most = $1 } END { print most }')
[ "$largest" -lt "$(wc -c <"$work/base/model.safetensors")" ] || fail "checkpoints hold the base"
expect 'resumed with another base' 2 'frozen parameters' "$trainer" $long $saved --resume --load "$work/full" --export "$work/resumed"
[ "$(wc -l <"$work/out")" -eq 1 ] || fail "$name: not one line"
expect 'resumed with a wider base' 2 '' "$trainer" $long $saved --resume --load "$work/wider" --export "$work/resumed"
expect 'resumed without its base' 2 '' "$trainer" $long $saved --resume --export "$work/resumed"
expect 'resumed with other dropout' 2 'lora_dropout|model' "$trainer" $long $saved --resume --load "$work/base" --lora r=4,alpha=8,targets=all-linear,rslora
expect 'resumed' 0 '' "$ddprun" -n 2 trainer $long $saved --resume --load "$work/base" --export "$work/resumed"
diff -r "$work/whole" "$work/resumed" >/dev/null || fail "resumed: other bits than without interruption"

# Whose adapters can be used with their base: trained on, evaluated, exported and asked for a text.
expect 'a checkpoint of adapters' 2 'adapters without their base: name it, with --load BASE --adapters' "$trainer" $data --load "$work/saved"
expect 'exported from checkpoints' 0 '' "$trainer" --load "$work/base" --adapters "$work/saved" --export "$work/last"
diff -r "$work/whole" "$work/last" >/dev/null || fail "exported from checkpoints: other adapters than at the end of the run"
evaluate="--data $work/tokens.bin --seq-len 16 --val-split 0.1 --eval-only --load $work/base"
last=$(ls -d "$work"/saved/step-* | tail -n 1)
for what in "--adapters $last/model.safetensors" "$adapters --resume-from $last" "$adapters $saved" "--adapters $work/adapters --resume-from $last"; do
    expect "evaluated: $what" 0 'adapters from .*step-.*/model.safetensors' "$ddprun" -n 2 trainer $evaluate $what
    sed -n 's/.*test loss/loss/p' "$work/out" >>"$work/losses"
done
"$trainer" $evaluate --adapters "$work/whole" | sed -n 's/.*test loss/loss/p' >>"$work/losses"
[ "$(sort -u "$work/losses" | wc -l)" -eq 1 ] && [ "$(wc -l <"$work/losses")" -eq 5 ] || fail "evaluations differ: $(cat "$work/losses")"
expect 'new adapters are not evaluated' 2 'the adapters of --lora are new' "$trainer" $evaluate $adapters
expect 'trained on' 0 '' "$trainer" $data --load "$work/base" --adapters "$last" --batch-size 2 --steps 1 --save "$work/more.safetensors"
expect 'a text' 0 '^1 2 ' "$trainer" --load "$work/base" --adapters "$work/more.safetensors" --generate 3 --prompt "1 2"
expect 'no adapters' 2 'does not say that it holds adapters' "$trainer" $data --load "$work/base" --adapters "$work/base/model.safetensors"

# bad CODE PATTERN OPTIONS...: one clear line, by one worker and by two
bad() {
    code=$1 wrong=$2
    shift 2
    for launch in "$trainer" "$ddprun -n 2 trainer"; do
        expect "$*" "$code" "error: .*$wrong" $launch $eight "$@"
        [ "$(grep -c 'error:' "$work/out")" -eq 1 ] || { fail "$launch $*: not one line"; head -n 5 "$work/out"; }
    done
}
with="--load $work/base"
lora="$with --lora r=4"
bad 2 '--export: merge: there are no adapters' $with --export "$work/e,merge"
bad 2 '--export: shard: adapters are exported in one file' $lora --export "$work/e,shard=1M"
bad 2 '--export: dtype: adapters are exported in one file' $lora --export "$work/e,dtype=bf16"
bad 2 ': this directory holds something other than adapters' $lora --export "$work/base"
bad 2 'but no config.json' $with --export "$work/adapters"
bad 2 '--export: format: a llama is exported' $with --export "$work/e,format=llmc"
bad 2 '--export .*: shard=10Q: what follows the path must be' $with --export "$work/e,shard=10Q"
expect 'a file of weights' 0 '' "$trainer" $eight --model llama --size d2 --vocab-size 96 --save "$work/file.safetensors"
bad 2 '--lora: .*file.safetensors is a file of weights' --load "$work/file.safetensors" --lora r=4
bad 2 '--lora contradicts the adapters' $lora --adapters "$work/adapters"
bad 2 '--lora contradicts the adapters' --load "$work/adapters" --lora r=4
bad 2 'has adapters already' --load "$work/adapters" --adapters "$work/adapters"
bad 2 '--adapters .*: name the model' --model llama --adapters "$work/adapters"
bad 2 '--lora belongs to the model llama, and the model is gpt2' --model gpt2 --lora r=4
bad 2 '--lora belongs to the model llama, and the model is mlp' --model mlp --lora r=4
bad 2 '--export: merge belongs to the model llama, and the model is gpt2' --model gpt2 --export "$work/e.bin,merge"
bad 2 '--frozen-dtype: nothing is frozen' $with --frozen-dtype bf16
bad 2 '--lora r=0: r must be from 1 to 4096' $with --lora r=0
bad 2 '--lora targets=lm_head: targets are q_proj' $with --lora targets=lm_head
bad 2 '--size d2, with channels 128, contradicts' $with --size d2
bad 2 '--model gpt2 contradicts' $with --model gpt2
bad 2 '--vocab-size 97 contradicts' $with --vocab-size 97
bad 2 '--seq-len 33 is more than' $with --seq-len 33
bad 2 'the vocabulary has 96 tokens' $with --data "$work/large.bin"
bad 3 'adapters of another base' --load "$work/wider" --adapters "$work/adapters"
bad 4 'none: cannot open: No such file' $with --adapters "$work/none"
cp -r "$work/adapters" "$work/orphans"
sed "s|$work/base|an/unknown-base|" "$work/adapters/adapter_config.json" >"$work/orphans/adapter_config.json"
bad 2 'their base an/unknown-base is not a directory here' --load "$work/orphans"
sed 's/"use_dora": false/"use_dora": true/' "$work/adapters/adapter_config.json" >"$work/orphans/adapter_config.json"
bad 3 'adapters with use_dora are not supported' $with --adapters "$work/orphans"
bad 2 "--save $work/e/w is inside the directory of --export" $with --save "$work/e/w" --export "$work/e"
cp -r "$work/base" "$work/odd"
mkfifo "$work/odd/notes"
bad 4 'odd/notes: cannot read: not a regular file' --load "$work/odd" --export "$work/e" --save "$work/e.safetensors"
[ ! -e "$work/e.safetensors" ] || fail "trained before it was known that the export fails"
rm "$work/odd/notes"
echo '{"model_type": ' >"$work/odd/config.json"
bad 3 'odd/config.json: bad JSON in line' --load "$work/odd"
finish
