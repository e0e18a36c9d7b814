#!/bin/sh
# SPDX-License-Identifier: MIT
# Options from a file: the same run as from the command line, which wins; and what is refused, with its line.
. "${srcdir:-.}/tests/lib/cli.inc"
seq 4000 >"$work/numbers.txt"
seq 100 200 >"$work/others.txt"
cat >"$work/run.yaml" <<END
# All that is to be known of a run.
model: gpt2
layers: 1
"heads": 1
channels: 8
seq_len: 16      # the same as seq-len
data:
  - $work/numbers.txt:2
  - '$work/others.txt:1'
optimizer: [adamw, beta1=0.8]
batch-size: 4
lr: 1e-2
steps: 6
threads: 1
eval: false
resume: false
seed: 18446744073709551615
END
t="$trainer --threads 1 --quiet"
same() {
    count=$((count + 1))
    cmp -s "$work/$1" "$work/$2" || fail "$3: other weights"
}
expect "a file" 0 '' "$trainer" --config "$work/run.yaml" --save "$work/file"
expect "the same on the command line" 0 '' $t --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 16 --data "$work/numbers.txt:2,$work/others.txt:1" \
    --optimizer adamw,beta1=0.8 --batch-size 4 --lr 0.01 --steps 6 --no-eval --seed 18446744073709551615 --save "$work/line"
same file line "a file"
expect "a file, several workers" 0 '' "$ddprun" -n 2 trainer --config "$work/run.yaml" --batch-size 2 --save "$work/workers"
expect "the command line wins" 0 '^steps +[0-9]+ \(.*learning rate 0.1 ' "$trainer" --lr 0.1 --optimizer adamw --epochs 2 --config "$work/run.yaml" --plan 2>"$work/err" ||
    cat "$work/err"

# A log has each option, so that a step can be computed again without the file.
cp "$work/run.yaml" "$work/gone.yml"
expect "a log" 0 '' "$trainer" --config "$work/gone.yml" --log "$work/log" --hash-every 6 --checkpoint "$work/kept"
rm "$work/gone.yml"
grep -q '"options":\[.*"--lr=1e-2".*"--no-eval"' "$work/log" || fail "the log does not have the options"
expect "verify without the file" 0 'step 6' "$trainer" verify "$work/log" --checkpoint "$work/kept"

# A line is added to a file that is right but for it.
line() {
    what=$1 message=$2 added=$3
    { cat "$work/run.yaml"; printf '%b\n' "$added"; } >"$work/wrong.yaml"
    expect "$what" "${4:-2}" "error: .*wrong.yaml: line 18: $message" "$trainer" --config "$work/wrong.yaml"
}
line twice 'lr is also in line 12: give it once' 'lr: 5' 3
line "twice, with another dash" 'batch-size is given twice' 'batch_size: 5'
line misspelt '--momentun: unknown option; did you mean --momentum' 'momentun: 0.5'
line "a name of TRL" 'learning_rate is what others call it: here it is lr' 'learning_rate: 0.5'
line "a name of axolotl" 'micro_batch_size is what others call it: here it is batch-size' 'micro_batch_size: 2'
line "an option that is gone" '--beta1 was removed: use --optimizer' 'beta1: 0.5'
line "a negation" '--no-shuffle: unknown option' 'no-shuffle: true'
line "an option in the name" '--lr=3: unknown option' 'lr=3: 4'
line "a part" '--packing ...,long: unknown option; see' 'packing ...,long: cut'
line "a flag with a number" 'drop-last: must be true or false' 'drop-last: 1'
line "a flag as a string" 'drop-last: must be true or false' 'drop-last: "true"'
line "a path that is true" 'save: takes FILE, not true' 'save: true'
line "no value" 'it has no value' 'save:'
line "null" 'it has no value' 'save: null'
line "not a number" '--keep x' 'keep: x'
line "out of range" '--warmup-steps -1' 'warmup-steps: -1'
line "a file in a file" 'config: one file of options names no other' "config: $work/run.yaml"
line "an anchor" 'anchors and tags' 'save: &x a' 3
line "an alias" 'an alias' 'save: *x' 3
line "a tag" 'anchors and tags' 'save: !!str a' 3
line "a mapping" 'a value or a list must stand here' 'optimizers: {name: adamw}' 3
line "a list of lists" 'a list holds values alone' 'columns: [[a]]' 3
line "an empty list" 'an empty list' 'columns: []' 3
line "a zero" 'a zero in a string' 'save: "a\\0b"' 3
line "a second document" 'a second document' '---' 3
line "no YAML" 'no YAML: ' '- a' 3
yes 'a: b' | head -c 70000 >"$work/large.yml"
expect "too large" 3 'error: .*large.yml' "$trainer" --config "$work/large.yml"
expect "no file" 4 'error: .*none.yaml' "$trainer" --config "$work/none.yaml"
finish
