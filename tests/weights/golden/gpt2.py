#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A tiny GPT-2 in other programs' files, and the loss that NumPy computes from it.

usage: gpt2.py DIRECTORY

DIRECTORY/weights/golden/gpt2 gets model.safetensors and config.json as Hugging Face has them (written by the safetensors package),
model.bin and model-bf16.bin as llm.c has them, text to predict, and losses.txt: the mean loss over the first ROWS rows
of the text, computed here in double, of the weights and of the weights rounded to bf16.
"""
import json
import os
import sys

import numpy as np
from safetensors.numpy import save_file

OUT = os.path.join(sys.argv[1], "weights", "golden", "gpt2")
LAYERS, HEADS, CHANNELS, VOCABULARY, CONTEXT, ROWS = 2, 2, 8, 256, 16, 4
rng = np.random.RandomState(5)
os.makedirs(OUT, exist_ok=True)


def shapes():
    """Names, shapes (out, in) and whether Hugging Face has the matrix as (in, out), in llm.c's order."""
    c = CHANNELS
    yield "wte.weight", (VOCABULARY, c), False
    yield "wpe.weight", (CONTEXT, c), False
    for name, shape, turned in (
            ("ln_1.weight", (c,), False), ("ln_1.bias", (c,), False), ("attn.c_attn.weight", (3 * c, c), True),
            ("attn.c_attn.bias", (3 * c,), False), ("attn.c_proj.weight", (c, c), True), ("attn.c_proj.bias", (c,), False),
            ("ln_2.weight", (c,), False), ("ln_2.bias", (c,), False), ("mlp.c_fc.weight", (4 * c, c), True),
            ("mlp.c_fc.bias", (4 * c,), False), ("mlp.c_proj.weight", (c, 4 * c), True), ("mlp.c_proj.bias", (c,), False)):
        for layer in range(LAYERS):
            yield "h.%d.%s" % (layer, name), shape, turned
    yield "ln_f.weight", (c,), False
    yield "ln_f.bias", (c,), False


def norm(x, w, name):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * w[name + ".weight"] + w[name + ".bias"]


def linear(x, w, name):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def attention(x, w, name):
    q, k, v = np.split(linear(x, w, name + ".c_attn"), 3, -1)
    out, size = np.zeros_like(x), CHANNELS // HEADS
    for h in range(HEADS):
        part = slice(h * size, (h + 1) * size)
        scores = q[..., part] @ np.swapaxes(k[..., part], -1, -2) / np.sqrt(size)
        scores = np.where(np.tril(np.ones((CONTEXT, CONTEXT), bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        out[..., part] = scores / scores.sum(-1, keepdims=True) @ v[..., part]
    return linear(out, w, name + ".c_proj")


def loss(w, tokens):
    w = {name: a.astype(np.float64) for name, a in w.items()}
    rows, targets = tokens[:-1].reshape(ROWS, CONTEXT), tokens[1:].reshape(ROWS, CONTEXT)
    x = w["wte.weight"][rows] + w["wpe.weight"]
    for layer in range(LAYERS):
        block = "h.%d." % layer
        x = x + attention(norm(x, w, block + "ln_1"), w, block + "attn")
        y = linear(norm(x, w, block + "ln_2"), w, block + "mlp.c_fc")
        y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
        x = x + linear(y, w, block + "mlp.c_proj")
    logits = norm(x, w, "ln_f") @ w["wte.weight"].T
    logits = logits - logits.max(-1, keepdims=True)
    chosen = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (np.log(np.exp(logits).sum(-1)) - chosen).mean()


def bf16(a):
    bits = np.ascontiguousarray(a).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def write(name, data):
    with open(os.path.join(OUT, name), "wb") as out:
        out.write(data)


def llmc(version, weights):
    header = np.zeros(256, np.int32)
    header[:8] = 20240326, version, CONTEXT, VOCABULARY, LAYERS, HEADS, CHANNELS, VOCABULARY
    return header.tobytes() + b"".join(weights[name].tobytes() for name, _, _ in shapes())


weights = {name: (rng.standard_normal(shape) * 0.5 + name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight"))).astype(np.float32)
           for name, shape, _ in shapes()}
save_file({"transformer." + name: np.ascontiguousarray(weights[name].T) if turned else weights[name]
           for name, _, turned in shapes()}, os.path.join(OUT, "model.safetensors"), {"format": "pt"})
os.chmod(os.path.join(OUT, "model.safetensors"), 0o644)
write("config.json", (json.dumps({
    "model_type": "gpt2", "n_layer": LAYERS, "n_head": HEADS, "n_embd": CHANNELS, "vocab_size": VOCABULARY,
    "n_positions": CONTEXT, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
    "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0}) + "\n").encode())
write("model.bin", llmc(3, weights))
rounded = {name: bf16(a) for name, a in weights.items()}
write("model-bf16.bin", llmc(5, rounded))
text = bytes(rng.randint(32, 127, 400).astype(np.uint8))
write("text", text)
tokens = np.frombuffer(text, np.uint8)[:ROWS * CONTEXT + 1].astype(np.int64)
widened = {name: (a.astype(np.uint32) << 16).view(np.float32) for name, a in rounded.items()}
write("losses.txt", b"model.safetensors %.6f\nmodel.bin %.6f\nmodel-bf16.bin %.6f\n" % (
    loss(weights, tokens), loss(weights, tokens), loss(widened, tokens)))
