#!/bin/sh
# SPDX-License-Identifier: MIT
# A PyTorch DDP script gives the same weights under ddprun as under torchrun, unchanged.
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
exit $failures
