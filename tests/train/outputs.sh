#!/bin/sh
# SPDX-License-Identifier: MIT
# Where the trainer writes: FIFOs with and without a reader, devices, one file for two options.
. "${srcdir:-.}/tests/lib/cli.inc"

t="$trainer --quiet --model article --epochs 1"
i=0
while [ $i -lt 40 ]; do
    echo "the quick brown fox"
    i=$((i + 1))
done >"$work/text"
gpt2="$trainer --quiet --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 8 --steps 1 --no-eval --data $work/text"

# --- FIFOs: nobody waits for a reader that never comes
mkfifo "$work/fifo"
expect "--trace to a FIFO" 4 'fifo: .*a FIFO that nobody reads' $t --trace "$work/fifo"
expect "--log to a FIFO" 4 'fifo: .*a FIFO that nobody reads' $t --log "$work/fifo"
expect "--save to a FIFO" 4 'fifo: cannot write: not a regular file' $t --save "$work/fifo"
for option in log trace; do
    cat "$work/fifo" >"$work/read" &
    exec 9>"$work/fifo" # waits for the reader
    expect "--$option to a FIFO with a reader" 0 '' $t --$option "$work/fifo"
    exec 9>&-
    wait $!
    [ -s "$work/read" ] || fail "--$option to a FIFO: nothing came"
done
# A reader that leaves costs the records, not the run.
head -n 1 "$work/fifo" >"$work/read" &
exec 9>"$work/fifo"
expect "a reader that leaves" 0 'warning: .*fifo: cannot write to it: Broken pipe' \
    $t --epochs 3000 --log "$work/fifo"
exec 9>&-
wait $!
# What shells make of >(command), and the standard streams.
if command -v bash >/dev/null; then
    # shellcheck disable=SC2016 # for the inner shell
    expect "process substitution" 0 '' bash -c '"$@" --log >(cat >"$0") --trace >(cat >/dev/null); wait' "$work/read" $t
    until_true grep -q '"event":"end"' "$work/read" || fail "process substitution: $(cat "$work/read")"
fi
expect "--log /dev/stderr" 0 '"event":"end"' $t --log /dev/stderr
expect "/dev/null for all" 0 '' $t --log /dev/null --trace /dev/null

# --- directories that are missing
expect "missing directories" 0 "^made the directory $work/new/a/b for --save$" \
    "$ddprun" -n 2 $trainer --model article --epochs 1 --save "$work/new/a/b/w" --log "$work/new/c/log" --trace "$work/new/d/t"
for file in a/b/w c/log d/t; do
    [ -s "$work/new/$file" ] || fail "missing directories: there is no $file"
done
[ "$(grep -c 'made the directory' "$work/out")" -eq 3 ] || fail "missing directories: $(grep made "$work/out")"
expect "directories that are there" 0 '' $trainer --model article --epochs 1 --save "$work/new/a/b/w"
! grep -q 'made the directory' "$work/out" || fail "directories that are there are made"
expect "a missing directory for --export" 0 "^made the directory $work/new/e for --export$" \
    $trainer ${gpt2#*--quiet} --export "$work/new/e/model.safetensors"
expect "--plan makes none" 0 '' $trainer --model article --plan --save "$work/none/w" --log "$work/none/l"
[ ! -e "$work/none" ] || fail "--plan makes a directory"
: >"$work/file"
for option in save log trace; do
    expect "--$option below a file" 4 "error: $work/file/x.*: cannot .*Not a directory" \
        $trainer --model article --epochs 100000000 --$option "$work/file/x/y"
done
if need_modes; then
    mkdir -m 555 "$work/locked"
    expect "a directory that may not be made" 4 "error: $work/locked/x: cannot make this directory: Permission denied" \
        $heed_modes "$ddprun" -n 2 $trainer --model article --epochs 100000000 --save "$work/locked/x/y"
    [ "$(grep -c 'trainer: .*error:' "$work/out")" -eq 1 ] || fail "a directory that may not be made: not one message"
fi

# --- one file for two options
one() {
    expect "one file: $*" 2 "error: --$1 and --$2 name the same file, .*: give each its own" $3
    [ "$(grep -c 'trainer: .*error:' "$work/out")" -eq 1 ] || fail "one file: $*: not one message"
}
mkdir "$work/d"
ln -s d "$work/link"
for file in "$work/d/x" "$work/link/../d/./x" "$work/link/x"; do
    rm -f "$work/d/x"
    for made in no yes; do
        one log trace "$t --log $work/d/x --trace $file"
        one save log "$t --log $work/d/x --save $file"
        one save export "$gpt2 --save $work/d/x --export $file,format=hf"
        one save trace "$ddprun -n 2 $t --save $work/d/x --trace $file"
        [ $made = yes ] || : >"$work/d/x"
    done
done
one save checkpoint "$t --save $work/d/new --checkpoint $work/d/new"
one log tensorboard "$t --log $work/d/new --tensorboard $work/d/new/"
[ ! -e "$work/d/new" ] || fail "something was made"
cd "$work/d" || exit 99
one log trace "$t --log new --trace ./new"
one log trace "$t --log none/x --trace ./none/./y/../x"
[ ! -e none ] || fail "a directory was made for one file of two options"
ln "$work/d/x" "$work/d/y"
one log trace "$t --log x --trace y"
cd "$top" || exit 99
mkdir "$work/run"
expect "one directory" 0 '' $t --checkpoint "$work/run" --tensorboard "$work/run" --save "$work/run/w" --log "$work/run/log"
finish
