# SPDX-License-Identifier: MIT
"""Starts the trainer and ddprun with random options, of those that --help lists, so that new ones are tried as well:
values that make sense, the edges of what does, and nonsense. Each run ends with a documented exit code, a failed one
with a few lines at most that say why; nothing crashes, hangs or sends control characters to the terminal.
"""
import os
import re
import resource
import shutil
import subprocess

import chaos
import data

NONSENSE = ["", " ", "x", "-", "--", "-1", "%s%n", "\x1b[31mred", "\x1b]0;title\x07", b"\xff\xfe", b"\xc2\x9b1m", "\u00e9",
            "1\n2", "\t1", "a" * 5000, "1" * 400, ",", "=", "1 ", "0x10", "+1", "1e1", "none,none", "../..", "\\", "'", "$(id)"]
INTEGERS = ["1", "2", "3", "4", "6", "8", "0", "-1", "2147483647", "2147483648", "4294967296", "9223372036854775807",
            "9223372036854775808", "18446744073709551616", "1.5", "01", "-0"]
NUMBERS = ["0.1", "0.5", "0.9", "1", "2", "1e-3", "0", "-1", "1e-45", "1e38", "1e39", "1e308", "1e999", "nan", "inf", "-inf",
           "-0", ".5", "5.", "1,5", "0x1p-2"]
FILES = ["text", "tiny", "numbers/all.npz", "cifar", "new", "c", "tokens.bin", "numbers/X.npy,numbers/Y.npy", "missing/x", ".", "/", "/dev/null", "/dev/full", "/proc/self/mem", "unreadable", "loop", "empty", "n" * 300]
SENSIBLE = 6  # so many of each list come first
# Runs that would take long or much memory, were they taken at their word.
LONG = {"--steps", "--epochs", "--data-size", "--generate"}
BIG = {"124M", "355M", "774M", "1558M", "d12", "d24", "d36", "d48", "110", "56", "44", "34"}
LEFT_OUT = {"--help", "--version"}
programs = {}


class Option:
    """A row of --help: names, the placeholder of its value (or None), the words that completion offers for it."""

    def __init__(self, names, value, words):
        self.names, self.value, self.words = names, value, words

    def draw_value(self, draw, sensible):
        def one_of(values):
            return draw.choice(values[:SENSIBLE] if sensible else values)

        kind = 0.5 if sensible else draw.random()
        if kind < 0.15:
            return draw.choice(NONSENSE)
        if self.words and kind < 0.9:
            return draw.choice(self.words)
        if any(name in LONG for name in self.names) and kind < 0.9:
            return draw.choice(["1", "2", "3"])
        if re.search(r"FILE|DIR|PATH|TEXT", self.value):
            return one_of(FILES)
        if re.fullmatch(r"N,N,\.\.\.|RANKS|A-B|STREAMS", self.value):
            return draw.choice([",", "-", ":", ""]).join(one_of(INTEGERS[:9]) for _ in range(draw.randint(1, 3)))
        if re.fullmatch(r"N|K|T|M|PORT|N\|.*|STAGE|MB", self.value):
            return one_of(INTEGERS)
        return one_of(NUMBERS)

    def draw_words(self, draw, sensible):
        name = draw.choice(self.names)
        if not sensible and draw.random() < 0.05:
            name = name[:-1] + draw.choice("xz-_0")
        elif draw.random() < 0.1:
            name = "--" + name[2:].replace("-", "_") if name.startswith("--") else name
        if self.value is None:
            return [name] if sensible or draw.random() < 0.95 else [name + "=1"]
        value = os.fsencode(self.draw_value(draw, sensible))
        if name.startswith("--") and draw.random() < 0.5:
            return [os.fsencode(name) + b"=" + value]
        return [name, value] if sensible or draw.random() < 0.96 else [name]


