#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GPT-2 weights to and from other programs, with their own libraries where they are installed.
usage: interchange.py TOOL DIR     TOOL is gpt2_tool. Needs NumPy and safetensors; exit 77 without them."""
import json
import os
import struct
import subprocess
import sys

try:
    import numpy as np
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"SKIP: {error}")
    sys.exit(77)

TOOL, DIR = sys.argv[1:3]
L, H, C, V, T = SHAPE = (3, 2, 8, 300, 16)
rng = np.random.default_rng(1)
checks = failures = 0


def path(name):
    return os.path.join(DIR, name)


def check(name, good):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print("FAIL:", name)


def tool(*args, shape=SHAPE):
    words = [TOOL, ",".join(map(str, shape)), *args]
    return subprocess.run(words, capture_output=True, text=True)


def works(name, *args):
    run = tool(*args)
    check(f"{name}: exit code {run.returncode}: {run.stderr}", run.returncode == 0)


def refuses(name, pattern, *args, shape=SHAPE, code=3):
    run = tool(*args, shape=shape)
    check(f"{name}: exit code {run.returncode}: {run.stderr}", run.returncode == code)
    check(f"{name}: no '{pattern}' in one message: {run.stderr}",
          pattern in run.stderr and run.stderr.count("\n") == 1)


def kinds(l=L, c=C, v=V, t=T):
    """Names, shapes (ours) and whether Hugging Face turns them, in llm.c's order."""
    yield "wte.weight", (v, c), False
    yield "wpe.weight", (t, c), False
    for name, shape, turned in (
            ("ln_1.weight", (c,), False), ("ln_1.bias", (c,), False), ("attn.c_attn.weight", (3 * c, c), True),
            ("attn.c_attn.bias", (3 * c,), False), ("attn.c_proj.weight", (c, c), True), ("attn.c_proj.bias", (c,), False),
            ("ln_2.weight", (c,), False), ("ln_2.bias", (c,), False), ("mlp.c_fc.weight", (4 * c, c), True),
            ("mlp.c_fc.bias", (4 * c,), False), ("mlp.c_proj.weight", (c, 4 * c), True), ("mlp.c_proj.bias", (c,), False)):
        for i in range(l):
            yield f"h.{i}.{name}", shape, turned
    yield "ln_f.weight", (c,), False
    yield "ln_f.bias", (c,), False


ours = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape, _ in kinds()}
turned = {name for name, _, t in kinds() if t}


def hugging(weights, prefix="transformer."):
    return {prefix + n: np.ascontiguousarray(a.T) if n in turned else a for n, a in weights.items()}


def same(name, file, expected):
    got = load_file(path(file))
    check(f"{name}: other names", sorted(got) == sorted(expected))
    for n in expected:
        check(f"{name}: {n} differs", n in got and got[n].shape == expected[n].shape
              and got[n].tobytes() == np.ascontiguousarray(expected[n]).tobytes())


def bf16(array):
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(values):
    return (values.astype(np.uint32) << 16).view(np.float32)


def llmc(weights, version=3, padded=384, **fields):
    header = np.zeros(256, np.int32)
    header[:8] = 20240326, version, T, V, L, H, C, padded
    for at, value in fields.get("words", {}).items():
        header[at] = value
    data = b""
    for name, _, _ in kinds():
        a = weights[name]
        if name == "wte.weight":
            a = np.concatenate([a, np.zeros((padded - V, C), np.float32)])
        data += a.tobytes() if version == 3 else bf16(a).tobytes()
    return header.tobytes() + data


def write(name, data):
    with open(path(name), "wb") as out:
        out.write(data)


def read(name):
    with open(path(name), "rb") as file:
        return file.read()


