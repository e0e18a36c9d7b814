# SPDX-License-Identifier: MIT
"""The table "shards" of bench/cluster: steps and memory of a model whose weights are split over four nodes of one worker, beside
one whose update alone is split, and PyTorch's FSDP2."""
import json
import os
import re
import statistics

from cluster_hosts import Hosts  # beside bench/cluster
from cluster_jobs import HERE, bench_run, finish

NODES, STEPS, WARM, BATCH, LENGTH = 4, 4, 1, 1, 64
PATIENCE = 600  # seconds for a job, on a machine where others work too
MODELS = {"124M": "gpt2", "smollm2-135m": "llama"}
SIDES = ("--zero 3", "FSDP2", "--zero 1")


def shards(bench):
    tokens = os.path.join(bench.work, "tokens.bin")
    bench_run().write_tokens(tokens, NODES * BATCH * LENGTH * (STEPS + 1) + 1, 49152)
    sides = bench.args.sides.split(",") if bench.args.sides else SIDES
    with Hosts(NODES, bench.work) as hosts:
        for rate in bench.args.rates.split(","):
            hosts.rate(rate)
            for size in MODELS:
                runs = {side: [] for side in sides}
                for _ in range(bench.args.rounds):
                    for side in sides:
                        runs[side].append(fsdp(bench, hosts, size) if side == "FSDP2" else ours(bench, hosts, size, side, tokens))
                print_shards(size, rate, runs)
                bench.found.setdefault("shards", {}).setdefault(rate, {})[size] = runs


def ours(bench, hosts, size, side, tokens):
    log, figures = os.path.join(bench.work, "shards.log"), os.path.join(bench.work, "shards.jsonl")
    for path in (log, figures):
        if os.path.exists(path):
            os.unlink(path)
    finish(bench.launch(hosts, NODES, 1, [
        bench.program("trainer"), "--model", MODELS[size], "--size", size, "--data", tokens, "--batch-size", str(BATCH), "--seq-len",
        str(LENGTH), "--no-shuffle", "--no-eval", "--steps", str(STEPS), "--optimizer", "adamw", "--threads", "1",
        "--log", figures, *side.split()], log), log, PATIENCE)
    with open(figures) as file:
        seconds = [event["seconds"] for event in map(json.loads, file) if event["event"] == "step"]
    with open(log) as file:
        peak, planned = re.search(r"memory +(\S+ \S+) at the peak of a worker: (\S+ \S+) as planned", file.read()).groups()
    return {"seconds": seconds, "peak_MB": megabytes(peak), "planned_MB": megabytes(planned)}


def megabytes(text):
    number, unit = text.split()
    return float(number) * {"MB": 1, "GB": 1000}[unit]


def fsdp(bench, hosts, size):
    log = os.path.join(bench.work, "fsdp.log")
    if os.path.exists(log):
        os.unlink(log)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    finish(bench.launch(hosts, NODES, 1, [bench.args.python, os.path.join(HERE, "cluster_fsdp.py"), size, str(STEPS), str(BATCH),
                                          str(LENGTH)], log), log, PATIENCE)
    with open(log) as file:
        found = json.loads(re.search(r"\{.*\}", file.read()).group())
    return {"seconds": found["seconds"], "peak_MB": found["peak"] * 1.024e-3, "before_MB": found["before"] * 1.024e-3,
            "made_MB": found["made"] * 1.024e-3}


def print_shards(size, rate, runs):
    print(f"\n{size}, {NODES} nodes x 1, batch {BATCH} x {LENGTH}, {rate}: a step, and the peak of a node's worker")
    for side, many in runs.items():
        seconds = [s for run in many for s in run["seconds"][WARM:]]
        peak = max(run["peak_MB"] for run in many)
        more = (f", planned {many[0]['planned_MB']:.0f} MB" if "planned_MB" in many[0]
                else f", {many[0]['before_MB']:.0f} MB before the model, {many[0]['made_MB']:.0f} MB when it was made")
        print(f"{side:10} {1e3 * statistics.median(seconds):6.0f} ms ({1e3 * min(seconds):.0f}-{1e3 * max(seconds):.0f})   "
              f"{peak:5.0f} MB{more}")
