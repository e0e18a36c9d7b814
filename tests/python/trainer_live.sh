#!/bin/sh
# SPDX-License-Identifier: MIT
# accelerate and transformers' Trainer on the backend ddp of torch.distributed. TRL_PYTHON is the interpreter that has them.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${TRL_PYTHON:-${PYTHON:-python3}}
PYTHONPATH=$(cd "$here/python" && pwd)
DDP_LIBRARY=$top/.libs/libddp.so
export PYTHONPATH DDP_LIBRARY PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 HF_HOME="$work"
[ -e "$DDP_LIBRARY" ] || skip "this build has no shared libddp"
"$python" -c 'import importlib.metadata as m; [m.version(n) for n in ("torch", "accelerate", "transformers")]' 2>/dev/null ||
    skip "$python has no PyTorch, accelerate and transformers: name one that has in TRL_PYTHON"
expect "accelerate and Trainer, 2 ranks" 0 'rank 1: ok' "$ddprun" -n 2 "$python" "$here/tests/python/trainer_live.py" "$work/trainer"
finish
