#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun-finetune(7): each command of the page is run as it stands, in its order, in a directory with a tiny model and chats.
# The Python of the page is run where transformers and PEFT are installed.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/page.inc"
page=$here/man/ddprun-finetune.7

# What the reader has: a model with a tokenizer and a chat template, and chats.
cat >config.json <<'END'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 272, "hidden_size": 32, "intermediate_size": 48,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}
END
for i in $(seq 300); do
    echo "{\"messages\": [{\"role\": \"user\", \"content\": \"Say $i\"}, {\"role\": \"assistant\", \"content\": \"hello the $i\"}]}"
done >chats.jsonl
cp -r "$here/tests/data/golden/texts" tokenizer
chmod -R u+w tokenizer
cat >tokenizer/tokenizer_config.json <<'END'
{"eos_token": "<|endoftext|>", "chat_template": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}
END
expect 'the model is made' 0 '' trainer --config config.json --tokenizer tokenizer --data chats.jsonl --seq-len 512 --steps 1 --no-eval \
    --export model
cp tokenizer/* model

# Examples of data: an object is one line of a file.
blocks file >names
number=0
while read -r file; do
    number=$((number + 1))
    { tr '\n' ' ' <"block-$number" && echo; } >"$file"
    length=64
    [ "$file" != text.jsonl ] || length=8 # a document fills its rows
    objective=
    [ "$file" != pair.jsonl ] || objective='--objective dpo'
    # shellcheck disable=SC2086
    expect "$file is read" 0 '' trainer --load model --data "$file" --seq-len $length --no-eval --plan $objective
done <names
[ "$number" -eq 4 ] || fail "the page has $number examples of data, not 4"

blocks sh >names
number=0
while read -r _; do
    number=$((number + 1))
    cp "block-$number" commands
    expect "$(head -n 2 commands | tr '\n' ' ')" 0 '' sh -e commands
    grep -E 'warning:' out && fail "block $number warns"
done <names
echo "$number blocks of commands run"
[ "$number" -ge 15 ] || fail "the marks of the page are missing, or are not understood here"
for made in tuned adapters merged new; do
    count=$((count + 1))
    [ -s $made/config.json ] || [ -s $made/adapter_config.json ] || fail "$made was not written"
    [ $made = adapters ] || [ -n "$(find $made -name '*.safetensors')" ] || fail "$made has no weights"
done
cmp -s tokenizer/tokenizer.json tuned/tokenizer.json || fail "tuned has not the tokenizer"
[ "$(sed -n 's/.*"dtype": "\(.*\)".*/\1/p' tuned/config.json | head -n 1)" = bfloat16 ] || fail "tuned is not bfloat16"

blocks python >names
[ -s block-1 ] || fail "the page has no Python"
python=${TRANSFORMERS_PYTHON:-${PYTHON:-python3}}
if "$python" -c 'import peft, transformers' 2>err; then
    expect 'the Python of the page' 0 'What is 2\+2' env HF_HUB_OFFLINE=1 CUDA_VISIBLE_DEVICES= "$python" block-1
else
    not_run "the Python of the page: transformers or PEFT is not installed"
fi
finish
