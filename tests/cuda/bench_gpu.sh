#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench/gpu runs from end to end, at sizes that tell nothing, and its file has all parts; so does the plan for a GPU.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
patience=$((10 * patience)) # a command here runs dozens of programs
command -v python3 >/dev/null || skip "python3 is not installed"
gpus 2
expect "bench/gpu" 0 'MLP +[0-9.]+ m?s' python3 "$here/bench/gpu" --tiny --build "$top" --plugins "$DDP_PLUGIN_PATH" \
    --json "$work/gpu.json"
cat "$work/out"
expect "its file" 0 '^[1-9][0-9]* kernels' python3 - "$work/gpu.json" <<'END'
import json, sys
with open(sys.argv[1]) as file:
    found = json.load(file)
result, rows = found["result"], found["rows"]
for part in ("kernels", "attention", "convolution", "gpt2", "variants", "start", "mlp", "resnet"):
    assert "error" not in result[part], (part, result[part])
    assert any(row["part"] == part for row in rows), part
assert found["gpu"] and result["gpt2"]["ours"]["ms"] > 0 and result["kernels"]["peak_flop_per_s"] > 0
layers = [row["name"] for row in result["kernels"]["layers"]]
assert layers[:3] == ["qkv forward", "qkv dX", "qkv dW"] and "head dW" in layers, layers
assert not found["simulated"] or any("not used" in note for note in found["notes"]["convolution"]), found["notes"]
assert found["gpus"] < 2 or (len(result["allreduce"]["rows"]) == 8 and result["scaling"]["2 GPUs"]["ms"] > 0)
bars = {row["what"]: row["bar"] for row in rows if row["bar"] is not None}
assert bars["add, bf16"] == 0.85 and bars["model FLOP/s beside the measured peak"] == 0.5, bars
print(len(result["kernels"]["kernels"]), "kernels")
END
expect "its table" 0 'start to first step done, MLP +[0-9.]+ m?s +- +<= 2 +(yes|NO)' cat "$work/gpu.txt"

# A part that is run again takes the place of what was there, the others stay; without time nothing is run.
cp "$work/gpu.json" "$work/before.json"
expect "a part again" 0 'start to first step' python3 "$here/bench/gpu" --tiny --only start --build "$top" \
    --plugins "$DDP_PLUGIN_PATH" --json "$work/gpu.json"
expect "it was merged" 0 '^1 changed' python3 - "$work/before.json" "$work/gpu.json" <<'END'
import json, sys
before, after = (json.load(open(path)) for path in sys.argv[1:])
assert len(before["rows"]) == len(after["rows"]) and set(before["result"]) == set(after["result"])
print(sum(before["result"][part] != after["result"][part] for part in before["result"]), "changed")
END
expect "no time" 0 'no time was left for: kernels, start' python3 "$here/bench/gpu" --tiny --only kernels,start --budget 0 \
    --build "$top" --plugins "$DDP_PLUGIN_PATH"

# The plan, from what it packs; a step that fails says so.
expect "the plan" 0 '^5\. two and three ranks on one GPU' python3 "$here/bench/gpu" plan --build "$top" \
    --plugins "$DDP_PLUGIN_PATH"
expect "packing" 0 'carried: [0-9]+ files' python3 "$here/bench/gpu" plan --build "$top" --plugins "$DDP_PLUGIN_PATH" \
    --pack "$work/carried"
plan="python3 $here/bench/gpu plan --tiny --build $work/carried --results $work/results"
plan="$plan --plugins $work/carried/tests/cudasim/.libs"
if [ $simulated = yes ]; then
    gpus 3
    for step in 1 4 5; do
        expect "step $step" 0 "the output is in" $plan --run $step
    done
    grep -q 'ok, .*cmp .*zero1' "$work/out" || fail "no ranks were compared: $(cat "$work/out")"
    expect "a step that fails" 1 'FAILED with' env DDP_CUDASIM_FAIL=cudaGetDeviceCount:1:100 $plan --run 1
fi

# PyTorch: where it sees no GPU, or cannot be imported, the file has the reason; its rows are tried out on the CPU.
printf '#!/bin/sh\nexec python3 -S "$@"\n' >"$work/python"
chmod +x "$work/python"
expect "a Python without PyTorch" 0 "PyTorch: left out \(.*No module named 'torch'" env DDP_CUDASIM_DEVICES=1 python3 "$here/bench/gpu" \
    --only allreduce --python "$work/python" --build "$top" --plugins "$top/tests/cudasim/.libs" --json "$work/none.json"
expect "its reason" 0 'No module named' python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["pytorch"]["skipped"])' \
    "$work/none.json"
if [ $simulated = yes ] && python3 -c 'from torch.nn.functional import scaled_dot_product_attention' 2>/dev/null; then
    expect "PyTorch's rows" 0 'mlp, .* eager +[0-9.]+ m?s' python3 "$here/bench/gpu" --tiny --torch-cpu --only mlp --build "$top" \
        --plugins "$DDP_PLUGIN_PATH" --json "$work/torch.json"
    expect "PyTorch's rows, file" 0 '^PyTorch 2' python3 -c \
        'import json, sys; print(json.load(open(sys.argv[1]))["result"]["mlp"]["eager"]["name"])' "$work/torch.json"
fi
finish
