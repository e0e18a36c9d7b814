#!/bin/sh
# SPDX-License-Identifier: MIT
# Texts, prompts and chats on the command line: masks, the cache, one encoder among several workers, files of tokens, messages,
# and text that is generated.
. "${srcdir:-.}/tests/lib/cli.inc"
texts=$here/tests/data/golden/texts # a tokenizer
chat='{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "hello"}]}'
tiny="--model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 16 --batch-size 4 --threads 1 --quiet"
cached() { find "$XDG_CACHE_HOME" -name 'texts-*' 2>/dev/null | wc -l; }

# What the model sees: a chat, its answer in brackets, and the padding behind it.
{ echo "$chat"; echo "$chat"; } >"$work/chats.jsonl"
cat >"$work/masks" <<'END'
--- sample 1 of 1: 48 positions ---
- document at 0: 22 tokens, 2 trained
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
[hello<|im_end|>]
- document at 21: 22 tokens, 2 trained
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
[hello<|im_end|>]
- padding: 6 tokens
END
of=chats
masks() {
    "$@" --model llama --size d2 --data "$work/$of.jsonl" --tokenizer "$texts" --chat-template chatml --seq-len 48 --batch-size 1 \
        --steps 1 --no-eval --show-masks 3 2>"$work/err" | sed -n '/^--- sample/,/^- padding/p'
}
masks "$trainer" >"$work/got"
count=$((count + 1))
cmp -s "$work/masks" "$work/got" || { fail "masks"; diff "$work/masks" "$work/got"; }

# The same chats as other programs write them, and under other names.
alike() {
    what=$1 line=$2
    shift 2
    { echo "$line"; echo "$line"; } >"$work/other.jsonl"
    of=other
    masks "$trainer" "$@" >"$work/got"
    of=chats
    count=$((count + 1))
    cmp -s "$work/masks" "$work/got" || { fail "$what"; diff "$work/masks" "$work/got"; cat "$work/err"; }
}
alike ShareGPT '{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "hello"}]}'
alike Alpaca '{"instruction": "Hi", "input": "", "output": "hello"}'
alike columns '{"chat": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "hello"}], "text": "x"}' --columns messages=chat
both='{"question": "Hi", "answer": "hello", "output": "?"}'
alike "Alpaca with other columns" "$both" --columns instruction=question,output=answer
{ echo "$both"; echo "$both"; } >"$work/chats.jsonl"
masks "$trainer" --columns instruction=question,output=output >"$work/got"
grep -q '^\[?<|im_end|>\]' "$work/got" || fail "one file, other columns: taken from the cache of those before"
{ echo "$chat"; echo "$chat"; } >"$work/chats.jsonl"
# TRL also trains what the template puts behind a completion.
sed 's/22 tokens, 2/23 tokens, 3/; s/at 21/at 22/; s/end|>\]/end|>/; s/6 tokens/4 tokens/; /\[hello/a ]' "$work/masks" >"$work/trl"
mv "$work/trl" "$work/masks.trl"
cp "$work/masks" "$work/masks.kept" && cp "$work/masks.trl" "$work/masks"
alike "TRL, messages for prompt and completion" \
    '{"prompt": [{"role": "user", "content": "Hi"}], "completion": [{"role": "assistant", "content": "hello"}]}'
mv "$work/masks.kept" "$work/masks"

# Four workers and an empty cache: one file, the same samples.
rm -rf "$XDG_CACHE_HOME"
masks "$ddprun" -n 4 trainer >"$work/got"
count=$((count + 1))
cmp -s "$work/masks" "$work/got" || { fail "masks of 4 workers"; diff "$work/masks" "$work/got"; cat "$work/err"; }
[ "$(cached)" -eq 1 ] || fail "4 workers left $(cached) encoded files, not 1"

# The model gpt2 knows no borders.
expect "chats and gpt2" 2 'error: .*chats.jsonl has prompts or chats, whose boundaries the model gpt2 does not know' $trainer $tiny --seq-len 48 \
    --data "$work/chats.jsonl" --tokenizer "$texts" --chat-template chatml

# A row has as many tokens as positions, not twice as many.
expect "chats and llama" 0 '' "$trainer" --model llama --size d2 --data "$work/chats.jsonl" --tokenizer "$texts" --chat-template chatml \
    --seq-len 48 --batch-size 1 --packing pad --steps 1 --no-eval --quiet --log "$work/log" --export "$work/llama"
