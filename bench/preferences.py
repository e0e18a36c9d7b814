#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Direct preference optimisation of SmolLM2-135M's shape beside TRL, by turns: a step, and the peak of memory beside that of
supervised training of as many tokens.

usage: preferences.py --python PROGRAM [--build DIR] [--rounds N] [--steps N] [--pairs N] [full|lora ...]

full: all weights, float32; the reference's log-probabilities are computed once, before
lora: adapters of rank 16 on all linear layers; the reference is the model without them
PROGRAM is a Python with TRL, and peft for lora. Weights and texts are random; a pair is two rows of 128 tokens.
"""
import argparse
import array
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

HALF, VOCABULARY, END = 64, 49152, "<|e|>"


def write_tokenizer(directory):
    """Each printable character is a token."""
    vocabulary = {chr(c): c - 33 for c in range(33, 127)}
    vocabulary[END] = len(vocabulary)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                 byte_fallback=False, ignore_merges=False, vocab=vocabulary, merges=[])
    added = dict(id=vocabulary[END], content=END, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    with open(os.path.join(directory, "tokenizer.json"), "w") as file:
        json.dump(dict(version="1.0", truncation=None, padding=None, added_tokens=[added], normalizer=None, pre_tokenizer=level,
                       post_processor=None, decoder=level, model=model), file)
    with open(os.path.join(directory, "tokenizer_config.json"), "w") as file:
        json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=END, pad_token=END), file)


def write_data(work, pairs):
    draw = random.Random(1)
    with open(os.path.join(work, "pairs.jsonl"), "w") as both, open(os.path.join(work, "rows.jsonl"), "w") as rows:
        for _ in range(pairs):
            prompt, chosen, rejected = ("".join(chr(33 + draw.randrange(94)) for _ in range(n)) for n in (HALF, HALF - 1, HALF - 1))
            print(json.dumps(dict(prompt=prompt, chosen=chosen, rejected=rejected)), file=both)
            for answer in (chosen, rejected):
                print(json.dumps(dict(prompt=prompt, completion=answer)), file=rows)


def peak_of(command, work):
    """Runs it; MiB at its peak."""
    with open(os.path.join(work, "said"), "w+") as said:
        process = subprocess.Popen(command, cwd=work, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            raise SystemExit(f"preferences.py: {' '.join(command)}: status {status}\n{said.read()[-2000:]}")
    return usage.ru_maxrss / 1024


def ours(args, work, kind, supervised=False):
    log = os.path.join(work, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    command = [os.path.join(args.build, "trainer"), "--load", "model", "--packing", "pad", "--steps", str(args.steps),
               "--no-eval", "--quiet", "--threads", "2", "--lr", "1e-6", "--schedule", "constant", "--log", log,
               "--log-every", "1"]
    command += ["--lora", "r=16,alpha=32,targets=all-linear"] if kind == "lora" else []
    command += ["--data", "rows.jsonl", "--seq-len", str(2 * HALF), "--batch-size", str(2 * args.pairs)] if supervised else [
        "--data", "pairs.jsonl", "--objective", "dpo", "--seq-len", str(4 * HALF), "--batch-size", str(args.pairs)]
    peak = peak_of(command, work)
    with open(log) as file:
        steps = [line for line in map(json.loads, file) if line["event"] == "step"]
    return [1e3 * step["seconds"] for step in steps[1:]], peak


def theirs(args, work, kind):
    peak = peak_of([args.python, os.path.abspath(__file__), "--peer", kind, "--pairs", str(args.pairs), "--steps",
                    str(args.steps)], work)
    with open(os.path.join(work, "times.json")) as file:
        return json.load(file), peak


def peer(args, kind):
    """In PROGRAM: milliseconds of each step but the first."""
    import torch
    import transformers
    from datasets import load_dataset
    from trl import DPOConfig, DPOTrainer
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained("model", dtype=torch.float32)
    more, ends = {}, []
    if kind == "lora":
        from peft import LoraConfig
        more["peft_config"] = LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear")

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.monotonic())

    arguments = DPOConfig(output_dir="out", per_device_train_batch_size=args.pairs, max_steps=args.steps, learning_rate=1e-6,
                          lr_scheduler_type="constant", bf16=False, use_cpu=True, gradient_checkpointing=False, report_to=[],
                          save_strategy="no", disable_tqdm=True, precompute_ref_log_probs=kind == "full", max_length=2 * HALF)
    run = DPOTrainer(model=model, args=arguments, train_dataset=load_dataset("json", data_files="pairs.jsonl", split="train"),
                     processing_class=transformers.AutoTokenizer.from_pretrained("model"), callbacks=[Clock()], **more)
    run.train()
    with open("times.json", "w") as file:
        json.dump([1e3 * (b - a) for a, b in zip(ends, ends[1:])], file)


def main():
    parser = argparse.ArgumentParser(description="Direct preference optimisation beside TRL.")
    parser.add_argument("kinds", nargs="*", choices=("full", "lora", []), help="which (default: both)")
    parser.add_argument("--build", default=".", help="our build directory (default: the current one)")
    parser.add_argument("--python", help="a Python with TRL")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=2, help="of a step (default 2)")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args, args.peer)
    args.build = os.path.abspath(args.build)
    with tempfile.TemporaryDirectory() as work:
        draw = random.Random(2)
        with open(os.path.join(work, "words.bin"), "wb") as file:
            array.array("H", (draw.randrange(VOCABULARY) for _ in range(1000))).tofile(file)
        subprocess.run([os.path.join(args.build, "trainer"), "--model", "llama", "--size", "smollm2-135m", "--vocab-size",
                        str(VOCABULARY), "--data", "words.bin", "--tokens", "uint16", "--batch-size", "1", "--seq-len", "8", "--steps",
                        "1", "--no-eval", "--quiet", "--export", "model"], cwd=work, check=True)
        write_tokenizer(os.path.join(work, "model"))
        write_data(work, args.pairs * args.steps)
        for kind in args.kinds or ("full", "lora"):
            sides = {"ours": lambda: ours(args, work, kind), "TRL": lambda: theirs(args, work, kind)}
            times, peaks = {side: [] for side in sides}, {}
            for _ in range(args.rounds):
                for side, run in sides.items():
                    found, peaks[side] = run()
                    times[side] += found
            supervised = ours(args, work, kind, True)[1]
            a, b = (statistics.median(times[side]) for side in sides)
            print(f"{kind}: a step {a:.0f} ms, TRL {b:.0f} ms: {b / a:.1f} x; peak {peaks['ours']:.0f} MiB, TRL {peaks['TRL']:.0f} "
                  f"MiB, supervised {supervised:.0f} MiB: {peaks['ours'] / supervised:.2f} of it", flush=True)
    return None


if __name__ == "__main__":
    main()
