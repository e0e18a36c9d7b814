#!/bin/sh
# SPDX-License-Identifier: MIT
# What every job relies on, in a second or two; launcher.sh has the rest. check-mutants plants faults in it.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"

# prints NAME CODE TEXT COMMAND...: the exit code, and the lines of the output in any order
prints() {
    name=$1 code=$2 text=$3
    shift 3
    expect "$name" "$code" '' "$@"
    printf '%s\n' "$text" | sort >"$work/want"
    grep -v '^ddprun: ' "$work/out" | sort | cmp -s - "$work/want" || fail "$name: $(cat "$work/out")"
}

prints "ranks" 0 "$(printf '[%d]: %d %d 3 3\n' 0 0 0 1 1 1 2 2 2)" \
    "$ddprun" -n 3 sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE"'
prints "restarts" 0 "$(printf '[%d]: attempt %d\n' 0 0 1 0 0 1 1 1)" \
    "$ddprun" -n 2 --max-restarts 2 sh -c 'n=$TORCHELASTIC_RESTART_COUNT; echo "attempt $n"
        : >"$0.$RANK.$n"; until [ -e "$0.0.$n" ] && [ -e "$0.1.$n" ]; do sleep 0.02; done; exit $((1 - n))' "$work/both"
prints "no signal is blocked" 0 "$(printf '[%d]: 0000000000000000\n' 0 1)" \
    "$ddprun" -n 2 sed -n 's/^SigBlk:[[:space:]]*//p' /proc/self/status
prints "standard input is rank 0's" 0 "$(printf '[%d]: %s\n' 0 input 1 /dev/null 2 /dev/null)" \
    sh -c 'echo input | "$0" -n 3 sh -c "test \$RANK = 0 && exec cat; readlink /proc/self/fd/0"' "$ddprun"

# A worker may be a script that trains twice.
expect "two trainings" 0 '' "$ddprun" -n 2 sh -c '"$@" && exec "$@"' sh "$trainer" --model article --epochs 1 --quiet

# Which Python: the one beside ddprun, by its path, so that it finds its virtual environment; unless PATH led to ddprun, be it
# through a link.
mkdir "$work/venv" "$work/tools" "$work/active" && cp "$ddprun" "$work/venv" && ln -s "$work/venv/ddprun" "$work/tools"
for program in venv/python3 venv/only active/python3; do
    cp "$(command -v sh)" "$work/$program"
done
printf '%s\n' 'tr "\0" "\n" </proc/$$/cmdline | head -n 1' >"$work/train.py"
prints "the Python beside ddprun" 0 "$work/venv/python3" env PATH="$work/active:$PATH" "$work/venv/ddprun" -n 1 "$work/train.py"
prints "PATH's Python" 0 "$work/active/python3" env PATH="$work/active:$work/tools:$PATH" ddprun -n 1 "$work/train.py"
prints "beside the link's target, for want of others" 0 only env PATH="$work/tools:$PATH" ddprun -n 1 only "$work/train.py"

# A line longer than all buffers is one line, with one prefix.
prints "a long line" 0 '300006' \
    sh -c '"$0" -n 2 sh -c "test \$RANK = 1 || { head -c 300000 /dev/zero | tr \"\\0\" x; echo; }" | wc -c' "$ddprun"

# A rank that gave up because of another one ends first; the other one is named.
expect "the rank that failed" 9 '^ddprun: error: rank 1 .*exited with code 9' \
    "$ddprun" -n 2 sh -c 'test $RANK = 0 && { echo $$ >"$0"; exit 6; }
        until [ -s "$0" ] && ! kill -0 "$(cat "$0")" 2>/dev/null; do sleep 0.02; done; exit 9' "$work/first"

# What workers leave behind: children, in sessions of their own, and theirs.
expect "leftovers" 0 '' "$ddprun" -n 2 sh -c 'setsid sh -c "sleep 60 & echo \$! >>$0; sleep 60" & echo $! >>"$0"
    until [ "$(wc -l <"$0")" -eq 4 ]; do sleep 0.02; done' "$work/pids"
[ "$(wc -l <"$work/pids")" -eq 4 ] || fail "leftovers: $(cat "$work/pids")"
for pid in $(cat "$work/pids"); do
    kill -0 "$pid" 2>/dev/null && fail "process $pid is left"
done

# The same when ddprun itself is killed: the keeper ends them.
count=$((count + 1))
rm "$work/pids"
"$ddprun" -n 2 sh -c 'echo $$ >>"$0"; setsid sh -c "echo \$\$ >>$0; exec sleep 60" & sleep 60' "$work/pids" >"$work/out" 2>&1 &
tries=500
until [ "$(cat "$work/pids" 2>/dev/null | wc -l)" -eq 4 ] || [ $((tries -= 1)) -eq 0 ]; do sleep 0.02; done
kill -9 $!
wait $! 2>/dev/null
for pid in $(cat "$work/pids"); do
    tries=250
    while kill -0 "$pid" 2>/dev/null && [ $((tries -= 1)) -gt 0 ]; do sleep 0.02; done
    [ $tries -gt 0 ] || { fail "ddprun was killed, and process $pid is left"; kill -9 "$pid"; }
done
finish
