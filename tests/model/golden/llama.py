#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes llama.json: what transformers and PEFT compute with tiny models of the Llama kind.

Weights come from a formula, so that no file of weights is needed: value i of a tensor is made of
the top 16 bits of splitmix64's output for FNV-1a(name) + (i + 1) * golden ratio, and is exact in
float32. tests/model/llama_formula.h has the same in C.

    python3 llama.py [DIRECTORY]

With a directory it also writes each model there, as save_pretrained() leaves it.
"""
import json
import math
import os
import sys

import numpy
import torch
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)
ROWS, LENGTH, VOCABULARY, STEPS = 2, 24, 96, 5
BASE = {
    "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "rope_theta": 10000.0,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
MODELS = {
    "llama2": {},
    "llama3": {"num_key_value_heads": 2, "head_dim": 16, "hidden_size": 48, "intermediate_size": 64,
               "tie_word_embeddings": True, "rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "linear": {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True,
               "rope_scaling": {"type": "linear", "factor": 2.0}},
    "qwen2": {"model_type": "qwen2", "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
              "tie_word_embeddings": True, "rope_theta": 1e6, "use_sliding_window": True, "sliding_window": 5,
              "max_window_layers": 1},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 40,
              "rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_scaling": YARN},
    "mistral": {"model_type": "mistral", "num_attention_heads": 8, "num_key_value_heads": 2,
                "head_dim": 8, "hidden_size": 48, "sliding_window": 5},
    "smollm3": {"model_type": "smollm3", "num_hidden_layers": 4, "num_key_value_heads": 1,
                "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "rope_theta": 5e6,
                "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4},
    "phi3": {"model_type": "phi3", "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
             "original_max_position_embeddings": 64, "rope_scaling": None, "sliding_window": None},
}
ADAPTERS = {
    "lora": {"target_modules": ["q_proj", "v_proj"], "r": 4, "lora_alpha": 8},
    "rslora": {"target_modules": "all-linear", "r": 4, "lora_alpha": 8, "use_rslora": True},
}


def formula(name, shape):
    """The weights of a tensor: see tests/model/llama_formula.h."""
    mask, state = (1 << 64) - 1, 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & mask
    with numpy.errstate(over="ignore"):
        index = numpy.arange(1, math.prod(shape) + 1, dtype=numpy.uint64)
        z = numpy.uint64(state) + index * numpy.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z ^= z >> numpy.uint64(shift)
            z *= numpy.uint64(factor)
        z ^= z >> numpy.uint64(31)
    unit = (z >> numpy.uint64(48)).astype(numpy.float64) / 32768 - 1
    if name.endswith("norm.weight"):
        unit = 1 + unit / 4
    elif "embed_tokens" in name or "lm_head" in name:
        unit = unit / 2
    else:
        unit = unit / (8 if name.endswith(".bias") else 4)
    return torch.tensor(unit.reshape(shape), dtype=torch.float32)


def make(config):
    torch.manual_seed(0)
    made = AutoConfig.for_model(**json.loads(json.dumps(config)))
    made._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(formula(name, tuple(parameter.shape)))
    return model


def tokens():
    return torch.tensor([[(31 * b + 17 * t + 5 * t * t) % VOCABULARY for t in range(LENGTH)]
                         for b in range(ROWS)])


def norm_of(parameters):
    return math.sqrt(sum(p.grad.double().pow(2).sum().item() for p in parameters))


def train(model, clip=None):
    """Losses before each of 5 steps of AdamW and after them, and the gradients' norms."""
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in learned if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in learned if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for _ in range(STEPS + 1):
        loss = model(input_ids=tokens(), labels=tokens()).loss
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(norm_of(learned))
        if clip:
            torch.nn.utils.clip_grad_norm_(learned, clip)
        optimizer.step()
    return {"losses": losses, "norms": norms}


def packed(model):
    """Row 0 as two documents of 10 and 14 tokens."""
    row = tokens()[:1]
    places = torch.cat([torch.arange(10), torch.arange(14)])[None]
    labels = row.clone()
    labels[0, 10] = -100
    return model(input_ids=row, position_ids=places, labels=labels, use_cache=False).loss.item()


def expect(name, changes, directory):
    config = {**BASE, **changes}
    model = make(config)
    result = model(input_ids=tokens(), labels=tokens())
    result.loss.backward()
    masked = tokens()
    masked[0, :7] = -100
    masked[1, 23] = -100
    found = {
        "config": config,
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": result.loss.item(),
        "masked": model(input_ids=tokens(), labels=masked).loss.item(),
        "packed": packed(model),
        "logits": result.logits[1, 23].tolist(),
        "gradients": {n: norm_of([p]) for n, p in model.named_parameters()},
        "adamw": train(make(config)),
        "clipped": train(make(config), 1.0),
        "frequencies": model.model.rotary_emb.inv_freq.tolist(),
        "attention_factor": float(model.model.rotary_emb.attention_scaling),
    }
    with torch.no_grad():
        found["bf16"] = make(config).to(torch.bfloat16)(input_ids=tokens(), labels=tokens()).loss.item()
    if directory:
        make(config).save_pretrained(os.path.join(directory, name))
    return found


def adapt(options, directory, name):
    from peft import LoraConfig, get_peft_model
    base = make({**BASE, **MODELS["llama3"]})
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **options))

    def fill(with_b):
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "lora_" in key:
                    parameter.copy_(formula(key.replace(".default", ""), tuple(parameter.shape)))
                    if "lora_B" in key and not with_b:
                        parameter.zero_()

    fill(False)
    found = {"options": options, "adamw": train(model)}
    fill(True)
    found["loss"] = model(input_ids=tokens(), labels=tokens()).loss.item()
    if directory:
        model.save_pretrained(os.path.join(directory, name))
    found["merged"] = model.merge_and_unload()(input_ids=tokens(), labels=tokens()).loss.item()
    return found


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else None
    found = {"models": {n: expect(n, c, directory) for n, c in MODELS.items()},
             "adapters": {n: adapt(o, directory, n) for n, o in ADAPTERS.items()}}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama.json"), "w") as file:
        json.dump(found, file, indent=0)
        file.write("\n")


main()
