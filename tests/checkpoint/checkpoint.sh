#!/bin/sh
# SPDX-License-Identifier: MIT
# Checkpoints: going on in any mode and on any number of workers ends in the same bits; a damaged one is never loaded;
# stopping on request, restarts, a full disk, two trainers at once.
. "${srcdir:-.}/tests/lib/cli.inc"

common='--model article --data-size 700 --shuffle --batch-size 8 --global-batch 64 --steps 40 --lr 1e-4 --threads 1 --quiet'
dir=$work/dir
newest=$dir/step-00000040

# same NAME COMMAND...: it succeeds, and the weights it saves are those of the uninterrupted run
same() {
    name=$1
    shift
    count=$((count + 1))
    rm -f "$work/f"
    timeout $((120 * patience)) "$@" --save "$work/f" >"$work/out" 2>&1 || fail "$name: exit code $?: $(head -n 5 "$work/out")"
    cmp -s "$work/f" "$work/reference" || fail "$name: other bits than the uninterrupted run"
}

"$trainer" $common --save "$work/reference" || fail "the run to compare with"

# --- going on ---------------------------------------------------------------------------------------------------

same "writing checkpoints" "$ddprun" -n 8 trainer $common --checkpoint "$dir" --checkpoint-every 7 --keep 0
[ "$(echo "$dir"/step-*)" = "$(for s in 07 14 21 28 35 40; do printf '%s ' "$dir/step-000000$s"; done | sed 's/ $//')" ] ||
    fail "--checkpoint-every 7: there are $(ls "$dir")"
for step in 07 21 35 40; do
    from="--resume-from $dir/step-000000$step"
    same "step $step, 1 worker x 8" "$trainer" $common $from
    same "step $step, 2 workers x 4" "$ddprun" -n 2 trainer $common $from
    same "step $step, 8 workers x 1" "$ddprun" -n 8 trainer $common $from
    same "step $step, dp, 4 replicas x 2" "$trainer" $common --mode dp --replicas 4 $from
done
same "the newest of a directory" "$trainer" $common --resume-from "$dir"

# Written in each mode, with what a mode may do differently: Nesterov's momentum, none at all, decay, a schedule.
for options in '--momentum 0.9,nesterov --weight-decay 1e-3 --schedule cosine --warmup-steps 5' '--momentum 0 --schedule linear --drop-last' \
    '--optimizer adamw --clip-grad-norm 1'; do
    "$trainer" $common $options --save "$work/reference" || fail "$options"
    resume=
    for start in trainer "ddprun -n 4 trainer" "ddprun -n 2 trainer --zero 0" \
        "trainer --mode dp --replicas 2"; do
        rm -rf "$dir"
        same "$start $options" "$top"/$start $common $options --checkpoint "$dir" --checkpoint-every 13 --keep 0
        rm -r "$newest"
        same "$start $options, resumed$resume" "$ddprun" -n 2 trainer$resume $common $options --checkpoint "$dir" --resume
        case $resume in
        '') resume=' --zero 0' ;;
        *) resume= ;;
        esac
    done
done
"$trainer" $common --save "$work/reference"

# --keep, and a run that is complete
rm -rf "$dir"
same "--keep 2" "$trainer" $common --checkpoint "$dir" --checkpoint-every 3 --keep 2
[ "$(ls "$dir" | tr '\n' ' ')" = 'step-00000039 step-00000040 ' ] || fail "--keep 2 leaves $(ls "$dir")"
same "nothing left to do" "$trainer" $common --checkpoint "$dir" --resume
rm -rf "$dir"
same "--resume without a checkpoint" "$trainer" $common --checkpoint "$dir/a//b/" --resume
[ -f "$dir/a/b/step-00000040/state.json" ] || fail "directories are not made"
# A constant rate lets the run be made longer.
rm -rf "$dir"
"$trainer" $common --steps 17 --checkpoint "$dir" || fail "17 steps"
same "17 steps, then 40" "$trainer" $common --checkpoint "$dir" --resume

# --- what is refused --------------------------------------------------------------------------------------------

expect "a new run in a used directory" 2 'checkpoints already.*step 40.*--resume' "$trainer" $common --checkpoint "$dir"
expect "another directory's" 2 'checkpoints already' "$trainer" $common --checkpoint "$dir" --resume-from "$work/reference.d"
expect "other batch" 2 'step-00000040: cannot resume.*batch size 8 \(now 16\).*--load' \
    "$trainer" $common --checkpoint "$dir" --resume --batch-size 16
