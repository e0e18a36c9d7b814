#!/bin/sh
# SPDX-License-Identifier: MIT
# Resuming with another number of steps: a rate that does not depend on it simply continues; one that falls towards the
# end is planned anew with --extend, to the same bits however often the longer run is interrupted, and refused without.
. "${srcdir:-.}/tests/lib/cli.inc"

# Bytes as samples of 64 numbers of two classes
npy() {
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
}
cat "$here"/src/mode/*.c "$here"/src/graph/*.c >"$work/text"
{ npy '(700, 64)' && head -c $((700 * 64)) "$work/text"; } >"$work/x.npy"
{ npy '(700,)' && tr -cd 'a-z' <"$work/text" | tr 'a-z' '\000\000\000\000\000\000\000\000\001' | head -c 700; } >"$work/y.npy"

common="--data $work/x.npy,$work/y.npy --hidden 128 --batch-size 8 --global-batch 32 --threads 1"
work_on='--optimizer adamw --lr 1e-3'
dir=$work/dir

# begin OPTIONS...: 20 steps, in $work/begun
begin() {
    rm -rf "$work/begun"
    # shellcheck disable=SC2086 # options
    "$trainer" $common $work_on "$@" --steps 20 --checkpoint "$work/begun" --checkpoint-every 10 --quiet || fail "20 steps: exit code $?"
}

# to NAME COMMAND...: it resumes in $dir and ends in the weights of $work/reference
to() {
    name=$1
    shift
    count=$((count + 1))
    rm -f "$work/f"
    # shellcheck disable=SC2086 # options
    timeout $((120 * patience)) "$@" $common $work_on --checkpoint "$dir" --resume --save "$work/f" >"$work/out" 2>&1 ||
        fail "$name: exit code $?: $(head -n 5 "$work/out")"
    cmp -s "$work/f" "$work/reference" || fail "$name: other bits"
}

# from_begin: $dir is that of the 20 steps again
from_begin() {
    rm -rf "$dir"
    cp -r "$work/begun" "$dir"
}

# cut STEP: what came after it is lost, as after a kill
cut() {
    for at in "$dir"/step-*; do
        [ "${at##*step-}" -le "$1" ] || rm -r "$at"
    done
}

# rates: the learning rate of each step of the last run
rates() { sed -n 's/.*"step":\([0-9]*\).*"learning_rate":\([-0-9.e+]*\).*/\1 \2/p' "$work/log"; }

# --- rates that do not depend on the length ---------------------------------------------------------------------

for schedule in '--schedule constant --warmup-steps 3' '--schedule step,at=1' '--schedule step,every=1,gamma=0.5'; do
    # shellcheck disable=SC2086 # options
    begin $schedule
    # shellcheck disable=SC2086 # options
    "$trainer" $common $work_on $schedule --steps 40 --save "$work/reference" --quiet || fail "40 steps"
    for start in trainer "ddprun -n 2 trainer"; do
        from_begin
        # shellcheck disable=SC2086 # options
        to "$start $schedule" "$top"/$start $schedule --steps 40
    done
    from_begin
    # shellcheck disable=SC2086 # options
    to "$schedule --extend" "$trainer" $schedule --steps 40 --extend
done

# --- rates that do ----------------------------------------------------------------------------------------------

