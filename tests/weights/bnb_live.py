# SPDX-License-Identifier: MIT
"""Directories that bitsandbytes quantises, beside its own values:

   bnb_live.py TRAINER FILL WORK

Each matrix is quantised and unpacked by bitsandbytes; what we read of the codes has the bytes of its values. Then 50 steps of
adapters on such directories beside PEFT: losses within 1e-3.
"""
import array
import json
import os
import subprocess
import sys

import bitsandbytes.functional as F
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

trainer, fill, work = sys.argv[1:]
CONFIG = dict(model_type="llama", vocab_size=96, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5)
SAID = dict(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage="uint8",
            bnb_4bit_compute_dtype="float32")


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

STEPS, ROWS, LENGTH = 50, 4, 24
tokens = torch.randint(0, CONFIG["vocab_size"], (5 * ROWS * LENGTH,), generator=torch.Generator().manual_seed(1))
tokens = torch.cat([tokens] * (STEPS // 5) + [tokens[:1]])
with open(os.path.join(work, "tokens.bin"), "wb") as file:
    array.array("H", tokens.tolist()).tofile(file)


def losses_of_peft(directory, adapters, dtype):
    """From adapters that it writes."""
    torch.manual_seed(2)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules="all-linear"))
    model.save_pretrained(adapters)
    model.train()  # in evaluation bitsandbytes multiplies in bf16
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3, betas=(0.9, 0.95), weight_decay=0)
    losses = []
    for step in range(STEPS):
        first = step * ROWS * LENGTH
        rows, labels = (tokens[at:at + ROWS * LENGTH].view(ROWS, LENGTH) for at in (first, first + 1))
        loss = torch.nn.functional.cross_entropy(model(input_ids=rows).logits.flatten(0, 1).float(), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


for double in (False, True):
    directory, log = os.path.join(work, f"float32.{double}"), os.path.join(work, f"log.{double}")
    theirs = losses_of_peft(directory, directory + ".adapters", torch.float32)
    run(trainer, "--model", "llama", "--load", directory, "--adapters", directory + ".adapters", "--data",
        os.path.join(work, "tokens.bin"), "--tokens", "uint16", "--seq-len", str(LENGTH), "--batch-size", str(ROWS), "--steps",
        str(STEPS), "--no-shuffle", "--lr", "5e-3", "--schedule", "constant", "--weight-decay", "0", "--clip-grad-norm", "0",
        "--no-eval", "--quiet", "--log", log)
    with open(log) as file:
        ours = [line["loss"] for line in map(json.loads, file) if line["event"] == "step"]
    off = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"double quantisation {double}: {STEPS} losses, {theirs[0]:.4f} to {theirs[-1]:.4f}, off by at most {off:.1e}")
    failed += not off <= 1e-3
sys.exit(failed > 0)
