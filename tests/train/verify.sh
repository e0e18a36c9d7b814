#!/bin/sh
# SPDX-License-Identifier: MIT
# trainer verify: the hashes in a log are the same in every mode, steps are computed again from checkpoints, and what is not as
# it was is named: weights, data, options, lines of the log. The commands of ddprun-verify(7) run as they stand.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/page.inc"
page=$here/man/ddprun-verify.7
make_data
mv text book.txt

# hashes LOG: step and hash of each line that has one, with the tensors'
hashes() {
    sed -n 's/.*"event":"hash","step":\([0-9]*\),.*\("weights":.*\),"chain".*/\1 \2/p' "$1"
}

# --- the page ---
blocks file >names
while read -r file; do
    mv block-1 "$file" # there is one
done <names
[ -s hash.py ] || fail "the page has no program"
blocks sh >names
number=0
while read -r _; do
    number=$((number + 1))
    if grep -q python3 "block-$number" && ! python3 -c '' 2>err; then
        not_run "the Python of the page: python3 is not installed"
        continue
    fi
    expect "$(head -n 1 "block-$number")" 0 '' sh -e "block-$number"
    ! grep -q verify "block-$number" || grep -qE '^run.jsonl: equal after step [0-9]+, computed again from run/step-' out ||
        fail "block $number: no result"
done <names
[ "$number" -eq 4 ] || fail "the page has $number blocks of commands, not 4"

# --- every mode, any number of workers ---
small='--model gpt2 --size d2 --data book.txt --seq-len 16 --batch-size 2 --global-batch 8 --no-eval -q'
train() { # train LOG COMMAND...
    log=$1
    shift
    # shellcheck disable=SC2086 # words
    expect "$log" 0 '' "$@" $small --log "$log" --hash-every 2
}
train accum trainer --steps 5
hashes accum >want
[ "$(cut -d ' ' -f 1 want | tr '\n' ' ')" = '2 4 5 ' ] || fail "hashes are not of steps 2, 4 and 5"
train two ddprun -n 2 trainer --steps 5 --zero 0
train four ddprun -n 4 --oversubscribe trainer --steps 5
train threads trainer --steps 5 --mode dp --replicas 2
train stages trainer --steps 5 --mode pipeline
train pipes ddprun -n 4 --oversubscribe trainer --steps 5 --mode pipeline --stages 2
for log in two four threads stages pipes; do
    count=$((count + 1))
    hashes $log | cmp -s - want || fail "$log: other hashes than those of one worker"
done
# A tensor of several blocks: each worker has some.
expect 'a large tensor' 0 '' ddprun -n 2 trainer --model mlp --hidden 5000 --data images --steps 1 --no-eval -q --log large --hash-every 1 \
    --save large.safetensors
if python3 -c '' 2>err; then
    count=$((count + 1))
    hashes large | grep -qF "$(python3 hash.py large.safetensors)" || fail "a tensor of several blocks has another hash in Python"
fi
# Of as many shards as workers, which is no power of two.
# shellcheck disable=SC2086
expect 'six shards' 0 '' ddprun -n 3 --oversubscribe trainer $small --global-batch 12 --steps 2 --log six --hash-every 1
expect 'six shards, on one worker' 0 'equal after step 2' trainer verify six

# --- what runs have ---
train bf16 trainer --dtype bf16 --steps 3
expect 'bf16' 0 'equal after step 3, computed again from the beginning; 3 hashes' ddprun -n 2 trainer verify bf16
expect 'the first hash' 0 'equal after step 2, .*; 2 hashes' trainer verify bf16 --step 2
# shellcheck disable=SC2086
expect 'the base of adapters' 0 '' trainer --model llama --size d2 --data book.txt --seq-len 16 --batch-size 2 --steps 1 -q --no-eval --export base
expect 'adapters' 0 '' ddprun -n 2 trainer --load base --lora r=2 --data book.txt --seq-len 16 --batch-size 2 --steps 6 -q --no-eval \
    --log lora --hash-every 3 --checkpoint lora.d --checkpoint-every 3
