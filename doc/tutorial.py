#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# usage: tutorial.py [--record] DIRECTORY PORT [PAGE ...]
#
# Runs the commands of doc/tutorial/PAGE*.md (or of all pages) in DIRECTORY, with the programs on PATH. A block "sh" is run by a shell
# that ends at the first error, "NAME of the file" after the language writes a file, and a block "text" behind a block "sh" is
# what it prints: each of its lines must come, in this order, with the same losses, and with any other numbers. A block "sh NEEDED"
# is left out if TUTORIAL_WITHOUT has this word. PORT is taken where the pages have 29600.
#
# What the pages show as figures is left in DIRECTORY/shown. With --record it is written beside the pages, and the blocks "text"
# become what was printed.
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

PAGES = pathlib.Path(__file__).resolve().parent / "tutorial"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.S | re.M)
UNITS = re.compile(r"[kMGT]?(B|FLOP|FLOP/s)|[mu]?s|min|steps?")


def masked(line):
    """Words, with # for numbers that are no losses; without units, which may be others."""
    words, kept = line.split(), []
    for before, word in zip([""] + words, words):
        if re.search(r"\d", word) and before != "loss":
            kept.append("#")
        elif not (UNITS.fullmatch(word.rstrip(",;:")) and kept and kept[-1] == "#"):
            kept.append(word)
    return kept


def lacks(expected, printed):
    """The first expected line that does not come in its place, or None."""
    lines = iter([masked(line) for line in printed.splitlines()])
    return next((line for line in expected.splitlines() if masked(line) not in lines), None)


def run(code, directory):
    done = subprocess.run(["sh", "-e"], input=code, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def one_step(events):
    """Of a trace, what its picture shows: the passes, updates and waits of the second step in it, and the buckets."""
    steps = [event for event in events if event["name"] == "step" and event["ph"] == "X"]
    number = min(step["args"]["step"] for step in steps) + 1
    steps = {step["pid"]: step for step in steps if step["args"]["step"] == number}
    first = min(step["ts"] for step in steps.values())
    kept = []
    for event in events:
        step = steps.get(event["pid"])
        if (event["name"] in ("forward", "backward", "update", "wait", "bucket") and event["ph"] in "Xbe"
                and step["ts"] <= event["ts"] <= step["ts"] + step["dur"]):
            kept.append({**{key: event[key] for key in ("name", "ph", "pid", "dur", "id2") if key in event},
                         "ts": round(event["ts"] - first, 3)})
    return kept


class Tutorial:
    def __init__(self, directory, port, pages, record):
        self.directory, self.port, self.pages, self.record = directory, port, pages, record
        self.count, self.failures = 0, 0
        self.without = os.environ.get("TUTORIAL_WITHOUT", "").split()
        self.page = None

    def fail(self, code, text, printed):
        self.failures += 1
        print(f"FAIL: {self.page.name}: {text}\n--- the commands\n{code}--- what they print\n{printed}---")

    def block(self, match):
        language, name, code, expected = match.groups()
        if language == "text":
            return match.group(0)
        if language != "sh":
            (self.directory / name).write_text(code)
            return match.group(0)
        if name in self.without:
            print(f"left out, without {name}: {self.page.name}: {code.splitlines()[0]}")
            return match.group(0)
        self.count += 1
        status, printed = run(code.replace("29600", self.port), self.directory)
        missing = lacks(expected or "", printed)
        if status != 0:
            self.fail(code, f"exit status {status}", printed)
        elif missing is not None and not self.record:
            self.fail(code, f"this line does not come: {missing}", printed)
        if self.record and expected is not None:
            start = match.start(4) - match.start(0)
            return match.group(0)[:start] + printed.replace(self.port, "29600") + match.group(0)[start + len(expected):]
        return match.group(0)

    def keep(self, path):
        """A file that a page shows, without the names of this machine and its directories, beside the pages or in "shown"."""
        text = (self.directory / path).read_text()
        if path.endswith(".jsonl"):
            lines = [json.loads(line) for line in text.splitlines()]
            text = "".join(json.dumps({key: value for key, value in line.items() if key not in ("host", "command")},
                                      separators=(",", ":")) + "\n" for line in lines)
        elif path.endswith(".json"):
            text = "[\n" + ",\n".join(json.dumps(event, separators=(",", ":")) for event in one_step(json.loads(text))) + "\n]\n"
        folder = PAGES if self.record else self.directory / "shown"
        folder.mkdir(exist_ok=True)
        (folder / path).write_text(text)

    def run(self):
        for self.page in sorted({page for name in self.pages for page in PAGES.glob(f"{name}*.md")}):
            text = BLOCK.sub(self.block, self.page.read_text())
            if self.record:
                self.page.write_text(text)
            for kind, what in re.findall(r"\]\((report|compare|trace):([^)]*)\)", text):
                for path in what.split("/")[0 if kind == "trace" else 1:]:
                    self.keep(path)
        print(f"{self.count} blocks of commands run, {self.failures} failed")
        return self.failures == 0 and self.count > 0


def main():
    arguments = sys.argv[1:]
    record = arguments[:1] == ["--record"]
    arguments = arguments[record:]
    if len(arguments) < 2 or not shutil.which("trainer"):
        sys.exit("usage: tutorial.py [--record] DIRECTORY PORT [PAGE ...], with trainer on PATH")
    sys.exit(not Tutorial(pathlib.Path(arguments[0]), arguments[1], arguments[2:] or [""], record).run())


main()
