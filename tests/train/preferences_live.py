# SPDX-License-Identifier: MIT
"""50 steps of each loss of preferences beside TRL, losses and metrics:

   preferences_live.py TOOL TRAINER WORK
"""
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "golden")]
import importlib.util

import preferences

spec = importlib.util.spec_from_file_location("golden_preferences", os.path.join(here, "golden", "preferences.py"))
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

tool, trainer, work = sys.argv[1:]
STEPS = 50
made, model = os.path.join(work, "made"), os.path.join(work, "model")
preferences.make(made)
subprocess.run([tool, "fill", made, model, "f32", "1000000"], check=True)
for name in ("pairs.jsonl", "rated.jsonl", "adapters"):
    os.rename(os.path.join(made, name), os.path.join(model, name))
with open(os.path.join(work, "expected"), "w") as file:
    for name in golden.RUNS:
        for metric, values in golden.train(model, name, STEPS).items():
            print(name, metric, *(f"{value:.9g}" for value in values), file=file)
for name, (kind, adapted, _, objective) in golden.RUNS.items():
    log = os.path.join(work, name + ".log")
    more = ["--adapters", os.path.join(model, "adapters")] if adapted else []
    data = os.path.join(model, "rated.jsonl" if kind == "kto" else "pairs.jsonl")
    subprocess.run([trainer, "--model", "llama", "--load", model, "--data", data, "--objective", objective, "--seq-len", "64",
                    "--packing", "pad", "--batch-size", "8", "--steps", str(STEPS), "--lr", "1e-2" if adapted else "1e-3",
                    "--schedule", "constant", "--optimizer", "adamw,beta2=0.999", "--weight-decay", "0",
                    "--clip-grad-norm", "0", "--no-eval", "--quiet", "--log", log, *more], check=True)
    worst = preferences.check(os.path.join(work, "expected"), name, log, 1e-5)
    print(f"{name}: {STEPS} steps, off by at most {worst:.1e}")
