# SPDX-License-Identifier: MIT
"""What bench/gpu has found on one GPU: a JSON file that parts run at different times add to, and a table of its rows."""
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import time

TINY_VOCABULARY = 300


def bench_run():
    """bench/run, for the files that it writes."""
    loader = importlib.machinery.SourceFileLoader("bench_run", os.path.join(os.path.dirname(os.path.abspath(__file__)), "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
    loader.exec_module(module)
    return module


def gpt2_size(tiny):
    """trainer's options for the GPT-2 that is measured, or with --tiny for a small one."""
    if tiny:
        return ["--size", "d2", "--channels", "64", "--heads", "2", "--vocab-size", str(TINY_VOCABULARY)]
    return ["--size", "124M"]


def write_tokens(path, count, tiny):
    """A file of random tokens for gpt2_size(tiny)."""
    run = bench_run()
    run.write_tokens(path, count, TINY_VOCABULARY if tiny else run.VOCABULARY)


def libraries(args):
    """LD_LIBRARY_PATH: the build's, the caller's, and those that came with the Python's PyTorch (NCCL, cuDNN)."""
    code = "import glob, sysconfig; print(':'.join(glob.glob(sysconfig.get_path('purelib') + '/nvidia/*/lib')))"
    try:
        found = subprocess.run([args.python, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError, TypeError):
        found = ""
    return ":".join(filter(None, [os.path.join(args.build, ".libs"), os.environ.get("LD_LIBRARY_PATH"), found]))


def show(value, unit):
    """Four digits, with the unit's prefix."""
    if value is None:
        return "-"
    if unit in ("x", "share"):
        return f"{value:.3f}"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor and unit != "ms":
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


class Results:
    """rows: dicts with part, what, ours, peer (None: nothing beside it), unit, ratio, bar, at_most, met."""

    def __init__(self, about, path):
        self.about, self.path = about, path
        self.parts, self.rows, self.notes = {}, [], {}
        if path and os.path.exists(path):
            with open(path) as file:
                old = json.load(file)
            if old.get("gpu") == about["gpu"] and "rows" in old:
                self.parts, self.rows, self.notes = old["result"], old["rows"], old["notes"]

    def begin(self, part):
        """Forgets what an earlier run found for this part."""
        self.rows = [row for row in self.rows if row["part"] != part]
        self.parts.pop(part, None)
        self.notes.pop(part, None)

    def row(self, part, what, ours, unit, peer=None, ratio=None, bar=None, at_most=False):
        """A line of the table. ratio: what the bar is for (at least it, or at most); None: ours itself."""
        value = ours if ratio is None else ratio
        met = None if bar is None else value <= bar if at_most else value >= bar
        self.rows.append({"part": part, "what": what, "ours": ours, "peer": peer, "unit": unit, "ratio": ratio, "bar": bar,
                          "at_most": at_most, "met": met})
        print("  ".join(self.cells(self.rows[-1])), flush=True)

    def note(self, part, text):
        self.notes.setdefault(part, []).append(text)
        print(text, flush=True)

    @staticmethod
    def cells(row):
        bar = "" if row["bar"] is None else f"{'<=' if row['at_most'] else '>='} {row['bar']:g}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
        met = "" if row["met"] is None else "yes" if row["met"] else "NO"
        return [row["what"], show(row["ours"], row["unit"]), show(row["peer"], row["unit"]), ratio, bar, met]

    def table(self):
        head = ["what", "ours", "peer", "ratio", "bar", "met"]
        lines, cells = [], [self.cells(row) for row in self.rows]
        widths = [max(len(line[i]) for line in [head, *cells]) for i in range(len(head))]

        def line(texts):
            return "  ".join(text.ljust(width) if i in (0, 4) else text.rjust(width)
                             for i, (text, width) in enumerate(zip(texts, widths))).rstrip()
        met = [row["met"] for row in self.rows if row["met"] is not None]
        lines.append(f"{self.about['gpu']}, driver {self.about['driver']}, {self.about['when']}; "
                     f"{sum(met)} of {len(met)} bars met")
        if self.about["simulated"]:
            lines.append("A SIMULATED device: these figures tell nothing about speed.")
        for part in dict.fromkeys([*(row["part"] for row in self.rows), *self.notes]):
            lines += ["", part]
            rows = [cell for row, cell in zip(self.rows, cells) if row["part"] == part]
            if rows:
                lines += ["  " + line(texts) for texts in [head, *rows]]
            lines += ["  " + text for text in self.notes.get(part, [])]
        return "\n".join(lines) + "\n"

    def save(self):
        if not self.path:
            return
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        found = {**self.about, "result": self.parts, "rows": self.rows, "notes": self.notes}
        for path, text in ((self.path, json.dumps(found, indent=1) + "\n"), (self.text_path(), self.table())):
            with open(path + ".new", "w") as file:
                file.write(text)
            os.replace(path + ".new", path)

    def text_path(self):
        return re.sub(r"\.json$", "", self.path) + ".txt"


class Budget:
    """Seconds that a run may take; None: as long as it needs."""

    def __init__(self, seconds):
        self.begun, self.seconds = time.monotonic(), seconds

    def left(self):
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self.begun)
