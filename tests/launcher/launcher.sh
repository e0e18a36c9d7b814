#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun from outside: exit codes, messages, environment, signals, and that nothing is left behind.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/result.inc"
set -u
ddprun=./ddprun
helper=./launcher_helper
test -x $ddprun && test -x $helper || { echo "run in the build directory"; exit 99; }

tmp=$(mktemp -d) || exit 99
DDPRUN_TEST_MARK=mark.$$.$(basename "$tmp")
export DDPRUN_TEST_MARK
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:handle_segv=0" UBSAN_OPTIONS="${UBSAN_OPTIONS:-}:handle_segv=0"
export TSAN_OPTIONS="${TSAN_OPTIONS:-}:handle_segv=0"
unset RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS CUDA_VISIBLE_DEVICES DDP_LOG || :

# Every process of these tests carries the mark in its environment. Prints those there are, but this shell's.
marked()
{
    grep -lsaF "$DDPRUN_TEST_MARK" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        command=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || continue
        case $command in
            '' | *launcher.sh* | 'grep -lsaF '*) ;;
            *) echo "$pid $command" ;;
        esac
    done 2>/dev/null
}

cleanup()
{
    marked | while read -r pid rest; do
        kill -9 "$pid"
    done
    rm -rf "$tmp"
}
trap cleanup EXIT

fail()
{
    echo "FAIL: $*"
    sed 's/^/    err: /' "$tmp/err" 2>/dev/null | head -5
    failures=$((failures + 1))
}

# run CODE arguments...: ddprun must end with this code; its output is in $tmp/out and $tmp/err.
run()
{
    want=$1
    shift
    count=$((count + 1))
    timeout -k 1 60 $ddprun "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    test $got = "$want" || fail "ddprun $*: exit code $got, not $want"
}

# says TEXT: standard error has it, on exactly one line that begins with "ddprun: ".
says()
{
    test "$(grep -c "^ddprun: .*$1" "$tmp/err")" = 1 || fail "no (single) line with: $1"
}

quiet()
{
    test ! -s "$tmp/err" || fail "unexpected words on standard error"
}

# gone SECONDS: after this time no marked process is left.
gone()
{
    tries=$(($1 * 10))
    while left=$(marked) && test -n "$left"; do
        tries=$((tries - 1))
        if test $tries -lt 0; then
            fail "left behind: $left"
            return
        fi
        sleep 0.1
    done
}

# The lines of $tmp/out without their prefixes, in $tmp/sorted.
bare_sorted()
{
    sed 's/^\[[0-9]*\]: //' "$tmp/out" | sort >"$tmp/sorted"
}

now_ms()
{
    echo $(($(date +%s%N) / 1000000))
}

echo "# exit codes"
run 0 -n 3 true; quiet
run 7 -n 2 sh -c 'exit $((RANK * 7))'; says 'rank 1 (pid [0-9]*) exited with code 7'
run 1 -n 1 false; says 'rank 0 (pid [0-9]*) exited with code 1; peak'
run 139 -n 3 sh -c 'test $RANK = 1 && exec ./launcher_helper signal 11; exec sleep 60'
says 'rank 1 .* was killed by SIGSEGV (Segmentation fault).*; ending the other 2 workers'
run 137 -n 2 sh -c 'test $RANK = 0 && kill -9 $$; exec sleep 60'; says 'rank 0 .* SIGKILL'
run 255 -n 2 sh -c 'exit 255'
run 0 -- true; run 0 -n2 -- true; run 0 --nproc=2 true
gone 1

echo "# command line"
for n in 0 -1 x 4097 99999999999999999999 1.5 ''; do
    run 2 --nproc "$n" true; says "must be a number of workers from 1 to 4096"
done
run 2; says 'no program given'
run 2 ''; says 'name of the program is empty'
run 2 -n 2; says 'no program given'
run 2 --nproc; says 'needs a value'
run 2 --nprok 2 true; says 'did you mean --nproc'
run 2 --nnodes 2 true; says '--nnodes 2 needs --node-rank'
run 2 --grace -1 true; says '--grace -1: must be'
run 2 --master-port 70000 true; says '--master-port 70000: must be'
run 0 --help; quiet; grep -q '^Usage: ddprun' "$tmp/out" || fail "--help"
run 0 --version; grep -q '^ddprun [0-9]' "$tmp/out" || fail "--version"
$ddprun --help >/dev/full 2>/dev/null && fail "--help to a full disk"

echo "# programs that do not start"
run 127 -n 2 no-such-program; says 'no-such-program: no such program'
run 127 -n 2 ./no/such; says 'No such file or directory'
: >"$tmp/plain"
run 126 -n 2 "$tmp/plain"; says 'Permission denied'
run 126 -n 2 "$tmp"; says 'Is a directory'
printf '#!/no/such/interpreter -x\n' >"$tmp/script"; chmod +x "$tmp/script"
run 126 -n 4 "$tmp/script"; says 'its interpreter /no/such/interpreter does not exist'
printf 'text' >"$tmp/script"
run 126 -n 4 "$tmp/script"; says 'not a program for this machine'
gone 1