expect 'adapters, from a checkpoint' 0 'equal after step 6, computed again from lora.d/step-00000003; 2 hashes' trainer verify lora
expect 'adapters, in a pipeline' 0 'equal after step 3, computed again from the beginning' trainer verify lora --step 3 --mode pipeline
# shellcheck disable=SC2086
expect 'local steps' 0 '' ddprun -n 2 trainer $small --steps 8 --sync-every 3 --log local --hash-every 1 --checkpoint local.d --checkpoint-every 2
if python3 -c '' 2>err; then
    count=$((count + 1))
    hashes local | grep '^4 ' | grep -qF "$(python3 hash.py local.d/step-00000004/model.safetensors)" ||
        fail "the hash between two averages is not that of the checkpoint's weights"
fi
expect 'local steps, from between two averages' 0 'equal after step 5, computed again from local.d/step-00000004; 2 hashes' \
    ddprun -n 2 trainer verify local --step 5
expect 'local steps, to the last average' 0 'equal after step 8' ddprun -n 2 trainer verify local
expect 'local steps on others' 2 'the weights depend on the number of workers: .* on 2' ddprun -n 4 --oversubscribe trainer verify local --step 1

# Two runs, the second longer than it was planned.
# shellcheck disable=SC2086
expect 'a run' 0 '' trainer $small --steps 4 --log longer --hash-every 2 --checkpoint longer.d --checkpoint-every 2 --keep 0
# shellcheck disable=SC2086
expect 'made longer' 0 '' ddprun -n 2 trainer $small --steps 8 --log longer --hash-every 2 --checkpoint longer.d --checkpoint-every 2 --keep 0 \
    --resume --extend
expect 'the longer run' 0 'equal after step 8, computed again from longer.d/step-00000006; 2 hashes' trainer verify longer
expect 'its first part' 0 'equal after step 6, computed again from longer.d/step-00000004; 2 hashes' ddprun -n 2 trainer verify longer --step 6
expect 'the run before' 0 'equal after step 4, computed again from longer.d/step-00000002' trainer verify longer --step 4
mv longer.d moved.d
expect 'checkpoints that were moved' 0 'equal after step 8, computed again from moved.d/step-00000006' trainer verify longer --checkpoint moved.d
[ "$(find moved.d -name 'step-*' | wc -l)" -eq 4 ] || fail "verify wrote a checkpoint, or removed one"
mv moved.d longer.d
mv longer.d/step-00000004 aside
expect 'no checkpoint' 2 'longer: cannot compute step 6 again: its run was resumed after step 4, and longer.d has no checkpoint' \
    trainer verify longer --step 6
expect 'a named one' 0 'computed again from aside' trainer verify longer --step 6 --resume-from aside

# A kill leaves half a line; what is before and after it is used.
head -c "$(($(wc -c <bf16) - 40))" bf16 >killed
expect 'a log that was cut' 0 'equal after step 3' trainer verify killed
train killed trainer --dtype bf16 --steps 3
expect 'a log that was cut and continued' 0 'equal after step 3' trainer verify killed

# --- other weights ---
# The same options, other weights: nothing but the hashes can tell.
again="$small --steps 6 --checkpoint-every 2 --keep 0"
# shellcheck disable=SC2086
expect 'other weights' 0 '' trainer $small --steps 1 --seed 5 --save other.safetensors
# shellcheck disable=SC2086
expect 'a run with them' 0 '' trainer $again --checkpoint other.d --load other.safetensors
# shellcheck disable=SC2086
expect 'a run' 0 '' trainer $again --checkpoint good.d --log good --hash-every 3
rm -r good.d/step-00000004
expect 'the run' 0 'equal after step 6, computed again from good.d/step-00000002; 2 hashes' trainer verify good
cp -r other.d/step-00000004 good.d
expect 'a wrong checkpoint' 11 'good: the weights after step 6 are not those of the log; the first of 28 tensors that differs is h.0.attn.c_attn.bias, element 0: [-0-9.e]+ in good.d/step-00000006, and now' \
    trainer verify good
