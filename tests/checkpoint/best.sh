#!/bin/sh
# SPDX-License-Identifier: MIT
# The best evaluation: its checkpoint stays, through kills and resumptions; --patience ends a run at the same step with the
# same bits in every mode, alone, on several workers and when it is resumed on the way. KILLS=N makes it N kills.
. "${srcdir:-.}/tests/lib/cli.inc"
kills=${KILLS:-10}
dir=$work/dir

# A text to learn by heart, and another one of the same letters: the test loss falls, then rises.
awk 'BEGIN { x = 7; for (i = 0; i < 2600; i++) { x = (x * 1103515245 + 12345) % 2147483648; printf "%c", 97 + int(x / 65536) % 7 } }' >"$work/all"
head -c 200 "$work/all" >"$work/text"
tail -c 400 "$work/all" >"$work/val"
common="--model gpt2 --data $work/text --val $work/val --seq-len 8 --layers 1 --heads 1 --channels 16 --lr 0.01 --schedule constant
    --global-batch 8 --batch-size 2 --threads 1"
ends="$common --steps 400 --eval-every 10 --patience 3"

# evaluations FILE: "STEP LOSS BEST_STEP" a line
evaluations() {
    sed -n 's/.*"event":"evaluation","step":\([0-9]*\).*"test_loss":\([-0-9.e+]*\).*"best_step":\([0-9]*\).*/\1 \2 \3/p' "$1"
}

# --- an early end, in every mode --------------------------------------------------------------------------------

expect "an early end" 0 'early end after [0-9]+ of 400 steps: the test loss did not fall in 3 evaluations$' \
    "$trainer" $ends --keep 1,best --checkpoint "$dir" --checkpoint-every 400 --log "$work/log" --save "$work/first.end"