# Ours, Hugging Face's with and without prefix, with what it may have beside the weights, in half precision.
save_file(ours, path("ours"))
works("ours", "load", path("ours"), path("out"))
same("ours", "out", ours)
masks = {f"h.{i}.attn.bias": np.tril(np.ones((1, 1, T, T), np.float32)) for i in range(L)}
masks["h.0.attn.masked_bias"] = np.array(-1e4, np.float32)
for name, tensors in (("with prefix", hugging(ours)), ("without", hugging(ours, "")),
                      ("with masks", {**hugging(ours, ""), **masks}),
                      ("with a head", {**hugging(ours), "lm_head.weight": ours["wte.weight"]})):
    save_file(tensors, path("hf"))
    works(name, "load", path("hf"), path("out"))
    same(name, "out", ours)
special = {n: a.astype(np.float16) for n, a in ours.items()}
special["wpe.weight"].ravel()[:6] = 0, -0.0, 65504, 6e-8, -6.1e-5, 2e-5
save_file(hugging(special), path("hf"))
works("float16", "load", path("hf"), path("out"))
same("float16", "out", {n: a.astype(np.float32) for n, a in special.items()})

# Written for Hugging Face
works("to hf", "hf", path("ours"), path("model.safetensors"))
same("to hf", "model.safetensors", hugging(ours))
config = json.loads(read("config.json"))
check("config.json", [config[k] for k in ("n_layer", "n_head", "n_embd", "vocab_size", "n_positions")] == list(SHAPE))
check("metadata", b'"__metadata__":{"format":"pt"}' in read("model.safetensors"))

# llm.c
for version, form in ((3, "llmc"), (5, "llmc-bf16")):
    write("llmc.bin", llmc(ours, version))
    works(f"llm.c {version}", "load", path("llmc.bin"), path("out"))
    rounded = ours if version == 3 else {n: from_bf16(bf16(a)) for n, a in ours.items()}
    same(f"llm.c {version}", "out", rounded)
    works(f"to llm.c {version}", form, path("ours"), path("written.bin"))
    check(f"to llm.c {version}", read("written.bin") == llmc(ours, version))
    works(f"llm.c {version} and back", form, path("llmc.bin"), path("written.bin"))
    check(f"llm.c {version} and back", read("written.bin") == read("llmc.bin"))
write("llmc.bin", llmc(ours, 3, padded=V))
works("no padding", "load", path("llmc.bin"), path("out"))
same("no padding", "out", ours)

# Bad files
good = llmc(ours)
for name, data, pattern in (
        ("version", llmc(ours, words={1: 1}), "version 1 of llm.c's"), ("big-endian", good[3::-1] + good[4:], "big-endian"),
        ("cut", good[:-1], "truncated"), ("header only", good[:1024], "truncated"), ("cut header", good[:1023], "truncated"),
        ("longer", good + b"\0", "something follows"), ("no layers", llmc(ours, words={4: 0}), "num_layers is 0"),
        ("negative", llmc(ours, words={6: -8}), "channels is -8"), ("huge", llmc(ours, words={6: 1 << 24, 4: 1 << 24}), "too large"),
        ("padding", llmc(ours, words={7: V - 1}), "below its vocab_size"), ("heads", llmc(ours, words={5: 3}), "not a multiple"),
        ("a word behind", llmc(ours, words={77: 9}), "word 77")):
    write("bad", data)
    refuses("llm.c, " + name, pattern, "load", path("bad"), path("out"))
write("bad", good)
refuses("llm.c, other heads", "it has 2 heads, and the model has 4", "load", path("bad"), path("out"), shape=(L, 4, C, V, T))
refuses("llm.c, other layers", "it has 3 layers, and the model has 2", "load", path("bad"), path("out"), shape=(2, H, C, V, T))
nan = dict(ours)
nan["h.1.mlp.c_fc.bias"] = nan["h.1.mlp.c_fc.bias"].copy()
nan["h.1.mlp.c_fc.bias"][5] = np.nan
write("bad", llmc(nan))
refuses("llm.c, NaN", "h.1.mlp.c_fc.bias has a value that is not finite, at index 5", "load", path("bad"), path("out"))
hf = hugging(ours)
for name, tensors, pattern in (
        ("NaN", hugging(nan), "not finite"),
        ("missing", {n: a for n, a in hf.items() if "h.2.ln_1.bias" not in n}, "transformer.h.2.ln_1.bias is missing"),
        ("a layer more", {**hf, "transformer.h.3.ln_1.bias": ours["ln_f.bias"]}, "no parameter for tensor transformer.h.3.ln_1.bias"),
        ("another head", {**hf, "lm_head.weight": ours["wte.weight"] + 1}, "lm_head.weight differs"),
        ("not turned", {**hf, "transformer.h.1.mlp.c_fc.weight": ours["h.1.mlp.c_fc.weight"]}, "has the shape (32,8), the model's is (8,32)"),
        ("dtype", {**hf, "transformer.ln_f.bias": ours["ln_f.bias"].astype(np.float64)}, "is F64; F32")):
    save_file(tensors, path("bad"))
    refuses("hf, " + name, pattern, "load", path("bad"), path("out"))
