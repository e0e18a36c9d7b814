# SPDX-License-Identifier: MIT
"""Exports into directories of every kind, while calls fail or kill the program, or somebody swaps what it works on.

Whatever happens: the directory holds the old model or the new one, at the latest when somebody looks; no file of anybody else
is touched; and the next export succeeds and leaves nothing behind.
"""
import errno
import os
import shutil
import sys
import threading

import chaos

LIBRARY = chaos.program("libchaos_faults.so")
TOOL = os.path.join(chaos.BUILD, "hf_llama_tool")
CODES = chaos.documented_codes("trainer.1")
CALLS = {"renameat": 12, "unlinkat": 12, "mkdirat": 2, "linkat": 8, "fsync": 24, "openat": 60, "write": 60, "close": 90}
ERRORS = ["EIO", "ENOSPC", "EACCES", "EROFS"]
TYPES = [",dtype=fp32", ",dtype=bf16", ",dtype=fp32,shard=20K"]
PLACES = {  # what is done in a mount namespace of the program's own, before it runs, with the directory as $1
    "plain": None,
    "new": None,
    "working directory": None,
    "bind": 'mount --bind "$1" "$1"',
    "tmpfs beside": 'mkdir -p "$1.tmp" && mount -t tmpfs none "$1.tmp"',
    "overlay": 'mount -t overlay -o lowerdir="$1.lower",upperdir="$1.upper",workdir="$1.work" none "$1"',
    "locked parent": None,
    "sticky": None,
}
USERS = {"notes.txt": "n", ".git/config": "g", "runs/a/b": "r", "x.ddprun-1.tmp": "x"}


def weights_of(directory):
    """What makes the model: {name: bytes} of its config and weights; {} where there is none."""
    found = {}
    for name in os.listdir(directory):
        if name == "config.json" or name.endswith((".safetensors", ".index.json")):
            with open(os.path.join(directory, name), "rb") as file:
                found[name] = file.read()
    return found


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def users_files(root):
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.endswith(".work")]  # of an overlay
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = (file.read(), os.stat(path).st_ino)
    return found


def swap(directory, victim, end):
    """Somebody who may write the directory puts links in the place of what is there."""
    while not end.is_set():
        for name in (".ddprun-export", ".ddprun-export-complete"):
            path = os.path.join(directory, name)
            try:
                os.rename(path, f"{path}-{len(os.listdir(directory))}")
                os.symlink(victim, path)
            except OSError:
                pass


class Export:
    def __init__(self, case):
        draw, self.case = case.random, case
        self.root = case.path("root")
        self.directory = os.path.join(self.root, "out")
        self.place = draw.choice(case.places)
        self.old, self.new = draw.randrange(3), draw.randrange(3)
        os.mkdir(self.root)
        os.chmod(case.directory, 0o755)
        for name in ("lower", "upper", "work"):
            os.mkdir(f"{self.directory}.{name}")
        if self.place != "new":
            shutil.copytree(os.path.join(case.shared, f"a{self.old}"), self.directory)
            for name, text in USERS.items():
                write(os.path.join(self.directory, name), text)
            os.chmod(self.directory, 0o2775)
        if self.place == "overlay":
            for name in os.listdir(self.directory):
                os.rename(os.path.join(self.directory, name), os.path.join(f"{self.directory}.lower", name))
        write(os.path.join(self.root, "out.20260101.tmp", "mine"), "m")
        write(os.path.join(self.root, "victim", "model.safetensors"), "v")
        write(os.path.join(self.root, "victim", ".made-by-ddprun"), "v")
        self.prefix = []
        if PLACES[self.place]:
            self.prefix = ["unshare", "-m", "sh", "-c", PLACES[self.place] + ' && shift && exec "$@"', "sh", self.directory]
        if self.place == "locked parent":
            os.chmod(self.root, 0o555)
            self.prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        if self.place == "sticky":
            os.chmod(self.root, 0o1777)
            for path in [self.directory] + [os.path.join(f, n) for f, d, names in os.walk(self.directory) for n in d + names]:
                os.chown(path, 61871, 61871)
            os.chmod(self.directory, 0o2777)
            self.prefix = ["setpriv", "--reuid=61873", "--regid=61873", "--clear-groups", "--inh-caps=-all"]

    def run(self, model, options=()):
        """Converts a model into the directory; in the working directory it is '.'."""
        inside = self.place == "working directory"
        command = [chaos.TRAINER, "--load", os.path.join(self.case.shared, model), "--export",
                   ("." if inside else self.directory) + TYPES[self.new], "--quiet", *options]
        if inside:
            command = ["sh", "-c", 'cd "$0" && exec "$@"', self.directory] + command
        return self.case.run(self.prefix + command, 30)

    def look(self):
        """0 or 1: the old model or the new one; None: neither. A reader comes first."""
        self.case.run(self.prefix + [chaos.TRAINER, "info", self.directory], 30)
        if self.place == "overlay":
            copy = self.case.path("copy")
            shutil.rmtree(copy, ignore_errors=True)
            self.case.run(self.prefix + ["cp", "-r", self.directory, copy])
            found = weights_of(copy)
        else:
            found = weights_of(self.directory) if os.path.isdir(self.directory) else {}
        if found == weights_of(os.path.join(self.case.shared, f"b{self.new}")):
            return 1
        if found == ({} if self.place == "new" else weights_of(os.path.join(self.case.shared, f"a{self.old}"))):
            return 0
        return None

    def leftovers(self):
        places = [self.root, self.directory] + ([f"{self.directory}.upper"] if self.place == "overlay" else [])
        return [os.path.join(p, n) for p in places if os.path.isdir(p) for n in os.listdir(p)
                if "ddprun" in n and n not in USERS]