# What should have happened, from the losses alone: "BEST END", and every line names the best so far.
evaluations "$work/log" >"$work/evaluations"
wanted=$(awk '!n || $2 < low { low = $2; at = $1; since = 0; n = 1 } at != $1 { since++ } at != $3 { print "line", NR; exit }
    since == 3 { print at, $1; exit }' "$work/evaluations")
best=${wanted% *} end=${wanted#* }
[ "$best" -gt 10 ] && [ "$best" -lt "$end" ] && [ "$end" -lt 400 ] || fail "an early end: the test loss does as it should not: $wanted"
[ "$(tail -n 1 "$work/evaluations" | cut -d ' ' -f 1)" = "$end" ] || fail "an early end: evaluations after $end: $(cat "$work/evaluations")"
grep -q "^early end after $end of" "$work/out" || fail "an early end: not after $end: $(tail "$work/out")"
grep -q "^best     test loss [0-9.]* after step $best: $dir/best, which is step-000000$best$" "$work/out" ||
    fail "an early end: the best one is not named: $(tail "$work/out")"
grep -q "^step $best/400: test accuracy .*, the lowest so far$" "$work/out" || fail "an early end: the line of the best: $(cat "$work/out")"
grep -qE "^step $end/400: test accuracy .*, lowest [0-9.]+ at step $best \(patience 3 of 3\)$" "$work/out" || fail "an early end: its line"
tail -n 1 "$work/log" | grep -q "\"event\":\"end\".*\"step\":$end,\"status\":\"success\".*\"ended_early\":true" ||
    fail "an early end: the end of the log: $(tail -n 1 "$work/log")"
# One step at most of each is there: the best and the last.
[ "$(ls "$dir" | tr '\n' ' ')" = "best step-000000$best step-000000$end " ] || fail "--keep 1 leaves $(ls "$dir")"
./checkpoint_tool "$dir" >/dev/null || fail "the checkpoints are not whole"
cp "$dir/best/model.safetensors" "$work/first.best"
cp "$dir/best/state.json" "$work/first.state"
expect "as long without patience" 0 '' "$trainer" $common --steps "$end" --save "$work/f"
cmp -s "$work/f" "$work/first.end" || fail "an early end: --save has other weights than those of its last step"

# agrees NAME OPTION... -- COMMAND...: ends as the first one did
agrees() {
    name=$1
    shift
    expect "$name" 0 "^early end after $end of 400 steps" "$@" --save "$work/f"
    cmp -s "$work/f" "$work/first.end" || fail "$name: other weights at the end"
    cmp -s "$dir/best/model.safetensors" "$work/first.best" || fail "$name: other best weights, of $(readlink "$dir/best")"
    # To the last digit of the loss.
    cmp -s "$dir/best/state.json" "$work/first.state" || fail "$name: another state: $(diff "$dir/best/state.json" "$work/first.state")"
    ./checkpoint_tool "$dir" >"$work/found" 2>&1 || fail "$name: $(cat "$work/found")"
}
keeps="--keep 1,best --checkpoint $dir"
for start in "$ddprun -n 2 trainer" "$ddprun -n 4 trainer --zero 0" "$trainer --mode dp --replicas 2" \
    "$ddprun -n 2 trainer --checkpoint-every 7"; do
    rm -rf "$dir"
    agrees "${start#"$top/"}" $start $ends $keeps
done

expect "the plan" 0 '^test     every 10 steps, 4 of 49 samples, early end after 3 that are not better$' \
    "$trainer" $ends --eval-steps 2 --plan

# --- resumed: before the best, at it, after it, at the end ------------------------------------------------------

for step in 10 $((best - 10)) "$best" $((best + 10)) $((best + 20)); do
    rm -rf "$dir"
    expect "$step steps" 0 "^best     test loss" "$ddprun" -n 2 trainer $ends --steps "$step" $keeps
    agrees "$step steps, resumed" "$trainer" $ends $keeps --resume
done
agrees "the end, resumed" "$ddprun" -n 2 trainer $ends $keeps --resume
grep -q 'larger --patience continues$' "$work/out" || fail "the end, resumed: $(cat "$work/out")"
grep -q 'checkpoint .* written' "$work/out" && fail "the end, resumed: it trains: $(cat "$work/out")"
# Without a restart from what is kept nothing is known of the best.
expect "more patience" 0 "^early end after $((end + 20)) of 400 steps: the test loss did not fall in 5 evaluations$" \
    "$trainer" $ends --patience 5 $keeps --resume
[ "$(ls "$dir" | tr '\n' ' ')" = "best step-000000$best step-$(printf %08d $((end + 20))) " ] || fail "more patience leaves $(ls "$dir")"
expect "without best" 0 '' "$trainer" $common --steps 370 --checkpoint "$dir" --keep 1 --checkpoint-every 10 --resume
[ "$(readlink "$dir/best")" = "step-000000$best" ] && [ -f "$dir/best/state.json" ] || fail "without best: the best one goes"

# A worker dies on the way, before and after the best one: the job starts again and comes to the same end.
for step in $((best - 7)) $((end - 3)); do
    rm -rf "$dir"
    DDP_FAULTS="kill:rank=1,step=$step" agrees "killed at step $step" "$ddprun" -n 2 --max-restarts 1 trainer $ends $keeps --resume
    grep -q restart "$work/out" || fail "killed at step $step: no restart: $(cat "$work/out")"
done

# --- found by programs ------------------------------------------------------------------------------------------

expect "resume from the best" 0 "resumed from $dir/best: $best of $((best + 10)) steps" \
    "$trainer" $common --steps $((best + 10)) --resume-from "$dir/best" --save "$work/f"
expect "the same without a break" 0 '' "$trainer" $common --steps $((best + 10)) --save "$work/g"
cmp -s "$work/f" "$work/g" || fail "resume from the best: other bits"
expect "load the best" 0 '' "$trainer" $common --steps 1 --lr 0 --weight-decay 0 --load "$dir/best" --save "$work/f"
cmp -s "$work/f" "$work/first.best" || fail "load the best: other weights"
expect "evaluate the best" 0 '' "$ddprun" -n 2 trainer $common --eval-only --load "$dir/best" --log "$work/only"
only=$(sed -n 's/.*"event":"evaluation".*"test_loss":\([-0-9.e+]*\).*/\1/p' "$work/only")
[ "$only" = "$(sed -n "s/^$best \([^ ]*\) .*/\1/p" "$work/evaluations")" ] || fail "evaluate the best: a loss of $only: $(cat "$work/evaluations")"

# --- what cannot be compared, or is not there -------------------------------------------------------------------

rm -rf "$dir"
expect "begin" 0 '' "$trainer" $ends --steps $((best + 10)) $keeps
cp -r "$dir" "$work/copy"
expect "other test samples" 0 "warning: .*its best evaluation, after step $best, was on other test samples" \
    "$trainer" $common --steps $((best + 20)) --eval-every 10 --eval-steps 2 $keeps --resume
grep -q "after step $((best + 20)): " "$work/out" || fail "other test samples: no new best: $(cat "$work/out")"
expect "another directory" 0 "warning: $work/other: the checkpoint of the best evaluation so far, after step $best, is not there" \
    "$trainer" $ends --keep 3,best --checkpoint "$work/other" --resume-from "$work/copy"
grep -q "^best .* after step $best: its checkpoint is not in $work/other" "$work/out" || fail "another directory: $(cat "$work/out")"
# A kill between the checkpoint and its link: the resumed run makes it.
rm "$work/copy/best"
ln -s step-00000001 "$work/copy/best"
expect "a link that is behind" 0 "copy/best, which is step-000000$best" "$trainer" $ends --keep 3,best --checkpoint "$work/copy" --resume
rm -rf "$work/copy"
mkdir -p "$work/copy/best"
expect "no link can be made" 0 "copy/best: cannot make this link to step-0*10, the best checkpoint" \
    "$trainer" $ends --keep 1,best --checkpoint "$work/copy"
[ "$(grep -c 'cannot make this link' "$work/out")" -eq 1 ] || fail "no link can be made: not one warning: $(cat "$work/out")"
grep -q "^best .* after step $best: $work/copy/step-000000$best$" "$work/out" || fail "no link can be made: $(cat "$work/out")"
# NaN is no best, and wears patience out.
expect "no finite loss" 0 'best     none: no test loss was finite' \
    "$trainer" $common --steps 40 --eval-every 10 --patience 2 --lr 1e6 --weight-decay 1e6 --nan warn --keep 3,best --checkpoint "$work/nan"
grep -q '^early end after 20 of 40' "$work/out" || fail "no finite loss: no early end: $(cat "$work/out")"
grep -q '^step 20/40: test accuracy 0.00 %, test loss nan, perplexity nan, nan bits per byte (patience 2 of 2)$' "$work/out" ||
    fail "no finite loss: its line: $(cat "$work/out")"
[ ! -e "$work/nan/best" ] || fail "no finite loss: a best checkpoint"

expect "--keep alone" 2 '--keep needs --checkpoint DIR' "$trainer" $common --keep 3,best
for option in '--patience 2' '--eval-every 5' '--eval-steps 5' "--keep 3,best --checkpoint $work/none"; do
    expect "$option --no-eval" 2 "${option%% *}.* and --no-eval exclude each other" "$trainer" $common $option --no-eval
    expect "$option without a test set" 2 "${option%% *}.*: there is nothing to evaluate on, because article has no test set" \
        "$trainer" --model article $option
done
expect "no patience at all" 2 '--patience' "$trainer" $common --patience 0

# --- kills ------------------------------------------------------------------------------------------------------

# random LIMIT: a number below it, another sequence each time
seed=$(od -An -tu4 -N 4 /dev/urandom)
random() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 64 % $1))
}

