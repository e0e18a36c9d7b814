#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench/gpu runs from end to end, at sizes that tell nothing, and its file has all parts.
. "${srcdir:-.}/tests/cli.inc"
. "$here/tests/cuda.inc"
if ! command -v python3 >/dev/null; then
    echo "SKIP: python3 is not installed"
    exit 77
fi
gpus 2
expect "bench/gpu" 0 'MLP, seconds' python3 "$here/bench/gpu" --tiny --build "$top" --plugins "$DDP_PLUGIN_PATH" \
    --json "$work/gpu.json"
cat "$work/out"
expect "its file" 0 '^[1-9][0-9]* kernels' python3 - "$work/gpu.json" <<'END'
import json, sys
with open(sys.argv[1]) as file:
    found = json.load(file)
result = found["result"]
for part in ("kernels", "gpt2", "mlp", "resnet"):
    assert "error" not in result[part], (part, result[part])
assert found["gpu"] and result["gpt2"]["ours"]["ms"] > 0 and result["peak"]["flop_per_s"] > 0
assert found["gpus"] < 2 or len(result["allreduce"]["rows"]) == 8
print(len(result["kernels"]["kernels"]), "kernels")
END
finish
