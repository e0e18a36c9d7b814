#!/bin/sh
# SPDX-License-Identifier: MIT
# Names and files from others that hold control characters: nothing of them reaches the terminal as it is.
. "${srcdir:-.}/tests/lib/cli.inc"

esc=$(printf '\033')
bell=$(printf '\007')
c1=$(printf '\302\233') # U+009B in UTF-8, which begins what ESC [ begins
word="$esc]0;x$bell${c1}31m"
shown='\\x1b\]0;x\\x07\\u009b31m'
t="$trainer --device cpu"

# clean NAME CODE PATTERN COMMAND...: as expect, and no byte of what is shown can control a terminal
clean() {
    expect "$@"
    if LC_ALL=C grep -qe "$esc" -e "$bell" -e "$c1" -e "$(printf '\177')" -e "$(printf '\r')" "$work/out"; then
        fail "$1: control characters are shown:"
        cat -v "$work/out"
    fi
}

# --- what files say
i=0
while [ $i -lt 40 ]; do
    echo "the quick brown fox"
    i=$((i + 1))
done >"$work/text"
config='"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 256, "n_positions": 64'
printf '{%s, "activation_function": "%s"}' "$config" '\u001b]0;x\u0007\u009b31m' >"$work/config.json"
gpt2="$t --model gpt2 --config $work/config.json --data $work/text --seq-len 8"
clean "config.json" 3 "$shown" $gpt2
printf '{"n_layer": 1, "x": %s}' "$word" >"$work/config.json"
clean "bad config.json" 3 'config.json: ' $gpt2

# safetensors HEADER BYTES: to the file $work/weights
safetensors() {
    length=$(printf %s "$1" | wc -c)
    printf "\\$(printf %03o $((length & 255)))\\$(printf %03o $((length >> 8)))\\0\\0\\0\\0\\0\\0" >"$work/weights"
    printf %s "$1" >>"$work/weights"
    head -c "$2" /dev/zero >>"$work/weights"
}
head -c 64 /dev/zero >"$work/zeros"
npy() {
    head=$(printf "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" "$1" "$2")
    length=$(printf %s "$head" | wc -c)
    printf "\\223NUMPY\\001\\000\\$(printf %03o $((length + 1)))\\000%s\\n" "$head"
}
{ npy '<f4' '4, 4' && cat "$work/zeros"; } >"$work/x.npy"
{ npy '|u1' '4,' && printf '\0\1\0\1'; } >"$work/y.npy"
numbers="--data $work/x.npy,$work/y.npy --hidden none --steps 1 --no-eval"
clean "numbers" 0 '^model  ' $t $numbers
odd='\u001b]0;x\u0007\u009b31m'
safetensors '{"'"$odd"'":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 4
clean "a tensor's name" 3 'weights: ' $t $numbers --load "$work/weights"
safetensors '{"w":{"dtype":"'"$odd"'F32","shape":[1],"data_offsets":[0,4]}}' 4
clean "a tensor's type" 3 'weights: ' $t $numbers --load "$work/weights"
safetensors '{"__metadata__":{"ddprun.model":"gpt2 '"$odd"'=1"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 4
clean "a model's description" 3 'weights' $t --generate 3 --load "$work/weights"
{ npy "$word" '4, 4' && cat "$work/zeros"; } >"$work/bad.npy"
clean "the type of an array" 3 'bad.npy: ' $t --data "$work/bad.npy,$work/y.npy"

# --- names, in messages and in what is printed
odd="$work/a${word}b$(printf '\n\177\351')c"
mkdir "$odd"
all="$shown"'b\\x0a\\x7f\\xe9c'
clean "an empty directory" 4 "$all" $t --data "$odd"
clean "an option" 2 "$shown" $t --data x "--$word"
clean "a value" 2 "$shown" $t --epochs "$word"
cp "$work/x.npy" "$work/y.npy" "$odd"
set -- $t --hidden none --steps 1 --no-eval --data "$odd/x.npy,$odd/y.npy"
clean "what is printed" 0 "saved .*$all/w" "$@" --save "$odd/w" --checkpoint "$odd/c" --log "$odd/log"
for line in "data     .*$all" "checkpoint .*$all/c/step-"; do
    grep -qE "$line" "$work/out" || fail "what is printed does not match: $line"
done
clean "loaded" 0 "model .* from .*$all/w" "$@" --load "$odd/w"
clean "resumed" 0 "resumed from .*$all/c/step-" "$@" --checkpoint "$odd/c" --resume
clean "nothing to resume" 0 "no checkpoint in .*$all/d yet" "$@" --checkpoint "$odd/d" --resume
clean "export" 0 "exported .*$all/e.bin" $t --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 8 --steps 1 \
    --no-eval --data "$work/text" --export "$odd/e.bin"
[ "$(tr -d '\n\t -~' <"$odd/log" | wc -c)" -eq 0 ] || fail "the log holds more than plain characters"
if command -v python3 >/dev/null; then
    python3 -c 'import json,sys; [json.loads(line) for line in open(sys.argv[1], "rb")]' "$odd/log" || fail "--log: no JSON"
fi
finish
