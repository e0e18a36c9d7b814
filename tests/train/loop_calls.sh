#!/bin/sh
# SPDX-License-Identifier: MIT
# A loop whose author was careless (tests/train/loop_calls.c): calls at the wrong time, statuses that are thrown away, a rank that
# leaves, ranks that differ. All ranks end, with the status of what was first, and say why.
. "${srcdir:-.}/tests/lib/cli.inc"
client=$top/loop_calls
export TSAN_OPTIONS="${TSAN_OPTIONS:-} atexit_sleep_ms=0" # ddprun waits for a second for the rank that began it
cd "$work" || exit 99
options="--device cpu --batch-size 4 --global-batch 8 --threads 1 --steps 6 --eval-every 3 --lr 0.1"

# calls TITLE CODE PATTERN CALLS OPTION...: alone and on two workers
calls() {
    title=$1 ends=$2 says=$3 list=$4
    shift 4
    rm -rf checkpoints
    expect "$title" "$ends" "$says" "$client" "$list" $options "$@"
    pair "$title" "$ends" "$says" "$list" "$@"
}
pair() {
    title=$1 ends=$2 says=$3 list=$4
    shift 4
    rm -rf checkpoints
    expect "$title, 2 workers" "$ends" "$says" "$ddprun" -n 2 "$client" "$list" $options "$@"
}
# has LINE...: whole lines of the last output
has() {
    for line; do
        grep -qE "^(\[[01]\]: )?$line\$" out || fail "$title: no line \"$line\": $(cat out)"
    done
}

# --- at the wrong time ---
calls "before it is open" 0 'error: the run is not open: call ddp_train_open\(\) first' \
    "step evaluate checkpoint save:x get:a.weight put:a.weight=1 gradients:a.weight left close:0"
has '0: (step|evaluate|checkpoint|save:x|get:a.weight) -1' '0: left 0' '0: close:0 0'
calls "twice, and after the end" 0 'error: the run is open already' "open open all close step left close:0 open step close"
has '0: 6 calls of ddp_train_step\(\)' '0: step -1' '0: step 0'
calls "no file, no step left" 2 'error: ddp_train_save\(\): no file is named' "open all save close:0 open all step close"
has '0: save -1' '0: close:0 0' '.*error: all 6 steps are done'
calls "two runs at once" 0 '' "use:0 open use:1 open use:0 step use:1 all use:0 all close use:1 close"
[ "$(grep -c ': 6 calls of' out)" = 2 ] && [ "$(grep -c ': 5 calls of' out)" = 2 ] || fail "two runs: $(cat out)"
calls "evaluated before a step, and often" 0 '0: 40 samples, best 0, since 0' \
    "open evaluate evaluate step evaluate evaluate evaluate left step close:0" --patience 2
has '0: 40 samples, best 1, since 2' '0: left 0'

# --- statuses that are thrown away ---
calls "a save that fails" 4 '/no/where: cannot write' "open step save:/no/where step close:0"
calls "... and another status" 4 '/no/where: cannot write' "open step save:/no/where r0:close:-1 r1:close"
calls "... and a stop" 4 '/no/where: cannot write' "open step save:/no/where close:-10"
AFTER_STEP="save:/no/where" calls "... in a hook" 4 '/no/where: cannot write' "open all close:0"
has '0: 2 calls of ddp_train_step\(\)' '0: close:0 -3'
calls "opening that fails" 2 '--val-split: own data has a test part' "open all close:0" --val-split 0.1
calls "... and a stop" 2 '--val-split: own data has a test part' "open close:-10" --val-split 0.1
AFTER_STEP="r0:raise:15" calls "stopped" 75 '0: close:0 -10' "open step step all step get:a.weight close:0" --checkpoint checkpoints
has '0: get:a.weight -10'
[ -e checkpoints/step-00000002/model.safetensors ] || [ -e checkpoints/step-00000003/model.safetensors ] || fail "stopped: no checkpoint"
AFTER_STEP="r0:raise:15" calls "stopped, and its own failure" 4 '' "open step step all close:-3" --checkpoint checkpoints

