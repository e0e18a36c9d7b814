# SPDX-License-Identifier: MIT
"""usage: words_live.py TRAINER DIRECTORY

A table with two columns of many words beside PyTorch, which concatenates the rows of an embedding and the other numbers: after five
steps of SGD from the same weights, the largest difference of a weight is at most 1e-6, and of predictions in their unit 1e-3."""
import json
import os
import struct
import subprocess
import sys

import torch

trainer, work = os.path.abspath(sys.argv[1]), sys.argv[2]
os.chdir(work)
ROWS, BATCH, STEPS, RATE = 160, 32, 5, 0.05
rows = [(i * 37 % 101, f"t{i * 7 % 80}", f"u{i % 66}", i * 31 % 17 - i % 5) for i in range(ROWS)]
with open("t.csv", "w") as file:
    file.writelines(f"{a},{b},{c},{d}\n" for a, b, c, d in [("a", "town", "team", "y"), *rows])


def train(*more):
    subprocess.run([trainer, "--data", "t.csv", "--target", "y", "--batch-size", str(BATCH), "--no-shuffle", "--no-eval", "--quiet",
                    "--threads", "1", "--optimizer", "sgd", "--momentum", "0", "--weight-decay", "0", "--schedule", "constant",
                    "--lr", str(RATE), "--hidden", "24,16", *more], check=True)


def read(path):
    """A file's tensors, and what it says of its columns."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    about = [json.loads(text) for text in metadata.values() if '"kind":"table"' in text][0]
    tensors = {}
    for name, tensor in header.items():
        begin, end = (8 + size + at for at in tensor["data_offsets"])
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(tensor["shape"])
    return tensors, about


train("--steps", "1", "--save", "first")
train("--steps", str(STEPS), "--load", "first", "--save", "last")
weights, about = read("first")
a, town, team = about["columns"]
target = about["target"]
numbers = torch.tensor([[(row[0] - a["mean"]) / a["std"]] for row in rows], dtype=torch.float32)
places = torch.tensor([[1 + town["words"].index(row[1]), 2 + len(town["words"]) + team["words"].index(row[2])] for row in rows])
labels = torch.tensor([[(row[3] - target["mean"]) / target["std"]] for row in rows], dtype=torch.float32)
for weight in weights.values():
    weight.requires_grad = True


def predict(of):
    x = torch.cat([numbers[of], weights["words.weight"][places[of]].flatten(1)], 1)
    for layer in ("fc1", "fc2", "fc3"):
        x = torch.nn.functional.linear(x if layer == "fc1" else torch.relu(x), weights[layer + ".weight"], weights[layer + ".bias"])
    return x


optimizer = torch.optim.SGD(weights.values(), lr=RATE)
for step in range(STEPS):
    batch = slice(step * BATCH, (step + 1) * BATCH)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(predict(batch), labels[batch]).backward()
    optimizer.step()
last, _ = read("last")
apart = max((weights[name] - last[name]).abs().max().item() for name in weights)
moved = (read("first")[0]["words.weight"] - last["words.weight"]).abs().max().item()
subprocess.run([trainer, "--load", "last", "--data", "t.csv", "--predict", "p.csv", "--quiet"], check=True)
with open("p.csv") as file:
    ours = torch.tensor([[float(line.rsplit(",", 1)[1])] for line in list(file)[1:]])
expected = predict(slice(0, ROWS)).detach() * target["std"] + target["mean"]
predicted = (ours - expected).abs().max().item()
print(f"a table with words: largest difference of a weight {apart:.1e}, of a prediction {predicted:.1e}; words moved by {moved:.1e}")
sys.exit(not (apart <= 1e-6 and predicted <= 1e-3 and moved > 1e-4))