expect 'on two workers' 11 'rank 0: error: good: the weights after step 6 are not' ddprun -n 2 trainer verify good
# The log has the odd hash, and the checkpoint of that step what is computed; its chains agree.
if python3 -c '' 2>err; then
    cat >forge.py <<'END'
import hashlib, json, sys
chain = ""
for line in open(sys.argv[1]):
    entry = json.loads(line)
    del entry["chain"]
    if entry["event"] == "run":
        entry["versions"]["ddprun"] = "0.0.1"
    if entry["event"] == "hash" and entry["step"] == 6:
        entry["weights"] = "0" * 64
        entry["tensors"][1] = "0" * 16
    text = json.dumps(entry, separators=(",", ":"))[:-1]
    chain = hashlib.sha256((chain + text).encode()).hexdigest()
    print(f'{text},"chain":"{chain}"}}')
END
    # shellcheck disable=SC2086
    expect 'a run' 0 '' trainer $again --checkpoint forged.d --log true --hash-every 3
    python3 forge.py true >forged
    expect 'a forged hash' 11 'the first of 28 tensors that differs is h.0.attn.c_attn.weight, which is the same in forged.d/step-00000006' \
        trainer verify forged
    expect 'hashes before it' 0 'equal after step 3' trainer verify forged --step 3
    expect 'another version' 0 'warning: forged was written by version 0.0.1, and this is' trainer verify forged --step 3
fi
rm -r good.d
expect 'other weights at first' 11 'the weights at first are not those of the log' trainer verify good --step 3 --load other.safetensors

# --- other runs, and logs that are none ---
tr 'a-z' 'b-za' <book.txt >other.txt
expect 'other data' 2 'another run than that of the log: fingerprint of the data [0-9a-f]+ \(now' trainer verify bf16 --data other.txt
expect 'other data, with a checkpoint' 2 'longer.d/step-0000000[0-9]: it was written by another run than this: fingerprint of the data' trainer verify longer --data other.txt
expect 'another batch and seed' 2 'than that of the log: seed 0 \(now 3\), shards 4 \(now 2\), .*batch size 2 \(now 4\)' \
    trainer verify bf16 --batch-size 4 --seed 3
sed 's/"learning_rate":0.0006/"learning_rate":0.0007/' bf16 >edited
expect 'an edited run' 3 'edited:1: this line, or one before it, was edited' trainer verify edited
sed 3d bf16 >edited
expect 'a line that is missing' 3 'edited:3: this line, or one before it, was edited or is missing' ddprun -n 2 trainer verify edited
expect 'no hash of the step' 2 'no hash of the weights after step 1; the nearest are of step 2' trainer verify bf16 --step 1
expect 'a step that is not there' 2 'after step 9; the nearest are of step 3' trainer verify bf16 --step 9
# shellcheck disable=SC2086
expect 'a log without hashes' 0 '' trainer $small --steps 1 --log plain
expect 'no hashes' 2 'plain: it has no hashes of weights: train with --hash-every' trainer verify plain
expect 'no log' 4 'nowhere: cannot' trainer verify nowhere
expect 'a text' 3 'book.txt:2: this is not a line of a log' trainer verify book.txt
expect 'no operand' 2 'verify: name the log' trainer verify --step 3
expect 'a training with --step' 2 'step belongs to trainer verify LOG' trainer --step 3
for other in --plan '--save x' '--eval-only --load x' '--generate 3' '--hash-every 2 --log x' '--resume --checkpoint x'; do
    # shellcheck disable=SC2086
    expect "verify $other" 2 'verify computes steps of an earlier run again, and does nothing else' trainer verify bf16 $other
done
expect 'hashes without a log' 2 'hash-every needs --log' trainer --hash-every 3
finish
