#!/bin/sh
# SPDX-License-Identifier: MIT
# A job over several nodes, which are here two ddpruns on one machine: what workers see, how the job ends when any of it
# fails, is asked to stop, or hangs, and that both ddpruns say the same.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
set -u
. "${srcdir:-.}/tests/lib/result.inc"
test -x ./ddprun || { echo "run in the build directory"; exit 99; }
tmp=$(mktemp -d) || exit 99
export LC_ALL=C DDPRUN_KEY=one-key-for-both-of-them-00 TMPDIR="$tmp"
unset RANK WORLD_SIZE LOCAL_RANK DDP_LOG
helper=./launcher_helper
node0='' node1='' watchdog='' number=0
trap 'kill -9 $node0 $node1 $watchdog 2>/dev/null; rm -rf "$tmp"' EXIT

# begin OPTION...: both ddpruns, in the background; node 0 gets those of $only0 too. A node that only waits for a busy
# processor is not lost; the tests of lost nodes have the launcher's own limit.
only0=
limit="--node-timeout $((5 * patience))"
begin() {
    new_job
    begin_node 1 $limit "$@"
    begin_node 0 $limit $only0 "$@"
    watch
}
begin_node() {
    node=$1
    shift
    env --default-signal=INT ./ddprun --nnodes 2 --node-rank $node --master-addr 127.0.0.1 --master-port $port "$@" \
        >"$tmp/out$node" 2>"$tmp/err$node" &
    eval "node$node=\$!"
}
new_job() {
    number=$((number + 1))
    port=$((21000 + ($$ * 37 + number * 101) % 9000))
    for node in 0 1; do : >"$tmp/err$node"; done # nothing of the job before is seen
    node0='' node1=''
}
watch() {
    # time: the limit
    (sleep $((60 * patience)) && kill -KILL $node0 $node1) 2>/dev/null &
    watchdog=$!
}

wrong() {
    fail "$@"
    sed 's/^/    0: /' "$tmp/out0" "$tmp/err0" | head -20
    sed 's/^/    1: /' "$tmp/out1" "$tmp/err1" | head -20
}

# ends NAME CODE0 [CODE1]: both, with these exit codes
ends() {
    count=$((count + 1))
    wait $node0
    got0=$?
    test -z "$node1" || wait $node1
    got1=$?
    pkill -P $watchdog
    wait $watchdog 2>/dev/null
    test $got0 = "$2" || wrong "$1: node 0 ended with $got0"
    test $got1 = "${3-$2}" || wrong "$1: node 1 ended with $got1"
}

# says NAME PATTERN: both, as an error
says() {
    count=$((count + 1))
    for node in 0 1; do
        test "$(grep -cE "^ddprun: error: .*$2" "$tmp/err$node")" = 1 || wrong "$1: node $node does not say: $2"
    done
}

# until_in FILE PATTERN
until_in() {
    tries=$((3000 * patience))
    until grep -qE "$2" "$1" 2>/dev/null || test $tries = 0; do
        tries=$((tries - 1))
        sleep 0.01
    done
    test $tries -gt 0 || wrong "never there: $2"
}

workers_up() {
    for rank in 0 1 2 3; do until_in "$tmp/pid.$rank" .; done
}

# all_gone NAME: no worker whose process is in pid.RANK is left
all_gone() {
    count=$((count + 1))
    for rank in 0 1 2 3; do
        tries=$((500 * patience))
        while kill -0 "$(cat "$tmp/pid.$rank")" 2>/dev/null && test $tries -gt 0; do
            tries=$((tries - 1))
            sleep 0.01
        done
        test $tries -gt 0 || wrong "$1: rank $rank is left"
    done
    rm -f "$tmp"/pid.*
}

# A ddprun that is stopped waits for nobody.
has_ended() {
    case $(ps -o state= -p "$1") in '' | Z) ;; *) false ;; esac
}

# all_gone_of NODE
all_gone_of() {
    for rank in $((2 * $1)) $((2 * $1 + 1)); do
        until_true has_ended "$(cat "$tmp/pid.$rank")" || wrong "rank $rank is left"
    done
}
waits='echo $$ >"$0.$RANK"; exec sleep 600' # longer than any test: what should end it must

