#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs that do not use libddp: --timeout ends those that do nothing and no others, and shows where each worker is;
# ddprun status --stack and SIGQUIT show it while the job goes on. What ddprun arranges for that in Python disturbs nothing.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"
unset PYTHONPATH
job=
trap 'status=$?; kill -9 $job 2>/dev/null; rm -rf "$work"; no_skip_after_failure $status' EXIT

# has TEXT: the last output does
has() {
    count=$((count + 1))
    grep -qE -- "$1" "$work/out" && return
    fail "not shown: $1"
    sed 's/^/    /' "$work/out" | head -n 30
}
hasnt() {
    count=$((count + 1))
    ! grep -qE -- "$1" "$work/out" || fail "shown: $1"
}

# start COMMAND...: a job in the background, whose rank 0 says when it is ready
start() {
    rm -f "$work/ready"
    env --default-signal=QUIT "$@" >"$work/job.out" 2>"$work/job" &
    job=$!
    until_true test -e "$work/ready" || fail "no start: $*"
}
end_job() {
    kill -TERM $job
    wait $job
    job=
}

echo "# what --timeout ends, and what not"
expect "all sleep" 124 'no worker has used CPU time or written anything for 0.5 s' $ddprun -n 2 --timeout 0.5 sleep 60
has 'ddprun: rank 1 \(pid [0-9]*\):'
has 'ddprun:   thread [0-9]* \(sleep\) waiting'
expect "below the worker" 124 'no worker' $ddprun -n 2 --timeout 0.5 sh -c 'sleep 60; :'
expect "stopped" 124 'stopped' $ddprun -n 1 --timeout 0.5 sh -c 'kill -STOP $$'
expect "restarted" 124 'restarting all workers' $ddprun -n 2 --timeout 0.3 --max-restarts 1 sleep 60
expect "one computes" 0 '' $ddprun -n 3 --timeout 0.6 sh -c \
    'test $RANK = 1 || exec sleep 1; end=$(($(date +%s) + 3)); while test $(date +%s) -lt $end; do i=0; while test $i -lt 9999; do i=$((i + 1)); done; done'
has 'have written nothing for 0.6 s but use CPU time'
# time: what is longer than the limit, and what is not
expect "a child in a session of its own computes" 0 '' $ddprun -n 1 --timeout 0.6 sh -c \
    'setsid timeout 2 sh -c "while :; do :; done" >/dev/null 2>&1 & sleep 2'
for how in -n2 -n1 "-n2 --redirects 3 --log-dir $work/logs"; do
    # shellcheck disable=SC2086
    expect "it writes ($how)" 0 '' $ddprun $how --timeout 1.5 sh -c 'for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.3; done'
    hasnt 'ending the job'
done
expect "a rank that does not join" 1 'error: rank 1 has ended without joining the other ranks, which wait for it; .*; ending the job' \
    $ddprun -n 3 sh -c 'test $RANK = 1 || exec "$0" --model article --device cpu' "$trainer"
DDP_FAULTS=exit:rank=1,step=4,code=0 expect "a rank that leaves" 1 'error: rank 1 \(pid [0-9]+\) exited with code 0 without closing the job \(ddp_train_close\(\), ddp_job_close\(\)\) in phase train, step 4; .*; ending the other 2 workers' \
    $ddprun -n 3 ./launcher_helper train 1000000
DDP_FAULTS=exit:step=4,code=0 expect "all leave" 1 'error: both workers exited with code 0 without closing the job' \
    $ddprun -n 2 ./launcher_helper steps 9
DDP_FAULTS=exit:step=4,code=0 expect "all leave, and start again" 0 'restarting all workers' $ddprun -n 2 --max-restarts 1 ./launcher_helper steps 9
# ddprun itself was stopped, and the job with it.
# time: for longer than the limit
$ddprun -n 1 --timeout 1 sh -c 'kill -STOP $PPID; (sleep 3.5; kill -CONT $PPID) & echo ready; sleep 3.6; echo up; sleep 0.5' \
    >"$work/out" 2>&1 || fail "stopped for longer than the limit: exit code $?"
count=$((count + 1))

command -v python3 >/dev/null || { not_run "Python: there is no python3"; finish; }
cat >"$work/hang.py" <<'END'
import os, sys, time

def wait_here():
    time.sleep(60)

def wait_there():
    time.sleep(60)

open(os.environ["READY"], "w").close()
wait_there() if os.environ["RANK"] == "1" else wait_here()
END
export READY="$work/ready"

