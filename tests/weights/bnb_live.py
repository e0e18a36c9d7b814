# SPDX-License-Identifier: MIT
"""Directories that bitsandbytes quantises, beside its own values:

   bnb_live.py TRAINER FILL WORK

Each matrix is quantised and unpacked by bitsandbytes; what we read of the codes has the bytes of its values.
"""
import json
import os
import subprocess
import sys

import bitsandbytes.functional as F
import torch
from safetensors.torch import load_file, save_file

trainer, fill, work = sys.argv[1:]
CONFIG = dict(model_type="llama", vocab_size=96, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5)
SAID = dict(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage="uint8")


def run(*arguments):
    subprocess.run(arguments, check=True)


def write(directory, tensors, config):
    os.makedirs(directory)
    save_file(tensors, os.path.join(directory, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file)


write(os.path.join(work, "shape"), {}, CONFIG)
base = os.path.join(work, "base")
run(fill, "fill", os.path.join(work, "shape"), base, "f32", "0")
weights, failed = load_file(os.path.join(base, "model.safetensors")), 0
for dtype in ("bfloat16", "float32"):
    for double in (False, True):
        name = os.path.join(work, f"{dtype}.{double}")
        quantised, plain = {}, {}
        for key, value in weights.items():
            value = value.to(getattr(torch, dtype))
            quantised[key] = plain[key] = value
            if "layers" in key and value.dim() == 2:
                quantised[key], state = F.quantize_4bit(value, blocksize=64, quant_type="nf4", compress_statistics=double)
                plain[key] = F.dequantize_4bit(quantised[key], state).contiguous()
                quantised.update({f"{key}.{end}": part for end, part in state.as_dict(packed=True).items()})
        write(name, quantised, {**CONFIG, "dtype": dtype, "quantization_config": SAID})
        write(name + ".plain", plain, {**CONFIG, "dtype": dtype})
        found = []
        for directory in (name, name + ".plain"):
            run(trainer, "--load", directory, "--export", directory + ".out", "--quiet")
            with open(os.path.join(directory + ".out", "model.safetensors"), "rb") as file:
                found.append(file.read())
        print(f"{dtype}, double quantisation {double}: {'the same bytes' if found[0] == found[1] else 'FAIL: other bytes'}")
        failed += found[0] != found[1]
sys.exit(failed > 0)