# --- what workers see -------------------------------------------------------------------------------------------------

begin -n 2 sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE ${DDPRUN_KEY-none}"'
ends environment 0
sort "$tmp/out0" "$tmp/out1" >"$tmp/all"
printf '[%d]: %s none\n' 0 '0 0 4 2 0 2' 1 '1 1 4 2 0 2' 2 '2 0 4 2 1 2' 3 '3 1 4 2 1 2' | cmp - "$tmp/all" || wrong environment

begin -n 2 $helper train 40
ends 'ids, addresses and barriers' 0

# unequal OPTION...: three workers on node 0, one on node 1
unequal() {
    new_job
    begin_node 1 $limit -n 1 "$@"
    begin_node 0 $limit -n 3 "$@"
    watch
}
unequal sh -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE"'
ends 'unequal: environment' 0
sort "$tmp/out0" "$tmp/out1" >"$tmp/all"
printf '[%d]: %s\n' 0 '0 0 4 3 0 2 0 4' 1 '1 1 4 3 0 2 1 4' 2 '2 2 4 3 0 2 2 4' 3 '3 0 4 1 1 2 3 4' | cmp - "$tmp/all" ||
    wrong 'unequal: environment'
unequal $helper train 40
ends 'unequal: ids, addresses and barriers' 0
DDP_FAULTS=kill:rank=3,step=30 unequal $helper train 3000
ends 'unequal: inject' 137
says 'unequal: inject' 'rank 3 \(.*\) on node 1 \(.*\) was killed by SIGKILL'
DDP_FAULTS=kill:rank=2,step=5 unequal --max-restarts 1 $helper train 40
ends 'unequal: restarted' 0

begin -n 1 sh -c 'cat; echo "$RANK"' <"$0"
ends 'standard input' 0
grep -q '^\[0\]: # SPDX' "$tmp/out0" || test "$(wc -l <"$tmp/out0")" -gt 0 || wrong 'rank 0 has no standard input'
test "$(wc -l <"$tmp/out1")" = 1 || wrong 'rank 1 reads standard input'

# --- failures ---------------------------------------------------------------------------------------------------------

for victim in 0 3; do
    rm -f "$tmp"/pid.*
    begin -n 2 sh -c "$waits" "$tmp/pid"
    workers_up
    kill -KILL "$(cat "$tmp/pid.$victim")"
    start=$(date +%s%N)
    ends "rank $victim killed" 137
    took=$((($(date +%s%N) - start) / 1000000))
    echo "rank $victim killed: all have ended after $took ms"
    test $took -lt $((5000 * patience)) || wrong "rank $victim killed: took $took ms"
    says "rank $victim killed" "rank $victim \(pid [0-9]+\) on node $((victim / 2)) \(.*\) was killed by SIGKILL"
    all_gone "rank $victim killed"
done

begin -n 2 sh -c 'test $RANK = 3 || exec sleep 60; echo "the reason" >&2; exit 7'
ends 'exit 7' 7
says 'exit 7' 'rank 3 \(pid [0-9]+\) on node 1 \(.*\) exited with code 7.*; ending all nodes'
grep -q '^ddprun: error:   | the reason$' "$tmp/err0" || wrong 'node 0 does not show the last words'
grep -q '| the reason$' "$tmp/err1" && wrong 'node 1 shows the last words twice'

begin -n 2 sh -c 'exit 5'
ends 'all alike' 5
says 'all alike' 'all 4 workers exited with code 5'

# Victims end first, on both nodes.
begin -n 2 $helper abort 3
ends abort 9
says abort 'rank 3 \(.*\) on node 1 \(.*\) exited with code 9 in phase backward, step 42, inside all-reduce 1042'

# Peers of another kind of program: they fail on their own, all of a node, before its launcher is sure of the first.
rm -f "$tmp/failed"
# time: they fail soon after it
begin -n 2 sh -c 'case $RANK in 3) : >"$0"; exit 7 ;; 2) exec sleep 60 ;; esac
    until test -e "$0"; do sleep 0.02; done; sleep 0.1; exit 1' "$tmp/failed"
ends 'peers fail too' 7
says 'peers fail too' 'rank 3 \(.*\) on node 1 \(.*\) exited with code 7'

