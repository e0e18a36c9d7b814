#!/bin/sh
# SPDX-License-Identifier: MIT
# PyTorch under ddprun: a DDP script gives the same weights as under torchrun, unchanged; the article's run ends in its
# weights; and the reason that torch's record decorator files is shown.
set -u
script=${srcdir:=.}/tests/torch_client.py
python=
for candidate in python3 /usr/bin/python3; do
    if $candidate -c 'import torch.distributed' 2>/dev/null; then
        python=$candidate
        break
    fi
done
test -n "$python" || { echo "SKIP: PyTorch is not there: install python3-torch"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
PYTHON_EXEC=$(command -v $python) TMPDIR=$tmp OMP_NUM_THREADS=1
export PYTHON_EXEC TMPDIR OMP_NUM_THREADS
failures=0
for workers in 2 4; do
    timeout 60 ./ddprun -n $workers "$script" "$tmp/ours" >"$tmp/log" 2>&1 ||
        { echo "FAIL: ddprun -n $workers: exit code $?"; tail -n 5 "$tmp/log"; failures=1; }
    # -r and -t because torchrun 1.13 fails without them under Python 3.11.
    port=$(./ddprun -n 1 sh -c 'echo $MASTER_PORT')
    timeout 60 "$python" -m torch.distributed.run -r 1 -t 2 --master_port "$port" --nproc_per_node $workers \
        "$script" "$tmp/theirs" >"$tmp/log" 2>&1 || { echo "torchrun itself fails:"; tail -n 5 "$tmp/log"; exit 77; }
    cmp "$tmp/ours" "$tmp/theirs" || { echo "FAIL: $workers workers: other weights"; failures=1; }
done

# The article, to its printed digits.
timeout 60 ./ddprun -n 2 "$srcdir/tests/torch_article.py" >"$tmp/log" 2>&1 || { echo "FAIL: the article: exit code $?"; failures=1; }
grep -q '^\[0\]: Model weights: \[0.9472, 0.944, 0.9527, 0.9687, 0.957, 0.9343, 0.9411, 0.9186\]$' "$tmp/log" ||
    { echo "FAIL: the article: other weights"; tail -n 5 "$tmp/log"; failures=1; }

# recorded CODE PATTERN OPTION...: what is said of a worker that fails in a recorded main()
recorded()
{
    want=$1 pattern=$2
    shift 2
    timeout 60 ./ddprun -n 2 --log-dir "$tmp/logs" "$@" "$srcdir/tests/torch_record.py" >"$tmp/log" 2>&1
    got=$?
    test $got = "$want" || { echo "FAIL: recorded: exit code $got"; failures=1; }
    test "$(grep -c "^ddprun: error: $pattern" "$tmp/log")" = 1 ||
        { echo "FAIL: not said once: $pattern"; cat "$tmp/log"; failures=1; }
}
recorded 1 'rank 1 gave the reason: RuntimeError: rank 1 is out of luck$'
grep -q '^ddprun: .*raise RuntimeError' "$tmp/log" && { echo "FAIL: a stack in sight is repeated"; failures=1; }
recorded 1 '  |     raise RuntimeError("rank 1 is out of luck")' -r 3
exit $failures
