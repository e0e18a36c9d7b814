#!/bin/sh
# SPDX-License-Identifier: MIT
# The losses of a pipeline against the PyTorch installed here: GPT-2 in its pipeline (1F1B, gloo), with the same weights, tokens
# and cuts, and in one process of it. PYTHON names a Python with PyTorch; 2.6, of Debian 13, has a pipeline
# that does not do here.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
"$python" -c 'import torch' >/dev/null 2>&1 || skip "$python has no PyTorch: PYTHON names another Python"
"$python" - "$work/tokens.bin" <<'END' || exit 99
import array, random, struct, sys
draw, count = random.Random(3), 4 * 2 * 16 * 30 + 1
with open(sys.argv[1], "wb") as file:  # of llm.c; each token is likely to follow another one
    file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
    file.write(array.array("H", (draw.randrange(8) + 8 * (i % 12) for i in range(count))).tobytes())
END
set -- trainer --model gpt2 --data "$work/tokens.bin" --seq-len 16 --batch-size 2 --no-shuffle --no-eval --quiet --threads 1 \
    --optimizer adamw,beta2=0.999 --weight-decay 0 --clip-grad-norm 0 --schedule constant
expect "initial weights" 0 '' "$ddprun" -n 1 "$@" --layers 4 --heads 2 --channels 32 --vocab-size 100 --lr 0 --steps 1 \
    --export "$work/model.bin"

# torch NAME PROGRAM... [--cut N,...]: PyTorch's losses are those of "$work/ours"
torch() {
    name=$1
    shift
    expect "$name" 0 '"loss"' "$@"
    sed -n 's/.*"loss": \[\([^]]*\)\].*/\1/p' "$work/out" | tr -s ', ' '\n' >"$work/theirs"
    near 20 1e-5 "$work/ours" "$work/theirs" >"$work/near" || fail "$name: $(cat "$work/near")"
    count=$((count + 1))
    echo "$name: $(cat "$work/near")"
}

# live STAGES CUTS BLOCKS: our names of the cuts and PyTorch's
live() {
    rm -f "$work/log"
    expect "$1 stages" 0 '' "$ddprun" -n "$1" $train --lr 1e-3 --steps 20 --load "$work/model.bin" --mode pipeline \
        --stages "$1" --cut "$2" --acc-steps 4 --log "$work/log"
    sed -n 's/.*"event":"step".*"loss":\([0-9.]*\),.*/\1/p' "$work/log" >"$work/ours"
    peer="$here/bench/pipeline_torch.py $work/model.bin $work/tokens.bin"
    peer="$peer --micro 4 --batch 2 --length 16 --steps 20 --lr 1e-3"
    torch "$1 stages, PyTorch in one process" "$python" $peer
    if "$python" -c 'import inspect
from torch.distributed.pipelining import Schedule1F1B
exit("return_outputs" not in inspect.signature(Schedule1F1B.step).parameters)' >/dev/null 2>&1; then
        torch "$1 stages, PyTorch's pipeline" "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" $peer --cut "$3"
    else
        not_run "PyTorch's pipeline: that of $python has none, or one whose step() lacks return_outputs"
    fi
}
train=$*
live 2 h.2 2
live 3 h.1,h.3 1,3
finish