DDP_FAULTS=kill:rank=2,step=30 begin -n 2 $helper train 3000
ends inject 137
says inject 'rank 2 \(.*\) on node 1 \(.*\) was killed by SIGKILL \(Killed\) in phase train, step 30'

DDP_FAULTS=kill:rank=4 begin -n 2 true
ends 'a fault of nobody' 2
says 'a fault of nobody' 'DDP_FAULTS: kill:rank=4: there is no rank 4 among 4 workers'
./ddprun --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 -n 1:2 --max-restarts 1 true 2>"$tmp/err"
test $? = 2 || fail '--nproc MIN:N over nodes'

# A rank that the others wait for ends, and well.
DDP_FAULTS=exit:rank=3,step=9,code=0 begin -n 2 $helper train 100000
ends 'a rank leaves' 1
says 'a rank leaves' 'rank 3 \(.*\) on node 1 \(.*\) exited with code 0 without closing the job .* in phase train, step 9'

# A node that is done early waits, and ends with the code of the others.
# time: if it were not the first, the end would be the same
begin -n 2 sh -c 'test $GROUP_RANK = 0 || exit 0; sleep 0.5; exit $0' 0
ends 'done early' 0
begin -n 2 sh -c 'test $GROUP_RANK = 1 || exit 0; sleep 0.5; test $RANK = 3 || exec sleep 60; exit 6'
ends 'done early, then a failure' 6
says 'done early, then a failure' 'rank 3 \(.*\) exited with code 6'

# --- lost nodes -------------------------------------------------------------------------------------------------------

usual=$limit limit=
for lost in 0 1; do
    other=$((1 - lost))
    begin -n 2 sh -c "$waits" "$tmp/pid"
    workers_up
    if test $lost = 0; then kill -KILL "$node0"; else kill -KILL "$node1"; fi
    if test $lost = 0; then ends "ddprun $lost killed" 137 125; else ends "ddprun $lost killed" 125 137; fi
    grep -q "^ddprun: error: node $lost (.*) is lost: its ddprun has ended" "$tmp/err$other" || wrong "ddprun $lost killed"
    all_gone "ddprun $lost killed"

    begin -n 2 sh -c "$waits" "$tmp/pid"
    workers_up
    eval "stopped=\$node$lost"
    kill -STOP "$stopped"
    start=$(date +%s%N)
    until_in "$tmp/err$other" 'is lost' # then it ends its workers
    all_gone_of $other
    took=$((($(date +%s%N) - start) / 1000000))
    echo "ddprun $lost stopped: the other has ended after $took ms"
    test $took -lt $((20000 * patience)) || wrong "ddprun $lost stopped: took $took ms"
    all_gone_of $lost # its keepers end its workers
    kill -CONT "$stopped"
    ends "ddprun $lost stopped" 125
    says "ddprun $lost stopped" "node $lost \(.*\) is lost: it has not answered for 5 s; ending all nodes"
    all_gone "ddprun $lost stopped"

    # The same when the workers end meanwhile, and well.
    rm -f "$tmp/go"
    begin -n 1 sh -c 'echo $$ >"$0.$RANK"; until test -e "$1"; do sleep 0.02; done' "$tmp/pid" "$tmp/go"
    for rank in 0 1; do until_in "$tmp/pid.$rank" .; done
    eval "stopped=\$node$lost"
    kill -STOP "$stopped"
    touch "$tmp/go"
    until_in "$tmp/err$other" 'is lost'
    kill -CONT "$stopped"
    ends "ddprun $lost stopped, and all workers end" 125
    says "ddprun $lost stopped, and all workers end" "node $lost \(.*\) is lost: it has not answered for 5 s; ending all nodes"
    rm -f "$tmp"/pid.*
done
limit=$usual

# --- restarts ---------------------------------------------------------------------------------------------------------

begin -n 2 --max-restarts 2 --log-dir "$tmp/logs" sh -c \
    'echo "attempt $TORCHELASTIC_RESTART_COUNT $MASTER_PORT"; test "$RANK$TORCHELASTIC_RESTART_COUNT" != 30 || exit 4
    test "$RANK$TORCHELASTIC_RESTART_COUNT" != 01 || exit 5'