sed -n 's/.*"seconds":\([0-9.e-]*\),"tokens_per_second":\([0-9.e]*\),.*"counted":\([0-9]*\).*/\1 \2 \3/p' "$work/log" |
    awk '{ right = $1 * $2 > 47 && $1 * $2 < 49 && $3 == 2 } END { exit !right }' || fail "other tokens than the 48 of a row, 2 counted: $(cat "$work/log")"
grep -q '"eos_token_id": [0-9]' "$work/llama/config.json" || fail "an export does not name the tokenizer's eos"

# Both sets are of one kind.
for i in 1 2 3 4 5 6; do echo '{"text": "hello there, the end of all the hello"}'; done >"$work/few.jsonl"
for pair in "chats few" "few chats"; do
    expect "--data and --val: $pair" 2 'error: --val .* both must be of the same kind' "$trainer" --model llama --size d2 --seq-len 24 --steps 1 \
        --tokenizer "$texts" --chat-template chatml --quiet --data "$work/${pair% *}.jsonl" --val "$work/${pair#* }.jsonl"
done
mkdir "$work/directory"
for i in 1 2; do echo 'hello there, the end of all the hello' >"$work/directory/$i.txt"; done
expect "a directory of texts" 0 'note: .*: 2 texts, 76 bytes' "$trainer" --model llama --size d2 --seq-len 8 --steps 1 --batch-size 1 --no-eval \
    --tokenizer "$texts" --data "$work/directory"

# Texts through the tokenizer: the same weights with 1 and 4 workers, with and without a cache, and from a file of tokens.
for i in $(seq 80); do echo "{\"text\": \"hello there, the $i end of all the hello, and a hell of other things\"}"; done >"$work/lines.jsonl"
train() {
    name=$1
    shift
    expect "$name" 0 '' "$@" $tiny --tokenizer "$texts" --steps 4 --global-batch 16 --no-eval --save "$work/$name.safetensors"
}
train one "$trainer" --data "$work/lines.jsonl"
train four "$ddprun" -n 4 trainer --data "$work/lines.jsonl"
rm -rf "$XDG_CACHE_HOME"
train cold "$ddprun" -n 4 trainer --data "$work/lines.jsonl"
[ "$(cached)" -eq 1 ] || fail "4 workers left $(cached) encoded files, not 1"
train nowhere env XDG_CACHE_HOME=/dev/null "$trainer" --data "$work/lines.jsonl"
file=$(find "$XDG_CACHE_HOME" -name 'texts-*')
printf 'damaged' | dd of="$file" bs=1 seek=100 conv=notrunc 2>/dev/null
train damaged "$ddprun" -n 2 trainer --data "$work/lines.jsonl"
grep -q 'warning: .*texts-.* is damaged: it will be written again' "$work/out" || fail "damaged: no warning"
[ "$(grep -c damaged "$work/out")" -eq 1 ] || fail "damaged: said more than once"
train again "$trainer" --data "$work/lines.jsonl"
! grep -q damaged "$work/out" || fail "the damaged file stayed"
gzip -c "$work/lines.jsonl" >"$work/packed.jsonl.gz"
train packed "$trainer" --data "$work/packed.jsonl.gz"
for name in four cold nowhere damaged again packed; do
    count=$((count + 1))
    cmp -s "$work/one.safetensors" "$work/$name.safetensors" || fail "$name: other weights"
done

# The weights know whose tokens they learned.
mkdir "$work/another"
sed 's/"A": *32/"A":33/; s/"B": *33/"B":32/' "$texts/tokenizer.json" >"$work/another/tokenizer.json"
cp "$texts/tokenizer_config.json" "$work/another"
cmp -s "$texts/tokenizer.json" "$work/another/tokenizer.json" && fail "the other tokenizer is no other"
expect "info of a tokenizer" 0 '^  tokenizer  of hash [0-9a-f]{16}$' "$trainer" info "$work/one.safetensors"
expect "the same tokenizer" 0 '' "$trainer" --load "$work/one.safetensors" --prompt hello --generate 4 --tokenizer "$texts"
! grep -q 'another tokenizer' "$work/out" || fail "the same tokenizer: warned"
expect "another tokenizer, a prompt" 0 'warning: the model learned the tokens of another tokenizer, whose hash' "$trainer" \
    --load "$work/one.safetensors" --prompt hello --generate 4 --tokenizer "$work/another"
expect "another tokenizer, more training" 0 'warning: the model learned the tokens of another tokenizer' "$trainer" $tiny --steps 1 \
    --load "$work/one.safetensors" --data "$work/lines.jsonl" --tokenizer "$work/another"

