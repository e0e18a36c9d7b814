#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun takes, or refuses by name, every option that the installed torchrun has, and does with the newer ones what it says.
# TORCHRUN="command" compares with another one than that of python3.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"

# said NAME CODE PATTERN ARGUMENT...: ddprun true with these
said() {
    name=$1 code=$2 pattern=$3
    shift 3
    expect "$name" "$code" "$pattern" $ddprun -n 2 "$@" true
}

echo "# the newer ones"
template='${hostname}/${role_name}${local_rank}/${rank}: '
expect "a prefix" 0 "^$(hostname)/w1/1: x\$" $ddprun -n 2 --role w --log-line-prefix-template "$template" sh -c 'echo x'
export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='<${rank}> '
expect "a prefix of the environment" 0 '^<1> x$' $ddprun -n 2 sh -c 'echo x'
expect "the option wins" 0 '^=1= x$' $ddprun -n 2 --log_line_prefix_template '=${rank}= ' sh -c 'echo x'
unset TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE

# filtered NAME WANT ARGUMENT...: the sorted lines of the file of stdout, joined
filtered() {
    name=$1 want=$2
    shift 2
    rm -rf "$work/logs"
    expect "$name" 0 '' $ddprun --log-dir "$work/logs" "$@"
    got=$(sort "$work"/logs/*/attempt_0/filtered_std"$stream".log | paste -sd';')
    [ "$got" = "$want" ] || fail "$name: $got"
}
lines='printf "an apple\nplain\na,b $RANK\nend orange"; printf "apple pie\n" >&2'
stream=out
filtered "lines of all ranks" '[0]: an apple;[0]: end orange;[1]: an apple;[1]: end orange' \
    -n 2 --duplicate-stdout-filters apple,orange sh -c "$lines"
filtered "a comma" '[0]: a,b 0;[1]: a,b 1' -n 2 --duplicate_stdout_filters 'a,,b' sh -c "$lines"
filtered "ranks that are not shown" '[0]: a,b 0;[1]: a,b 1;[2]: a,b 2' \
    -n 3 --local-ranks-filter 0,2 --tee 3 --duplicate-stdout-filters ',none,a,,b' sh -c "$lines"
grep -q '^\[1\]' "$work/out" && fail "rank 1 is shown"
filtered "nothing" '' -n 2 --duplicate-stdout-filters ',' sh -c "$lines"
stream=err
filtered "standard error" 'apple pie' -n 1 --duplicate-stderr-filters apple sh -c "$lines"
said "no files" 2 'duplicate-stdout-filters needs --tee or --log-dir' --duplicate-stdout-filters x

printf 'import sys\nprint("ran", sys.argv[1])\n' >"$work/script"
if command -v python3 >/dev/null; then
    expect "a script of any name" 0 '^ran one$' $ddprun -n 1 --run-path "$work/script" one
    expect "it wins" 0 '^ran one$' $ddprun -n 1 --no-python --run_path "$work/script" one
fi
expect "an address" 0 '^\[1\]: 10.0.0.9$' $ddprun -n 2 --local-addr 10.0.0.9 sh -c 'echo $MASTER_ADDR'
expect "the other address wins" 0 '^\[1\]: ::1$' $ddprun -n 2 --local-addr 10.0.0.9 --master-addr ::1 sh -c 'echo $MASTER_ADDR'
expect "a time" 137 'did not end within 0.2 s' \
    $ddprun -n 1 --shutdown-timeout 0.2 sh -c 'trap "" TERM; kill -TERM $PPID; while :; do sleep 0.05; done'
expect "signals" 140 'SIGUSR2: ending 1 worker' \
    $ddprun -n 1 --signals-to-handle SIGTERM,USR2 sh -c 'kill -USR2 $PPID; exec sleep 60'
for list in SIGKILL SIGNONE '' 'SIGTERM,,SIGUSR1' SIG; do
    said "signals '$list'" 2 'must be signals that can end a job' --signals-to-handle "$list"
done
said "handlers" 0 '' --event-log-handler null --logs-specs default --use-env --start-method fork
said "another handler" 2 'only null is possible' --event-log-handler console
said "other logs" 2 'only default is possible: .*--tee' --logs-specs mine
said "completion" 2 'installed with ddprun' --print-completion bash

echo "# all of them"
for candidate in python3 /usr/bin/python3; do
    [ -z "${TORCHRUN:-}" ] && $candidate -c 'import torch.distributed' 2>/dev/null && TORCHRUN="$candidate -m torch.distributed.run"
done
${TORCHRUN:-torchrun} --help >"$work/help" 2>"$work/err" ||
    { not_run "torchrun's options: there is no PyTorch: $(tail -n 1 "$work/err")"; finish; }
grep -oE -- '^ +(-[a-zA-Z].*, )?--[a-z0-9_-]+' "$work/help" | grep -oE -- '--[a-z0-9_-]+' | tr _ - | sort -u >"$work/theirs"
[ "$(wc -l <"$work/theirs")" -gt 15 ] || fail "torchrun --help has only: $(cat "$work/theirs")"
while read -r option; do
    count=$((count + 1))
    $ddprun "$option" >"$work/out" 2>&1
    ! grep -q 'unknown option' "$work/out" || fail "torchrun has $option, which ddprun neither takes nor refuses by name"
done <"$work/theirs"
echo "$(wc -l <"$work/theirs") options of torchrun"
finish