rm -rf "$dir"
killed=0 complete=0
while [ $((killed + complete)) -lt "$kills" ] && [ "$failures" -lt 5 ]; do
    $ddprun -n 2 trainer $ends --eval-every 2 --patience 1000 --steps 200 $keeps --resume --quiet >"$work/out" 2>&1 &
    random 900
    sleep "0.$(printf %03d "$drawn")" # time: a kill may come at any moment
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    count=$((count + 1))
    until_true sh -c "[ ! -d '$dir' ] || flock -n '$dir' true" || fail "kill $killed: the workers stay"
    [ -d "$dir" ] || continue
    ./checkpoint_tool "$dir" >"$work/found" 2>&1 || fail "kill $killed: $(cat "$work/found"), with $(ls -l "$dir")"
    # The best of the newest is linked, or the newest is the best and was killed before the link.
    newest=$(cut -d ' ' -f 1 "$work/found")
    known=$(sed -n 's/.*"best_step": \([0-9]*\).*/\1/p' "$dir/step-$(printf %08d "$newest")/state.json" 2>/dev/null)
    linked=$(readlink "$dir/best" | sed 's/step-0*//')
    [ "${known:-0}" = "${linked:-0}" ] || [ "$known" = "$newest" ] ||
        fail "kill $killed: the best of step $newest is $known, and $linked is linked: $(ls -l "$dir")"
    if [ "$newest" -eq 200 ]; then
        complete=$((complete + 1))
        rm -rf "$dir"
    else
        killed=$((killed + 1))
    fi
done
rm -f "$work/log"
"$trainer" $ends --eval-every 2 --patience 1000 --steps 200 $keeps --resume --quiet >"$work/out" 2>&1 || fail "the last run: $(cat "$work/out")"
"$trainer" $ends --eval-every 2 --patience 1000 --steps 200 --keep 3,best --checkpoint "$work/whole" --quiet
cmp -s "$dir/best/model.safetensors" "$work/whole/best/model.safetensors" ||
    fail "after the kills: $(readlink "$dir/best") is the best, and $(readlink "$work/whole/best") without"
echo "$killed kills, $complete runs came to their end"
finish