echo "# where programs are looked for"
mkdir "$tmp/a" "$tmp/b"
printf '#!/bin/sh\necho from-a\n' >"$tmp/a/prog"; printf '#!/bin/sh\necho from-b\n' >"$tmp/b/prog"
chmod +x "$tmp/a/prog" "$tmp/b/prog"
cp $ddprun "$tmp/a/ddprun"
expect_from()
{
    grep -q "^from-$1\$" "$tmp/out" || fail "found another program than $1's"
}
ours=$ddprun
ddprun=$tmp/a/ddprun
saved=$PATH
PATH=$tmp/b:$saved; export PATH
run 0 -n 1 prog; expect_from a
PATH=$tmp/b:$tmp/a:$saved
run 0 -n 1 prog; expect_from b
PATH=$saved
run 0 -n 1 prog; expect_from a
ddprun=$ours

echo "# environment"
OMP=$(( $(nproc) / 2 )); test $OMP -ge 1 || OMP=1
run 0 -n 2 --master-addr 10.1.2.3 --master-port 1234 sh -c \
    'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $OMP_NUM_THREADS'
bare_sorted
{ echo "0 0 2 2 10.1.2.3 1234 $OMP"; echo "1 1 2 2 10.1.2.3 1234 $OMP"; } | cmp -s - "$tmp/sorted" ||
    fail "environment: $(cat "$tmp/sorted") (OMP_NUM_THREADS $OMP?)"
OMP_NUM_THREADS=5 RANK=9 WORLD_SIZE=77 MASTER_PORT=1 CUDA_VISIBLE_DEVICES='' \
    timeout 20 $ddprun -n 1 sh -c 'env' >"$tmp/out"
for line in OMP_NUM_THREADS=5 RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 CUDA_VISIBLE_DEVICES=; do
    test "$(grep -c "^$line\$" "$tmp/out")" = 1 || fail "environment lacks (or repeats) $line"
done
test "$(sed -n 's/^MASTER_PORT=//p' "$tmp/out")" -gt 1023 || fail "MASTER_PORT is not a free port"
run 0 -n 1000 true
run 0 -n 2 sh -c 'exec 3<&0; readlink /proc/$$/fd/3'
run 0 -n 2 cat; quiet
printf 'to rank 0\n' | timeout 20 $ddprun -n 3 cat >"$tmp/out"
test "$(cat "$tmp/out")" = '[0]: to rank 0' || fail "standard input went elsewhere"
i=0; while test $i -lt 3000; do echo "export MANY_$i=$i"; i=$((i + 1)); done >"$tmp/many"
(. "$tmp/many"; timeout 20 $ddprun -n 2 sh -c 'test $MANY_2999 = 2999') || fail "3000 variables"

echo "# GPUs"
mkdir "$tmp/nvml"
ln -s "$(pwd)/.libs/libfake_nvml.so" "$tmp/nvml/libnvidia-ml.so.1"
# gpus COUNT VISIBLE arguments...: with so many GPUs, and CUDA_VISIBLE_DEVICES unless it is "-".
# $tmp/sorted then has "RANK LOCAL_RANK WORLD_SIZE CUDA_VISIBLE_DEVICES" of each worker.
gpus()
{
    gpus=$1 visible=$2
    shift 2
    (
        FAKE_GPUS=$gpus LD_LIBRARY_PATH=$tmp/nvml
        export FAKE_GPUS LD_LIBRARY_PATH
        test "$visible" = - || { CUDA_VISIBLE_DEVICES=$visible; export CUDA_VISIBLE_DEVICES; }
        timeout 20 $ddprun "$@" sh -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE ${CUDA_VISIBLE_DEVICES-unset}'
    ) >"$tmp/out" 2>"$tmp/err"
    code=$?
    bare_sorted
}
workers()
{
    printf '%s\n' "$@" | cmp -s - "$tmp/sorted" || fail "workers: $(tr '\n' ',' <"$tmp/sorted") not $*"
}
gpus 3 -; workers '0 0 3 unset' '1 1 3 unset' '2 2 3 unset'
gpus 3 2,0; workers '0 0 2 2,0' '1 1 2 2,0'
gpus 3 2,7,0; workers '0 0 1 2,7,0'
gpus 3 GPU-aa,GPU-bb --virtual-local-rank; workers '0 0 2 GPU-aa' '1 0 2 GPU-bb'
gpus 2 MIG-1,MIG-2 -n 2; workers '0 0 2 MIG-1' '1 0 2 MIG-2'
gpus 4 ' 3 , 1 ' -n gpu --virtual-local-rank; workers '0 0 2 3' '1 0 2 1'
gpus 2 - -n 1; workers '0 0 1 unset'
gpus 2 '' -n gpu; test $code = 125 || fail "hidden GPUs: exit code $code"; says 'no GPU is visible'
gpus 0 - -n gpu; test $code = 125 || fail "no GPUs: exit code $code"
gpus 2 - -n 3 --virtual-local-rank; test $code = 2 || fail "too few GPUs: exit code $code"
says 'only 2 GPUs are visible'
says '--oversubscribe'
gpus 2 - -n 3 --oversubscribe; workers '0 0 3 0' '1 0 3 1' '2 0 3 0'
says '--oversubscribe: 3 workers share 2 GPUs'
gpus 2 GPU-aa,GPU-bb -n 2 --oversubscribe; workers '0 0 2 GPU-aa,GPU-bb' '1 1 2 GPU-aa,GPU-bb'
gpus 2 - --oversubscribe; workers '0 0 2 unset' '1 1 2 unset'
gpus 0 - -n 2 --oversubscribe; workers '0 0 2 unset' '1 1 2 unset'
gpus 1 - -n 2 --oversubscribe --dry-run
grep -q 'rank 1: GPU 0,.* NCCL_HOSTID=ddprun-1 NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket' "$tmp/out" || fail "no host ids for NCCL"
NCCL_NET=IB gpus 1 - -n 2 --oversubscribe --dry-run
grep -q 'NCCL_NET=Socket' "$tmp/out" && fail "the user's NCCL_NET is replaced"

