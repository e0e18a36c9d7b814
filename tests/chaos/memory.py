# SPDX-License-Identifier: MIT
"""Kills or stops workers of a job that may be restarted: it goes on from its copy in memory, and ends in the weights of a run
that was left alone. One to three losses a case, at any moment: while workers start, copy, restore or end too."""
import filecmp
import os
import signal
import time

import chaos
import data

LOSSES = 3
trainings = []


class Training:
    """A model, its options, and how workers share it."""

    def __init__(self, shared, name, options, workers, steps):
        self.name, self.workers = name, workers
        self.options = options + ["--steps", str(steps), "--threads", "1", "--quiet", "--global-batch", "16"]
        self.weights = os.path.join(shared, name.replace(" ", "-") + ".safetensors")

    def command(self, start, *more):
        return [chaos.DDPRUN, "-n", str(self.workers), "--oversubscribe", *start, chaos.TRAINER, *self.options, *more]

    def measure(self):
        """Runs undisturbed: the weights, and how long it takes."""
        begin = time.monotonic()
        chaos.need(self.command([], "--save", self.weights))
        self.seconds = time.monotonic() - begin


def prepare(shared):
    text = data.text(os.path.join(shared, "text"))
    images = data.images(os.path.join(shared, "images"), 400, 12)
    colours = data.cifar(os.path.join(shared, "cifar"))
    base = os.path.join(shared, "base")
    llama = ["--model", "llama", "--size", "d2", "--data", text, "--seq-len", "16", "--batch-size", "2", "--no-eval"]
    chaos.need([chaos.TRAINER, *llama, "--steps", "1", "--quiet", "--export", base])
    mlp = ["--data", images, "--hidden", "64", "--batch-size", "4", "--optimizer", "adam", "--schedule", "cosine"]
    gpt2 = ["--model", "gpt2", "--data", text, "--layers", "2", "--heads", "2", "--channels", "32", "--seq-len", "24", "--no-eval",
            "--dropout", "0.1", "--batch-size", "2"]
    lora = ["--load", base, "--lora", "r=2,dropout=0.1", "--data", text, "--seq-len", "16", "--batch-size", "2", "--no-eval"]
    times = 3 if chaos.LONG else 1
    rows = (
        ("mlp", mlp, 2, 500), ("mlp zero 0", mlp + ["--zero", "0"], 3, 500), ("mlp alone", mlp, 1, 500),
        ("mlp local steps", mlp + ["--sync-every", "5,lr=0.7,momentum=0.9"], 2, 500),
        ("mlp best", mlp + ["--eval-every", "50"], 2, 400),
        ("resnet", ["--model", "resnet", "--data", colours, "--augment", "flip", "--batch-size", "4"], 2, 12),
        ("cnn", ["--model", "cnn", "--data", images, "--batch-size", "4", "--no-eval"], 2, 150),
        ("gpt2", gpt2, 2, 150), ("gpt2 bf16", gpt2 + ["--dtype", "bf16"], 2, 100),
        ("gpt2 pipeline", gpt2 + ["--mode", "pipeline", "--stages", "2"], 4, 120),
        ("gpt2 dp", gpt2 + ["--mode", "dp", "--replicas", "2"], 1, 150), ("lora", lora, 2, 80))
    for name, options, workers, steps in rows:
        trainings.append(Training(shared, name, options, workers, steps * times))
        trainings[-1].measure()


def lose(case, job, training):
    """Takes a worker away, after a moment, if there is one. Whether it did."""
    draw = case.random
    time.sleep(draw.choice([draw.uniform(0, 0.1), draw.uniform(0, training.seconds)]))
    workers = [pid for pid in chaos.children(job.pid) if chaos.comm(pid).endswith("trainer")]
    if not workers:
        return False
    victim, number = draw.choice(workers), signal.SIGSTOP if draw.random() < 0.15 else signal.SIGKILL
    try:
        os.kill(victim, number)
    except OSError:
        return False
    case.count("stopped" if number == signal.SIGSTOP else "killed")
    return True


def work(case):
    draw, training = case.random, trainings[case.index % len(trainings)]
    saved = case.path("saved")
    more = ["--save", saved] + draw.choice([[], [], ["--copy-every", "1"], ["--copy-every", "20"]])
    if draw.random() < 0.3:
        more += ["--checkpoint", case.path("checkpoints"), "--checkpoint-every", "40"]
        more += ["--keep", "3,best"] if "best" in training.name else []
    job = case.start(training.command(["--max-restarts", str(LOSSES), "--timeout", "2", "--setup-timeout", "5"], *more))
    losses = 0
    for _ in range(draw.randint(1, LOSSES)):
        losses += lose(case, job, training)
    job.finish(120)
    trouble = job.trouble()
    if trouble or job.code != 0:
        case.fail(f"{training.name}: {losses} losses: {trouble or f'exit code {job.code}'}", job)
    elif not os.path.exists(saved) or not filecmp.cmp(saved, training.weights, shallow=False):
        case.fail(f"{training.name}: {losses} losses: other weights than without", job)


if __name__ == "__main__":
    chaos.play_all("memory", work, runs=(12, 120), seconds=(20, 120), prepare=prepare)
