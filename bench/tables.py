#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tables beside scikit-learn: trainer's defaults, and MLPRegressor and MLPClassifier behind a StandardScaler
until they converge (at most 2000 epochs), on three tables that scikit-learn ships. The same rows to train and
to test on, 5 seeds, one thread each. The mean score on the test rows; the seconds of training alone, ours with
its evaluations; and the seconds of our whole program, which also starts and reads the table.
usage: tables.py TRAINER [OPTION ...]    with a Python that has scikit-learn."""
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
import numpy
from sklearn import datasets, model_selection, neural_network, pipeline, preprocessing

warnings.filterwarnings("ignore")
SEEDS = range(5)


def write(path, x, y):
    with open(path, "w") as out:
        out.write(",".join([f"x{i}" for i in range(x.shape[1])] + ["y"]) + "\n")
        for row, target in zip(x, y):
            out.write(",".join([repr(float(v)) for v in row] + [f"{target:g}"]) + "\n")


def ours(trainer, parts, seed, work):
    for name, (x, y) in parts.items():
        write(f"{work}/{name}.csv", x, y)
    log = f"{work}/{seed}.jsonl"
    begin = time.monotonic()
    subprocess.run([trainer, "--data", f"{work}/train.csv", "--val", f"{work}/test.csv", "--target", "y", "--threads", "1",
                    "--seed", str(seed), "--quiet", "--log", log, *sys.argv[2:]], check=True)
    seconds = time.monotonic() - begin
    events = list(map(json.loads, open(log)))
    last = [e for e in events if e["event"] == "evaluation"][-1]
    return last.get("test_r2", last.get("test_accuracy")), events[-1]["time"] - events[0]["time"], seconds


def theirs(kind, parts, seed):
    model = pipeline.make_pipeline(preprocessing.StandardScaler(), kind(random_state=seed, max_iter=2000))
    begin = time.monotonic()
    model.fit(*parts["train"])
    return model.score(*parts["test"]), time.monotonic() - begin


print(f"{'':26}{'trainer':>9}{'sklearn':>9}{'trainer':>9}{'sklearn':>9}{'':>7}{'program':>9}")
print(f"{'table':10}{'rows':>6}{'score':>10}{'':18}{'seconds':>9}{'':9}{'times':>7}{'seconds':>9}")
for name, kind in (("diabetes", neural_network.MLPRegressor), ("wine", neural_network.MLPClassifier),
                   ("digits", neural_network.MLPClassifier)):
    extra = {"scaled": False} if name == "diabetes" else {}
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True, **extra)
    rows = []
    for seed in SEEDS:
        a, b, c, d = model_selection.train_test_split(x, y, test_size=0.2, random_state=seed)
        parts = {"train": (a, c), "test": (b, d)}
        with tempfile.TemporaryDirectory() as work:
            rows.append(ours(sys.argv[1], parts, seed, work) + theirs(kind, parts, seed))
    score, seconds, program, other, slower = numpy.mean(rows, axis=0)
    label = "R2" if kind is neural_network.MLPRegressor else "accuracy"
    print(f"{name:10}{len(x):6}{label:>10}{score:9.3f}{other:9.3f}{seconds:9.3f}{slower:9.3f}{slower / seconds:7.1f}{program:9.3f}")
