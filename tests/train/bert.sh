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
expect "pairs" 0 '' $new --data pairs.jsonl --val pairs.jsonl --epochs 4 --lr 1e-3 --log pairs.log --export pairs --save pairs.weights
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
expect "adapters alone, for PEFT" 0 '' $trainer --load words --data words.jsonl --batch-size 4 --steps 3 --no-eval --lora r=4 --export adapters
for said in '"modules_to_save": \[' '"task_type": "SEQ_CLS"' '"base_model_name_or_path": "words"'; do
    tr -s '\n' ' ' <adapters/adapter_config.json | grep -q "$said" || fail "adapter_config.json does not say $said"
done
for tensor in bert.encoder.layer.1.attention.self.value.lora_B.weight classifier.bias; do
    grep -aq "base_model.model.$tensor" adapters/adapter_model.safetensors || fail "the adapters have no $tensor"
done
expect "another directory is not overwritten" 2 'something other than adapters' $trainer --load words --data words.jsonl --lora r=4 --export pairs

# --- embeddings: of texts alone, whatever stands beside them
expect "embeddings as an array" 0 '' $trainer --load pairs --data open.jsonl --predict open.npy
[ "$(head -c 128 open.npy | tr -d '\0' | grep -ao "(2, 128)")" = '(2, 128)' ] || fail "the array is not of 2 x 128 numbers"
expect "embeddings as columns" 0 '' $trainer --load pairs --data words.jsonl --predict texts.csv
head -n 1 texts.csv | grep -q '^index,output0,.*,output127$' || fail "other columns: $(head -c 200 texts.csv)"
expect "of saved weights" 0 '' $trainer --load pairs.weights --tokenizer vocab.txt --data words.jsonl --predict again.csv
cmp -s texts.csv again.csv || fail "an export gives other embeddings than the saved weights"
cp -r pairs unit && sed 's/^\]$/,{"idx": 2, "type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}]/' pairs/modules.json >unit/modules.json
expect "of length 1" 0 '' $trainer --load unit --data open.jsonl --predict unit.csv
awk -F, 'NR == 2 { for (i = 2; i <= NF; i++) sum += $i * $i; exit !(sum > 0.99999 && sum < 1.00001) }' unit.csv || fail "they are not of length 1"
expect "it stays so" 0 '' $trainer --load unit --data pairs.jsonl --batch-size 4 --steps 1 --no-eval --export unit2
grep -q 'models.Normalize' unit2/modules.json || fail "an export forgets that lengths are 1"
expect "what a directory holds" 0 'gives       embeddings: the mean of the tokens, of length 1' $trainer info unit
expect "what a directory holds" 0 'gives       2 classes' $trainer info words
expect "embeddings become a classifier" 0 '' $trainer --load pairs --data words.jsonl --steps 1 --no-eval --save w
expect "a restart goes on" 0 '' $new --data words.jsonl --steps 6 --no-eval --checkpoint run --checkpoint-every 3 --save whole
expect "a restart goes on" 0 '' $new --data words.jsonl --steps 6 --no-eval --resume-from run/step-00000003 --save again
cmp -s whole again || fail "a resumed run ends in other weights"

# --- what is refused
grep -v UNK vocab.txt >without.txt
{ cat vocab.txt; printf 'x\nfilm\n'; } >twice.txt
expect "a vocabulary without [UNK]" 3 'without.txt: the vocabulary of 15 tokens has no \[UNK\]' $new --tokenizer without.txt --data words.jsonl
expect "no vocabulary" 2 'name a vocab.txt or tokenizer.json with --tokenizer' $trainer --model bert --data words.jsonl
expect "a token twice" 3 'twice.txt:18: the token "film" is in line 9 already' $new --tokenizer twice.txt --data words.jsonl
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
