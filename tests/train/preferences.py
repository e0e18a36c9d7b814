# SPDX-License-Identifier: MIT
"""A small model's directory, data of preferences, and what a log says of them; for preferences.sh, preferences_live.py and
golden/preferences.py. The standard library suffices.

   preferences.py make DIRECTORY               config.json, tokenizer.json, tokenizer_config.json, *.jsonl, adapters
   preferences.py check GOLDEN RUN LOG [BOUND] the log's losses and rewards are those of the run in the golden file
   preferences.py same LOG LOG                 to the last bit
"""
import json
import os
import struct
import sys

CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=96, hidden_size=32, intermediate_size=48,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_act="silu", max_position_embeddings=64,
              rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0, rope_theta=10000.0)
END, EOS = 2, "<|e|>"
# Each token is a character of the byte alphabet; a space is written with the first.
LETTERS = ["\u0120"] + [chr(c) for c in range(33, 127)]


def ids(a, n):
    return [3 + (29 * a + 17 * t + 5 * t * t) % 93 for t in range(n)]


PAIRS = [(ids(i, 3 + i % 3), ids(20 + i, 4 + i % 4), ids(50 + i, 3 + (i * 3) % 5)) for i in range(8)]


def letter(token):
    return LETTERS[token if token < END else token - 1]


def text(tokens):
    return "".join(" " if letter(t) == LETTERS[0] else letter(t) for t in tokens)


def tokenizer():
    vocabulary = {EOS if t == END else letter(t): t for t in range(96)}
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                 byte_fallback=False, ignore_merges=False, vocab=vocabulary, merges=[])
    added = dict(id=END, content=EOS, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=[added], normalizer=None, pre_tokenizer=level,
                post_processor=None, decoder=level, model=model)


def pairs():
    return [dict(prompt=text(p), chosen=text(c), rejected=text(r)) for p, c, r in PAIRS]


def rated():
    return [dict(prompt=text(p), completion=text(r if i % 2 else c), label=i % 2 == 0) for i, (p, c, r) in enumerate(PAIRS)]


def write(directory, name, *lines):
    with open(os.path.join(directory, name), "w") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")


def formula(name, count):
    """Numbers that a name and a place have."""
    mask, h, values = (1 << 64) - 1, 0xCBF29CE484222325, []
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & mask
    for i in range(count):
        z = (h + (i + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        values.append(((z >> 48) - 32768) / 32768 / 4)
    return values


LORA = dict(peft_type="LORA", task_type="CAUSAL_LM", r=4, lora_alpha=8, lora_dropout=0.0, bias="none", inference_mode=False,
            base_model_name_or_path="base", target_modules=["q_proj", "v_proj"])


def make_adapters(directory):
    """PEFT's files: A by the formula, B 0."""
    os.makedirs(directory, exist_ok=True)
    head, data = {}, b""
    for layer in range(2):
        for module, rows in (("q_proj", 32), ("v_proj", 16)):
            for part, shape in (("lora_A", (4, 32)), ("lora_B", (rows, 4))):
                name = f"base_model.model.model.layers.{layer}.self_attn.{module}.{part}.weight"
                count = shape[0] * shape[1]
                values = formula(name, count) if part == "lora_A" else [0.0] * count
                head[name] = dict(dtype="F32", shape=shape, data_offsets=[len(data), len(data) + 4 * count])
                data += struct.pack(f"<{count}f", *values)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    write(directory, "adapter_config.json", LORA)
    with open(os.path.join(directory, "adapter_model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def make(directory):
    os.makedirs(directory, exist_ok=True)
    make_adapters(os.path.join(directory, "adapters"))
    write(directory, "config.json", CONFIG)
    write(directory, "tokenizer.json", tokenizer())
    write(directory, "tokenizer_config.json", dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=EOS, pad_token=letter(1)))
    write(directory, "pairs.jsonl", *pairs())
    write(directory, "rated.jsonl", *rated())
    # The same without prompts, which both answers begin with; as the first differ, nothing more is common.
    write(directory, "whole.jsonl", *[dict(chosen=p["prompt"] + p["chosen"], rejected=p["prompt"] + p["rejected"]) for p in pairs()])


def steps(log):
    with open(log) as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if line["event"] == "step"]


def check(golden, run, log, tolerance=2e-6):
    """The largest difference, relative to values above 1."""
    with open(golden) as file:
        rows = [line.split() for line in file if line.startswith(run + " ")]
    found, worst, tolerance = steps(log), 0.0, float(tolerance)
    for _, name, *values in rows:
        for i, value in enumerate(values):
            got = found[i].get(name)
            off = abs(got - float(value)) / max(1.0, abs(float(value))) if got is not None else float("inf")
            if not off <= tolerance:
                sys.exit(f"{run}: step {i + 1}: {name} {got}, not {value}")
            worst = max(worst, off)
    if not rows or not worst < tolerance:
        sys.exit(f"{run}: no such run in {golden}")
    return worst


def same(a, b):
    left, right = steps(a), steps(b)
    keys = [k for k in left[0] if k == "loss" or "/" in k or k == "kl"]
    if len(left) != len(right) or any(x.get(k) != y.get(k) for x, y in zip(left, right) for k in keys):
        sys.exit(f"{a} and {b} differ")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"make": make, "check": check, "same": same}[command](*arguments)