echo "# odd surroundings"
# shellcheck disable=SC3045
(ulimit -n 6; exec $ddprun -n 2 true) 2>"$tmp/err" && fail "no descriptors, and no complaint"
says 'Too many open files'
timeout 20 $ddprun -n 2 true <&- >&- 2>&- || fail "closed standard files"
(trap '' CHLD; exec timeout 20 $ddprun -n 2 sh -c 'exit 4') 2>/dev/null
test $? = 4 || fail "started with SIGCHLD ignored"
(trap '' PIPE USR1; exec timeout 20 $ddprun -n 1 $helper signals) >"$tmp/out" 2>&1
test ! -s "$tmp/out" || fail "workers inherit: $(cat "$tmp/out")"
(trap '' HUP; exec $ddprun -n 1 $helper signals) >"$tmp/out" 2>&1
test "$(cat "$tmp/out")" = 'ignored 1' || fail "nohup does not reach the workers: $(cat "$tmp/out")"
(ulimit -n 40; exec $ddprun -n 30 sleep 60) 2>"$tmp/err" && fail "too few descriptors, and no complaint"
says 'cannot make a pipe for its output: Too many open files'
$ddprun -n 4 $helper flood 20 | cat >/dev/null || fail "flood"
timeout 20 $ddprun -n 2 sh -c "exec $helper flood 20 2>/dev/null" 2>/dev/null | head -c 10 >/dev/null
gone 1

echo "# output"
$ddprun -n 4 $helper lines 120 >"$tmp/out" 2>"$tmp/err" || fail "lines: exit code $?"
quiet
for rank in 0 1 2 3; do
    RANK=$rank $helper lines 120 >"$tmp/one"
    echo >>"$tmp/one"
    sed -n "s/^\\[$rank\\]: //p" "$tmp/out" >"$tmp/lines"
    cmp -s "$tmp/lines" "$tmp/one" || fail "lines of rank $rank are torn: $(cmp "$tmp/lines" "$tmp/one" 2>&1)" \
        "lengths: $(awk '{ printf "%d ", length }' "$tmp/lines" | tail -c 300)"
done
test "$(wc -l <"$tmp/out")" = 480 || fail "lines: $(wc -l <"$tmp/out"), not 480"
run 0 -n 1 $helper lines 120; RANK=0 $helper lines 120 | cmp -s - "$tmp/out" || fail "one rank is changed"
run 0 -n 3 --local-ranks-filter 1 $helper lines 60
RANK=1 $helper lines 60 | cmp -s - "$tmp/out" || fail "a filter for one rank changes its output"
run 0 -n 3 --local-ranks-filter 0,2 sh -c 'echo $RANK; echo $RANK >&2'; bare_sorted
test "$(cat "$tmp/sorted")" = "$(printf '0\n2')" || fail "filter 0,2 shows $(cat "$tmp/sorted")"
test "$(sort "$tmp/err")" = "$(printf '[0]: 0\n[2]: 2')" || fail "filter 0,2 shows $(cat "$tmp/err")"
run 0 -n 3 $helper sole
test "$(cat "$tmp/out")" = 'for all' || fail "sole output: $(cat "$tmp/out")"
test "$(cat "$tmp/err")" = '[0]: for itself' || fail "sole output: $(cat "$tmp/err")"
run 0 -n 2 --log-dir "$tmp/l/og" $helper lines 120
for rank in 0 1; do
    RANK=$rank $helper lines 120 | cmp -s - "$tmp"/l/og/none_*/attempt_0/$rank/stdout.log || fail "--log-dir alone"
done
test "$(wc -l <"$tmp/out")" = 240 || fail "--log-dir alone hides the output"
rm -r "$tmp/l"
run 0 -n 2 --log-dir "$tmp/l" -r 1 -t 0:2 sh -c 'echo out; echo err >&2'
test "$(cat "$tmp/l"/*/attempt_0/1/stdout.log)" = out || fail "-r 1: stdout.log"
test ! -e "$tmp/l"/*/attempt_0/1/stderr.log || fail "-r 1 files standard error"
test "$(cat "$tmp/l"/*/attempt_0/0/stderr.log)" = err || fail "-t 0:2: stderr.log"
test ! -s "$tmp/out" || fail "-r 1 shows standard output"
test "$(sort "$tmp/err")" = "$(printf '[0]: err\n[1]: err')" || fail "-t 0:2 shows $(cat "$tmp/err")"
TMPDIR=$tmp run 0 -n 2 -r 3 sh -c 'echo out'; says "log files are in $tmp/ddprun_"
test "$(cat "$tmp"/ddprun_*/attempt_0/1/stdout.log)" = out || fail "-r 3 without --log-dir"
TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='<${role_name} ${local_rank}/${rank}>' run 0 -n 2 --role w sh -c 'echo x'
test "$(sort "$tmp/out")" = "$(printf '<w 0/0>x\n<w 1/1>x')" || fail "prefix template: $(cat "$tmp/out")"
for bad in 4 x 0: 0:4 1,2 0:1, :1 ''; do
    run 2 -r "$bad" true; says 'must be 0 (none), 1 (stdout)'
