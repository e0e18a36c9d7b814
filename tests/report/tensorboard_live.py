# SPDX-License-Identifier: MIT
"""Reads an event file with TensorBoard's own reader and compares it with the JSON lines of the same run.

usage: tensorboard_live.py DIRECTORY LOG
"""
import json
import sys

from tensorboard.backend.event_processing import event_accumulator

directory, log = sys.argv[1:]
lines = [json.loads(line) for line in open(log)]
steps = [line for line in lines if line["event"] == "step"]
evaluations = [line for line in lines if line["event"] == "evaluation"]
texts = [line for line in lines if line["event"] == "sample"]
assert steps and (evaluations or texts)

board = event_accumulator.EventAccumulator(directory, size_guidance={"scalars": 0, "tensors": 0})
board.Reload()
pairs = {
    "train/loss": (steps, "loss"),
    "train/learning_rate": (steps, "learning_rate"),
}
for line in steps:
    line.update(workers=lines[0]["world_size"], nodes=lines[0]["nodes"])
pairs["train/workers"], pairs["train/nodes"] = (steps, "workers"), (steps, "nodes")
noisy = [line for line in steps if "gradient_noise_scale" in line]
if noisy:
    pairs["train/gradient_noise_scale"] = (noisy, "gradient_noise_scale")
if evaluations:
    pairs["train/samples_per_second"] = (steps, "samples_per_second")
    pairs["test/loss"] = (evaluations, "test_loss")
    pairs["test/accuracy"] = (evaluations, "test_accuracy")
assert set(pairs) <= set(board.Tags()["scalars"]), board.Tags()
for tag, (expected, key) in pairs.items():
    found = board.Scalars(tag)
    assert [point.step for point in found] == [line["step"] for line in expected], tag
    for point, line in zip(found, expected):
        assert abs(point.value - line[key]) <= 1e-6 * abs(line[key]), (tag, point, line)
        assert abs(point.wall_time - line["time"]) < 60
text = board.Tensors("run")[0].tensor_proto.string_val[0].decode()
assert f"| model | {lines[0]['config']['model']}, " in text, text
for line in texts:  # indented: Markdown for a text as it is
    found = [point for point in board.Tensors(f"sample/{line['sample']}") if point.step == line["step"]]
    text = found[0].tensor_proto.string_val[0].decode()
    assert text == "".join(f"    {part}\n" for part in line["text"].split("\n")), (text, line)
print(f"{len(pairs)} curves, {len(steps)} steps, {len(evaluations)} evaluations, {len(texts)} texts: as logged")
