# SPDX-License-Identifier: MIT
"""The loss of a saved gpt2 of one block over the first samples of a text's last tenth, as PyTorch computes it in double, and
the perplexity and the bits per byte that follow; compared with the last evaluation of a log.

usage: evaluation_live.py WEIGHTS TEXT SAMPLES LOG
"""
import json
import math
import struct
import sys

import torch
from torch.nn import functional

weights, text, samples, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
with open(weights, "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = bytearray(file.read())
model = dict(word.split("=") for word in header.pop("__metadata__")["ddprun.model"].split()[1:])
heads, T = int(model["heads"]), int(model["dims"])
assert model["layers"] == "1"
w = {}
for name, tensor in header.items():
    begin, end = tensor["data_offsets"]
    w[name] = torch.frombuffer(data, dtype=torch.float32, offset=begin, count=(end - begin) // 4).reshape(tensor["shape"]).double()


def linear(x, name):
    return functional.linear(x, w[name + ".weight"], w[name + ".bias"])


def norm(x, name):
    return functional.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"])


with open(text, "rb") as file:
    tokens = file.read()
tokens = torch.tensor(list(tokens[len(tokens) // 10 * 9 + len(tokens) % 10 * 9 // 10:][:samples * T + 1]))
inputs, targets = tokens[:-1].reshape(samples, T), tokens[1:]
x = w["wte.weight"][inputs] + w["wpe.weight"][:T]
q, k, v = (part.reshape(samples, T, heads, -1).transpose(1, 2) for part in linear(norm(x, "h.0.ln_1"), "h.0.attn.c_attn").chunk(3, -1))
scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
scores = scores.masked_fill(torch.ones(T, T).tril() == 0, -math.inf).softmax(-1)
x = x + linear((scores @ v).transpose(1, 2).reshape(x.shape), "h.0.attn.c_proj")
y = linear(norm(x, "h.0.ln_2"), "h.0.mlp.c_fc")
y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
x = x + linear(y, "h.0.mlp.c_proj")
logits = (norm(x, "ln_f") @ w["wte.weight"].T).reshape(samples * T, -1)
loss = functional.cross_entropy(logits, targets).item()
accuracy = (logits.argmax(-1) == targets).double().mean().item()

last = [line for line in map(json.loads, open(log)) if line["event"] == "evaluation"][-1]
expected = {"samples": samples, "test_loss": loss, "test_perplexity": math.exp(loss),
            "test_bits_per_byte": loss / math.log(2), "test_accuracy": accuracy}
for name, value in expected.items():
    bound = 2 / (samples * T) if name == "test_accuracy" else 1e-5 * value
    assert abs(last[name] - value) <= bound, (name, last[name], value)
assert last["best_loss"] <= last["test_loss"] and last["best_step"] <= last["step"]
print(f"{samples} samples, a loss of {loss}: as PyTorch")