# --- a rank that leaves ---
exits='loop_calls: (rank 1: )?error: the program exits after step [0-9]+ without ddp_train_close\(\)'
pair "exits" 1 "$exits" "open step r1:exit:0 step step step step close"
AFTER_STEP=r1:exit:0 pair "exits in a hook" 1 "$exits" "open all close"
READ_EXITS=3 pair "exits in a read function" 1 "$exits" "open all close"
READ_EXITS=60 pair "... of its loader" 1 "$exits" "open all close"
pair "exits with a code" 3 "$exits" "open step r1:exit:3 step step step step close"
NO_DESTROY=1 expect "never closed, alone" 0 'exits after step 1 without' "$client" "open step" $options
NO_DESTROY=1 pair "never closed" 1 '(both workers|rank [01] .*) exited with code 0 without closing the job' "open step"
calls "a child exits" 0 '1 calls of' "open step fork all close" --steps 2
! grep -q 'the program' out || fail "a child exits: $(cat out)"
calls "destroyed" 0 'error: the program destroys its training run after step 1 without ddp_train_close\(\)' "open step"
pair "destroyed by one" 6 'error: the program destroys its training run' "open step r1:destroy r0:all r0:close"
expect "failed, and destroyed" 4 '/no/where' "$client" "open step save:/no/where" $options
! grep -q 'the program' out || fail "failed, and destroyed: $(cat out)"

# --- ranks that differ ---
OTHER=options pair "options" 2 'error: --seed is not the same on rank 1 as on rank 0: start all ranks' "open all close"
OTHER=model pair "model" 2 'error: the model is not the same on rank 1 as on rank 0: all ranks must' "open all close"
OTHER=samples pair "samples" 2 'error: the data are not the same on rank 1 as on rank 0: all ranks must' "open all close"
OTHER=count pair "count" 2 'error: the data are not the same on rank 1' "open all close"
pair "rates" 8 'error: ranks have set different learning rates: from 0.1 to 0.2' "open step rate:0.1 r1:rate:0.2 step close"
pair "a rate on one" 8 'error: collective' "open step r1:rate:0.2 step close"
for rate in -1 inf -inf; do
    calls "rate $rate" 2 "error: the program has set the learning rate $rate: it must be" "open step rate:$rate step close"
done
calls "rate 0" 0 'b.bias\[0\] ' "open rate:0 step get:b.bias step get:b.bias close"
[ "$(grep -c "$(grep -m 1 -o 'b.bias.*' out | sed 's/\[/\\[/')" out)" = 4 ] || fail "rate 0: the weights move: $(cat out)"

# --- NaN, and the newest weights in the checkpoint ---
calls "NaN put in" 10 'the loss is nan at step 2: first in the weights a.weight' "open step put:a.weight=nan step close"
calls "put after a checkpoint" 0 '' "open step checkpoint put:a.weight=3 checkpoint close:0" --checkpoint checkpoints
expect "... and resumed" 0 '0: a.weight\[0\] 0x1.8p\+1' "$client" "open get:a.weight close" $options --checkpoint checkpoints --resume

calls "the best is known" 0 'best 1, since 1' "open rate:0 step evaluate step evaluate close" --checkpoint checkpoints
expect "... and not judged again" 0 'best 1, since 1' "$client" "open evaluate evaluate close" $options --checkpoint checkpoints --resume
! grep -q 'since 2' out || fail "the best is known: $(cat out)"

# --- an operation's sizes ---
for size in SCRATCH=-1 SCRATCH=-100 SAVED=-1 SAVED=-4096; do
    expect "$size" 2 "error: model: twice: saved_bytes is [0-9]+ and scratch_bytes [0-9]+: up to" env $size "$client" "open close" $options
done
expect "SAVED, too large" 5 'out of memory' env SAVED=0x800000000000 "$client" "open close" $options
NO_OPERATION=1 calls "no operation" 2 'struct ddp_custom_op: the program gives NULL' "open close"

# --- a builder's mistakes ---
# builder FAULT PATTERN
builder() { FAULT=$1 calls "builder: $1" 2 "error: $2" "open close"; }
builder unfinished "model: the program's builder has returned without ddp_graph_finish\\(\\)"
builder rows "model: input 0 must be the samples: DDP_F32, 4 rows of [0-9]+ numbers, as the shape has it; x is DDP_F32, 3 rows"
builder unread 'model: no operation reads the input y'
builder layer 'model: a layer on x has no name'
builder input 'model: an input or parameter has no name'
builder dims 'model: tensor [a-z]+ has an impossible shape: 0 dimensions'
builder name 'ddp_train_set_model: the name "two words" is not one word'

finish