done
for bad in x 0, ,1 ''; do
    run 2 --local-ranks-filter "$bad" true; says 'must be ranks with commas'
done
: >"$tmp/file"
run 125 -n 2 --log-dir "$tmp/file" true; says 'file: cannot be .*: Not a directory'
start=$(now_ms)
{ $ddprun -n 2 yes 2>/dev/null; echo $? >"$tmp/code"; } | head -n 1 >/dev/null
test "$(cat "$tmp/code")" = 141 || fail "closed pipe: exit code $(cat "$tmp/code")"
mkfifo "$tmp/fifo"
sleep 30 <"$tmp/fifo" &
sleeper=$!
$ddprun -n 2 --grace 1 $helper flood 10 >"$tmp/fifo" 2>/dev/null &
pid=$!
sleep 0.5 # time: the pipe fills; were it not full yet, the end would be the same
kill -TERM $pid
wait $pid
test $? = 143 || fail "a reader that does not read, and SIGTERM: exit code $?"
kill $sleeper
wait $sleeper 2>/dev/null
test $(($(now_ms) - start)) -lt 15000 || fail "a stopped reader stops ddprun"

echo "# first failure"
run 9 -n 4 $helper abort 2
says 'rank 2 .* exited with code 9 in phase backward, step 42, inside all-reduce 1042'
grep -q 'peak memory [1-9]' "$tmp/err" || fail "no peak memory"
# repeated at the end, for the other worker has written much since; time: what one has written is read before the other goes on
run 7 -n 2 sh -c 'test $RANK = 0 && sleep 0.3
    i=0; while test $i -lt 30; do echo "line $i of $RANK, which says so at some length" >&2; i=$((i + 1)); done
    test $RANK = 0 && sleep 60; printf "\033[2Jodd\n" >&2; sleep 0.8; exit 7'
says 'the last lines of rank 1 on standard error:'
sed -n 's/^ddprun: error:   | //p' "$tmp/err" >"$tmp/words"
test "$(head -n 1 "$tmp/words")" = 'line 21 of 1, which says so at some length' || fail "last lines: $(cat "$tmp/words")"
test "$(tail -n 1 "$tmp/words")" = '\x1b[2Jodd' || fail "last line: $(tail -n 1 "$tmp/words")"
run 7 -n 2 sh -c 'test $RANK = 0 && sleep 60; echo unmistakable >&2; exit 7'
test "$(grep -c unmistakable "$tmp/err")" = 1 || fail "last lines are repeated though they are in sight"
run 7 -n 2 -r 3 --log-dir "$tmp/l" sh -c 'echo "to the file" >&2; exit 7'
grep -q '^ddprun: error:   | to the file' "$tmp/err" || fail "the last lines of a log file"
run 3 -n 2 $helper scribble; says 'rank 0 .* exited with code 3'
run 6 -n 2 sh -c 'exit 6'; says 'exited with code 6'
start=$(now_ms)
run 75 -n 2 $helper preempted 1; quiet
test $(($(now_ms) - start)) -ge 900 || fail "workers that stop on request are not waited for"
start=$(now_ms)
rm -f "$tmp/deaf"
run 7 -n 2 --grace 1 sh -c 'test $RANK = 1 || { trap "" TERM; : >"$0"; sleep 60; sleep 60; }
    until test -e "$0"; do sleep 0.02; done; exit 7' "$tmp/deaf"
says '1 worker did not end within 1 s: SIGKILL'
test $(($(now_ms) - start)) -ge 1000 || fail "a worker that ignores SIGTERM is killed too early"
run 7 -n 2 --grace 0 sh -c 'test $RANK = 1 && exit 7; trap "" TERM; sleep 60; sleep 60'
gone 1

echo "# hangs"
run 124 -n 4 --timeout 0.5 --setup-timeout 0.5 $helper hang 3
says 'no rank has made progress for 0.5 s before the first step was finished (--setup-timeout); ending the job'
says 'rank 3 has not arrived at all-reduce 1042; ranks 0 1 2 have waited [01] s'
grep -q '^ddprun:  *3  *[0-9]* waiting  *backward  *13 ' "$tmp/err" || fail "no line for rank 3"
run 124 -n 3 --timeout 0.5 --setup-timeout 0.5 $helper transfer 0
says 'rank 0 has not sent message 7; rank 1 has waited [01] s'
grep -q '^ddprun:  *2 .* recv from 1  *7  *4096 ' "$tmp/err" || fail "no line for rank 2"
run 124 -n 3 --timeout 0.5 --setup-timeout 0.5 $helper transfer 2; says 'rank 2 has not taken message 7; rank 1 has waited [01] s'
run 124 -n 4 --timeout 0.5 --setup-timeout 0.5 $helper groups 1; says 'rank 0 has not arrived at all-reduce 7 of ranks 0 2; rank 2 has waited [01] s'
run 124 -n 4 --timeout 0.5 --setup-timeout 0.5 $helper groups 0
says 'rank 3 has not arrived at all-reduce 100 of ranks 1 3; rank 1 has waited [01] s; rank 3 is in barrier 0$'
run 124 -n 2 --timeout 0.3 sleep 60; says "no worker has used CPU time or written anything for 0.3 s"
DDP_FAULTS=slow:rank=1,step=1,ms=$((3000 * patience)) run 0 -n 2 --timeout $((2 * patience)) $helper steps 20 # before a step is finished; also in the next attempt
DDP_FAULTS=slow:rank=1,step=2,ms=9000 run 124 -n 2 --timeout 0.5 $helper steps 20; says 'no rank has made progress for 0.5 s; ending'
DDP_FAULTS=stop:rank=1,step=1 run 124 -n 2 --timeout 0.5 --setup-timeout 0.9 $helper steps 20; says 'for 0.9 s before the first' # time: longer than the limit
DDP_FAULTS=kill:rank=1,step=7 run 0 -n 2 --timeout $((2 * patience)) --max-restarts 1 sh -c \
    'test $TORCHELASTIC_RESTART_COUNT = 0 || test $RANK = 1 || sleep $1; exec "$0" steps 20' $helper $((3 * patience))