def read_options(name, program):
    """From --help, with the words of the completion."""
    text = subprocess.run([program, "--help"], env=chaos.environment(), stdout=subprocess.PIPE, check=True).stdout.decode()
    with open(os.path.join(chaos.SOURCE, "completion", name)) as file:
        completion = file.read()
    options = []
    for row in re.finditer(r"^ {2,6}((?:-\w, )?)--(\[no-\])?([\w-]+)(?: (\S+))?(?:  .*)?$", text, re.M):
        short, negated, word, value = row.groups()
        names = [f"--{word}"] + ([f"--no-{word}"] if negated else []) + ([short[:2]] if short else [])
        if names[0] in LEFT_OUT:
            continue
        listed = re.search(r"^ *(?:[^()\n]*\| *)?%s(?: *\|[^()\n]*)?\)\n(?:[^;]*?)compgen -W '([^']*)'" % re.escape(names[0]),
                           completion, re.M)
        words = [word for word in listed.group(1).split() if word not in BIG] if listed and value else []
        options.append(Option(names, value, words))
    if len(options) < 20:
        raise ValueError(f"{program} --help lists {len(options)} options")
    return options


def fill(directory):
    """The files that options name."""
    def path(name):
        return os.path.join(directory, name)
    os.mkdir(directory)
    data.text(path("text"), 20)
    data.images(path("tiny"), 12, 4, 6)
    data.numbers(path("numbers"))
    data.cifar(path("cifar"))
    data.tokens(path("tokens.bin"))
    open(path("empty"), "w").close()
    os.mkdir(path("unreadable"), 0)
    os.symlink("loop", path("loop"))


def trainer_words(draw, sensible):
    base = draw.choice([["--model", "article", "--data-size", "9"], ["--data", "tiny", "--hidden", "8"],
                        ["--model", "cnn", "--data", "cifar", "--batch-size", "2"],
                        ["--model", "gpt2", "--data", "text", "--seq-len", "8", "--layers", "1", "--heads", "1",
                         "--channels", "8", "--batch-size", "2"], ["--data", "tiny"]])
    words = base + draw.choice([["--steps", "2"], ["--steps", "2", "--quiet"], ["--epochs", "1"]])
    for _ in range(draw.choice([1, 1, 2, 3, 6])):
        words += draw.choice(programs["trainer"]).draw_words(draw, sensible)
    return words


def work(case):
    draw = case.random
    sensible = draw.random() < 0.5
    shutil.copytree(os.path.join(case.shared, "files"), case.directory, symlinks=True, dirs_exist_ok=True)
    if draw.random() < 0.6:
        command = [chaos.TRAINER] + trainer_words(draw, sensible)
        codes, lines = chaos.documented_codes("trainer.1"), 4
    else:
        command = [chaos.DDPRUN] + draw.choice([["-n", "2"], ["-n", "1"], []])
        for _ in range(draw.choice([1, 1, 2, 3, 6])):
            command += draw.choice(programs["ddprun"]).draw_words(draw, sensible)
        command += draw.choice([["true"], ["false"], ["sh", "-c", "echo $RANK; exit 3"], [chaos.TRAINER] + trainer_words(draw, sensible),
                                [chaos.TRAINER, "--model", "article", "--steps", "3"], ["missing"], []])
        codes = chaos.documented_codes("ddprun.1") | chaos.documented_codes("trainer.1") | {1, 3}
        lines = 20
    if draw.random() < 0.1:
        case.env[draw.choice(["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "DDPRUN_BOARD_FD"])] = \
            draw.choice(["", "0", "-1", "x", "1e9", "99999999999999999999", "1,0", "4"])
    command = [os.fsencode(word).replace(b"\0", b"") for word in command]
    room = [] if os.environ.get("DDP_SANITIZE") else [(resource.RLIMIT_AS, 16 << 30)]
    job = case.start(command, limits=room)
    stopped = job.finish_or_stop(6)
    python = any(word.startswith((b"--run-path", b"--run_path")) for word in command)  # it quotes what is no script as it is
    trouble = job.trouble() or (None if stopped or python else job.misspoken(codes, lines))
    case.count("ended on request" if stopped else "taken" if job.code == 0 else "refused or failed")
    if trouble:
        case.fail(trouble, job)


def prepare(shared):
    fill(os.path.join(shared, "files"))
    programs["trainer"] = read_options("trainer", chaos.TRAINER)
    programs["ddprun"] = read_options("ddprun", chaos.DDPRUN)


if __name__ == "__main__":
    chaos.play_all("options", work, runs=(100, 1500), seconds=(4, 30), prepare=prepare)