for schedule in '--schedule cosine,min=1e-5 --warmup-steps 4' '--schedule linear'; do
    # shellcheck disable=SC2086 # options
    begin $schedule
    from_begin
    kind=${schedule#--schedule } kind=${kind%%[ ,]*}
    # shellcheck disable=SC2086 # options
    expect "$schedule, without --extend" 2 \
        "step-00000020: the learning rate was planned as $kind to .* over 20 steps, and would now be $kind to .* over 40 steps: add --extend" \
        "$trainer" $common $work_on $schedule --checkpoint "$dir" --resume --steps 40
    # The uninterrupted longer run, from the middle and from the end
    for from in 10 20; do
        from_begin
        cut $from
        # shellcheck disable=SC2086 # options
        expect "$schedule, from $from" 0 "extended: 20 steps were planned, and now 40; the learning rate goes from .* in step $((from + 1)) to .* at the new end" \
            "$trainer" $common $work_on $schedule --checkpoint "$dir" --checkpoint-every 5 --keep 0 --resume --extend --steps 40 \
            --save "$work/reference" --log "$work/log"
        [ "$(grep -c extended "$work/out")" -eq 1 ] || fail "$schedule: not one line: $(cat "$work/out")"
        cp -r "$dir" "$work/longer.$from"
        # Interrupted after the first checkpoint and after the third; with --extend again, or without
        for start in trainer "ddprun -n 2 trainer" "ddprun -n 2 trainer --zero 0" "trainer --mode dp --replicas 2"; do
            for more in '' --extend; do
                rm -rf "$dir"
                cp -r "$work/longer.$from" "$dir"
                cut $((from + 5))
                # shellcheck disable=SC2086 # options
                to "$start, from $from, $more" "$top"/$start $schedule --steps 40 --checkpoint-every 5 $more
                grep -q extended "$work/out" && fail "$start, $more: extended again: $(cat "$work/out")"
            done
            from_begin
            cut $from
            # shellcheck disable=SC2086 # options
            to "$start, extended from $from" "$top"/$start $schedule --steps 40 --extend
        done
        # And extended again, at once or after an interruption
        # shellcheck disable=SC2086 # options
        "$trainer" $common $work_on $schedule --resume-from "$work/longer.$from/step-00000030" --extend --steps 50 --quiet \
            --save "$work/reference" || fail "extended twice"
        rm -rf "$dir"
        cp -r "$work/longer.$from" "$dir"
        cut 30
        # shellcheck disable=SC2086 # options
        to "extended again" "$top/ddprun" -n 2 trainer $schedule --steps 50 --extend --checkpoint-every 5 --keep 0
        cut 40
        # shellcheck disable=SC2086 # options
        to "extended again, interrupted" "$trainer" $schedule --steps 50
        rm -rf "$work/longer.$from"
    done
done

# --- the numbers ------------------------------------------------------------------------------------------------

rm -f "$work/log"
# Half of a cosine from 1e-3 to 0 of 20 steps is 5e-4; from there in 20 steps to 1e-4.
begin --schedule cosine
from_begin
cut 10
expect "the numbers" 0 'from 0.0005 in step 11 to 0.0001 at the new end \(cosine\)' "$trainer" $common $work_on --schedule cosine,min=1e-4 \
    --checkpoint "$dir" --resume --extend --steps 30 --log "$work/log"
rates | awk 'BEGIN { pi = atan2(0, -1) }
    { want = 1e-4 + 4e-4 * 0.5 * (1 + cos(pi * ($1 - 11) / 20)); d = $2 - want; if (d < 0) d = -d; if (d > 1e-9) bad++ }
    END { exit !(NR == 20 && !bad) }' || fail "the rates: $(rates | tr '\n' ' ')"
# A warm-up that is not over goes on; what follows fits the new end.
begin --schedule linear --warmup-steps 30
from_begin
expect "in the warm-up" 0 'goes from 0.0007 in step 21 on to 0.001 in step 30, and then to 0 at the new end' "$trainer" $common $work_on \
    --schedule linear --warmup-steps 30 --checkpoint "$dir" --resume --extend --steps 40 --log "$work/log" --save "$work/f"
"$trainer" $common $work_on --schedule linear --warmup-steps 30 --steps 40 --save "$work/reference" --quiet
cmp "$work/f" "$work/reference" || fail "in the warm-up: other bits than the run of 40 steps"
# A rate that has fallen to nothing: told, and another one can be taken, which stays the run's.
rm -f "$work/log"
begin --schedule cosine
from_begin
expect "nothing left" 0 'warning: --extend: after 20 steps the learning rate has fallen from 0.001 to .*--lr RATE' \
    "$trainer" $common $work_on --schedule cosine --checkpoint "$dir" --resume --extend --steps 30
from_begin
set -- --schedule cosine --steps 40 --lr 2e-4 --extend
expect "another rate" 0 'from 0.0002 in step 21 to 0 at the new end' "$trainer" $common $work_on "$@" --checkpoint "$dir" --resume \
    --checkpoint-every 5 --keep 0 --log "$work/log" --save "$work/reference"
grep -q warning "$work/out" && fail "another rate: $(grep warning "$work/out")"
rates | awk 'NR == 1 && $2 == 0.0002 { good = 1 } END { exit !good }' || fail "another rate: $(rates | head -n 1)"
cut 30
work_on='--optimizer adamw'
to "another rate, interrupted" "$ddprun" -n 2 trainer "$@"
cut 30
to "another rate, without --extend" "$trainer" --schedule cosine --steps 40 --lr 2e-4
expect "the old rate" 2 'learning rate 0.0002 \(now 0.001\)' "$trainer" $common $work_on --lr 1e-3 --schedule cosine --steps 40 \
    --checkpoint "$dir" --resume
work_on='--optimizer adamw --lr 1e-3'

# --- what is refused --------------------------------------------------------------------------------------------

expect "--extend alone" 2 '--extend plans a resumed run anew: it needs --resume' "$trainer" $common --extend
for schedule in cosine constant; do
    begin --schedule $schedule
    for more in '' --extend; do
        from_begin
        expect "fewer steps, $schedule $more" 2 'step-00000020: 20 steps are done, and --steps 15 asks for 15 in all: ask for more' \
            "$trainer" $common $work_on --schedule $schedule --checkpoint "$dir" --resume --steps 15 $more
    done
    rm -rf "$dir"
    "$trainer" $common $work_on --schedule $schedule --epochs 2 --checkpoint "$dir" --quiet || fail "2 epochs"
    expect "fewer epochs, $schedule" 2 'step-00000044: 44 steps are done, and --epochs 1 asks for 22 in all' \
        "$trainer" $common $work_on --schedule $schedule --checkpoint "$dir" --resume --epochs 1
    expect "as many epochs, $schedule" 0 'all 44 steps are done' \
        "$trainer" $common $work_on --schedule $schedule --checkpoint "$dir" --resume --epochs 2 --extend
done
begin --schedule cosine
from_begin
# Other differences are told before, and not taken for a longer run.
expect "another batch" 2 'another run: .*batch size 8 \(now 4\).*schedule cosine to 0 over 20 steps' \
    "$trainer" $common $work_on --schedule cosine --checkpoint "$dir" --resume --steps 40 --batch-size 4
expect "another batch, --extend" 2 'another run: .*batch size 8 \(now 4\)' \
    "$trainer" $common $work_on --schedule cosine --checkpoint "$dir" --resume --steps 40 --batch-size 4 --extend
expect "another schedule" 2 'schedule cosine to 0 over 20 steps \(now linear to 0 over 40 steps\)' \
    "$trainer" $common $work_on --schedule linear --checkpoint "$dir" --resume --steps 40 --extend
expect "another end" 2 'planned as cosine to 0 over 20 steps, and would now be cosine to 1e-05 over 20 steps: add --extend' \
    "$trainer" $common $work_on --schedule cosine,min=1e-5 --checkpoint "$dir" --resume --steps 20
finish
