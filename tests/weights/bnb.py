# SPDX-License-Identifier: MIT
"""Writes a directory with matrices as bitsandbytes stores its nf4, of codes and scales at random, and one with the values that they
stand for, TARGET.plain:

   bnb.py TARGET DTYPE DOUBLE [FAULT]

DTYPE: bfloat16 or float32. DOUBLE: 1: scales are quantised too. FAULT: what is wrong with the first directory.
"""
import json
import os
import random
import struct
import sys

target, dtype, double, fault = sys.argv[1], sys.argv[2], sys.argv[3] == "1", (sys.argv + [""])[4]
CODES = [-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
         -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
         0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1]
CONFIG = dict(model_type="llama", vocab_size=96, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5, dtype=dtype)
C, F, K = 128, 192, 64
LINEAR = dict(q_proj=(C, C), k_proj=(K, C), v_proj=(K, C), o_proj=(C, C), gate_proj=(F, C), up_proj=(F, C), down_proj=(C, F))
draw = random.Random(1)


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def pack(values, kind):
    raw = struct.pack(f"<{len(values)}f", *values)
    if kind == "F32":
        return raw
    words = struct.unpack(f"<{len(values)}I", raw)
    return struct.pack(f"<{len(values)}H", *((w + 0x7fff + (w >> 16 & 1)) >> 16 for w in words))


def reals(count, low, high):
    return [f32(draw.uniform(low, high)) for _ in range(count)]


FLOAT = "BF16" if dtype == "bfloat16" else "F32"
quantised, plain = {}, {}


def put(tensors, name, kind, shape, raw):
    tensors[name] = (kind, list(shape), raw)


def matrix(name, rows, columns):
    blocks = rows * columns // 64
    state = dict(quant_type="nf4", blocksize=64, dtype=dtype, shape=[rows, columns])
    codes = [draw.randrange(16) for _ in range(rows * columns)]
    scales = reals(blocks, 0.05, 0.3)
    if double:
        raw, nested = bytes(draw.randrange(256) for _ in range(blocks)), reals(-(-blocks // 32), 0.05, 0.1)
        table, offset = sorted(reals(256, -1, 1)), f32(draw.uniform(0.15, 0.2))
        scales = [f32(f32(table[b] * nested[i // 32]) + offset) for i, b in enumerate(raw)]
        state.update(nested_blocksize=32, nested_dtype="float32", nested_offset=offset)
        put(quantised, name + ".absmax", "U8", [blocks], raw)
        put(quantised, name + ".nested_absmax", "F32", [len(nested)], pack(nested, "F32"))
        put(quantised, name + ".nested_quant_map", "F32", [256], pack(table, "F32"))
    else:
        put(quantised, name + ".absmax", "F32", [blocks], pack(scales, "F32"))
    put(quantised, name, "U8", [rows * columns // 2, 1], bytes(codes[i] << 4 | codes[i + 1] for i in range(0, len(codes), 2)))
    put(quantised, name + ".quant_map", "F32", [16], pack(CODES, "F32"))
    text = json.dumps(state).encode()
    put(quantised, name + ".quant_state.bitsandbytes__nf4", "U8", [len(text)], text)
    levels = [f32(c) for c in CODES]
    put(plain, name, FLOAT, [rows, columns], pack([f32(levels[c] * scales[i // 64]) for i, c in enumerate(codes)], FLOAT))


def both(name, shape, low, high):
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    raw = pack(reals(count, low, high), FLOAT)
    for tensors in (quantised, plain):
        put(tensors, name, FLOAT, shape, raw)


def write(directory, tensors, config):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, raw) in tensors.items():
        header[name] = dict(dtype=kind, shape=shape, data_offsets=[at, at + len(raw)])
        at += len(raw)
    text = json.dumps(header).encode()
    os.makedirs(directory)
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file, indent=2)


both("model.embed_tokens.weight", (96, C), -1, 1)
for layer in range(2):
    for part, (rows, columns) in LINEAR.items():
        room = "self_attn" if "o_proj" in part or part[0] in "qkv" else "mlp"
        matrix(f"model.layers.{layer}.{room}.{part}.weight", rows, columns)
    for part in ("input_layernorm", "post_attention_layernorm"):
        both(f"model.layers.{layer}.{part}.weight", (C,), 0.5, 1.5)
both("model.norm.weight", (C,), 0.5, 1.5)
both("lm_head.weight", (96, C), -0.2, 0.2)

said = dict(quant_method="bitsandbytes", load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage="uint8",
            bnb_4bit_use_double_quant=double, bnb_4bit_compute_dtype=dtype)
NAME = "model.layers.1.mlp.up_proj.weight"
STATE = NAME + ".quant_state.bitsandbytes__nf4"


def restate(**changes):
    text = json.dumps({**json.loads(quantised[STATE][2]), **changes}).encode()
    put(quantised, STATE, "U8", [len(text)], text)


if fault == "method":
    said["quant_method"] = "gptq"
elif fault == "fp4":
    said["bnb_4bit_quant_type"] = "fp4"
elif fault in ("absmax", "quant_map", "nested_absmax", "nested_quant_map", "quant_state.bitsandbytes__nf4"):
    del quantised[f"{NAME}.{fault}"]
elif fault == "short":
    kind, shape, raw = quantised[NAME]
    put(quantised, NAME, kind, [shape[0] - 1, 1], raw[:-1])
elif fault == "scales":
    kind, shape, raw = quantised[NAME + ".absmax"]
    put(quantised, NAME + ".absmax", kind, [shape[0] - 1], raw[:-len(raw) // shape[0]])
elif fault == "map":
    put(quantised, NAME + ".quant_map", "F32", [16], pack(CODES[::-1], "F32"))
elif fault == "nan":
    put(quantised, NAME + ".absmax", "F32", quantised[NAME + ".absmax"][1], b"\0\0\xc0\x7f" * quantised[NAME + ".absmax"][1][0])
elif fault == "extra":
    put(quantised, "model.norm.weight.absmax", "F32", [1], bytes(4))
elif fault == "json":
    put(quantised, STATE, "U8", [1], b"{")
elif fault:
    restate(**{"dtype": {"dtype": "float16"}, "blocksize": {"blocksize": 128}, "shape": {"shape": [C, F]},
               "nested": {"nested_blocksize": None}, "type": {"quant_type": "fp4"}}[fault])
write(target, quantised, {**CONFIG, "quantization_config": said})
write(target + ".plain", plain, CONFIG)
