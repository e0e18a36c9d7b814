#!/bin/sh
# SPDX-License-Identifier: MIT
# Much output, long lines, bytes that are not text: what comes out, and what it costs. MEGABYTES=N makes the floods of N
# megabytes; from 800 on the relay's share of the processor is compared with cat's.
# shellcheck disable=SC2016  # the workers' shells expand the variables
set -u
ddprun=./ddprun
helper=./launcher_helper
test -x $ddprun && test -x $helper || { echo "run in the build directory"; exit 99; }
. "${srcdir:-.}/tests/lib/result.inc"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C
unset RANK WORLD_SIZE LOCAL_RANK DDP_LOG
megabytes=${MEGABYTES:-96}
# Resident memory of ddprun at its most; a sanitizer needs more for itself.
limit_kib=4096
case "${DDP_SANITIZE:-}" in '' | none | no) ;; *) limit_kib=400000 ;; esac
fail()
{
    echo "FAIL: $*"
    sed 's/^/    err: /' "$tmp/err" 2>/dev/null | cut -c 1-300 | head -5
    failures=$((failures + 1))
}

# After its output a worker waits for the others, for what they wrote to be read, and rank 0 tells what ddprun has used.
cat >"$tmp/account" <<'END'
: >"$DIR/done.$RANK"
test "$RANK" = 0 || exit 0
# time: they are workers, which ddprun ends; and looking later finds the same peak or a higher one
while test "$(ls "$DIR" | grep -c '^done')" -lt "$WORLD_SIZE"; do sleep 0.02; done
sleep 0.3
sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$PPID/status" >"$DIR/peak"
cut -d ' ' -f 14,15 "/proc/$PPID/stat" >"$DIR/ticks"
END
DIR=$tmp
export DIR

# bounded WHAT
bounded()
{
    count=$((count + 1))
    peak=$(cat "$tmp/peak")
    echo "$1: ddprun had at most $peak KiB"
    test "$peak" -le $limit_kib || fail "$1: ddprun used $peak KiB"
    rm -f "$tmp"/done.* "$tmp/peak"
}

echo "# floods"
$ddprun -n 2 sh -c "$helper flood $((megabytes / 2)); . $tmp/account" 2>"$tmp/err" | wc -c >"$tmp/bytes"
want=$((megabytes / 2 * 2 * (1048576 + 5)))
test "$(cat "$tmp/bytes")" = $want || fail "a flood: $(cat "$tmp/bytes") bytes, not $want"
bounded "a flood of $megabytes MB"
# time: so slow is the reader
$ddprun -n 2 sh -c "$helper flood 8; . $tmp/account" 2>"$tmp/err" | { sleep 1; wc -c >"$tmp/bytes"; }
test "$(cat "$tmp/bytes")" = $((16 * (1048576 + 5))) || fail "a slow reader: $(cat "$tmp/bytes") bytes"
bounded "a slow reader"
$ddprun -n 2 --log-dir "$tmp/log" --tee 3 sh -c "$helper flood $((megabytes / 8)); . $tmp/account" >/dev/null 2>"$tmp/err"
bounded "log files"
for rank in 0 1; do
    test "$(cat "$tmp"/log/*/attempt_0/$rank/stdout.log | wc -c)" = $((megabytes / 8 * 1048576)) || fail "a log file is short"
done
rm -r "$tmp/log"

echo "# a line without an end, and lines of megabytes"
$ddprun -n 2 sh -c "head -c 8000000 /dev/zero | tr '\\0' \"\$RANK\"; . $tmp/account" 2>"$tmp/err" >"$tmp/out"
bounded "lines of 8 MB"
awk '{ print length, substr($0, 1, 6) }' "$tmp/out" | sort >"$tmp/lines"
printf '8000005 [%s]: %s\n' 0 0 1 1 | cmp -s - "$tmp/lines" || fail "lines of 8 MB: $(head -n 5 "$tmp/lines")"
for rank in 0 1; do # not a byte of the other's in it
    other=$((1 - rank))
    if sed -n "s/^\\[$rank\\]: //p" "$tmp/out" | grep -q $other; then fail "a line of 8 MB is mixed"; fi
done
$ddprun -n 4 sh -c "$helper flood 6" 2>"$tmp/err" | awk '{ print length }' | sort | uniq -c >"$tmp/lines"
test "$(tr -s ' ' <"$tmp/lines")" = ' 24 1048580' || fail "lines of a megabyte: $(head -n 5 "$tmp/lines")"

echo "# bytes that are no text"
{ head -c 3000000 /dev/urandom; printf 'a\0b\n\0\0\n\377\n'; head -c 70000 /dev/zero; echo; } >"$tmp/binary"
$ddprun -n 1 cat "$tmp/binary" 2>"$tmp/err" | cmp - "$tmp/binary" || fail "one worker's bytes are changed"
$ddprun -n 2 --local-ranks-filter 1 cat "$tmp/binary" 2>"$tmp/err" | cmp - "$tmp/binary" || fail "a filtered worker's bytes are changed"
$ddprun -n 2 --log-dir "$tmp/log" -t 1 cat "$tmp/binary" >"$tmp/out" 2>"$tmp/err"
for rank in 0 1; do
    cmp "$tmp"/log/*/attempt_0/$rank/stdout.log "$tmp/binary" || fail "a log file's bytes are changed"
    sed -n "s/^\\[$rank\\]: //p" "$tmp/out" | cmp - "$tmp/binary" || fail "lines with zeros are changed"
done

echo "# nobody reads"
{ timeout 20 $ddprun -n 3 --grace 1 sh -c 'yes >&2 & exec yes' 2>&1; echo $? >"$tmp/code"; } | head -c 100 >/dev/null
test "$(cat "$tmp/code")" = 141 || fail "nobody reads: exit code $(cat "$tmp/code")"
timeout 20 $ddprun -n 2 sh -c 'echo x; echo y >&2; exit 3' >&- 2>&-
test $? = 3 || fail "closed output: exit code $?"
timeout 20 $ddprun -n 2 sh -c 'echo x; exit 3' >/dev/full 2>"$tmp/err"
test $? = 3 || fail "a full disk: exit code $?"

if test "$megabytes" -ge 800 && test $limit_kib = 4096; then
    echo "# the processor's time: 8 workers, 100 MB each, and cat of the same"
    line="a line of eighty bytes, as programs write them, many times in a loop, and an end"
    export line
    best=1000000 best_cat=1000000
    for try in 1 2 3; do
        $ddprun -n 8 sh -c "yes \"\$line\" | head -c 104857600; . $tmp/account" 2>"$tmp/err" | cat >/dev/null
        read -r user system <"$tmp/ticks"
        ticks=$((user + system))
        test $ticks -ge $best || best=$ticks
        rm -f "$tmp"/done.*
        yes "$line" | head -c 838860800 | sh -c 'cat; cut -d " " -f 16,17 /proc/$$/stat >"$DIR/ticks"' | cat >/dev/null
        read -r user system <"$tmp/ticks"
        ticks=$((user + system))
        test $ticks -ge $best_cat || best_cat=$ticks
    done
    echo "ddprun: $best ticks; cat: $best_cat"
    test $best -lt $((2 * best_cat)) || fail "the relay takes more than cat twice"
fi
finish
