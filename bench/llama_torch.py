#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Language models in transformers and PEFT, and texts in tokenizers, of this Python, for bench/run.

usage: llama_torch.py full|lora|nf4|generate|encode [--steps N] [--threads N] [--model DIR] [--text FILE]

full:     training steps of SmolLM2-135M's shape, 2 x 256 tokens, float32
lora:     of adapters of rank 16 on all linear layers of Qwen3-0.6B's shape, 1 x 256 tokens, a base of bf16
nf4:      the same on a base that bitsandbytes has quantised
generate: tokens one by one with keys and values kept, by the model in DIR
encode:   lines of FILE with the tokenizer in DIR, on one thread
Prints one JSON object: milliseconds of each step, token or pass, when the first ended (CLOCK_MONOTONIC), peak memory in KiB.
"""
import argparse
import json
import os
import time

LENGTH, VOCABULARY = 256, 49152


def peak_kib():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


def smollm2():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rope_theta=1e5, tie_word_embeddings=True))


def quantise(module):
    """Every linear layer inside, by bitsandbytes, in the type that PEFT's users name nf4."""
    from bitsandbytes.nn import Linear4bit, Params4bit
    for name, layer in list(module.named_children()):
        if isinstance(layer, torch.nn.Linear):
            new = Linear4bit(layer.in_features, layer.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
            new.weight = Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4").to("cpu")
            setattr(module, name, new)
        else:
            quantise(layer)


def qwen3_adapted(nf4=False):
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3Config, Qwen3ForCausalLM
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rope_theta=1e6, tie_word_embeddings=True))
    torch.set_default_dtype(torch.float32)
    if nf4:
        quantise(model.model)
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear"))


def train(model, rows, args):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    tokens = torch.randint(0, VOCABULARY, (rows, LENGTH))
    model.train()
    for _ in range(args.steps):
        begin = time.monotonic()
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        yield begin, loss.item()


def generate(args):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(args.model).eval()
    newest, past = torch.randint(0, VOCABULARY, (1, 32)), None
    with torch.inference_mode():
        for _ in range(args.steps):
            begin = time.monotonic()
            out = model(input_ids=newest, past_key_values=past, use_cache=True)
            newest, past = out.logits[:, -1:].argmax(-1), out.past_key_values
            yield begin, 0.0


def encode(args):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    with open(args.text, encoding="utf-8") as file:
        lines = file.readlines()
    for _ in range(args.steps):
        begin = time.monotonic()
        count = sum(len(e.ids) for e in tokenizer.encode_batch(lines, add_special_tokens=False))
        yield begin, float(count)


def main():
    global torch
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=("full", "lora", "nf4", "generate", "encode"))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model")
    parser.add_argument("--text")
    args = parser.parse_args()
    name = "tokenizers"
    if args.work != "encode":
        import torch
        import transformers
        torch.manual_seed(0)
        torch.set_num_threads(args.threads)
        name = f"PyTorch {torch.__version__}, transformers {transformers.__version__}"
    work = {"full": lambda: train(smollm2(), 2, args), "lora": lambda: train(qwen3_adapted(), 1, args),
            "nf4": lambda: train(qwen3_adapted(True), 1, args),
            "generate": lambda: generate(args), "encode": lambda: encode(args)}[args.work]()
    milliseconds, losses, first_end = [], [], 0.0
    for begin, loss in work:
        milliseconds.append((time.monotonic() - begin) * 1e3)
        losses.append(loss)
        first_end = first_end or time.monotonic()
    print(json.dumps({"name": name, "ms": milliseconds, "loss": losses, "first_end": first_end, "peak_kib": peak_kib()}))


if __name__ == "__main__":
    main()