run 0 -n 3 --straggler-report $helper straggle 1
says 'rank 1 arrived last most'
$ddprun -n 3 $helper hang 1 2>"$tmp/err" &
pid=$!
tries=$((600 * patience))
until ./ddprun status $pid >"$tmp/out" 2>&1 && grep -q 'rank 1 has not arrived at all-reduce 1042' "$tmp/out"; do
    tries=$((tries - 1)); test $tries -gt 0 || { fail "status: $(cat "$tmp/out")"; break; }
    sleep 0.05
done
worker=$(sed -n 's/^  *2  *\([0-9]*\) .*/\1/p' "$tmp/out")
kill -STOP "$worker"
tries=$((600 * patience)) # it stops when it is given a processor
until ./ddprun status >"$tmp/out" && grep -q "^  *2  *$worker stopped" "$tmp/out"; do
    tries=$((tries - 1)); test $tries -gt 0 || { fail "a stopped worker is not told apart: $(cat "$tmp/out")"; break; }
    sleep 0.05
done
grep -q "^job $pid: 3 workers" "$tmp/out" || fail "status does not list the job"
kill -TERM $pid
wait $pid
run 2 status x; says 'must be the process id'
run 1 status 1; says 'you have no such job'
gone 1

echo "# injected faults"
DDP_FAULTS=kill:rank=1,step=7 run 137 -n 3 $helper steps 20
says 'rank 1 .* was killed by SIGKILL (Killed) in phase step, step 7;'
DDP_FAULTS=exit:rank=0,step=3,code=9 run 9 -n 2 $helper steps 20; says 'rank 0 .* exited with code 9 in phase step, step 3;'
DDP_FAULTS=stop:rank=1,step=2 run 124 -n 2 --timeout 0.5 $helper steps 20
grep -q '^ddprun:  *1  *[0-9]* stopped' "$tmp/err" || fail "a worker that is stopped is not shown"
start=$(now_ms)
DDP_FAULTS="slow:rank=1,ms=20 kill:rank=1,step=99" run 0 -n 2 $helper steps 20
test $(($(now_ms) - start)) -ge 400 || fail "slow: is fast"
test "$(cat "$tmp/err")" = 'ddprun: warning: DDP_FAULTS: kill:rank=1,step=99 did not happen: the program ended before that step' ||
    fail "a step that never comes: $(cat "$tmp/err")"
DDP_FAULTS=kill run 0 -n 2 true; says 'DDP_FAULTS: kill did not happen: the program does not use libddp'
for bad in kil:rank=1 kill:rank kill:rank=x kill:rank=-1 kill:rank=0,rank=1 kill:ms=3 kill:step=7x exit:code=256 kill:step=0 slow:step=-1 'kill kil'; do
    DDP_FAULTS="$bad" run 2 true
    test "$(grep -c "^ddprun: error: DDP_FAULTS: .*: " "$tmp/err")" = 1 || fail "DDP_FAULTS=$bad: not one line"
done
DDP_FAULTS=kill:rank=2 run 2 -n 2 $helper steps 20; says 'DDP_FAULTS: kill:rank=2: there is no rank 2 among 2 workers'
DDP_FAULTS="kill:rank=5000 kill" run 2 -n 1 $helper steps 20; says 'there is no rank 5000 among 1 worker$'
DDP_FAULTS=stop:rank=3 run 2 -n 2:3 --dry-run --max-restarts 1 true; says 'there is no rank 3 among 3 workers'
# of the job as it begins: with fewer workers after a restart it came already
DDP_FAULTS=kill:rank=2,step=7 run 0 -n 2:3 --max-restarts 3 $helper steps 20; says 'rank 2 .* was killed by SIGKILL'
gone 1

echo "# restarts"
run 0 -n 2 --max-restarts 3 --log-dir "$tmp/r" sh -c \
    'echo $RANK $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS; test $TORCHELASTIC_RESTART_COUNT = 2 || exit 3'