ends restarts 0
for node in 0 1; do
    grep -q 'restarting all workers (2 of 2)' "$tmp/err$node" || wrong "node $node did not restart"
done
test "$(cat "$tmp"/logs/*/attempt_2/[0-3]/stdout.log | sort -u | wc -l)" = 1 || wrong 'ranks of one attempt have two ports'
test "$(cat "$tmp"/logs/*/attempt_*/3/stdout.log | wc -l)" = 3 || wrong 'logs of rank 3'

begin -n 2 --max-restarts 1 sh -c 'test $RANK != 1 || exit 4; exec sleep 60'
ends 'restarts are over' 4

DDP_FAULTS=kill:rank=3,step=5 begin -n 2 --max-restarts 3 $helper train 40
ends 'restart of a program that uses libddp' 0

# A signal between two attempts.
# time: what an attempt lasts
begin -n 2 --max-restarts 100 sh -c 'sleep 0.1; exit 3'
until_in "$tmp/err1" 'restarting all workers \(3 of'
kill -TERM "$node1"
ends 'signal while restarting' 143

# A signal when another attempt is to follow, while workers of one node still end.
late='test "$TORCHELASTIC_RESTART_COUNT" = 0 || exec sleep 60; test "$RANK" != "$1" || exit 3
    trap "" TERM; until test -e "$0"; do sleep 0.05; done'
for ending in 0 1; do
    for signalled in 0 1; do
        rm -f "$tmp/go"
        begin -n 1 --max-restarts 3 --grace 60 sh -c "$late" "$tmp/go" $((1 - ending))
        until_in "$tmp/err0" 'exited with code 3'
        until_in "$tmp/err1" 'exited with code 3'
        if test $signalled = 0; then kill -TERM "$node0"; else kill -TERM "$node1"; fi
        touch "$tmp/go"
        ends "TERM to node $signalled before a restart, while node $ending ends" 143
    done
done

# --- requests to stop -------------------------------------------------------------------------------------------------

# stopped NAME: all ranks before the same step
stopped() {
    ends "$1" 75
    cat "$tmp/out0" "$tmp/out1" | sed 's/^\[.\]: //' >"$tmp/all"
    test "$(wc -l <"$tmp/all")" = 4 || wrong "$1: not all have stopped"
    test "$(sort -u "$tmp/all" | wc -l)" = 1 || wrong "$1: not before the same step"
}

steps() {
    begin -n 2 $helper train 100000
    until_true sh -c './ddprun status "$0" 2>/dev/null | grep -q "train  *[1-9]"' "$node0" || wrong "no step is done"
}
steps
kill -TERM "$node1"
stopped 'TERM to node 1'
steps
kill -USR1 "$node0"
stopped 'USR1 to node 0'
steps
kill -TERM "$node0" "$node1"
kill -TERM "$node1" "$node0"
stopped 'TERM to both, twice'
steps # as Slurm sends it: to every process of the step, and again
for pid in "$node0" "$node1" $(pgrep -P "$node0" -x launcher_helper) $(pgrep -P "$node1" -x launcher_helper); do
    kill -TERM "$pid"
done
stopped 'TERM to every process'
steps
kill -TERM "$(pgrep -P "$node1" -x launcher_helper | head -1)"
stopped 'TERM to one worker'

# While node 0 waits for the other, long before the workers can take it; then without the other.
waits_alone() {
    new_job
    begin_node 0 --node-timeout $((60 * patience)) -n 2 $helper train 100000
    watch
    until_true grep -q "^ *[0-9]*: 0100007F:$(printf %04X $port) " /proc/net/tcp
    kill -"$1" $node0
}
for signal in USR1 TERM INT; do
    waits_alone $signal
    begin_node 1 $limit -n 2 $helper train 100000
    stopped "$signal while node 0 waits"
    grep -q "^ddprun: SIG$signal: waiting 3 s for nodes" "$tmp/err0" || wrong "$signal while node 0 waits: it does not say so"
done
waits_alone TERM
ends 'TERM, and the other node does not come' 75 0
grep -q '^ddprun: SIGTERM: not all nodes have joined yet; nothing was started' "$tmp/err0" || wrong 'TERM, and no other node: not said'

