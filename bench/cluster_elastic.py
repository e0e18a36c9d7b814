# SPDX-License-Identifier: MIT
"""The table of bench/cluster about nodes that come and go: from a loss, or an arrival, to the next step that all that are there
have finished, beside torchrun."""
import json
import os
import time

from cluster_hosts import Hosts  # beside bench/cluster
from cluster_jobs import HERE, bench_run, hurt

EVENTS = ("worker killed", "launcher killed", "cable out", "a node comes")
LIMIT = 120  # seconds for all that one event does
STEADY = 15  # steps before it


class Job:
    """Two nodes of one worker, or three, in a job of 1 to 4."""

    def __init__(self, bench, hosts, name):
        self.bench, self.hosts, self.name = bench, hosts, name
        self.log = os.path.join(bench.work, "elastic.log")
        self.steps = os.path.join(bench.work, "elastic.steps")
        self.snapshot = os.path.join(bench.work, "elastic.snapshot")
        for path in (self.log, self.steps, self.snapshot):
            if os.path.exists(path):
                os.unlink(path)
        bench.port += 10
        self.processes = []

    def start(self, node):
        bench, host = self.bench, self.hosts.address(0)
        script = [os.path.join(HERE, "cluster_snapshot.py"), self.snapshot, self.steps]
        if self.name.startswith("torchrun"):
            fast = ["--rdzv-conf", "last_call_timeout=1"] if "tuned" in self.name else []
            command = [bench.args.python, "-m", "torch.distributed.run", "--nnodes", "1:4", "--max-restarts", "9",
                       "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{bench.port}", "--rdzv-id", "bench", *fast, *script]
        else:
            tokens = os.path.join(bench.work, "tokens.bin")
            program = [bench.args.python, *script] if "PyTorch" in self.name else [
                bench.program("trainer"), "--model", "gpt2", "--size", "d4", "--data", tokens, "--seq-len", "64",
                "--batch-size", "2", "--global-batch", "12", "--steps", "100000", "--no-eval", "--threads", "1", "--log", self.steps]
            rank = ["--node-rank", "0"] if node == 0 else []
            command = [bench.program("ddprun"), "--nnodes", "1:4", *rank, "--master-addr", host, "--master-port", str(bench.port),
                       "--nproc", "1", "--max-restarts", "9", *program]
        self.processes.append(self.hosts.start(
            node, command, self.log, GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", DDPRUN_KEY="a key of this benchmark alone",
            **bench.libraries))

    def finished(self):
        """(step, workers) of each line so far; our log says workers where a run begins or goes on."""
        found, workers = [], 0
        with open(self.steps) if os.path.exists(self.steps) else open(os.devnull) as file:
            for line in file:
                if line.startswith("{"):
                    event = json.loads(line) if line.endswith("\n") else {"event": ""}
                    workers = event.get("workers", event.get("world_size", workers))
                    if event["event"] == "step":
                        found.append((event["step"], workers))
                elif line.endswith("\n"):
                    found.append(tuple(map(int, line.split())))
        return found

    def wait(self, what, done):
        begin = time.monotonic()
        while not done(self.finished()):
            if time.monotonic() > begin + LIMIT:
                with open(self.log, errors="replace") as file:
                    print(f"bench/cluster: {self.name}: {what}: not within {LIMIT} s\n{file.read()[-1500:]}")
                return None
            time.sleep(0.002)
        return time.monotonic() - begin

    def end(self):
        self.hosts.kill()
        for process in self.processes:
            process.wait()
        self.hosts.cable(1, "up")


def one(bench, hosts, name, event):
    """Seconds from the event to the first step of the others, and how many steps were made again; or None."""
    job = Job(bench, hosts, name)
    try:
        first = 2 if event == "a node comes" else 3
        for node in range(first):
            job.start(node)
        if job.wait("all nodes", lambda lines: sum(workers == first for _, workers in lines) > STEADY) is None:
            return None
        before = len(job.finished())
        if event == "a node comes":
            job.start(first)
            after = 3
        else:
            hurt(hosts, job.processes, event)
            after = 3 if event == "worker killed" else 2
            time.sleep(0.02)  # what was on its way
            before = len(job.finished())
        seconds = job.wait(event, lambda lines: any(workers == after for _, workers in lines[before:]))
        if seconds is None:
            return None
        lines = job.finished()
        last, next_step = max(step for step, _ in lines[:before]), min(step for step, _ in lines[before:])
        return {"seconds": seconds, "again": last + 1 - next_step}
    finally:
        job.end()


def elastic(bench):
    sides = [name for name in ("ddprun, trainer", "ddprun, PyTorch", "torchrun, PyTorch", "torchrun, PyTorch, tuned")
             if not bench.args.sides or name.split(",")[0] in bench.args.sides.split(",")]
    bench_run().write_tokens(os.path.join(bench.work, "tokens.bin"), 4 * 64 * 400 + 1)
    print("\nnodes of one worker that come and go: seconds to the next step with those that are there, and steps made again")
    with Hosts(4, bench.work) as hosts:
        for event in EVENTS:
            for name in sides:
                runs = [one(bench, hosts, name, event) for _ in range(bench.args.rounds)]
                bench.found.setdefault("elastic", {}).setdefault(event, {})[name] = runs
                print(f"  {event:16} {name:26} " + ", ".join(
                    "-" if run is None else f"{run['seconds']:.2f} ({run['again']})" for run in runs), flush=True)
