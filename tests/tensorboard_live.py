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
assert steps and evaluations

board = event_accumulator.EventAccumulator(directory, size_guidance={"scalars": 0, "tensors": 0})
board.Reload()
pairs = {
    "train/loss": (steps, "loss"),
    "train/learning_rate": (steps, "learning_rate"),
    "train/samples_per_second": (steps, "samples_per_second"),
    "test/loss": (evaluations, "test_loss"),
    "test/accuracy": (evaluations, "test_accuracy"),
}
assert set(pairs) <= set(board.Tags()["scalars"]), board.Tags()
for tag, (expected, key) in pairs.items():
    found = board.Scalars(tag)
    assert [point.step for point in found] == [line["step"] for line in expected], tag
    for point, line in zip(found, expected):
        assert abs(point.value - line[key]) <= 1e-6 * abs(line[key]), (tag, point, line)
        assert abs(point.wall_time - line["time"]) < 60
text = board.Tensors("run")[0].tensor_proto.string_val[0].decode()
assert "| model | mlp, " in text, text
print(f"{len(pairs)} curves, {len(steps)} steps, {len(evaluations)} evaluations: as logged")
