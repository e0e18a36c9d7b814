#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun and output that cannot be written: it says so once, the workers go on, and the exit code tells. And that the
# output which can be written is whole, also behind the last newline.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"
full='No space left on device'

# run CODE NAME COMMAND...: its output is in $work/out and $work/err
run() {
    code=$1 name=$2
    shift 2
    count=$((count + 1))
    timeout $((60 * patience)) "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ $got -eq "$code" ] || fail "$name: exit code $got, not $code: $(head -n 5 "$work/err")"
}

# What a worker does until ddprun has said so
told='until grep -q "cannot be written" "$0"; do sleep 0.02; done;'

# to_full CODE NAME ARGUMENT...: ddprun, with its standard output on a full disk
to_full() {
    code=$1 name=$2
    shift 2
    run "$code" "$name" sh -c 'exec "$@" >/dev/full' sh "$ddprun" "$@"
}

# says TIMES TEXT
says() {
    said=$(grep -c "^ddprun: error: .*$2" "$work/err")
    [ "$said" = "$1" ] || fail "$name: said $said times, not $1: $2: $(head -n 5 "$work/err")"
}

echo "# standard output on a full disk"
to_full 125 "two workers" -n 2 sh -c 'echo result'
says 1 "standard output cannot be written: $full; the job continues without it"
[ "$(wc -l <"$work/err")" = 1 ] || fail "$name: more words: $(cat "$work/err")"
to_full 125 "workers go on" -n 4 sh -c 'seq 200000 && echo "end of $RANK" >&2'
says 1 "standard output cannot be written: $full"
[ "$(sort "$work/err" | grep -c '^\[[0-3]\]: end of [0-3]$')" = 4 ] || fail "$name: $(cat "$work/err")"
to_full 7 "a failure" -n 2 sh -c "echo x; $told exit 7" "$work/err"
says 1 "standard output cannot be written: $full"
to_full 125 "a second attempt" -n 2 --max-restarts 1 sh -c "echo x; $told exit \$((7 * (1 - TORCHELASTIC_RESTART_COUNT)))" "$work/err"
says 1 "standard output cannot be written: $full"
to_full 125 "log files take it" -n 2 --log-dir "$work/log" sh -c 'echo "of $RANK"'
[ "$(cat "$work"/log/none_*/attempt_0/[01]/stdout.log)" = "$(printf 'of 0\nof 1')" ] || fail "$name: the log files"
to_full 125 "nothing is printed" --help
says 1 "standard output cannot be written: $full"
to_full 125 "no plan" --dry-run true
says 1 "standard output cannot be written: $full"

echo "# standard error on a full disk"
run 125 "standard error" sh -c 'exec "$@" 2>/dev/full' sh "$ddprun" -n 2 sh -c 'echo x >&2; echo "of $RANK"'
[ "$(sort "$work/out")" = "$(printf '[0]: of 0\n[1]: of 1')" ] || fail "$name: $(cat "$work/out")"
run 125 "both" sh -c 'exec "$@" >/dev/full 2>&1' sh "$ddprun" -n 2 sh -c 'echo x >&2; echo y'
run 3 "both, and a failure" sh -c 'exec "$@" >/dev/full 2>&1' sh "$ddprun" -n 2 sh -c 'echo x >&2; exit 3'
run 0 "nothing to say" sh -c 'exec "$@" >/dev/full 2>&1' sh "$ddprun" -n 2 true

echo "# a reader that has gone away is no full disk"
run 0 "head" sh -c '"$@" | head -n 1; exit 0' sh "$ddprun" -n 2 yes
says 0 'cannot be written'
says 1 'was killed by SIGPIPE'

echo "# log files that may not grow"
run 125 "-t" sh -c 'ulimit -f 512; exec "$@" >/dev/null' sh "$ddprun" -n 3 -t 3 --log-dir "$work/few" sh -c 'seq 60000; seq 60000 >&2'
says 1 "$work/few/none_.*/attempt_0/[012]/std[a-z]*.log: cannot be written: File too large; the job continues, its log files are incomplete"

# In a small file system of their own: what workers write goes through ddprun (-t) or not (-r).
space=
for try in 'unshare -m' 'unshare -rm'; do
    $try mount -t tmpfs none "$work" 2>/dev/null && { space=$try; break; }
done
# on_disk CODE NAME ARGUMENT...: ddprun where $work/disk has 64 KiB
on_disk() {
    code=$1 name=$2
    shift 2
    run "$code" "$name" $space sh -c 'mount -t tmpfs -o size=64k none "$0" && exec "$@"' "$work/disk" \
        "$ddprun" --log-dir "$work/disk/log" "$@"
}
mkdir "$work/disk"
if [ -n "$space" ]; then
    echo "# log files on a full disk"
    on_disk 125 "-t" -n 2 -t 3 sh -c 'seq 20000; seq 20000 >&2'
    says 1 "$work/disk/log/none_.*/attempt_0/[01]/std[a-z]*.log: cannot be written: $full; the job continues, its log files are incomplete"
    [ "$(wc -l <"$work/out")" = 40000 ] || fail "$name: $(wc -l <"$work/out") lines are shown"
    on_disk 0 "-t, enough room" -n 2 -t 3 sh -c 'seq 1000'
    [ "$(grep -c . "$work/err")" = 0 ] || fail "$name: $(cat "$work/err")"
    on_disk 125 "-r, and nobody looks" -n 2 -r 3 sh -c 'seq 20000; true'
    says 1 "$work/disk/log/none_.*/attempt_0/[01]/std[a-z]*.log: cannot be written: $full"
    on_disk 1 "-r, and seq looks" -n 2 -r 3 seq 20000
    says 1 "$work/disk/log/none_.*/attempt_0/[01]/std[a-z]*.log: cannot be written: $full"
    on_disk 0 "-r, enough room" -n 2 -r 3 seq 1000
    [ "$(grep -c . "$work/err")" = 0 ] || fail "$name: $(cat "$work/err")"
    on_disk 125 "-t, two attempts" -n 2 -t 1 --max-restarts 1 sh -c "seq 20000; $told rm -f '$work/disk/log'/none_*/attempt_0/*/*
        exit \$((7 * (1 - TORCHELASTIC_RESTART_COUNT)))" "$work/err"
    says 1 "cannot be written: $full"
    run 125 "standard output too" $space sh -c 'mount -t tmpfs -o size=64k none "$0" && exec "$@" >"$0/out"' "$work/disk" \
        "$ddprun" -n 2 --log-dir "$work/disk/log" sh -c 'seq 20000'
    says 1 "standard output cannot be written: $full"
    says 1 "$work/disk/log/none_.*: cannot be written: $full"