test "$(grep -c 'restarting all workers (. of 3)' "$tmp/err")" = 2 || fail "two restarts"
test "$(cat "$tmp"/r/none_*/attempt_2/1/stdout.log)" = '1 2/3' || fail "log of the third attempt"
# the first to exit 3 has written; the other may be taken down before it has
cat "$tmp"/r/none_*/attempt_0/*/stdout.log | grep -q '0/3$' || fail "log of the first attempt"
run 3 -n 2 --max-restarts 1 sh -c 'exit 3'
test "$(grep -c 'exited with code 3' "$tmp/err")" = 2 || fail "one restart"
DDP_FAULTS=kill:rank=1,step=7 run 0 -n 3 --max-restarts 1 $helper steps 20; says 'restarting all workers (1 of 1)'
run 75 -n 2 --max-restarts 2 $helper preempted 0; quiet
run 126 -n 2 --max-restarts 2 "$tmp/script"; test "$(wc -l <"$tmp/err")" = 1 || fail "restarted what cannot start"
gone 1

echo "# fewer workers"
run 0 -n 2:3 --max-restarts 3 --log-dir "$tmp/m" sh -c 'echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE \
    $ROLE_WORLD_SIZE $ROLE_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT; test $RANK != 2'
says 'restarting with 2 of 3 workers (2 of 3): rank 2 failed 2 times in a row'
says 'restarting all workers (1 of 3)'
test "$(cat "$tmp"/m/none_*/attempt_2/[0-9]*/stdout.log)" = "$(printf '%s 2 2 2 %s 1 2\n' '0 0' 0 '1 1' 1)" ||
    fail "fewer workers: $(cat "$tmp"/m/none_*/attempt_2/[0-9]*/stdout.log)"
run 0 -n 2:3 --max-restarts 2 $helper fails 2 # the board of the smaller job
says 'restarting with 2 of 3 workers'
run 5 -n 2:2 --max-restarts 2 sh -c 'test $RANK = 1 || sleep 20; exit 5'
grep -q 'restarting with' "$tmp/err" && fail "fewer than MIN"
run 0 -n 1:3 --max-restarts 4 sh -c 'test $RANK = $((TORCHELASTIC_RESTART_COUNT % 2)) || exec sleep 0.5
    test $TORCHELASTIC_RESTART_COUNT = 3'
grep -q 'restarting with' "$tmp/err" && fail "other ranks' failures count as in a row"
run 2 -n 1:2 true; says '--nproc 1:... needs --max-restarts'
run 2 -n 3:2 --max-restarts 1 true; says '--nproc 3:2: there are at most 2 workers'
run 2 -n 2 --min-nproc 1 true; says 'use --nproc MIN:N'; for bad in : 1: :2 0:2 1:2:3 x:2 4097:2 00001:2x; do run 2 -n $bad true; says 'as in 2:4 or 2:gpu'; done
# lose_gpu INDEX COUNT VISIBLE arguments...: in the first attempt the last worker takes this GPU off the bus and fails
lose_gpu()
{
    lost=$1
    shift
    : >"$tmp/lost"
    export FAKE_GPUS_LOST="$tmp/lost"
    gpus=$1 visible=$2
    shift 2
    (
        FAKE_GPUS=$gpus LD_LIBRARY_PATH=$tmp/nvml LOST=$lost
        export FAKE_GPUS LD_LIBRARY_PATH LOST
        test "$visible" = - || { CUDA_VISIBLE_DEVICES=$visible; export CUDA_VISIBLE_DEVICES; }
        timeout 20 $ddprun "$@" sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 || {
            test $RANK = 0 || exec sleep 20
            echo $LOST >>"$FAKE_GPUS_LOST"; exit 9; }
            echo $RANK $LOCAL_RANK $WORLD_SIZE ${CUDA_VISIBLE_DEVICES-unset}'
    ) >"$tmp/out" 2>"$tmp/err"
    code=$?
    unset FAKE_GPUS_LOST
    bare_sorted
}
lose_gpu 1 3 - --max-restarts 1 -n 2:gpu; workers '0 0 2 GPU-aa-0,GPU-cc-2' '1 1 2 GPU-aa-0,GPU-cc-2'
says 'restarting with 2 of 3 workers (1 of 1): GPU 1 (GPU-bb-1) is gone'
lose_gpu 0 4 2,0,3 --max-restarts 1 -n 1:gpu --virtual-local-rank; workers '0 0 2 GPU-cc-2' '1 0 2 GPU-dd-3'
lose_gpu 1 3 - -n 1:2 --max-restarts 1; workers '0 0 2 GPU-aa-0,GPU-cc-2' '1 1 2 GPU-aa-0,GPU-cc-2'
says 'restarting with 2 of 2 workers (1 of 1): GPU 1 (GPU-bb-1) is gone'
lose_gpu '0 1' 3 - --max-restarts 1 -n 2:gpu; test $code = 9 || fail "too few GPUs left: exit code $code"
says 'not restarting: GPU 0 (GPU-aa-0), GPU 1 (GPU-bb-1) are gone, and 1 left, fewer than --nproc 2:'
lose_gpu '' 3 - --max-restarts 1 -n 2:gpu; workers '0 0 3 unset' '1 1 3 unset' '2 2 3 unset'
lose_gpu 1 3 - --max-restarts 1; workers '0 0 3 unset' '1 1 3 unset' '2 2 3 unset'
# a GPU whose worker always fails is left alone
(
    FAKE_GPUS=3 LD_LIBRARY_PATH=$tmp/nvml
    export FAKE_GPUS LD_LIBRARY_PATH
    timeout 20 $ddprun --max-restarts 2 -n 2:gpu sh -c 'test ${CUDA_VISIBLE_DEVICES-unset} != unset || {
        test $RANK = 1 || exec sleep 20
        exit 9; }
        echo $RANK $LOCAL_RANK $WORLD_SIZE $CUDA_VISIBLE_DEVICES'
) >"$tmp/out" 2>"$tmp/err"
bare_sorted; workers '0 0 2 GPU-aa-0,GPU-cc-2' '1 1 2 GPU-aa-0,GPU-cc-2'
gone 1

