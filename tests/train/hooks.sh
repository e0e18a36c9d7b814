#!/bin/sh
# SPDX-License-Identifier: MIT
# A program's hooks: when they are called, alone and on two workers, in ddp_train_run() and in a loop of its own; that a
# failure ends the run on all ranks, that bad calls are refused, and that what they keep in checkpoints comes back.
. "${srcdir:-.}/tests/lib/cli.inc"
make_data
client=$top/hooks_client
# What all ranks have seen: one line if it is the same.
sum() { sed -n 's/^\(\[[0-9]*\]: \)*\(sum [^,]*\),.*/\2/p' "$work/out" | sort -u; }
options="--data $work/images --device cpu --batch-size 2 --global-batch 8 --hidden 8 --threads 1 --steps 6 --eval-every 3"
set -- $options --quiet

calls='before 1
after 1: norm known
before 2
after 2: norm known
save
before 3
after 3: norm known
evaluated 64 samples
before 4
after 4: norm known
save
before 5
after 5: norm known
before 6
after 6: norm known
evaluated 64 samples
save'
for how in run loop; do
    rm -rf "$work/dir"
    expect "$how" 0 'sum 0x' "$client" "$how" "$@" --checkpoint "$work/dir" --checkpoint-every 2
    [ "$(grep -v '^sum' "$work/out")" = "$calls" ] || fail "$how: other calls: $(cat "$work/out")"
done
whole=$(sum)
expect "2 workers" 0 'sum 0x' "$ddprun" -n 2 "$client" run "$@"
[ "$(sum)" = "$whole" ] || fail "2 workers: $(sum), alone $whole"
for how in run loop; do
    expect "2 stages, $how" 0 'sum 0x' "$ddprun" -n 2 "$client" "$how" "$@" --mode pipeline
    [ "$(sum)" = "$whole" ] || fail "2 stages, $how: $(sum), alone $whole"
done
expect "dp" 0 'sum 0x' "$client" loop "$@" --mode dp --replicas 2
[ "$(sum)" = "$whole" ] || fail "dp: $(sum), alone $whole"

# Stopped and resumed, on another number of workers too: the program's state and the rate that it has set.
export HALVE_AFTER=2
expect "halved" 0 'sum 0x' "$client" run "$@" --save "$work/halved"
halved=$(sum)
[ "$halved" != "$whole" ] || fail "halved: the rate has no effect"
for how in run loop; do
    rm -rf "$work/dir"
    STOP_AFTER=4 expect "$how, stopped" 75 'save' "$client" "$how" "$@" --checkpoint "$work/dir"
    expect "$how, resumed" 0 'restored 8 bytes' "$ddprun" -n 2 "$client" "$how" "$@" --checkpoint "$work/dir" --resume --save "$work/resumed"
    [ "$(sum)" = "$halved" ] || fail "$how, resumed: $(sum), without interruption $halved"
    cmp "$work/halved" "$work/resumed" || fail "$how, resumed: other weights"
done
# The rate was set after the checkpoint of the same step: the one that a stop leaves has it.
rm -rf "$work/dir"
STOP_AFTER=2 expect "rate, stopped" 75 'save' "$client" run "$@" --checkpoint "$work/dir" --checkpoint-every 2
expect "rate, resumed" 0 'restored' "$client" run "$@" --checkpoint "$work/dir" --checkpoint-every 2 --resume --save "$work/resumed"
cmp "$work/halved" "$work/resumed" || fail "rate, resumed: other weights"
expect "trainer" 0 'learning rate 0.0[0-9]*, as the program had set it' "$trainer" $options --checkpoint "$work/dir" --resume
unset HALVE_AFTER

# Checkpoints without such state: the hook is not called. Damaged ones are skipped, as with any file of theirs.
rm -rf "$work/dir"
NO_STATE=1 expect "no state" 0 'sum' "$client" run "$@" --checkpoint "$work/dir" --checkpoint-every 2
[ ! -e "$work/dir/step-00000006/own-hooks_client.1" ] || fail "no state: there is a file"
rm -rf "$work/dir/step-00000006"
expect "nothing to restore" 0 'before 5' "$client" run "$@" --checkpoint "$work/dir" --resume
! grep -q restored "$work/out" || fail "nothing to restore: the hook was called"
[ -e "$work/dir/step-00000006/own-hooks_client.1" ] || fail "nothing to restore: the new checkpoint has no state"
printf X | dd of="$work/dir/step-00000006/own-hooks_client.1" conv=notrunc status=none
expect "damaged" 0 'skipped a damaged checkpoint: .*/step-00000006/own-hooks_client.1: it is damaged' "$client" run "$@" \
    --checkpoint "$work/dir" --resume
rm "$work/dir/step-00000006/own-hooks_client.1"
expect "lost" 0 'skipped a damaged checkpoint: .*/own-hooks_client.1: cannot read it' "$client" run "$@" --checkpoint "$work/dir" --resume

# A failure ends the run everywhere, with its status; it is reported once.
for hook in before_step after_step after_evaluation; do
    FAIL_HOOK=$hook expect "$hook fails" 4 "hooks_client: error: the program's hook $hook failed after step [03]*1*: " "$client" loop "$@"
done
for rank in 0 1 all; do
    FAIL_HOOK=after_step FAIL_RANK=$rank expect "rank $rank fails" 4 "hook after_step failed after step 1: input/output error" \
        "$ddprun" -n 2 "$client" run "$@"
done
rm -rf "$work/dir"
FAIL_HOOK=save_state expect "save_state fails" 4 "hook save_state failed after step 2" "$ddprun" -n 2 "$client" run "$@" \
    --checkpoint "$work/dir" --checkpoint-every 2
expect "before restore_state" 0 'save' "$client" run "$@" --checkpoint "$work/dir" --checkpoint-every 2
rm -rf "$work/dir/step-00000006"
FAIL_HOOK=restore_state FAIL_RANK=1 expect "restore_state fails" 4 "hook restore_state failed after step 4" "$ddprun" -n 2 "$client" run "$@" \
    --checkpoint "$work/dir" --resume
for status in 1 -10; do
    FAIL_HOOK=after_step FAIL_STATUS=$status expect "status $status" 2 "hook after_step returned $status, which is not a failure's status" \
        "$client" run "$@"
done

# Calls that hooks cannot make, and structs of other versions.
expect "misuse" 0 ' calls as they should be, 0 not' "$ddprun" -n 2 "$client" misuse "$@" --checkpoint "$work/dir" --resume
grep -q 'restored' "$work/out" || fail "misuse: restore_state was not called"
grep -q 'error: ddp_train_put_weights() cannot be called from the hook save_state' "$work/out" || fail "misuse: save_state"
rm -rf "$work/staged"
expect "misuse, 2 stages" 0 ' calls as they should be, 0 not' env STAGED=1 "$ddprun" -n 2 "$client" misuse "$@" --checkpoint "$work/staged" \
    --mode pipeline
grep -q 'error: ddp_train_get_weights() cannot be called from the hook save_state' "$work/out" || fail "misuse, 2 stages: save_state"
expect "older" 0 'before 6' "$client" old "$@"
! grep -q after "$work/out" || fail "older: calls hooks that it does not have"
expect "newer" 0 'later member used: -1' "$client" new "$@"
grep -q 'the program was compiled for a later libddp' "$work/out" || fail "newer: no message"
[ "$(sum)" = "$whole" ] || fail "newer: $(sum), $whole before"
expect "bad" 0 'sum 0x0p' "$client" bad "$@"
[ "$(grep -c ': -1$' "$work/out")" = 6 ] || fail "bad structs: $(cat "$work/out")"
finish