refuses("hf, other vocabulary", "wte.weight has the shape (300,8), the model's is (301,8)", "load", path("hf"), path("out"), shape=(L, H, C, V + 1, T))
refuses("no file", "no-such: cannot read", "load", path("no-such"), path("out"), code=4)
refuses("a directory", "cannot read: not a regular file", "load", DIR, path("out"), code=4)
refuses("suffix", "name the format", "auto", path("ours"), path("out.pt"), code=2)
check("refused output was written", not os.path.exists(path("out.pt")))

# A model that the trainer trains, exports and loads again: the same loss everywhere.
TRAINER = os.path.join(os.path.dirname(os.path.abspath(TOOL)), "trainer")
SEQ, BATCH = 16, 4


def train(*args):
    run = subprocess.run([TRAINER, "--model", "gpt2", "--data", path("text"), "--tokens", "bytes", "--seq-len", str(SEQ),
                          "--batch-size", str(BATCH), "--threads", "1", "--no-eval", *args], capture_output=True, text=True)
    check(f"trainer {args}: exit code {run.returncode}: {run.stderr}", run.returncode == 0)
    return run.stdout


write("text", bytes(rng.integers(32, 127, 4000, np.uint8)))
os.mkdir(path("model"))
small = ("--layers", "2", "--heads", "2", "--channels", "32")
train(*small, "--steps", "20", "--save", path("saved-by-us"), "--export", path("model/model.safetensors"), "--quiet")
train(*small, "--steps", "20", "--export", path("exported.bin"), "--quiet")
losses = []
for name in ("saved-by-us", "model/model.safetensors", "exported.bin"):
    shown = train("--config", path("model/config.json"), "--load", path(name), "--steps", "1", "--lr", "0", "--weight-decay", "0",
                  "--no-shuffle", "--verbose")
    losses += [float(line.split("loss ")[1].split(",")[0]) for line in shown.splitlines() if "step 1: loss" in line]
check(f"losses {losses}", len(losses) == 3 and len(set(losses)) == 1)

# The same logits in transformers, in both directions
try:
    import torch
    import transformers
    from transformers import GPT2LMHeadModel
except ImportError as error:
    print(f"left out: transformers: {error}")
else:
    model = GPT2LMHeadModel.from_pretrained(DIR).eval()
    for n, a in ours.items():
        parameter = model.transformer.get_parameter(n).detach().numpy()
        check(f"transformers: {n}", np.array_equal(parameter.T if n in turned else parameter, a))
    model.save_pretrained(path("saved"))
    works("saved by transformers", "load", path("saved/model.safetensors"), path("out"))
    same("saved by transformers", "out", ours)
    run = subprocess.run([TOOL, "config", path("saved/config.json"), path("config.out")], capture_output=True, text=True)
    check(f"transformers' config: {run.stderr}", run.returncode == 0)
    model = GPT2LMHeadModel.from_pretrained(path("model")).eval()
    tokens = torch.tensor(list(read("text")[:SEQ * BATCH + 1]))
    with torch.no_grad():
        logits = model(tokens[:-1].reshape(BATCH, SEQ)).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 256), tokens[1:]).item()
    check(f"transformers' loss {loss}, ours {losses[0]}", abs(loss - losses[0]) < 5e-6)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
print(f"{checks} checks, {failures} failed")
sys.exit(1 if failures or not checks else 0)
