# SPDX-License-Identifier: MIT
"""Damages files as disks, cables and people do: bits flip, pieces are cut off, overwritten or doubled. Each reader
refuses the file with one message that names it, or takes it where the damage cannot be seen; nothing crashes or hangs,
and a checkpoint is only ever resumed whole.
"""
import glob
import os
import shutil

import chaos
import data

BASE = ["--batch-size", "2", "--steps", "2", "--threads", "1", "--quiet"]
TEXT = ["--model", "gpt2", "--seq-len", "8", "--layers", "1", "--heads", "2", "--channels", "8"]
CODES = chaos.documented_codes("trainer.1")
kinds = []  # (name, what is copied, which files in it are damaged, options with {} for the copy)


def damage(draw, path):
    """Changes a file's contents; says how."""
    with open(path, "rb") as file:
        bytes_ = bytearray(file.read())
    size = len(bytes_)
    # Headers are small, and most of what is parsed.
    at = draw.randrange(min(size, draw.choice([16, 128, 1024, size]))) if size else 0
    way = draw.choice(["flip", "flip", "flip", "cut", "set", "zero", "longer", "insert", "remove"])
    if way == "flip":
        for _ in range(draw.choice([1, 1, 2, 8])):
            bytes_[min(size - 1, at + draw.randrange(64))] ^= 1 << draw.randrange(8)
    elif way == "cut":
        del bytes_[draw.choice([at, draw.randrange(size), size - 1]):]
    elif way == "set":
        bytes_[at:at + 8] = draw.choice([b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7, draw.randbytes(8)])
    elif way == "zero":
        length = min(size - at, draw.choice([1, 16, 4096]))
        bytes_[at:at + length] = bytes(length)
    elif way == "longer":
        bytes_ += draw.randbytes(draw.choice([1, 7, 4096]))
    elif way == "insert":
        bytes_[at:at] = draw.choice([b"\x1b]0;title\x07", b"\x1b[31m", b"\xc2\x9b", b"\xff\xfe", b"9" * 30, b'"', b"{" * 500])
    else:
        del bytes_[at:at + draw.choice([1, 4, 100])]
    with open(path, "wb") as file:
        file.write(bytes_)
    return f"{way} at {at} of {size}"


def work(case):
    draw = case.random
    name, source, pattern, options = draw.choice(kinds)
    copy = case.path("copy")
    if os.path.isdir(source):
        shutil.copytree(source, copy)
    else:
        os.mkdir(copy)
        copy = os.path.join(copy, os.path.basename(source))
        shutil.copy(source, copy)
    victim = draw.choice(sorted(path for path in glob.glob(os.path.join(copy, pattern)) if os.path.isfile(path))
                         if os.path.isdir(copy) else [copy])
    what = f"{name}, {os.path.basename(victim)}: {damage(draw, victim)}: "
    job = case.start([chaos.TRAINER] + [word.replace("{}", copy) for word in options])
    stopped = job.finish_or_stop(20)  # a label of 16 million means so many classes
    case.count("damaged files")
    trouble = job.trouble() or (None if stopped else job.misspoken(CODES, 3))
    if trouble:
        case.fail(what + trouble, job)
    elif job.code == 0 or stopped:
        case.count("taken")
    else:
        case.count("refused")
        if job.code not in (2, 3, 4, 5, 9, 10):
            case.fail(f"{what}exit code {job.code}", job)


def prepare(shared):
    def path(name):
        return os.path.join(shared, name)

    def made(command):
        chaos.need([chaos.TRAINER] + command + BASE)

    data.images(path("idx"), 20, 4, 6)
    data.cifar(path("cifar"))
    data.numbers(path("numbers"))
    data.text(path("text"), 20)
    data.lines(path("lines.jsonl"))
    data.lines(path("lines.jsonl.gz"))
    data.tokens(path("tokens.bin"))
    with open(path("config.json"), "w") as file:
        file.write('{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 256, '
                   '"activation_function": "gelu_new", "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1}')
    mlp, gpt2 = ["--data", path("idx"), "--hidden", "8"], TEXT + ["--data", path("text")]
    made(mlp + ["--save", path("mlp.safetensors"), "--checkpoint", path("mlp"), "--checkpoint-every", "1"])
    made(gpt2 + ["--save", path("gpt2.safetensors"), "--checkpoint", path("gpt2"), "--optimizer", "adamw"])
    for file, kind in (("hf.safetensors", "hf"), ("llmc.bin", "llmc"), ("llmc-bf16.bin", "llmc-bf16")):
        made(gpt2 + ["--export", path(file) + ",format=" + kind])
        kinds.append((kind, path(file), "", gpt2 + ["--load", "{}"] + BASE))
        kinds.append((kind + " to generate", path(file), "", ["--load", "{}", "--generate", "4", "--prompt", "1 2 3"]))
    kinds.extend([
        ("IDX", path("idx"), "*", ["--data", "{}", "--hidden", "8"] + BASE),
        ("CIFAR", path("cifar"), "*", ["--model", "cnn", "--data", "{}"] + BASE),
        ("X.npy,Y.npy", path("numbers"), "*.npy", ["--data", "{}/X.npy,{}/Y.npy", "--hidden", "8"] + BASE),
        ("npz", path("numbers"), "*.npz", ["--data", "{}/all.npz", "--hidden", "8"] + BASE),
        ("text", path("text"), "", TEXT + ["--data", "{}"] + BASE),
        ("JSON lines", path("lines.jsonl"), "", TEXT + ["--data", "{}"] + BASE),
        ("JSON lines, compressed", path("lines.jsonl.gz"), "", TEXT + ["--data", "{}"] + BASE),
        ("tokens", path("tokens.bin"), "", TEXT + ["--data", "{}"] + BASE),
        ("config.json", path("config.json"), "", ["--model", "gpt2", "--seq-len", "8", "--data", path("text"), "--config", "{}"] +
         BASE),
        ("weights", path("mlp.safetensors"), "", mlp + ["--load", "{}"] + BASE),
        ("weights of gpt2", path("gpt2.safetensors"), "", gpt2 + ["--load", "{}"] + BASE),
        ("weights to generate", path("gpt2.safetensors"), "", ["--load", "{}", "--generate", "4", "--prompt", "1 2 3"]),
        ("checkpoint", path("mlp"), "step-*/*", mlp + ["--checkpoint", "{}", "--resume"] + BASE),
        ("checkpoint of gpt2", path("gpt2"), "step-*/*", gpt2 + ["--optimizer", "adamw", "--resume-from", "{}"] + BASE),
        ("one checkpoint", path("mlp/step-00000001"), "*", mlp + ["--resume-from", "{}"] + BASE),
    ])


if __name__ == "__main__":
    chaos.play_all("damage", work, runs=(100, 1500), seconds=(4, 25), prepare=prepare)