expect "other shards" 2 'shards 8 \(now 4\)' "$trainer" $common --checkpoint "$dir" --resume --global-batch 32
expect "other seed" 2 'seed 0 \(now 7\)' "$trainer" $common --checkpoint "$dir" --resume --seed 7
expect "other data" 2 'samples 700 \(now 600\)' "$trainer" $common --checkpoint "$dir" --resume --data-size 600
expect "other optimizer" 2 'momentum 0.9 \(now 0\)' "$trainer" $common --checkpoint "$dir" --resume --momentum 0
expect "other rate" 2 'learning rate 0.0001 \(now 0.5\)' "$trainer" $common --checkpoint "$dir" --resume --lr 0.5
expect "other schedule" 2 'schedule constant \(now linear to 0 over 40 steps\)' \
    "$trainer" $common --checkpoint "$dir" --resume --schedule linear
expect "--keep alone" 2 '--keep.*--checkpoint DIR' "$trainer" $common --keep 3
expect "--resume alone" 2 '--resume.*--checkpoint DIR' "$trainer" $common --resume
expect "--checkpoint-every alone" 2 '--checkpoint-every.*--checkpoint DIR' "$trainer" $common --checkpoint-every 3
expect "two sources of weights" 2 '--resume-from and --load' "$trainer" $common --resume-from x --load y
expect "nothing there" 4 'no-such: cannot open' "$trainer" $common --resume-from "$work/no-such"
expect "no checkpoint" 3 'neither a checkpoint' "$trainer" $common --resume-from "$work"
expect "no directory" 4 'reference: cannot' "$trainer" $common --checkpoint "$work/reference"
expect "below a file" 4 'reference/x: cannot' "$trainer" $common --checkpoint "$work/reference/x"
mkdir "$work/closed"
chmod 500 "$work/closed"
if need_modes; then
    expect "not writable" 4 'closed: cannot write' $heed_modes "$trainer" $common --checkpoint "$work/closed"
fi

# --- damage -----------------------------------------------------------------------------------------------------

# random LIMIT: a number below it; the sequence is the same in each run
draws=1
random() {
    draws=$(((draws * 1103515245 + 12345) % 2147483648))
    drawn=$((draws / 64 % $1))
}

# flip FILE: one random bit
flip() {
    size=$(wc -c <"$1")
    random "$size"
    at=$drawn
    random 8
    byte=$(od -An -tu1 -j "$at" -N 1 "$1")
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\$(printf %03o $((byte ^ (1 << drawn))))" | dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

rm -rf "$dir"
same "two checkpoints" "$trainer" $common --checkpoint "$dir" --checkpoint-every 20
cp -r "$dir" "$work/good"
i=0
while [ $i -lt "${DAMAGES:-48}" ]; do
    rm -rf "$dir"
    cp -r "$work/good" "$dir"
    case $((i % 3)) in
    0) part=model.safetensors ;;
    1) part=optimizer.safetensors ;;
    *) part=state.json ;;
    esac
    file=$newest/$part
    case $((i / 3 % 8)) in
    0) size=$(wc -c <"$file") && random "$size" && truncate -s "$drawn" "$file" ;;
    1) echo >>"$file" ;;
    2) rm "$file" ;;
    3) truncate -s +1000000 "$file" ;;
    *) flip "$file" ;;
    esac
    expect "damage $i of $part" 3 "step-00000040/$part: |step-00000040: neither" "$trainer" $common --resume-from "$newest"
    same "damage $i of $part, the one before" "$trainer" $common --checkpoint "$dir" --resume
    grep -q "warning: skipped.*step-00000040/$part: " "$work/out" || fail "damage $i: no warning: $(cat "$work/out")"
    ./checkpoint_tool "$dir" >/dev/null || fail "damage $i: the damaged one was not replaced"
    i=$((i + 1))
done
rm -rf "$dir" && cp -r "$work/good" "$dir"
rm "$dir"/step-*/state.json
expect "no whole one" 3 'all 2 checkpoints there are damaged' "$trainer" $common --checkpoint "$dir" --resume
rm -rf "$dir" && cp -r "$work/good" "$dir"
mv "$dir/step-00000040" "$dir/step-00000041"
same "under a wrong name" "$trainer" $common --checkpoint "$dir" --resume
grep -q 'warning: skipped.*step-00000041/state.json: it is that of step 40$' "$work/out" || fail "a wrong name: $(cat "$work/out")"
# What is none of ours is left alone; unfinished ones go.
mkdir "$dir/.step-00000050.tmp-1" "$dir/step-7" && : >"$dir/notes" && : >"$dir/.step-00000050.tmp-1/model.safetensors"
same "other things in the directory" "$trainer" $common --checkpoint "$dir" --resume
[ -e "$dir/notes" ] && [ -d "$dir/step-7" ] && [ ! -e "$dir/.step-00000050.tmp-1" ] || fail "left: $(ls -A "$dir")"

# --- stopping on request ----------------------------------------------------------------------------------------