echo "# as torchrun"
PET_NPROC_PER_NODE=3 PET_MASTER_PORT=1234 run 0 sh -c 'echo $WORLD_SIZE $MASTER_PORT'
test "$(grep -c '3 1234$' "$tmp/out")" = 3 || fail "PET_ variables: $(cat "$tmp/out")"
PET_NPROC_PER_NODE=many run 2 true; says 'PET_NPROC_PER_NODE=many: must be'
run 0 --nnodes 1:1 --nproc_per_node=2 --rdzv_id 7 --rdzv-backend c10d --rdzv-endpoint localhost:0 --standalone \
    --max-restarts 0 --monitor-interval 1 --node_rank 0 --start-method spawn --no-python sh -c \
    'echo $GROUP_RANK $ROLE_RANK $ROLE_NAME $GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT \
    $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE $TORCH_NCCL_ASYNC_ERROR_HANDLING'
bare_sorted
test "$(cat "$tmp/sorted")" = "$(printf '0 %s default 1 2 0 0 7 False 1\n' 0 1)" || fail "torchrun's variables: $(cat "$tmp/sorted")"
for refused in '--nnodes 2' '--nnodes 1:2' '--node-rank 1' '--rdzv-backend etcd-v2'; do
    # shellcheck disable=SC2086
    run 2 $refused true
    test -s "$tmp/err" || fail "$refused: no words"
done
run 0 -n 2 --log-dir "$tmp/t" --rdzv-id run7 sh -c 'echo "{}" >"$TORCHELASTIC_ERROR_FILE"'
test -s "$tmp"/t/run7_*/attempt_0/1/error.json || fail "TORCHELASTIC_ERROR_FILE"
for id in ../../x a/b / . .. "$(printf 'a\033[2Jb')" "$(printf 'a\nb')" "$(printf 'a\177')" "$(printf 'a\302\233b')" "$(head -c 201 /dev/zero | tr '\0' a)" ''; do
    run 2 --log-dir "$tmp/ids/below" --rdzv-id "$id" true
    test "$(grep -ac '^ddprun: error: --rdzv-id' "$tmp/err")" = 1 || fail "--rdzv-id: not one line: $(cat "$tmp/err")"
    test -z "$id" || PET_RDZV_ID=$id run 2 --log-dir "$tmp/ids/below" true
done
test ! -e "$tmp/ids" || fail "ids that are refused have made files: $(find "$tmp/ids")"
for id in ... ..x 'a b:c\d?*%s' "$(printf 'J\303\244ger')" "$(head -c 200 /dev/zero | tr '\0' a)"; do
    run 0 --log-dir "$tmp/ids" -n 1 --rdzv-id "$id" sh -c 'printf %s "$TORCHELASTIC_RUN_ID"'
    test "$(cat "$tmp/ids/$id"_??????/attempt_0/0/stdout.log)" = "$id" || fail "--rdzv-id $id: $(find "$tmp/ids")"
done
# error JSON CODE arguments...: rank 1 writes this to its error file, and fails
error()
{
    json=$1
    shift
    JSON=$json run 5 -n 2 --log-dir "$tmp/t" "$@" sh -c 'test $RANK = 0 && exec sleep 20
        printf "%s" "$JSON" >"$TORCHELASTIC_ERROR_FILE"; test "$JSON" || head -c 300000 /dev/zero >"$TORCHELASTIC_ERROR_FILE"
        echo shown >&2; exit 5'
}
error '{"message": {"message": "RuntimeError: no\nway\u001b[2J", "extraInfo": {"py_callstack": "Traceback:\n  line 7\n"}}}'
says 'rank 1 reported: RuntimeError: no$'
grep -q '^ddprun: error:   | way\\x1b\[2J$' "$tmp/err" || fail "the second line of a reason"
grep -q 'line 7' "$tmp/err" && fail "a stack that is in sight is repeated"
error '{"message": {"message": "no", "extraInfo": {"py_callstack": "Traceback:\n  line 7\n"}}}' --local-ranks-filter 0
grep -q '^ddprun: error:   |   line 7$' "$tmp/err" || fail "the stack of a rank that is not shown"
error '{"message": "short form", "timestamp": 1}'; says 'rank 1 reported: short form'
error ''; says 'rank 1 reported: see .*/1/error.json, 300000 bytes'
long=$(head -c 20000 /dev/zero | tr '\0' x)
error "{\"message\": \"$long\"}"; says 'reported: xxxx'
test "$(wc -c <"$tmp/err")" -lt 2000 || fail "a long reason"
nested=$(head -c 20000 /dev/zero | tr '\0' '[')
for json in '{' '[]' '{"message": 7}' '{"message": {"message": null, "extraInfo": []}}' '{"message": "half' '"x"' "$nested"; do
    error "$json"; says 'rank 1 .*exited with code 5'
    grep -q " reported: " "$tmp/err" && fail "a reason from $(echo "$json" | head -c 50)"
