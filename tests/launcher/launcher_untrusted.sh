#!/bin/sh
# SPDX-License-Identifier: MIT
# Names and texts that hold ESC, OSC, C1 and bytes that are not UTF-8 do not reach the terminal through what ddprun says.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"
evil=$(printf 'e\033[2J\033]0;title\007\302\233m\233\177l')
shown='e\\x1b\[2J\\x1b\]0;title\\x07\\u009bm\\x9b\\x7fl'
mkdir "$work/$evil"

# clean CODE NAME PATTERN ARGUMENT...: ddprun says this, and not a byte of its output is of another kind
clean() {
    code=$1 name=$2 pattern=$3
    shift 3
    expect "$name" "$code" "$pattern" "$ddprun" "$@"
    tr -d '[:print:]\n\t' <"$work/out" | cmp -s - /dev/null || fail "$name: $(od -c "$work/out" | head -n 8)"
}

PATH=/usr/bin:/bin clean 127 "a program that is not there" "$shown: no such program" -n 2 "$evil"
clean 127 "a program in a directory" "$shown/none: .*No such file" -n 2 "$work/$evil/none"
: >"$work/$evil/plain"
clean 126 "a program that is none" "$shown/plain: .*Permission denied" -n 2 "$work/$evil/plain"
printf '#!/no%s\n' "$evil" >"$work/$evil/script"
chmod +x "$work/$evil/script"
clean 126 "an interpreter" "$shown/script: its interpreter /no$shown" -n 2 "$work/$evil/script"
ln -s /bin/true "$work/$evil/true"
clean 0 "--dry-run" "^program: .*/$shown/true" -n 2 --dry-run "$work/$evil/true" "$evil" "it's"
words="$(sed -n 's/^command://p' "$work/out")"
[ "$(bash -c "printf '%s.' $words")" = "$work/$evil/true.$evil.it's." ] || fail "--dry-run: bash does not read it back: $words"
clean 0 "an address" "MASTER_ADDR=e" -n 1 --dry-run --master-addr "$evil" true
clean 2 "an option" "$shown" --nproc "$evil" true
clean 2 "an unknown option" "$shown" "--$evil" true
DDP_FAULTS="kill:$evil" clean 2 "a fault" "$shown" true
clean 2 "a process" "$shown" status "$evil"
clean 125 "a directory of logs that cannot be made" "$shown/plain" --log-dir "$work/$evil/plain" -r 3 true
# What a worker leaves: its reason, and its last words. Its own output is not touched, so it goes to files.
EVIL=$evil
export EVIL
printf '#!/bin/sh\n%s\n' 'printf "{\"message\": \"first %s\\\\u001b[2J\\\\u009b\\\\nsecond \\\\u001b[2J\"}" >"$TORCHELASTIC_ERROR_FILE"
printf "words %s\n" "$EVIL" >&2; exit 5' >"$work/fails"
chmod +x "$work/fails"
clean 5 "a reason" 'reported: first .*\\x1b\[2J\\u009b$' -n 1 --log-dir "$work/log" -r 3 "$work/fails"
grep -q '^ddprun: error:   | second \\x1b\[2J$' "$work/out" || fail "a reason: $(cat "$work/out")"
grep -q "^ddprun: error:   | words $shown\$" "$work/out" || fail "last words: $(cat "$work/out")"
TMPDIR="$work/$evil" clean 0 "a directory that is named" "log files are in .*/$shown/" -n 1 -r 3 true
finish
