#!/bin/sh
# SPDX-License-Identifier: MIT
# The Python package: NumPy arrays under ddprun, the backend of torch.distributed under ddprun and without it, and a rank that
# dies. DDP_TEST_PYTHON is the interpreter that has PyTorch 2.4 or later; it is loaded twice only, for that takes seconds.
. "${srcdir:-.}/tests/lib/cli.inc"

python=${DDP_TEST_PYTHON:-python3}
here_python=$here/tests/python
PYTHONPATH=$(cd "$here/python" && pwd)
DDP_LIBRARY=$top/.libs/libddp.so
export PYTHONPATH DDP_LIBRARY PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
command -v "$python" >/dev/null || skip "python3 is not installed"
[ -e "$DDP_LIBRARY" ] || skip "this build has no shared libddp"

if "$python" -c 'import numpy' 2>/dev/null; then
    expect "NumPy, 3 ranks" 0 'rank 2: ok' "$ddprun" -n 3 "$python" "$here_python/numpy_ranks.py"
    expect "NumPy, alone" 0 'rank 0: ok' "$python" "$here_python/numpy_ranks.py"
else
    not_run "$python has no NumPy"
fi
expect "no library" 1 'ImportError: .*install libddp' env -u DDP_LIBRARY LD_LIBRARY_PATH=/nowhere "$python" -c '
import ctypes
def missing(name): raise OSError(f"{name}: cannot open")
ctypes.CDLL = missing
import ddprun._lib'

# refuses_torch VERSION AVAILABLE MESSAGE: a PyTorch that is none of ours.
refuses_torch() {
    mkdir -p "$work/torch$1/torch/distributed"
    echo "__version__ = '$1'" >"$work/torch$1/torch/__init__.py"
    echo "def is_available(): return $2" >"$work/torch$1/torch/distributed/__init__.py"
    expect "PyTorch $1, distributed: $2" 1 "ImportError: $3" env PYTHONPATH="$work/torch$1:$PYTHONPATH" "$python" -c 'import ddprun.torch'
}
refuses_torch 2.3.1+cpu True 'ddprun.torch needs PyTorch 2.4 or newer, and this is 2.3.1'
refuses_torch 2.10.0 False 'this PyTorch was built without torch.distributed'

if ! "$python" -c '
import importlib.metadata as m
import sys
sys.exit(tuple(map(int, m.version("torch").split(".")[:2])) < (2, 4))' 2>/dev/null; then
    not_run "$python has no PyTorch of at least 2.4: name one that has in DDP_TEST_PYTHON"
    finish
fi
expect "torch.distributed, 3 ranks" 0 'rank 2: reductions .*: ok' "$ddprun" -n 3 "$python" "$here_python/torch_ranks.py" \
    reductions copies messages asynchronous order replicas refuses late
# Without ddprun the ranks watch each other.
for rank in 0 1 2; do
    RANK=$rank WORLD_SIZE=3 timeout $((60 * patience)) "$python" "$here_python/torch_ranks.py" "file://$work/store" dies \
        >"$work/dies.$rank" 2>&1 &
    eval "pid$rank=$!"
done
for rank in 0 1 2; do
    count=$((count + 1))
    eval "wait \$pid$rank" || { fail "rank $rank, where rank 1 dies"; tail -n 5 "$work/dies.$rank"; }
    [ $rank -eq 1 ] || grep -q "rank $rank: dies: ok" "$work/dies.$rank" || fail "rank $rank did not end well"
done
finish
