#!/bin/sh
# SPDX-License-Identifier: MIT
# What a run shows and writes about itself: lines, the bar on a terminal, files on a full disk.
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"

article="$trainer --model article --data-size 8 --batch-size 2 --epochs 3"

expect "lines of steps" 0 '^step 4/12: loss [0-9.]+, learning rate 0.01, [0-9]+ samples/s, ETA 0:00$' \
    $article --log-every 4
[ "$(grep -c '^step ' "$work/out")" -eq 3 ] || fail "lines of steps: 3 were expected"
expect "lines of epochs" 0 '^epoch 3/3: loss ' $article
grep -q "$(printf '\033')" "$work/out" && fail "lines of epochs: control characters outside a terminal"

# The plan alone: nothing is trained or written. And what was measured, after training.
expect "plan" 0 '^compute  [0-9.]+ FLOP a step, [0-9.]+ FLOP a sample$' \
    $article --plan --log "$work/planned.1" --save "$work/planned.2" --trace "$work/planned.3"
grep -q '^epoch\|^speed' "$work/out" && fail "plan: it trains"
[ -z "$(ls "$work" | grep planned)" ] || fail "plan: it writes"
expect "plan of operations" 0 '^linear +[^ ]+ +2 x 1 +8 +' $article --plan --verbose
expect "plan of two workers" 0 '^workers  2 workers' "$ddprun" -n 2 $article --plan
expect "summary" 0 '^speed    12 steps in [0-9.]+ s, [0-9.]+ [kMG]?FLOP/s of the model$' $article
grep -qE '^memory   [0-9.]+ MB at the peak of a worker: [0-9.]+ k?B as planned, data' "$work/out" ||
    fail "summary: no memory"

# The loss of an evaluation is the mean over samples, however many a worker and a batch have: that of the same samples in
# training, with nothing learned.
grey=$here/tests/data/golden/npy/grey.npy,$here/tests/data/golden/npy/grey-y.npy
for start in "$trainer --batch-size 4" "$ddprun -n 2 trainer --batch-size 2" "$ddprun -n 3 trainer --batch-size 1"; do
    rm -f "$work/log"
    expect "evaluation" 0 '' $start --data "$grey" --val "$grey" --hidden 8 --lr 0 --epochs 1 --threads 1 --log "$work/log"
    sed -n 's/.*"event":"evaluation".*"test_loss":\([^,]*\).*/\1/p' "$work/log" >"$work/evaluation"
    [ -e "$work/trained" ] || sed -n 's/.*"event":"step".*"loss":\([^,]*\).*/\1/p' "$work/log" >"$work/trained"
    near 1 1e-6 "$work/trained" "$work/evaluation" >"$work/near" ||
        fail "evaluation: $start: a loss of $(cat "$work/evaluation"), not $(cat "$work/trained")"
done

# The noise of the gradient: of a batch of several lanes, the same however many workers have them.
rm -f "$work/noise."*
for start in "$trainer" "$ddprun -n 3 trainer --zero 0" "$ddprun -n 4 --oversubscribe trainer --zero 2" "$trainer --mode dp --replicas 2"; do
    rm -f "$work/log"
    expect "noise" 0 '' $start --data "$grey" --no-eval --hidden 8 --batch-size 1 --global-batch 4 --steps 12 --threads 1 --log "$work/log"
    sed -n 's/.*"event":"step".*\("gradient_noise_scale":[^,}]*\).*/\1/p' "$work/log" >"$work/noise.now"
    [ -s "$work/noise.now" ] || fail "noise: $start: none"
    [ -e "$work/noise.first" ] || cp "$work/noise.now" "$work/noise.first"
    cmp "$work/noise.first" "$work/noise.now" || fail "noise: $start: another"
done
rm -f "$work/log"
expect "noise of one lane" 0 '' $article --log "$work/log"
grep -q '"gradient_noise' "$work/log" && fail "noise of one lane: it is known"