def draw_fault(case):
    draw = case.random
    if draw.random() < 0.1:
        return "none", "0:0:0:0:once"
    call = draw.choice(list(CALLS))
    kind = draw.choice(["kill", "kill", "error", "on"])
    n = draw.randint(1, CALLS[call])
    how = "kill" if kind == "kill" else str(getattr(errno, draw.choice(ERRORS)))
    return f"{call} {n} {kind} {how}", f"trainer:{call}:{n}:{how}:{'on' if kind == 'on' else 'once'}"


def check_others(export, before, what, job):
    after = users_files(export.root)
    for name, was in before.items():
        if after.get(name) != was:
            export.case.fail(f"{what}{name} of the user is " + ("changed" if name in after else "gone"), job)


def work(case):
    export = Export(case)
    draw = case.random
    own = {"config.json"} | {n for n in os.listdir(os.path.join(case.shared, f"a{export.old}"))}
    before = {n: v for n, v in users_files(export.root).items() if os.path.basename(n) not in own or "victim" in n}
    name, fault = draw_fault(case)
    lacks = draw.choice(["", "", "", "tmpfile", "tmpfile,fallocate", "flock", "flock,tmpfile,fallocate"])
    swapped = draw.random() < 0.15 and export.place in ("plain", "bind", "sticky")
    what = f"{export.place}, {export.old} to {export.new}, {name}, lacks '{lacks}'" + (", swapped: " if swapped else ": ")
    case.env.update(LD_PRELOAD=LIBRARY, CHAOS_FAULT=fault, CHAOS_HITS=case.path("hits"), CHAOS_LACKS=lacks)
    end = threading.Event()
    attacker = threading.Thread(target=swap, args=(export.directory, os.path.join(export.root, "victim"), end))
    if swapped:
        attacker.start()
    job = export.run("b")
    end.set()
    if swapped:
        attacker.join()
    for variable in ("LD_PRELOAD", "CHAOS_FAULT", "CHAOS_LACKS"):
        del case.env[variable]
    killed = job.code == 137
    case.count("killed", killed)
    case.count("failed with a message", not killed and job.code != 0)
    trouble = job.trouble() or (None if killed else job.misspoken(CODES, 6))
    if trouble:
        case.fail(what + trouble, job)
    check_others(export, before, what, job)
    if swapped:  # the directory is what that somebody made of it
        case.count("swapped")
        return
    model = export.look()
    if model is None:
        case.fail(f"{what}the directory holds neither model: {sorted(os.listdir(export.directory))}", job)
    if job.code == 0 and model != 1:
        case.fail(what + "it succeeded, and the directory has not the new model", job)
    check_others(export, before, what + "looked at, ", job)
    again = export.run("b")
    if again.code != 0 or export.look() != 1:
        case.fail(f"{what}then, without a fault: exit code {again.code}", again)
    check_others(export, before, what + "again, ", again)
    left = export.leftovers()
    if left:
        case.fail(what + "left: " + " ".join(left), again)


def prepare(shared):
    config = os.path.join(shared, "tiny")
    os.mkdir(config)
    os.chmod(shared, 0o755)
    chaos.need([sys.executable, os.path.join(chaos.SOURCE, "tests/lib/corpus.py"), os.path.join(shared, "corpus")])
    shutil.copy(os.path.join(shared, "corpus", "hf_llama", "good-smollm3"), os.path.join(config, "config.json"))
    chaos.need([TOOL, "fill", config, os.path.join(shared, "a"), "f32", "0"])
    shutil.copytree(os.path.join(shared, "a"), os.path.join(shared, "b"))
    path = os.path.join(shared, "b", "model.safetensors")
    with open(path, "rb") as file:
        raw = bytearray(file.read())
    begin = 8 + int.from_bytes(raw[:8], "little")
    for i in range(begin + 2, len(raw), 4):
        raw[i] ^= 0x15  # of each float32 a byte that a bfloat16 has too
    with open(path, "wb") as file:
        file.write(raw)
    for model in "ab":
        for number, words in enumerate(TYPES):
            target = os.path.join(shared, f"{model}{number}")
            chaos.need([chaos.TRAINER, "--load", os.path.join(shared, model), "--export", target + words, "--quiet"])
    chaos.Case.places = [place for place in PLACES if can(place)]
    if len(chaos.Case.places) < len(PLACES):
        print("not played: " + ", ".join(sorted(set(PLACES) - set(chaos.Case.places))))


def can(place):
    """Whether there can be such a place here."""
    case = chaos.Case("exports", 0, 0)
    case.places = [place]
    try:
        export = Export(case)
        return case.run(export.prefix + [chaos.TRAINER, "--version"]).code == 0
    except OSError:
        return False
    finally:
        case.close()


if __name__ == "__main__":
    if os.environ.get("DDP_SANITIZE"):
        print("skipped: sanitizers do not go with a preloaded library")
        sys.exit(77)
    chaos.play_all("exports", work, runs=(60, 2000), seconds=(6, 600), prepare=prepare)