# A mixture by weights: the same weights with 1 and 4 workers, with replicas, and after a checkpoint.
for i in $(seq 30); do echo "{\"text\": \"the other $i of all the things there\"}"; done >"$work/others.jsonl"
mixture="--data $work/lines.jsonl:1,$work/others.jsonl:2"
train mixed "$trainer" $mixture
expect "a mixture, said" 0 'note: .*others.jsonl gives 412 of the 618 samples of an epoch, 9.36 times the 44 it has' "$trainer" $mixture ${tiny% --quiet} \
    --tokenizer "$texts" --steps 1 --no-eval
train mixed-4 "$ddprun" -n 4 trainer $mixture
train mixed-dp "$trainer" $mixture --mode dp --replicas 2
expect "a mixture, stopped" 0 '' "$trainer" $mixture $tiny --tokenizer "$texts" --steps 2 --schedule constant --global-batch 16 --no-eval --checkpoint "$work/kept"
expect "a mixture, other weights" 2 'error: .*samples' "$trainer" --data "$work/lines.jsonl:1,$work/others.jsonl:5" $tiny --tokenizer "$texts" --steps 4 \
    --schedule constant --global-batch 16 --no-eval --checkpoint "$work/kept" --resume
expect "a mixture, resumed" 0 '' "$ddprun" -n 2 trainer $mixture $tiny --tokenizer "$texts" --steps 4 --schedule constant --global-batch 16 --no-eval \
    --checkpoint "$work/kept" --resume --save "$work/resumed.safetensors"
train mixed-whole "$trainer" $mixture --schedule constant
for pair in "mixed mixed-4" "mixed mixed-dp" "mixed-whole resumed"; do
    count=$((count + 1))
    cmp -s "$work/${pair% *}.safetensors" "$work/${pair#* }.safetensors" || fail "${pair#* }: other weights"
done
! cmp -s "$work/one.safetensors" "$work/mixed.safetensors" || fail "a mixture: the second set changes nothing"
expect "a mixture of preferences" 2 'error: --data: weights and --objective exclude each other' "$trainer" $mixture --model llama --size d2 \
    --seq-len 16 --tokenizer "$texts" --objective dpo

# Three jobs at once, whose texts take some time: one encodes, the others wait for it.
rm -rf "$XDG_CACHE_HOME"
for i in $(seq 100); do cat "$work/lines.jsonl"; done >"$work/large.jsonl"
for i in 1 2 3; do
    DDP_LOG=debug "$trainer" $tiny --tokenizer "$texts" --steps 1 --no-eval --data "$work/large.jsonl" >"$work/job$i" 2>&1 &
    eval "job$i=$!"
done
for job in $job1 $job2 $job3; do
    count=$((count + 1))
    wait "$job" || fail "one of three jobs failed"
done
[ "$(cached)" -eq 1 ] || fail "3 jobs left $(cached) encoded files, not 1"
[ "$(cat "$work"/job? | grep -c 'encoded texts are kept here')" -eq 1 ] || fail "not one of three jobs has encoded"

# Files of tokens.
for ending in bin npy; do
    expect "tokenize $ending" 0 'wrote .*of 16 bits, of a vocabulary of 266' "$trainer" tokenize "$work/lines.jsonl" "$work/tokens.$ending" --tokenizer "$texts"
    expect "train on $ending" 0 '' "$trainer" $tiny --data "$work/tokens.$ending" --vocab-size 266 --tokenizer "$texts" --val-split 0.1 --steps 4 \
        --global-batch 16 --no-eval --save "$work/$ending.safetensors"
    count=$((count + 1))
    cmp -s "$work/one.safetensors" "$work/$ending.safetensors" || fail "$ending: other weights than those of the text"
done
expect "tokenize with nothing" 2 'error: tokenize: name the text and the file' "$trainer" tokenize
expect "tokenize without a tokenizer" 2 'error: tokenize: name a tokenizer with --tokenizer' "$trainer" tokenize "$work/lines.jsonl" "$work/x.bin"
expect "tokenize chats" 2 'error: tokenize: .*prompts or chats' "$trainer" tokenize "$work/chats.jsonl" "$work/x.bin" --tokenizer "$texts" --chat-template chatml
expect "tokenize nothing there" 4 'error: .*none.txt: cannot open' "$trainer" tokenize "$work/none.txt" "$work/x.bin" --tokenizer "$texts"
[ ! -e "$work/x.bin" ] || fail "a failed tokenize left a file"