done
run 5 -n 1 --log-dir "$tmp/t" sh -c 'rm -f "$TORCHELASTIC_ERROR_FILE"; mkfifo "$TORCHELASTIC_ERROR_FILE"; exit 5'
run 5 -n 1 --log-dir "$tmp/t" sh -c 'mkdir "$TORCHELASTIC_ERROR_FILE"; exit 5'
for code in 0 5; do # a log file that is a pipe by now, which nobody reads or writes
    run $code -n 2 -r 3 --log-dir "$tmp/p" --grace 1 sh -c 'cd "${TORCHELASTIC_ERROR_FILE%/*}" && rm ./*.log && mkfifo stderr.log stdout.log
        exit '$code
done
if command -v python3 >/dev/null; then
    echo 'import os, sys; print(os.environ["RANK"], *sys.argv[1:])' >"$tmp/script.py"
    run 0 -n 2 "$tmp/script.py" a 'b c'; bare_sorted
    test "$(cat "$tmp/sorted")" = "$(printf '%s a b c\n' 0 1)" || fail "script: $(cat "$tmp/out")"
    run 126 -n 2 --no-python "$tmp/script.py"
    PYTHONPATH=$tmp run 0 -n 2 -m script x; bare_sorted
    test "$(cat "$tmp/sorted")" = "$(printf '%s x\n' 0 1)" || fail "module: $(cat "$tmp/out")"
else
    not_run "scripts and modules of Python: python3 is not installed"
fi
run 0 -n 2 --dry-run sh -c "echo it's"; quiet
grep -q "^command: sh -c 'echo it'\\\\''s'\$" "$tmp/out" || fail "--dry-run: $(cat "$tmp/out")"
grep -q '^rank 1: environment RANK=1 LOCAL_RANK=1 WORLD_SIZE=2' "$tmp/out" || fail "--dry-run: $(cat "$tmp/out")"

echo "# leftovers of workers"
run 0 -n 2 sh -c 'sleep 60 & sleep 60 & exit 0'; gone 1
run 0 -n 2 sh -c 'setsid sleep 60 & setsid sh -c "sleep 60 & sleep 60" & sleep 0.1'; gone 1 # time: however far they have come
run 5 -n 2 sh -c 'setsid sleep 60 & sleep 0.1; test $RANK = 0 && exit 5; exec sleep 60'; gone 1
sh -c 'sleep 2 & exec '"$ddprun"' -n 1 true' || fail "exec from a shell with a child"
marked | grep -q 'sleep 2' || fail "a child that is not the job's was ended"
gone 4

echo "# signals"
# with_signal CODE SIGNAL arguments...: sends the signal to ddprun once the workers have made their files.
with_signal()
{
    want=$1 signal=$2
    shift 2
    rm -f "$tmp"/up.*
    UP=$tmp/up $ddprun "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
    pid=$!
    tries=$((1500 * patience))
    while test ! -e "$tmp/up.0" || test ! -e "$tmp/up.1"; do
        tries=$((tries - 1)); test $tries -gt 0 || break
        sleep 0.02
    done
    for s in $signal; do
        kill -"$s" $pid
        sleep 0.1
    done
    wait $pid
    got=$?
    test $got = "$want" || fail "SIG$signal: exit code $got, not $want"
}
up=': >$UP.$RANK;'
for pair in 'TERM 143' 'HUP 129' 'USR1 138' 'USR2 140'; do
    with_signal "${pair#* }" "${pair% *}" -n 2 sh -c "ulimit -c 0; $up"' sleep 60 & wait'
    gone 1
done
# A shell's background job ignores these; the helper restores them.
ddprun="$helper normal $ours"
with_signal 131 QUIT -n 2 --signals-to-handle SIGQUIT sh -c "ulimit -c 0; $up"' sleep 60 & wait'
with_signal 130 INT -n 2 sh -c "$up"' sleep 60 & wait'
says 'SIGINT: ending 2 workers'
with_signal 143 'QUIT TERM' -n 2 sh -c "ulimit -c 0; $up"' sleep 60 & wait'
says 'rank 1 (pid'
with_signal 137 'INT INT' -n 2 --grace 600 sh -c 'trap "" INT;'" $up"' sleep 300' # a second SIGINT kills at once
ddprun=$ours
with_signal 4 TERM -n 2 sh -c "trap 'exit 4' TERM; $up"' sleep 60 & wait'
with_signal 0 TERM -n 2 sh -c "trap 'exit 0' TERM; $up"' sleep 60 & wait'
with_signal 137 TERM -n 2 --grace 0.3 sh -c "trap '' TERM; $up"' sleep 60'
says 'did not end within 0.3 s: SIGKILL'
with_signal 143 TERM -n 2 sh -c "$up"' kill -STOP $$; sleep 60'
gone 1

echo "# SIGKILL of ddprun at random moments"
i=0
while test $i -lt ${KILLS:-60}; do
    $ddprun -n 4 sh -c 'sleep 60 & sleep 60' >/dev/null 2>&1 &
    pid=$!
    sleep 0.0$((i % 4))$((i * 7 % 10)) # time: at any moment
    kill -9 $pid
    wait $pid 2>/dev/null
    i=$((i + 1))
done
gone 1

echo "# nothing is left"
gone 1
finish