# The bar: never wider than the terminal, the more the wider it is, gone at the end.
if command -v script >/dev/null; then
    for columns in 12 40 64 90 300; do
        count=$((count + 1))
        script -qec "stty cols $columns; TERM=xterm $article --epochs 1 --no-shuffle" /dev/null </dev/null |
            tr '\r' '\n' | grep '1/4' | sed "s/$(printf '\033')\[J//" >"$work/bar"
        [ -s "$work/bar" ] || fail "no bar in $columns columns"
        [ "$(wc -L <"$work/bar")" -lt "$columns" ] || fail "a bar of $(wc -L <"$work/bar") in $columns columns"
    done
    grep -qE '^epoch 1/1 \[=+>? *\] 1/4  loss [0-9.]+  [0-9]+ samples/s  lr 0.01  ETA 0:00$' "$work/bar" ||
        fail "a wide bar: $(cat "$work/bar")"
else
    not_run "the bar: there is no script(1)"
fi

# A trace of all ranks, whole and of a run that is killed.
trace() {
    name=$1
    shift
    if command -v python3 >/dev/null; then
        expect "$name" 0 "are in order" python3 "$here/tests/report/trace_check.py" "$@"
    else
        not_run "$name: there is no python3"
    fi
}
expect "trace" 0 "" "$ddprun" -n 3 $article --trace "$work/trace" --bucket-mb 0.001 --zero 0
trace "trace: three ranks" "$work/trace" 3 6 step forward backward loss update linear bucket \
    "finish all-reduces" "read batch"
expect "trace of some steps" 0 "" $article --trace "$work/trace,steps=3-5" --save "$work/weights"
trace "trace: three steps" "$work/trace" 1 3 step forward backward update
expect "trace of dp" 0 "" $article --mode dp --trace "$work/trace"
trace "trace: dp" "$work/trace" 1 6 step forward backward "sum gradients" scatter update
DDP_FAULTS=kill:rank=1,step=20000 expect "trace of a killed run" 137 "" "$ddprun" -n 2 --grace 1 \
    "$trainer" --model article --data-size 8 --batch-size 2 --epochs 15000 --zero 0 --trace "$work/trace,steps=1-1000000" --quiet
trace "trace: killed" "$work/trace" 2 0 step forward backward update bucket
# However a run ends, and whatever was on its way to the file then: it is JSON, unless a signal that kills at once cut a write
# short, which the kernel may do between two pages.
cut=0
long="$trainer --model article --data-size 8 --batch-size 2 --epochs 100000000 --quiet"
for signal in HUP TERM KILL KILL KILL SEGV; do
    rm -f "$work/trace"
    (ulimit -c 0; exec $long --trace "$work/trace,steps=1-100000000") >"$work/ended" 2>&1 &
    pid=$!
    until_true grep -q update "$work/trace"
    sleep "0.0$((pid % 10))" # time: the signal may come at any moment
    kill -s "$signal" $pid
    wait $pid
    if [ $signal != SEGV ] && command -v python3 >/dev/null && ! python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/trace"; then
        cut=$((cut + 1))
        continue
    fi
    trace "trace: SIG$signal" "$work/trace" 1 0 step forward backward update
done 2>/dev/null
[ $cut -lt 3 ] || fail "trace: $cut of 5 that a signal ended are not JSON"
expect "trace that cannot be opened" 4 "$work: cannot open" $article --trace "$work"
expect "trace on a full disk" 0 "/dev/full: cannot write to it" $article --trace /dev/full
expect "steps without a trace" 2 "must begin with the path" $article --trace ,steps=1-2
expect "no steps" 2 "takes the first and the last step" $article --trace "$work/trace,steps=5-2"

# Nothing of these ends the training; each is reported once.
expect "a full disk" 0 'log|/dev/full: cannot write' $article --log /dev/full
[ "$(grep -c 'cannot write' "$work/out")" -eq 1 ] || fail "a full disk is told more or less than once"
expect "a log that is a directory" 4 "$work: cannot open" $article --log "$work"
if grep -q 'define HAVE_PROTOBUF_C 1' config.h; then
    echo >"$work/file"
    expect "event files in a file" 4 "$work/file.*: cannot" $article --tensorboard "$work/file"
    expect "event files below a file" 4 "cannot make this directory" $article --tensorboard "$work/file/x"
else
    expect "event files without protobuf-c" 9 "without protobuf-c" $article --tensorboard "$work/x"
fi
finish