# Lines may be called .json too; an array of chats is not taken for text.
cp "$work/chats.jsonl" "$work/lines.json"
{ echo '['; echo "$chat"; echo ']'; } >"$work/array.json"
expect "lines called .json" 0 '\[hello<\|im_end\|>\]' "$trainer" --model llama --size d2 --data "$work/lines.json" --tokenizer "$texts" \
    --chat-template chatml --seq-len 48 --show-masks 1 --plan
expect "an array" 3 'error: .*array.json: line 1: a JSON array, .*jq -c' "$trainer" --model llama --size d2 --data "$work/array.json" \
    --tokenizer "$texts" --chat-template chatml --seq-len 48 --plan

# What is wrong is said once, whatever the number of workers.
{ cat "$work/chats.jsonl"; echo '{"messages": [{"role": "user", "content": "Hi"}]}'; } >"$work/bad.jsonl"
for start in "$trainer" "$ddprun -n 3 trainer"; do
    expect "no answer" 3 'error: .*bad.jsonl: line 3: no message of the assistant' $start $tiny --data "$work/bad.jsonl" --tokenizer "$texts" --chat-template chatml
    [ "$(grep -c 'bad.jsonl: line 3' "$work/out")" -eq 1 ] || fail "$start: said more than once"
done
expect "no template" 2 'error: .*--chat-template' $trainer $tiny --data "$work/chats.jsonl" --tokenizer "$texts"
expect "unknown template" 2 'error: --chat-template chatty: chats need one of chatml, ' $trainer $tiny --data "$work/chats.jsonl" --tokenizer "$texts" --chat-template chatty
expect "no tokenizer" 3 'error: .*chats.jsonl: line 1: .*--tokenizer' $trainer $tiny --data "$work/chats.jsonl"
expect "no such tokenizer" 4 'error: .*nowhere' $trainer $tiny --data "$work/chats.jsonl" --tokenizer "$work/nowhere"
expect "too long" 2 'error: .*chats.jsonl: line 1: 22 tokens are more than --seq-len 16' $trainer $tiny --data "$work/chats.jsonl" \
    --tokenizer "$texts" --chat-template chatml --packing documents,long=refuse
expect "nothing to learn" 3 'error: .*no example has a token to learn within --seq-len 16: 0 are too long, 2 have no answer there' $trainer $tiny \
    --data "$work/chats.jsonl" --tokenizer "$texts" --chat-template chatml
expect "two ways" 2 'error: --tokenizer and --tokens bytes exclude' $trainer $tiny --data "$work/lines.jsonl" --tokenizer "$texts" --tokens bytes
expect "masks of numbers" 2 'error: --show-masks' $trainer --model article --show-masks 1

# Text that a model writes. It has learned a single line by heart.
for i in $(seq 300); do echo '{"text": "hello there, caf\u00e9<|im_end|>!"}'; done >"$work/one.jsonl"
expect "learn a line" 0 '' "$trainer" --model gpt2 --layers 1 --heads 2 --channels 32 --seq-len 16 --batch-size 8 --threads 1 --quiet \
    --data "$work/one.jsonl" --tokenizer "$texts" --steps 150 --optimizer adamw --lr 0.01 --no-eval --save "$work/line.safetensors"
