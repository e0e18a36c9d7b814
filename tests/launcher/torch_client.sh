#!/bin/sh
# SPDX-License-Identifier: MIT
# PyTorch under ddprun: a DDP script gives the same weights as under torchrun, unchanged; the article's run ends in its
# weights; and the reason that torch's record decorator files is shown.
set -u
. "${srcdir:=.}/tests/lib/result.inc"
script=$srcdir/tests/launcher/torch_client.py
python=
for candidate in python3 /usr/bin/python3; do
    if $candidate -c 'import torch.distributed' 2>/dev/null; then
        python=$candidate
        break
    fi
done
test -n "$python" || skip "PyTorch is not there: install python3-torch"
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
PYTHON_EXEC=$(command -v $python) TMPDIR=$tmp OMP_NUM_THREADS=1
export PYTHON_EXEC TMPDIR OMP_NUM_THREADS

# run CODE NAME COMMAND...
run()
{
    want=$1 name=$2
    shift 2
    count=$((count + 1))
    timeout $((60 * patience)) "$@" >"$tmp/log" 2>&1
    got=$?
    test $got = "$want" || { fail "$name: exit code $got"; tail -n 5 "$tmp/log"; }
}

run 0 "ddprun -n 2" ./ddprun -n 2 "$script" "$tmp/ours"
# -r and -t because torchrun 1.13 fails without them under Python 3.11.
port=$(./ddprun -n 1 sh -c 'echo $MASTER_PORT')
if timeout $((60 * patience)) "$python" -m torch.distributed.run -r 1 -t 2 --master_port "$port" --nproc_per_node 2 \
    "$script" "$tmp/theirs" >"$tmp/log" 2>&1; then
    cmp "$tmp/ours" "$tmp/theirs" || fail "2 workers: other weights"
else
    tail -n 5 "$tmp/log"
    not_run "the weights of 2 workers: torchrun itself fails"
fi

# Two nodes, here on one machine, give the weights of one.
port=$(./ddprun -n 1 sh -c 'echo $MASTER_PORT')
nodes="./ddprun --insecure-link --nnodes 2 --master-addr 127.0.0.1 --master-port $port -n 1"
timeout $((60 * patience)) $nodes --node-rank 1 "$script" "$tmp/nodes" >"$tmp/log1" 2>&1 &
run 0 "2 x ddprun -n 1" $nodes --node-rank 0 "$script" "$tmp/nodes"
wait $! || { fail "2 x ddprun -n 1: node 1"; tail -n 5 "$tmp/log1"; }
cmp "$tmp/ours" "$tmp/nodes" || fail "2 x ddprun -n 1: other weights"

# The article, to its printed digits.
run 0 "the article" ./ddprun -n 2 "$srcdir/tests/launcher/torch_article.py"
grep -q '^\[0\]: Model weights: \[0.9472, 0.944, 0.9527, 0.9687, 0.957, 0.9343, 0.9411, 0.9186\]$' "$tmp/log" ||
    { fail "the article: other weights"; tail -n 5 "$tmp/log"; }

# recorded PATTERN OPTION...: what is said of a worker that fails in a recorded main()
recorded()
{
    pattern=$1
    shift
    run 1 "recorded" ./ddprun -n 2 --log-dir "$tmp/logs" "$@" "$srcdir/tests/launcher/torch_record.py"
    test "$(grep -c "^ddprun: error: $pattern" "$tmp/log")" = 1 || { fail "not said once: $pattern"; cat "$tmp/log"; }
}
recorded 'rank 1 reported: RuntimeError: rank 1 is out of luck$'
grep -q '^ddprun: .*raise RuntimeError' "$tmp/log" && fail "a stack in sight is repeated"
recorded '  |     raise RuntimeError("rank 1 is out of luck")' -r 3
finish