else
    not_run "log files on a full disk: no file system can be mounted here"
fi

echo "# a worker that meets a full disk is not started again"
article="$trainer --model article --steps 2"
# shellcheck disable=SC2086
to_full 4 "results" -n 1 --max-restarts 2 $article
says 1 'not restarting: rank 0 found the disk full; free space and start again$'
grep -q ' restarting all' "$work/err" && fail "$name: $(cat "$work/err")"
if [ -n "$space" ]; then
    # shellcheck disable=SC2086
    run 4 "a checkpoint" $space sh -c 'mount -t tmpfs -o size=8k none "$0" && exec "$@"' "$work/disk" \
        "$ddprun" -n 2 --max-restarts 2 $article --checkpoint "$work/disk/c" --checkpoint-every 1
    says 1 'not restarting: rank [01] found the disk full'
    grep -q ' restarting all' "$work/err" && fail "$name: $(cat "$work/err")"
fi
# The same exit code for other reasons, or of other programs, may be worth a try.
# shellcheck disable=SC2086
run 4 "no data" "$ddprun" -n 2 --max-restarts 1 $trainer --data "$work/none"
grep -q ' restarting all' "$work/err" && [ "$(grep -c 'not restarting' "$work/err")" = 0 ] || fail "$name: $(cat "$work/err")"
run 4 "another program" "$ddprun" -n 2 --max-restarts 1 sh -c 'echo x >/dev/full; exit 4'
grep -q ' restarting all' "$work/err" && [ "$(grep -c 'not restarting' "$work/err")" = 0 ] || fail "$name: $(cat "$work/err")"

echo "# no newline at the end"
# tail_of NAME PREFIXES ARGUMENT...: two workers whose last words have no newline, "one\nlast RANK" on standard output
# and "err RANK" on standard error
tail_of() {
    name=$1 prefixed=$2
    shift 2
    run 0 "$name" "$ddprun" "$@" sh -c 'printf "one\nlast $RANK"; printf "err $RANK" >&2'
    if [ "$prefixed" = yes ]; then
        [ "$(sort "$work/out")" = "$(printf '[0]: last 0\n[0]: one\n[1]: last 1\n[1]: one')" ] || fail "$name: $(cat "$work/out")"
        [ "$(sort "$work/err")" = "$(printf '[0]: err 0\n[1]: err 1')" ] || fail "$name: $(cat "$work/err")"
    else
        printf 'one\nlast 1' | cmp - "$work/out" || fail "$name: $(cat "$work/out")"
        printf 'err 1' | cmp - "$work/err" || fail "$name: $(cat "$work/err")"
    fi
}
# files NAME: the two workers' log files have just these bytes
files() {
    for rank in 0 1; do
        printf 'one\nlast %s' $rank | cmp - "$work"/"$1"/none_*/attempt_0/$rank/stdout.log || fail "$name: the log of $rank"
        printf 'err %s' $rank | cmp - "$work"/"$1"/none_*/attempt_0/$rank/stderr.log || fail "$name: the log of $rank"
    done
}
tail_of "with prefixes" yes -n 2
tail_of "with prefixes, and log files" yes -n 2 -t 3 --log-dir "$work/t"
files t
tail_of "one rank is shown, and log files" no -n 2 -t 3 --local-ranks-filter 1 --log-dir "$work/f"
files f
tail_of "one rank is shown" no -n 2 --local-ranks-filter 1
run 0 "log files only" "$ddprun" -n 2 -r 3 --log-dir "$work/r" sh -c 'printf "one\nlast $RANK"; printf "err $RANK" >&2'
files r
# longer than the relay's buffer; and a worker that is killed
run 0 "100,000 bytes without a newline" "$ddprun" -n 2 sh -c 'head -c 100000 /dev/zero | tr "\0" "$RANK"'
[ "$(awk '{ print length, substr($0, 1, 6), substr($0, length) }' "$work/out" | sort)" = "$(printf '100005 [0]: 0 0\n100005 [1]: 1 1')" ] ||
    fail "$name: $(awk '{ print length }' "$work/out")"
run 137 "a worker is killed" "$ddprun" -n 2 sh -c 'test $RANK = 0 && exec sleep 60; printf "last words"; kill -9 $$'
[ "$(cat "$work/out")" = '[1]: last words' ] || fail "$name: $(cat "$work/out")"
finish
