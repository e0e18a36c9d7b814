#!/bin/sh
# SPDX-License-Identifier: MIT
# A mistake that all workers find is told once, in full, and nothing is added to it. What differs between workers is told by
# each, and log files have all that each worker wrote.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
# While one worker fails, others exit: the SIGCONT that ends stopped ones, too, hangs a search for leaks that begins then.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
tries=5

# once NAME CODE PATTERN ARGUMENT...: ddprun ends with this code, and all that it shows is one line, with PATTERN
once() {
    name=$1 code=$2 pattern=$3
    shift 3
    for try in $(seq $tries); do
        expect "$name" "$code" "$pattern" $ddprun --grace $((5 * patience)) "$@"
        [ "$(wc -l <"$work/out")" = 1 ] || { fail "$name: not one line"; sed 's/^/    /' "$work/out"; break; }
    done
}

# Options, data, places: the trainer refuses them on every rank.
once "an option" 2 '^\[[0-9]\]: trainer: error: --lr abc: must be' -n 4 "$trainer" --lr abc
once "data" 4 'trainer: rank [0-9]: error: missing: cannot open the data' -n 4 "$trainer" --data missing
once "a combination" 2 'trainer: .*error: --resume needs' -n 4 "$trainer" --model article --epochs 1 --resume
once "a script" 127 'ddprun: error: .*/no.py: cannot read: No such file' -n 4 "$work/no.py"
once "restarts" 2 'error: --lr abc' -n 2 --max-restarts 2 "$trainer" --lr abc

# Log files have it of each; a rank that is not shown does not speak for the others.
all_refuse='"$0" --lr abc; : >"$1.$RANK"; until [ "$(ls "$1".[0-2] | wc -l)" = 3 ]; do sleep 0.01; done; exit 2'
expect "with files" 2 'error: --lr abc' $ddprun -n 3 --log-dir "$work/logs" sh -c "$all_refuse" "$trainer" "$work/refused"
[ "$(cat "$work"/logs/*/attempt_0/*/stderr.log | grep -c 'error: --lr abc')" = 3 ] || fail "not in all files"
for try in $(seq $tries); do
    expect "a filter" 2 '^\[2\]: trainer: error: --lr abc|^trainer: error: --lr abc' \
        $ddprun -n 3 --local-ranks-filter 2 sh -c "$all_refuse" "$trainer" "$work/filter$try"
done

# A worker that fails later is named.
DDP_FAULTS=exit:rank=1,step=3,code=4 expect "in a step" 4 'rank 1 .*exited with code 4 in phase compute, step 3.*; ending the other worker' \
    $ddprun -n 2 "$trainer" --model article --epochs 9

# alike NAME CODE LINES ARGUMENT...: of what all workers write alike, these lines are shown, of one rank; then ddprun's two
alike() {
    name=$1 code=$2 lines=$3
    shift 3
    expect "$name" "$code" "^ddprun: error: all 4 workers exited with code $code" $ddprun -n 4 "$@"
    [ "$(grep -c '^\[[0-3]\]: ' "$work/out")" = "$lines" ] && [ "$(wc -l <"$work/out")" = $((lines + 2)) ] &&
        [ "$(sed -n 's/^\[\([0-3]\)\].*/\1/p' "$work/out" | sort -u | wc -l)" = 1 ] &&
        grep -qE '^ddprun: ranks [0-3] [0-3] [0-3] wrote the same to standard error$' "$work/out" ||
        { fail "$name: not shown once"; sed 's/^/    /' "$work/out"; }
}

# Programs that do not use libddp: what all write is compared. The workers wait for each other, as on a machine that is busy,
# and go on at once: rank 0 writes a line for each of the others, who start no program that needs time.
cat >"$work/stack.sh" <<'END'
exec 9<>"$0.line"
if [ "$RANK" = 0 ]; then
    # time: they are workers, which ddprun ends
    until [ "$(ls "$0".[0-9] 2>/dev/null | wc -l)" = $((WORLD_SIZE - 1)) ]; do sleep 0.01; done
    for rank in 1 2 3; do echo >&9; done
else
    : >"$0.$RANK"
    read -r rank <&9
fi
rank=
case $1 in
    own) rank=" $RANK" ;; # time: one after the other
    later) [ "$RANK" = 0 ] || sleep 0.05 ;;
esac
printf 'Traceback (most recent call last):\n  File "x.py", line 2\nImportError: gone%s' "$rank" >&2
[ "$1$RANK" = cut2 ] || echo >&2
[ "$1" = lives ] && sleep 1 # time: so long it lives
exit 1
END
mkfifo "$work/stack.sh.line"
run_stack() { rm -f "$work"/stack.sh.[0-9]; "$@"; }
run_stack alike "a stack" 1 3 sh "$work/stack.sh"
run_stack alike "a stack, and the process lives on for a while" 1 3 sh "$work/stack.sh" lives
run_stack alike "a rank ends before its last newline" 1 3 sh "$work/stack.sh" cut
run_stack alike "with files" 1 3 --log-dir "$work/alike" sh "$work/stack.sh"
[ "$(cat "$work"/alike/*/attempt_0/*/stderr.log | grep -c ImportError)" = 4 ] || fail "not in all files"
run_stack expect "stacks that differ" 1 'all 4 workers exited with code 1' $ddprun -n 4 sh "$work/stack.sh" own
[ "$(grep -c ': ImportError: gone [0-3]$' "$work/out")" = 4 ] || fail "stacks that differ are not all shown"
if command -v python3 >/dev/null; then
    printf 'import argparse\np = argparse.ArgumentParser()\np.add_argument("--lr", type=float)\np.parse_args()\n' >"$work/a.py"
    expect "argparse" 2 'error: argument --lr: invalid float value' $ddprun -n 2 "$work/a.py" --lr abc
    [ "$(grep -c 'invalid float' "$work/out")" = 1 ] || fail "argparse: not once"
    expect "a module" 1 'No module named no_such_module' $ddprun -n 2 -m no_such_module
    [ "$(grep -c 'No module named' "$work/out")" = 1 ] || fail "a module: not once"
    # On a terminal rank 0 writes there itself; the last line of the others says whether theirs is the same.
    count=$((count + 1))
    rm -f "$work"/stack.sh.[0-9]
    python3 -c 'import pty, sys; pty.spawn(sys.argv[1:])' $ddprun -n 4 sh "$work/stack.sh" </dev/null 2>&1 | tr -d '\r' >"$work/out"
    [ "$(grep -c '^Traceback' "$work/out")" = 1 ] && ! grep -q '\[[0-9]\]: ' "$work/out" &&
        grep -q '^ddprun: ranks 1 2 3 failed too: ImportError: gone$' "$work/out" ||
        { fail "a terminal"; sed 's/^/    /' "$work/out"; }
else
    not_run "Python and a terminal: there is no python3"
fi
# What other ranks write, and warnings, are not held back or left out.
expect "not errors" 0 '' $ddprun -n 2 sh -c 'echo "a warning" >&2'
[ "$(grep -c 'a warning' "$work/out")" = 2 ] || fail "a warning is missing"
finish
