# SPDX-License-Identifier: MIT
"""Trains a model with random options in ways that must end in the same bits: alone with 8 shards, on 2 and 8 workers,
with replicas, with other numbers of threads, with the update shared out or not, stopped and resumed."""
import os
import shutil

import chaos
import data

SHARDS = 8


def model(draw, shared):
    """Options of a model and its data."""
    kind = draw.choice(["mlp", "mlp", "cnn", "resnet", "gpt2", "gpt2", "article"])
    if kind == "article":
        return ["--model", "article", "--data-size", str(draw.randint(1, 60)), "--lr", "1e-5"] + \
            draw.choice([[], ["--shuffle"]])
    if kind == "gpt2":
        heads = draw.randint(1, 3)
        return ["--model", "gpt2", "--data", os.path.join(shared, "text"), "--seq-len", str(draw.randint(1, 40)),
                "--layers", str(draw.randint(1, 2)), "--heads", str(heads), "--channels", str(heads * draw.randint(1, 12)),
                "--dropout", draw.choice(["0", "0.1", "0.5"])]
    where = draw.choice(["small", "cifar"]) if kind != "mlp" else draw.choice(["tiny", "small", "numbers/all.npz"])
    options = ["--model", kind, "--data", os.path.join(shared, where)]
    if kind == "mlp":
        options += ["--hidden", draw.choice(["none", "1", "33", "17,5", "40,40,40"])]
    elif where == "cifar" and draw.random() < 0.5:
        options += ["--augment", draw.choice(["crop", "flip", "crop,flip"])]
    return options


def optimizer(draw):
    name = draw.choice(["sgd", "adam", "adamw"])
    options = ["--optimizer", name, "--weight-decay", draw.choice(["0", "0.01", "0.01,on=matrices"])]
    if name == "sgd":
        options += ["--momentum", draw.choice(["0", "0.9"])]
    if draw.random() < 0.4:
        options += ["--clip-grad-norm", draw.choice(["0.1", "1"])]
    schedule = draw.choice([[], ["--schedule", "cosine"], ["--schedule", "linear", "--warmup-steps", "2"],
                            ["--schedule", "constant"]])
    return options + schedule


def split(draw):
    """One way to run 8 shards: (start of the command, options)."""
    threads = ["--threads", draw.choice(["1", "2", "3"])]
    way = draw.choice(["accum", "dp", "dp", "ddp", "ddp", "ddp", "ddp"])
    if way == "accum":
        return [chaos.TRAINER], threads
    if way == "dp":
        return [chaos.TRAINER, "--mode", "dp", "--replicas", draw.choice(["1", "2", "4", "8"])], threads
    more = draw.choice([[], ["--zero", "0"], ["--zero", "1"], ["--bucket-mb", "0.01"],
                        ["--zero", "0", "--bucket-mb", "0.01"]])
    return [chaos.DDPRUN, "-n", draw.choice(["1", "2", "4", "8"]), chaos.TRAINER], threads + more


def train(case, common, start, options, name, steps):
    """The weights at the end: in one go, or in several, each stopped after a few steps of its own."""
    directory = case.path("checkpoints")
    shutil.rmtree(directory, ignore_errors=True)
    save = ["--save", case.path(name), "--quiet"]
    if start and case.random.random() < 0.4:  # as a time limit would cut it: the first part in another split
        begin, more = split(case.random)
        first = case.run(begin + common + more + ["--checkpoint", directory, "--checkpoint-every", "1", "--keep", "0",
                                                  "--quiet"])
        if first.trouble() or first.code != 0:
            return first
        for step in range(case.random.randint(1, steps), steps + 1):
            shutil.rmtree(os.path.join(directory, f"step-{step:08}"), ignore_errors=True)
        save += ["--checkpoint", directory, "--resume"]
        case.count("resumed")
    return case.run((start or [chaos.TRAINER]) + common + options + save)


def work(case):
    draw, steps = case.random, case.random.randint(2, 5)
    common = model(draw, case.shared) + optimizer(draw)
    batch = draw.randint(1, 3)
    common += ["--batch-size", str(batch), "--global-batch", str(SHARDS * batch), "--steps", str(steps),
               "--seed", str(draw.randint(0, 1 << 31)), "--dtype", draw.choice(["fp32", "fp32", "bf16"]), "--no-eval"]
    alone = train(case, common, None, ["--threads", "1"], "alone", steps)
    if alone.trouble() or alone.code not in (0, 10):
        case.fail(f"{alone.trouble()}, exit code {alone.code}", alone)
        return
    if alone.code == 10:  # with such options there may be no finite loss, and nothing to compare
        case.count("without a finite loss")
        return
    for _ in range(2):
        start, options = split(draw)
        job = train(case, common, start, options, "other", steps)
        case.count("comparisons")
        if job.trouble() or job.code != 0:
            case.fail(f"{job.trouble()}, exit code {job.code}", job)
        elif case.read("alone") != case.read("other"):
            case.fail("other bits than alone with " + " ".join(map(chaos.shown, alone.command[1:])), job)


def prepare(shared):
    data.text(os.path.join(shared, "text"))
    data.images(os.path.join(shared, "tiny"), 37, 4)
    data.images(os.path.join(shared, "small"), 50, 16)
    data.cifar(os.path.join(shared, "cifar"))
    data.numbers(os.path.join(shared, "numbers"))


if __name__ == "__main__":
    chaos.play_all("pairs", work, runs=(12, 200), seconds=(5, 35), prepare=prepare)
