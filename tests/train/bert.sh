#!/bin/sh
# SPDX-License-Identifier: MIT
# Encoders of sentences: classes, numbers and pairs are learned from what people have, exported, loaded again, evaluated; and what
# is refused. The losses are compared with transformers' and sentence-transformers' by bert_live.sh, where those are installed.
. "${srcdir:-.}/tests/lib/cli.inc"
cd "$work" || exit 99

{ printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'; printf '%s\n' good bad fine film book a the was '##s' . ,; } >vocab.txt
for i in 1 2 3 4 5 6 7 8; do
    printf '{"text": "The film was good%s", "label": "yes"}\n{"text": "a bad, bad book", "label": "no"}\n' "$i" >>words.jsonl
    printf '%s\n' '{"anchor": "good film", "positive": "the film was good"}' '{"anchor": "bad book", "positive": "the book was bad"}' >>pairs.jsonl
    printf '{"sentence1": "good film", "sentence2": "a fine film", "label": 4.%s}\n{"sentence1": "bad", "sentence2": "Good", "label": 0.5}\n' "$i" >>scores.jsonl
done
{ printf 'id,review,stars\n'; for i in 1 2 3 4; do printf '%s,"good, fine",1\n%s,bad books,0\n' "$i" "$i"; done; } >reviews.csv
new="$trainer --model bert --size tiny --tokenizer vocab.txt --threads 1 --batch-size 4"

# --- what is learned
expect "words as classes" 0 'test accuracy 100.00' $new --data words.jsonl --val words.jsonl --epochs 12 --lr 1e-3 --export words --save words.weights
for file in config.json model.safetensors vocab.txt tokenizer_config.json; do
    [ -f "words/$file" ] || fail "the export has no $file"
done
grep -q '"1": "yes"' words/config.json || fail "the export has no names of classes: $(cat words/config.json)"
expect "pairs" 0 '' $new --data pairs.jsonl --val pairs.jsonl --epochs 4 --lr 1e-3 --log pairs.log --export pairs
grep -q '"path": "1_Pooling"' pairs/modules.json || fail "the export of embeddings has no modules.json"
grep -q '"pooling_mode_mean_tokens": true' pairs/1_Pooling/config.json || fail "the export of embeddings does not say how to pool"
first=$(grep -o '"loss":[^,]*' pairs.log | head -n 1 | cut -d: -f2)
last=$(grep -o '"loss":[^,]*' pairs.log | tail -n 1 | cut -d: -f2)
awk "BEGIN { exit !($last < 0.9 * $first) }" || fail "pairs are not learned: from $first to $last"
expect "two sentences and a number" 0 'loss' $new --data scores.jsonl --epochs 2 --no-eval --export scores
grep -q '"problem_type": "regression"' scores/config.json || fail "the export does not say that it gives a number"
expect "a table with other names" 0 'samples of 8 tokens' $new --data reviews.csv --columns text=review,label=stars --epochs 1 --no-eval

# --- loaded again: the same figures; more training, with adapters merged at the end
expect "an export is evaluated" 0 'test accuracy 100.00' $trainer --load words --data words.jsonl --val words.jsonl --eval-only
printf '{"text": "The film was good"}\n{"text": "bad book"}\n' >open.jsonl
expect "classes by their names" 0 '' $trainer --load words.weights --tokenizer vocab.txt --data open.jsonl --predict out.csv
[ "$(cut -d, -f1,2 out.csv | tr '\n' ' ')" = 'index,prediction 0,yes 1,no ' ] || fail "other predictions: $(cat out.csv)"
expect "it is trained further" 0 '' $trainer --load pairs --data pairs.jsonl --batch-size 4 --steps 3 --no-eval --lora r=4,targets=query,value \
    --export merged,merge
cmp -s pairs/model.safetensors merged/model.safetensors && fail "merged adapters change nothing"
expect "embeddings become a classifier" 0 '' $trainer --load pairs --data words.jsonl --steps 1 --no-eval --save w
expect "a restart goes on" 0 '' $new --data words.jsonl --steps 6 --no-eval --checkpoint run --checkpoint-every 3 --save whole
expect "a restart goes on" 0 '' $new --data words.jsonl --steps 6 --no-eval --resume-from run/step-00000003 --save again
cmp -s whole again || fail "a resumed run ends in other weights"

# --- what is refused
grep -v UNK vocab.txt >without.txt
expect "a vocabulary without [UNK]" 3 'without.txt: the vocabulary of 15 tokens has no \[UNK\]' $new --tokenizer without.txt --data words.jsonl
expect "no vocabulary" 2 'name a vocab.txt or tokenizer.json with --tokenizer' $trainer --model bert --data words.jsonl
expect "adapters alone" 2 'merged with their base: give --export x,merge' $trainer --load pairs --lora r=2 --data pairs.jsonl --export x
expect "adapters of other layers" 2 'of query, key and value' $trainer --load pairs --lora targets=all-linear --data pairs.jsonl
printf '{"text": "a"}\n' >none.jsonl
expect "no label" 3 'none.jsonl:1: no "label"' $new --data none.jsonl --no-eval
printf '{"texts": "a"}\n' >other.jsonl
expect "no text" 3 'other.jsonl:1: no text in it' $new --data other.jsonl --no-eval
printf '{"text": "a", "label": 0}\n{"text": "a", "label": "no"}\n' >mixed.jsonl
expect "words and numbers" 3 'some labels are words, others numbers' $new --data mixed.jsonl --no-eval
printf '{"text": "a", "label": 5}\n' >more.jsonl
expect "a class that the model does not have" 3 'labels from 0 to 5' $trainer --load words --data more.jsonl --no-eval
sed 's/"gelu"/"relu"/' words/config.json >config.json && cp config.json words/config.json
expect "another activation" 3 'hidden_act "relu" is not supported' $trainer --load words --data words.jsonl --no-eval
finish
