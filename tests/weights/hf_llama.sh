#!/bin/sh
# SPDX-License-Identifier: MIT
# trainer info: what directories of Hugging Face hold, what training them would need, and what is wrong with bad ones.
. "${srcdir:-.}/tests/lib/cli.inc"
make_corpus
corpus=$work/corpus/hf_llama

# said PATTERN...: each is in the last output
said() {
    for pattern; do
        count=$((count + 1))
        grep -qE -- "$pattern" "$work/out" || fail "$name: the output does not match: $pattern"
    done
}

mkdir "$work/published"
cp "$corpus/good-llama-3.1-8b" "$work/published/config.json"
expect 'Llama 3.1 8B' 0 '^parameters  8,030,261,248$' "$trainer" info "$work/published"
said '^model       llama: 32 layers of 4096 channels, perceptrons of 14336$' \
    '^attention   32 heads of 128 features, 8 of keys and values$' \
    '^rope        theta 500000, llama3: factor 8, from 1 to 4, of 8192 positions$' \
    '^vocabulary  128256 tokens, a head of its own$' '^weights     none$' '^tokenizer   none$' '^template    none$' \
    'all, float32 +119.66$' 'all, bf16 with float32 masters +134.62$' 'LoRA of rank 16, bf16 base +15.58  \(41,943,040 parameters\)$' \
    'activations +17.00 +8.50$' 'activations, --recompute +1.53 +0.77$'

mkdir "$work/tiny"
cp "$corpus/good-smollm3" "$work/tiny/config.json"
expect 'a directory is made' 0 '' ./hf_llama_tool fill "$work/tiny" "$work/made" bf16 20000
echo '{}' >"$work/made/tokenizer.json"
echo '{"chat_template": "{{ x }}"}' >"$work/made/tokenizer_config.json"
expect 'weights' 0 '^weights     bf16, [2-9] files of 0.00 GiB$' "$trainer" info "$work/made"
said '^tokenizer   tokenizer.json, refused: .*made/tokenizer.json: it has no model' '^template    none$' 'none in 1 layers$' 'the head is the embedding$'
cp "$here/tests/data/golden/texts/tokenizer.json" "$work/made"
expect 'a tokenizer' 0 '^tokenizer   tokenizer.json$' "$trainer" info "$work/made"
said '^template    tokenizer_config.json, refused: .*does not write what the assistant says'
cat >"$work/made/chat_template.jinja" <<'END'
{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
END
expect 'a template in a file' 0 '^template    chat_template.jinja$' "$trainer" info "$work/made/"
mkdir "$work/phi3"
cp "$corpus/good-phi3" "$work/phi3/config.json"
expect 'no adapters of phi3' 0 'all, float32' "$trainer" info "$work/phi3"
! grep -q LoRA "$work/out" || fail "adapters of phi3 are promised"
mkdir "$work/adapters"
echo '{}' >"$work/adapters/adapter_config.json"
expect 'adapters' 0 '^adapters    rank' "$trainer" info "$work/adapters"

# Killed at any time, an export onto its own source leaves the old directory or the new one, and the next one cleans up.
echo mine >"$work/made/notes.txt"
killed=0
for delay in 01 02 03 04 05 06 07 08 10 12 15 20 30 60; do
    dtype=f32
    [ $((killed % 2)) -eq 0 ] || dtype=bf16
    ./hf_llama_tool copy "$work/made" "$work/made" $dtype 9000 2>"$work/err" &
    writer=$!
    sleep "0.$delay" # time: a kill may come at any moment
    kill -KILL $writer 2>/dev/null
    wait $writer 2>/dev/null
    [ $? -eq 0 ] || killed=$((killed + 1))
    expect "killed after 0.$delay s" 0 '^weights     (bf16|float32), [0-9]+ files' "$trainer" info "$work/made"
    [ "$(cat "$work/made/notes.txt")" = mine ] || fail "killed after 0.$delay s: another file is gone"
done
echo "$killed exports were killed"
expect 'written in the end' 0 '' ./hf_llama_tool copy "$work/made" "$work/made" bf16 20000
[ "$(find "$work" -name '*.tmp' -o -name '*.old' | wc -l)" -eq 0 ] || fail "something was left by killed exports"

shard=$(find "$work/made" -name 'model-00002-*')
cp "$shard" "$work/shard"
head -c 100 "$work/shard" >"$shard"
expect 'a shard is cut' 3 'model-00002-of-.*truncated' "$trainer" info "$work/made"
rm "$shard"
expect 'a shard is missing' 4 'model-00002-of-.*No such file' "$trainer" info "$work/made"
cp "$work/shard" "$shard"
sed 's/"vocab_size": 96/"vocab_size": 100/' "$work/made/config.json" >"$work/config.json"
cp "$work/config.json" "$work/made/config.json"
expect 'another vocabulary' 3 'embed_tokens.weight has the shape \(96,32\), by config.json it has \(100,32\)' "$trainer" info "$work/made"

expect 'a control character' 4 'none.x1b.*No such file' "$trainer" info "$work/$(printf 'none\033')"
expect 'a file' 3 'shard: it does not say which model it holds' "$trainer" info "$work/shard"
mkdir "$work/empty"
expect 'an empty directory' 3 'empty: no weights in this directory' "$trainer" info "$work/empty"
expect 'no directory' 2 'info takes one directory or file' "$trainer" info
expect 'two directories' 2 'info takes one directory' "$trainer" info a b
for bad in "$corpus"/bad-*; do
    cp "$bad" "$work/empty/config.json"
    expect "info of ${bad##*/}" 3 '' "$trainer" info "$work/empty"
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail "${bad##*/}: not one line"
done
finish