say() { "$trainer" --generate 40 --load "$work/line.safetensors" --tokenizer "$texts" --temperature 0 "$@" 2>&1; }
same() {
    count=$((count + 1))
    [ "$2" = "$3" ] || fail "$1: '$2', expected '$3'"
}
same "it ends with the end token" "$(say --prompt hello)" 'hello there, café!'
same "two samples" "$(say --prompt hello --samples 2 | tail -n 1)" 'hello there, café!'
same "--stop" "$(say --prompt hello --stop re,)" 'hello there,'
same "--stop, in the prompt" "$(say --prompt hello --stop hell)" 'hello there, café!'
same "no prompt" "$(say)" 'hello there, café!'
mkdir "$work/turns"
cp "$texts"/* "$work/turns"
cat >"$work/turns/chat_template.jinja" <<'END'
{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}
END
same "it ends with the turn of its template" "$(texts=$work/turns say --prompt hello | tail -n 1)" ' there, café'
expect "--sample-every" 0 'hello there, caf' "$trainer" --model gpt2 --data "$work/one.jsonl" --tokenizer "$texts" --load "$work/line.safetensors" \
    --seq-len 16 --steps 2 --lr 0 --no-eval --sample-every 1 --temperature 0 --prompt hello --threads 1

# A chat that a Llama learns by heart, with 1 and 2 workers, several chats in a row.
for i in $(seq 40); do echo "$chat"; done >"$work/heart.jsonl"
for workers in 1 2; do
    expect "learn a chat: $workers workers" 0 '40 examples in 10 rows of 96 tokens, 12.5 % of them padding' "$ddprun" -n $workers trainer --model llama --size d2 --data "$work/heart.jsonl" \
        --tokenizer "$texts" --chat-template chatml --seq-len 96 --global-batch 4 --batch-size 2 --steps 40 --lr 0.003 --no-eval --threads 1 \
        --save "$work/chat$workers.safetensors"
done
count=$((count + 1))
cmp -s "$work/chat1.safetensors" "$work/chat2.safetensors" || fail "a chat: other weights with 2 workers"
same "an answer" "$("$trainer" --generate 20 --load "$work/chat1.safetensors" --tokenizer "$texts" --chat-template chatml --prompt Hi --temperature 0 2>&1 | tail -n 1)" hello

# The template beside the tokenizer is used by itself, if it works.
mkdir "$work/own"
cp "$texts/tokenizer.json" "$work/own"
prompt() { "$trainer" --generate 20 --load "$work/chat1.safetensors" --tokenizer "$work/own" --prompt Hi --temperature 0 "$@" 2>&1 | sed -n "$part"; }
cat >"$work/own/chat_template.jinja" <<'END'
{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
END
part='1p;$p'
same "an answer by the tokenizer's own template" "$(prompt)" "user
hello"
same "no template" "$(prompt --chat-template none | head -n 1)" Hi
echo '{{ messages' >"$work/own/chat_template.jinja"
part=1p
same "a template that is damaged" "$(prompt | grep -o 'line 1: {{ without.*')" "line 1: {{ without its }}, or none: the prompt is continued as plain text"

# Tools, by a template in a file, which the cache does not overlook.
cat >"$work/tools.jinja" <<'END'
{% if tools %}<tools>{{ tools | tojson }}</tools>{{ '\n' }}{% endif %}
{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- for call in m.tool_calls or [] %}{{ call.function.name ~ call.function.arguments | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
END
echo '{"tools": "[{\"n\": 1}]", "messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2}}}]}, {"role": "tool", "content": "4"}, {"role": "assistant", "content": "It is 4"}]}' >"$work/tools.jsonl"
tools() {
    "$trainer" --model llama --size d2 --data "$work/tools.jsonl" --tokenizer "$texts" --chat-template "$1" --seq-len 160 --batch-size 1 --steps 1 --no-eval \
        --show-masks 1 2>&1 | sed -n '/^<tools>/,/^- padding/p; /error/p'
}
called_a_tool='<tools>[{"n": 1}]</tools>
<|im_start|>user
2+2?<|im_end|>
<|im_start|>assistant
[add{"a": 2}<|im_end|>]
<|im_start|>tool
4<|im_end|>
<|im_start|>assistant
[It is 4<|im_end|>]'
same "tools" "$(tools "$work/tools.jinja" | sed '$d')" "$called_a_tool"
# ShareGPT's roles for them.
called() {
    echo '{"tools": "[{\"n\": 1}]", "conversations": [{"from": "human", "value": "2+2?"}, {"from": "function_call", "value": '"$1"'}, {"from": "observation", "value": "4"}, {"from": "gpt", "value": "It is 4"}]}' >"$work/tools.jsonl"
}
called '"{\"name\": \"add\", \"arguments\": {\"a\": 2}}"'
same "tools of ShareGPT" "$(tools "$work/tools.jinja" | sed '$d')" "$called_a_tool"
called '"[{\"name\": \"a\", \"arguments\": 1}, {\"name\": \"b\", \"arguments\": 2}]"'
same "two calls" "$(tools "$work/tools.jinja" | sed -n 5p)" '[a1b2<|im_end|>]'
for value in '"add"' '"{}"' '"[]"' '{}' '"[1]"' '"{\"name\": \"a\"}"'; do
    called "$value"
    same "a call that is $value" "$(tools "$work/tools.jinja" | grep -c 'line 1: message 2 is a function_call, whose value must be')" 1
done
called '"{\"name\": \"add\", \"arguments\": {\"a\": 2}}"'
sed -i 's/<tools>/<tools> /' "$work/tools.jinja"
same "another text of the same file" "$(tools "$work/tools.jinja" | head -n 1)" '<tools> [{"n": 1}]</tools>'
expect "tools that are not written" 3 'tools.jsonl: line 1: it has tools, which the chat template chatml does not write' "$trainer" --model llama --size d2 \
    --data "$work/tools.jsonl" --tokenizer "$texts" --chat-template chatml --seq-len 96 --batch-size 1 --steps 1 --no-eval
finish