# One of those that have come is asked: the others hear it.
new_job
for node in 0 1; do
    begin_node $node --nnodes 3 --node-timeout $((60 * patience)) -n 2 $helper train 100000
done
watch
until_in "$tmp/err0" '^ddprun: waiting for node 2 of 3' # so node 1 has come
kill -TERM "$node1"
ends 'TERM to node 1 while node 2 is missing' 75
grep -q 'another node was asked to stop before all had come' "$tmp/err0" || wrong 'TERM to node 1 while node 2 is missing: not said'

# Workers that do not accept requests get the signal, and nobody announces anything else.
begin -n 1 sh -c "$waits" "$tmp/pid"
until_true test -s "$tmp/pid.0" -a -s "$tmp/pid.1"
kill -USR1 "$node1"
ends 'USR1 to workers that do not accept it' 138
says 'USR1 to workers that do not accept it' 'rank [01] .* was killed by SIGUSR1'
! grep -q 'stopping after this step' "$tmp/err0" "$tmp/err1" || wrong 'USR1 is announced as a request'

# --- other signals ----------------------------------------------------------------------------------------------------

for both in HUP:129 INT:130 TERM:143; do
    signal=${both%:*}
    begin -n 2 sh -c "$waits" "$tmp/pid"
    workers_up
    kill -"$signal" "$node1"
    ends "$signal" "${both#*:}"
    all_gone "$signal"
done

# A signal that all nodes get is one request, also where one of them hears of it first.
# time: in which the second one comes
begin -n 1 sh -c 'trap "sleep 1; exit 0" INT; echo $$ >"$0.$RANK"; sleep 60 & wait' "$tmp/pid"
until_true test -s "$tmp/pid.0" -a -s "$tmp/pid.1"
kill -INT "$node1"
until_in "$tmp/err0" 'SIGINT on node 1'
kill -INT "$node0"
ends 'INT to both' 0
for node in 0 1; do
    ! grep -q 'killing' "$tmp/err$node" || wrong "INT to both: node $node takes them for two requests"
done

# --- hangs, status ----------------------------------------------------------------------------------------------------

unequal --timeout 1 --setup-timeout 1 $helper hang 2
until ./ddprun status "$node0" 2>/dev/null | grep -qE 'node 1 \(.*\): 1 of 1 workers run, step 13, phase backward; heard'; do
    kill -0 "$node0" 2>/dev/null || { wrong 'status does not show node 1'; break; }
    sleep 0.02
done
./ddprun status "$node1" | grep -q 'node 1 of 2, 1 worker,' || test ! -d "/proc/$node1" || wrong 'status of node 1'
ends timeout 124
says timeout 'no rank has made progress for 1 s before the first step was finished'
grep -q 'rank 2 has not arrived at all-reduce 1042' "$tmp/err0" || wrong 'node 0 does not say who is missing'
grep -q '^ddprun:  *1 .* backward ' "$tmp/err0" || wrong 'node 0 has no table'

# Before a step is finished, on any node, it takes longer.
DDP_FAULTS=slow:rank=3,step=1,ms=$((3000 * patience)) begin -n 2 --timeout $((2 * patience)) $helper steps 5
ends 'slow to set up' 0
DDP_FAULTS=slow:rank=0,step=2,ms=9000 begin -n 2 --timeout 1 $helper steps 5
ends 'slow in a step' 124
says 'slow in a step' 'no rank has made progress for 1 s; ending'

# One node moves: that is no hang.
# time: twice the limit
begin -n 1 --timeout 2 sh -c 'test $RANK = 1 || { sleep 4; exit 0; }; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i; sleep 0.2; done'
ends 'one node works' 0

# A node that does not look whether its workers move is not taken for one whose do not.
# time: twice the limit
only0='--timeout 2'
begin -n 1 sh -c 'test $RANK = 1 || { sleep 4; exit 0; }; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $i; sleep 0.2; done'
ends 'a limit of one node' 0
only0=

begin -n 2 --straggler-report $helper straggle 3
ends stragglers 0
grep -q 'rank 3 arrived last most often' "$tmp/err0" || wrong stragglers
finish
