#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench/gpu runs from end to end, at sizes that tell nothing, and its file has all parts.
. "${srcdir:-.}/tests/cli.inc"
. "$here/tests/cuda.inc"
command -v python3 >/dev/null || skip "python3 is not installed"
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

# PyTorch: where it sees no GPU, or cannot be imported, the file has the reason; its rows are tried out on the CPU.
printf '#!/bin/sh\nexec python3 -S "$@"\n' >"$work/python"
chmod +x "$work/python"
expect "a Python without PyTorch" 0 "PyTorch: left out \(.*No module named 'torch'" env DDP_CUDASIM_DEVICES=1 python3 "$here/bench/gpu" \
    --only allreduce --python "$work/python" --build "$top" --plugins "$top/tests/cudasim/.libs" --json "$work/none.json"
expect "its reason" 0 'No module named' python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["pytorch"]["skipped"])' \
    "$work/none.json"
if [ $simulated = yes ] && python3 -c 'from torch.nn.functional import scaled_dot_product_attention' 2>/dev/null; then
    expect "PyTorch's rows" 0 'mlp, .* eager: [0-9.]+ ms' python3 "$here/bench/gpu" --tiny --torch-cpu --only mlp --build "$top" \
        --plugins "$DDP_PLUGIN_PATH" --json "$work/torch.json"
    expect "PyTorch's rows, file" 0 '^PyTorch 2' python3 -c \
        'import json, sys; print(json.load(open(sys.argv[1]))["result"]["mlp"]["eager"]["name"])' "$work/torch.json"
fi
finish
