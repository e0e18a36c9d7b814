# SPDX-License-Identifier: MIT
"""Training that is disturbed and resumed, again and again, to its end: with the weights of a run that was left alone."""
import filecmp
import json
import os
import shutil

import chaos
import data

MODES = ("accum", "dp", "ddp")


class Training:
    """One model, its options and how many steps it takes; the weights of a run that was left alone."""

    def __init__(self, name, options, steps, every):
        self.name, self.steps, self.every = name, steps, every
        self.options = options + ["--steps", str(steps), "--threads", "1", "--no-eval"]

    def command(self, mode, *more):
        if mode == "ddp":
            start = [chaos.DDPRUN, "-n", "2", "--grace", "10", chaos.TRAINER]
        else:
            start = [chaos.TRAINER] + (["--mode", "dp", "--replicas", "2"] if mode == "dp" else [])
        return start + self.options + list(more)

    def prepare(self, shared):
        """Trains once; keeps the weights, and a checkpoint of a few steps before the end."""
        self.weights = os.path.join(shared, self.name + ".weights")
        self.late = os.path.join(shared, self.name + ".late")
        late = self.steps - 8
        chaos.need(self.command("accum", "--quiet", "--checkpoint", self.late, "--checkpoint-every", str(late),
                                "--save", self.weights))
        shutil.rmtree(os.path.join(self.late, f"step-{self.steps:08}"))


def wide(shared, steps, every):
    """So wide that products take most of the time; those of sanitized builds are slow."""
    hidden = "256,256" if os.environ.get("DDP_SANITIZE") else "784,784"
    where = data.images(os.path.join(shared, "images"), 1000, 28)
    return Training("wide", ["--data", where, "--hidden", hidden, "--batch-size", "32", "--global-batch", "128"],
                    steps, every)


def gpt2(shared, steps, every):
    where = data.text(os.path.join(shared, "text"))
    return Training("gpt2", ["--model", "gpt2", "--data", where, "--layers", "2", "--heads", "2", "--channels", "64",
                             "--seq-len", "48", "--dropout", "0.1", "--batch-size", "2", "--global-batch", "8"],
                    steps, every)


def article(shared, steps, every):
    return Training("article", ["--model", "article", "--data-size", "700", "--shuffle", "--batch-size", "8",
                                "--global-batch", "32", "--lr", "1e-6"], steps, every)


class Chain:
    """A training in a case's directory, resumed by each link."""

    def __init__(self, case, training):
        self.case, self.training = case, training
        self.dir, self.log, self.save = case.path("checkpoints"), case.path("log"), case.path("weights")
        self.newest = -1

    def start(self, mode, more=()):
        for path in (self.log, self.save):
            if os.path.exists(path):
                os.unlink(path)
        return self.case.start(self.training.command(
            mode, "--checkpoint", self.dir, "--checkpoint-every", str(self.training.every), "--resume",
            "--log", self.log, "--save", self.save, *more))

    def fill_late(self):
        """The directory has a checkpoint of a few steps before the end."""
        shutil.rmtree(self.dir, ignore_errors=True)
        shutil.copytree(self.training.late, self.dir)

    def start_late(self, mode, more=()):
        self.fill_late()
        return self.start(mode, more)

    def steps_done(self):
        """The last step in the log of the link that runs."""
        done = 0
        for line in self.case.read("log").split(b"\n"):
            try:
                done = max(done, json.loads(line)["step"])
            except (ValueError, KeyError):
                pass  # it is being written
        return done

    def is_saving(self):
        try:
            return any(".tmp" in name for name in os.listdir(self.dir))
        except OSError:
            return False

    def look(self, job):
        """All checkpoints are whole, and no work was lost that a checkpoint held. Returns the newest one's step."""
        if not os.path.isdir(self.dir):
            return -1
        tool = self.case.start([chaos.CHECKPOINT_TOOL, self.dir]).finish()
        if tool.code != 0:
            self.case.fail(f"a checkpoint is damaged, with {sorted(os.listdir(self.dir))}", tool)
            return self.newest
        found = int(tool.out.split()[0])
        if found < self.newest:
            self.case.fail(f"the newest checkpoint is of step {found}, and was of step {self.newest}", job)
        self.newest = found
        return found

    def is_complete(self, job):
        """After exit code 0: the same bits; then everything begins anew."""
        if not os.path.exists(self.save):
            self.case.fail("exit code 0 and no weights", job)
        elif not filecmp.cmp(self.save, self.training.weights, False):
            self.case.fail("other bits than those of a run that was left alone", job)
        else:
            self.case.count("ended with the same bits")
        shutil.rmtree(self.dir, ignore_errors=True)
        self.newest = -1