long='--model article --data-size 700 --shuffle --batch-size 8 --global-batch 64 --lr 1e-6 --threads 1 --quiet'
some_there() { ls "$dir" 2>/dev/null | grep -q step; }
for start in "$trainer" "$ddprun -n 2 trainer"; do
    for signal in TERM USR1; do
        count=$((count + 1))
        rm -rf "$dir"
        $start $long --steps 100000000 --checkpoint "$dir" --checkpoint-every 10 >"$work/out" 2>&1 &
        until_true some_there || fail "$start: no checkpoint comes"
        kill -$signal $!
        wait $!
        code=$?
        [ $code -eq 75 ] || fail "$start, SIG$signal: exit code $code: $(cat "$work/out")"
        steps=$(./checkpoint_tool "$dir" | cut -d ' ' -f 1)
        "$trainer" $long --steps $((steps + 20)) --save "$work/reference"
        same "$start, SIG$signal, resumed" "$trainer" $long --steps $((steps + 20)) --checkpoint "$dir" --resume
    done
done

# --- two trainers at once ---------------------------------------------------------------------------------------

rm -rf "$dir"
"$trainer" $long --steps 100000000 --checkpoint "$dir" --checkpoint-every 10 >"$work/out.1" 2>&1 &
until_true some_there || fail "no checkpoint comes"
holder=$!
expect "a second trainer" 4 "error: $dir: another trainer( .process $holder.)? writes" \
    "$trainer" $long --steps 10 --checkpoint "$dir" --resume
[ "$(grep -c 'waiting for it to end, for 10 s' "$work/out")" -eq 1 ] || fail "a second trainer: $(cat "$work/out")"
# It is killed while the third one waits.
"$trainer" $long --steps 10 --checkpoint "$dir" --resume >"$work/out" 2>&1 &
until_true grep -q 'waiting for it to end' "$work/out" || fail "a third trainer does not wait: $(cat "$work/out")"
kill -9 $holder
wait $holder 2>/dev/null
wait $!
[ $? -eq 2 ] && grep -q 'steps are done, and --steps 10 asks for 10 in all' "$work/out" || fail "after its death: $(cat "$work/out")"

# --- names of directories ---------------------------------------------------------------------------------------

mkdir "$work/names" && cd "$work/names" || exit 99
for at in c d/ ./e f//g// ./h/../i ../names/j/ "$work/names/k"; do
    expect "--checkpoint $at" 0 '' "$trainer" $common --steps 1 --checkpoint "$at"
    [ -f "$at/step-00000001/state.json" ] || fail "--checkpoint $at: $(ls -R)"
done
cd "$top" || exit 99

# --- a worker is killed, the job starts again -------------------------------------------------------------------

"$trainer" $common --save "$work/reference"
for kill in rank=1,step=7 rank=0,step=23; do
    rm -rf "$dir"
    DDP_FAULTS="kill:$kill" same "--max-restarts, kill:$kill" "$ddprun" -n 2 --max-restarts 1 trainer $common \
        --checkpoint "$dir" --checkpoint-every 5 --resume
    grep -q 'restart' "$work/out" || fail "kill:$kill: the job was not started again: $(cat "$work/out")"
done

# --- a full disk ------------------------------------------------------------------------------------------------

# full NAME: what a run that cannot write must have done
full() {
    count=$((count + 1))
    grep -q 'exited with code 4' "$work/out" || fail "$1: $(cat "$work/out")"
    [ "$(grep -c 'trainer.*error:' "$work/out")" -eq 1 ] || fail "$1: not one message: $(cat "$work/out")"
    ./checkpoint_tool "$dir" >"$work/found" 2>&1 || fail "$1: $(cat "$work/found")"
    [ "$(cut -d ' ' -f 2-3 "$work/found")" = '1 0' ] || fail "$1: newest, checkpoints, leftovers: $(cat "$work/found")"
}
rm -rf "$dir"
"$trainer" $common --steps 5 --checkpoint "$dir"
# shellcheck disable=SC2016 # for the inner shell
"$ddprun" -n 1 sh -c 'ulimit -f 0; exec "$@"' sh "$trainer" $common --checkpoint "$dir" --resume 2>&1 | cat >"$work/out"
full "a limit on the size of files"
# Where a user may mount: a disk that four or so checkpoints fit on.
mkdir "$work/disk"
if unshare -rm mount -t tmpfs -o size=64k none "$work/disk" 2>/dev/null; then
    # shellcheck disable=SC2016 # for the inner shell
    unshare -rm sh -c 'mount -t tmpfs -o size=64k none "$0" && "$@"; echo "code $?"; ./checkpoint_tool "$0/ck"; echo "whole $?"' \
        "$work/disk" "$trainer" $common --checkpoint "$work/disk/ck" --checkpoint-every 2 --keep 0 >"$work/out" 2>&1
    count=$((count + 1))
    for pattern in 'error: .*No space left' '^code 4$' '^[0-9]* [1-9][0-9]* 0$' '^whole 0$'; do
        grep -q "$pattern" "$work/out" || fail "a full disk: no '$pattern' in: $(cat "$work/out")"
    done
else
    not_run "a full disk: no file system can be mounted here"
fi
finish