echo "# stacks"
expect "a hang in Python" 124 'hang.py", line 4 in wait_here' $ddprun -n 3 --timeout 0.8 "$work/hang.py"
has 'hang.py", line 7 in wait_there'
has 'ddprun: rank 2 \(pid [0-9]*\): as rank 0'
start $ddprun -n 2 "$work/hang.py"
# shows PATTERN...: status --stack does, once the workers are where they wait
shows() {
    $ddprun status --stack $job >"$work/out" 2>&1 || return
    for pattern; do grep -qE "$pattern" "$work/out" || return; done
}
count=$((count + 1))
until_true shows '^ +File ".*hang.py", line 4 in wait_here' '^ +File ".*hang.py", line 7 in wait_there' ||
    fail "status --stack: $(cat "$work/out")"
$ddprun status --stack $job >"$work/again" 2>&1
[ "$(grep -c wait_here "$work/again")" = 1 ] || fail "status --stack, again: $(cat "$work/again")"
kill -QUIT $job
until_true grep -q 'line 7 in wait_there' "$work/job" || fail "SIGQUIT: $(cat "$work/job")"
kill -0 $job || fail "SIGQUIT has ended the job"
end_job
expect "no such word" 2 'status --stacks: must be' $ddprun status --stacks

echo "# who is never sent a signal that would kill"
cat >"$work/exec.py" <<'END'
import os, sys
open(os.environ["READY"], "w").close()
os.execvp("sleep", ["sleep", "60"]) if sys.argv[1] == "exec" else os.closerange(3, 256)
import time
time.sleep(60)
END
for how in exec close; do
    start $ddprun -n 1 "$work/exec.py" $how
    count=$((count + 1))
    until_true shows 'thread [0-9]* \((sleep|python3.*)\) waiting' || fail "$how: $(cat "$work/out")"
    kill -0 $job || fail "$how: the worker is dead"
    end_job
done
# and one that executes another program after it was looked at, so that the signal meets no handler
cat >"$work/late.py" <<'END'
import faulthandler, os, signal
caught = int([line.split()[1] for line in open("/proc/self/status") if line.startswith("SigCgt")][0], 16)
registered = [n for n in range(1, 65) if caught >> n - 1 & 1 and n != signal.SIGINT]
for number in registered:
    faulthandler.unregister(number)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
print("alive after", len(registered))
END
expect "a signal too late" 0 '^alive after 1$' $ddprun -n 1 "$work/late.py"
mkdir "$work/bin"
printf '#!/bin/sh\necho "Thread $3 (idle)"; echo "    from py-spy"\n' >"$work/bin/py-spy"
chmod +x "$work/bin/py-spy"
start $ddprun -n 1 python3 -I "$work/hang.py"
PATH=$work/bin:$PATH $ddprun status --stack $job >"$work/out" 2>&1
has '^ +from py-spy'
end_job

echo "# what the program sees"
mkdir "$work/site" "$work/package"
cat >"$work/package/seen.py" <<'END'
import multiprocessing, os, subprocess, sys

def child(queue):
    import signal
    queue.put((os.environ.get("PYTHONPATH"), "sitecustomize" in sys.modules and hasattr(sys.modules["sitecustomize"], "own")))

if __name__ == "__main__":
    print(sys.argv[1:], __file__.rpartition("/")[2], sys.path, os.environ.get("PYTHONPATH"), "DDPRUN_STACK" in os.environ)
    site = sys.modules.get("sitecustomize")
    print(site and (site.__file__, getattr(site, "own", None)))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get())
    process.join()
    print([fd for fd in map(int, os.listdir("/proc/self/fd")) if "ddprun-python" in os.readlink("/proc/self/fd/%d" % fd)]
          if False else subprocess.run(["ls", "/proc/self/fd"], close_fds=False, capture_output=True).stdout.count(b"\n") < 12)
END
see() {
    name=$1
    shift
    count=$((count + 1))
    WORLD_SIZE=1 "$@" >"$work/alone" 2>&1
    $ddprun -n 1 "$@" 2>&1 | grep -v '^ddprun: error: rank 0 ' >"$work/under"
    diff "$work/alone" "$work/under" >"$work/out" || { fail "$name: Python sees a difference"; sed 's/^/    /' "$work/out"; }
}
see "a script" python3 -u "$work/package/seen.py" one two
cd "$work/package" || exit 99
see "a module" python3 -u -m seen three
cd "$top" || exit 99
echo 'own = 1' >"$work/site/sitecustomize.py"
export PYTHONPATH="$work/site"
see "a sitecustomize of the user's" python3 -u "$work/package/seen.py" one two
grep -q "'$work/site'" "$work/under" && grep -q ', 1)' "$work/under" || fail "the user's sitecustomize: $(cat "$work/under")"
echo 'raise ValueError("mine")' >"$work/site/sitecustomize.py"
see "one that fails" python3 -c 'print(1)'
unset PYTHONPATH
see "a stack" python3 -c 'import nothing'
if python3 -m venv --without-pip "$work/venv" 2>/dev/null; then
    see "a virtual environment" "$work/venv/bin/python3" "$work/package/seen.py" one
fi
finish
