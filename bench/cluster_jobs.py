# SPDX-License-Identifier: MIT
"""The tables of bench/cluster that start whole jobs: how training scales, what local steps save, how long a start takes, and
how a failure ends."""
import glob
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import statistics
import subprocess
import time

from cluster_hosts import Hosts  # beside bench/cluster

HERE = os.path.dirname(os.path.abspath(__file__))
WARM, STEPS = 2, 7
LIMIT = 15  # seconds after which a job that has not ended counts as running
PATIENCE = 240  # seconds for a job that should end by itself: torchrun waits 300 s for an agent that has failed


def bench_run():
    """bench/run, for the files that it makes."""
    loader = importlib.machinery.SourceFileLoader("bench_run", os.path.join(HERE, "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
    loader.exec_module(module)
    return module


def finish(processes, log, patience=PATIENCE):
    """Waits until all have ended; the first that fails, or the end of patience, ends the table."""
    end = time.monotonic() + patience
    while any(codes := [process.poll() for process in processes]) or None in codes:
        if any(codes) or time.monotonic() > end:
            with open(log, errors="replace") as file:
                raise SystemExit(f"bench/cluster: exit codes {codes}\n{file.read()[-2000:]}")
        time.sleep(0.001)


# ---- training ----

def training(bench):
    """GPT-2 124M on two nodes of one worker each, beside one node of two."""
    tokens = os.path.join(bench.work, "tokens.bin")
    bench_run().write_tokens(tokens, 4 * 64 * 100 + 1)
    sides = {"1 node x 2": (1, 2), "2 nodes x 1": (2, 1)}
    with Hosts(2, bench.work) as hosts:
        for rate in bench.args.rates.split(","):
            hosts.rate(rate)
            runs = {name: [] for name in sides}
            for _ in range(bench.args.rounds):
                for name, (nodes, workers) in sides.items():
                    runs[name].append(train(bench, hosts, tokens, nodes, workers))
            losses = {tuple(loss for _, loss in run) for many in runs.values() for run in many}
            ms = {name: statistics.median(1e3 * s for run in many for s, _ in run[WARM:]) for name, many in runs.items()}
            print(f"\nGPT-2 124M, batch 4 x 64 a worker, {rate}: " + ", ".join(f"{n} {x:.0f} ms" for n, x in ms.items()) +
                  f"; ratio {ms['1 node x 2'] / ms['2 nodes x 1']:.2f}" + ("" if len(losses) == 1 else "; THE LOSSES DIFFER"))
            bench.found.setdefault("training", {})[rate] = {"ms": ms, "same_losses": len(losses) == 1, "runs": runs}


def train(bench, hosts, tokens, nodes, workers):
    """Seconds and loss of each step."""
    events = events_of(bench, hosts, nodes, workers, [
        "--size", "124M", "--data", tokens, "--batch-size", "4", "--seq-len", "64", "--no-shuffle", "--no-eval", "--steps",
        str(STEPS)])
    return [(event["seconds"], event["loss"]) for event in events if event["event"] == "step"]


def events_of(bench, hosts, nodes, workers, options):
    """The lines of the log of a training of GPT-2."""
    log, figures = os.path.join(bench.work, "train.log"), os.path.join(bench.work, "train.jsonl")
    if os.path.exists(figures):
        os.unlink(figures)
    finish(bench.launch(hosts, nodes, workers, [
        bench.program("trainer"), "--model", "gpt2", "--optimizer", "adamw", "--threads", "1", "--log", figures, "--log-every",
        "1", *options], log), log)
    with open(figures) as file:
        return [json.loads(line) for line in file]


# ---- local steps ----

LOCAL_EVERY, LOCAL_STEPS = (1, 4, 16, 64), 512
LOCAL_MODEL = ("--layers", "4", "--heads", "4", "--channels", "128", "--seq-len", "128", "--batch-size", "2", "--lr", "1e-3",
               "--val-split", "0.1", "--eval-every", str(LOCAL_STEPS))


def local(bench):
    """A small GPT-2 on our own source, two nodes of one worker: what a node sends and a step takes with --sync-every H, and
    the loss of the average after the same samples."""
    text = os.path.join(bench.work, "source.txt")
    with open(text, "wb") as file:
        for name in sorted(glob.glob(os.path.join(HERE, "../*/**/*.[ch]"), recursive=True)):
            with open(name, "rb") as source:
                file.write(source.read())
    with Hosts(2, bench.work) as hosts:
        for rate in bench.args.rates.split(","):
            hosts.rate(rate)
            one, two = (local_run(bench, hosts, text, 1, steps)["bytes"] for steps in (1, 2))
            rest = 2 * one - two  # what start and end send
            runs = {every: [] for every in LOCAL_EVERY}
            for _ in range(bench.args.rounds):
                for every in LOCAL_EVERY:
                    runs[every].append(local_run(bench, hosts, text, every, LOCAL_STEPS))
            print_local(bench, rate, runs, rest)


def distributed(bench):
    """distributed_torch.py on two nodes of one worker: the backends ddp and gloo by turns in one job."""
    os.environ["PYTHONPATH"] = os.path.join(HERE, "../python")
    command = [bench.args.python, os.path.join(HERE, "distributed_torch.py"), "ddp", "gloo"]
    with Hosts(2, bench.work) as hosts:
        for rate in bench.args.rates.split(","):
            hosts.rate(rate)
            rows = {}
            for turn in range(bench.args.rounds):
                log = os.path.join(bench.work, f"distributed-{rate}-{turn}.log")
                finish(bench.launch(hosts, 2, 1, command, log), log)
                with open(log) as file:
                    for backend, what, ms in re.findall(r"(ddp|gloo) (.*): ([0-9.]+) ms", file.read()):
                        rows.setdefault(what, {"ddp": [], "gloo": []})[backend].append(float(ms))
            print(f"\ntorch.distributed, 2 nodes x 1, {rate}, medians of {bench.args.rounds} jobs:")
            for what, times in rows.items():
                ddp, gloo = (statistics.median(times[backend]) for backend in ("ddp", "gloo"))
                print(f"{what:34} ddp {ddp:9.3f} ms   gloo {gloo:9.3f} ms   ddp / gloo {ddp / gloo:.2f}")
            bench.found.setdefault("distributed", {})[rate] = rows


def local_run(bench, hosts, text, every, steps):
    before = hosts.sent(0)
    events = events_of(bench, hosts, 2, 1, ["--data", text, *LOCAL_MODEL, "--sync-every", str(every), "--steps", str(steps)])
    tests = [event["test_loss"] for event in events if "test_loss" in event]
    return {"bytes": hosts.sent(0) - before, "seconds": [event["seconds"] for event in events if event["event"] == "step"],
            "loss": tests[-1]}


def local_ms(runs, every):
    """The mean of a round, of medians: its last step synchronises."""
    steps = [(i + 1, s) for run in runs for i, s in enumerate(run["seconds"]) if i >= every]
    last = statistics.median(s for i, s in steps if i % every == 0)
    others = statistics.median(s for i, s in steps if i % every or every == 1)
    return 1e3 * (others + (last - others) / every)


def print_local(bench, rate, runs, rest):
    print(f"\nlocal steps, small GPT-2, 2 nodes x 1, {rate}: {LOCAL_STEPS} steps; a node's bytes on the wire a step")
    found = {}
    for every, many in runs.items():
        figures = {"bytes": (statistics.median(run["bytes"] for run in many) - rest) / LOCAL_STEPS,
                   "ms": local_ms(many, every), "loss": many[0]["loss"], "runs": many}
        found[every] = figures
        same = "" if len({run["loss"] for run in many}) == 1 else "; THE LOSSES OF THE ROUNDS DIFFER"
        print(f"  every {every:<3} {figures['bytes'] / 1e3:9.1f} kB ({found[1]['bytes'] / figures['bytes']:5.1f} times less)"
              f" {figures['ms']:8.1f} ms ({found[1]['ms'] / figures['ms']:.2f} times faster)  test loss"
              f" {figures['loss']:.4f}{same}", flush=True)
    bench.found.setdefault("local", {})[rate] = found


# ---- start ----

def start(bench):
    """From the start of the first process to the end of the last."""
    run = bench_run()
    images, script = os.path.join(bench.work, "images"), os.path.join(HERE, "cluster_steps.py")
    run.write_images(images)
    step = [bench.program("trainer"), "--data", images, "--steps", "1", "--no-eval", "--threads", "1"]
    log = os.path.join(bench.work, "start.log")
    rows = {}
    with Hosts(4, bench.work) as hosts:
        for nodes in (1, 2, 4):
            rows[f"ddprun true, {nodes} x 1"] = lambda n=nodes: bench.launch(hosts, n, 1, ["true"], log)
            rows[f"ddprun trainer --steps 1, {nodes} x 1"] = lambda n=nodes: bench.launch(hosts, n, 1, step, log)
        rows["mpirun true, 2 x 1"] = lambda: [bench.mpirun(hosts, 2, 1, [], ["true"], log)]
        rows["ddprun PyTorch script, 2 x 1"] = lambda: bench.launch(hosts, 2, 1, [bench.args.python, script, "1"], log)
        rows["torchrun PyTorch script, 2 x 1"] = lambda: bench.torchrun(hosts, 2, [script, "1"], log)
        seconds = {name: [] for name in rows}
        for _ in range(bench.args.rounds):
            for name, launch in rows.items():
                begin = time.monotonic()
                finish(launch(), log)
                seconds[name].append(time.monotonic() - begin)
    seconds.update(slurm_starts(bench, images))
    print("\nstart to end of a job, seconds: least / median")
    for name, many in seconds.items():
        print(f"  {name:40} {min(many):8.3f} / {statistics.median(many):.3f}")
    bench.found["start"] = seconds


def slurm_starts(bench, images):
    """The same under srun; nothing where Slurm is not installed."""
    command = ["sh", os.path.join(HERE, "cluster_slurm.sh"), str(bench.args.rounds), images]
    done = subprocess.run(command, cwd=bench.args.build, env={**os.environ, "srcdir": os.path.join(HERE, "..")}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(f"left out: srun: {done.stdout.strip()[-300:]}")
        return {}
    rows = {}
    for line in done.stdout.splitlines():
        name, text = line.rsplit(":", 1)
        rows.setdefault(name, []).append(float(text))
    return rows


# ---- failures ----

def environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def has_rank(pid):
    """Neither ddprun and its keepers nor torchrun's agent have one."""
    return any(x.startswith(b"RANK=") for x in environment(pid))


def worker_of(hosts, node):
    return min(pid for pid in hosts.pids(node) if has_rank(pid))


def hurt(hosts, processes, event):
    """Does it to node 1, or to node 0 where the event says so; returns the process that is left stopped."""
    node = 0 if event.endswith("node 0") else 1
    if event.startswith("worker"):
        os.kill(worker_of(hosts, node), signal.SIGKILL)
    elif event.startswith("launcher"):
        os.kill(processes[node].pid, signal.SIGKILL)
    elif event.startswith("stop"):
        os.kill(processes[node].pid, signal.SIGSTOP)
        return processes[node].pid
    else:
        hosts.cable(node, "down")
    return None


EVENTS = ("worker killed", "launcher killed", "launcher killed, node 0", "stopped launcher", "cable out")


def failure(bench):
    """Two nodes of one worker: how long until every launcher has ended, and every process."""
    images = os.path.join(bench.work, "images")
    bench_run().write_images(images)
    script = os.path.join(HERE, "cluster_steps.py")
    sides = {
        "ddprun, trainer": lambda hosts, log: bench.launch(hosts, 2, 1, [
            bench.program("trainer"), "--data", images, "--epochs", "10000", "--no-eval", "--threads", "1", "--log-every", "100"],
            log),
        "ddprun, PyTorch": lambda hosts, log: bench.launch(hosts, 2, 1, [bench.args.python, script], log),
        "torchrun, PyTorch": lambda hosts, log: bench.torchrun(hosts, 2, [script], log),
    }
    print("\nseconds until node 0's launcher, node 1's launcher and all processes have ended (exit codes)")
    with Hosts(2, bench.work) as hosts:
        for event in EVENTS:
            for name, launch in sides.items():
                log = os.path.join(bench.work, f"failure-{event}-{name}.log")
                found = one_failure(hosts, launch(hosts, log), log, event)
                bench.found.setdefault("failure", {}).setdefault(event, {})[name] = found
                ends = ", ".join("running" if s is None else f"{s:.2f} ({code})" for s, code in found["launchers"])
                gone = "running" if found["gone"] is None else f"{found['gone']:.2f}"
                print(f"  {event:24} {name:18} {ends}; all{found['note']} {gone}", flush=True)


def one_failure(hosts, processes, log, event):
    begin = time.monotonic()
    while not any(word in open(log, errors="replace").read() for word in ("step 10, rank 1", "step 100/")):
        if time.monotonic() > begin + 120 or any(p.poll() is not None for p in processes):
            raise SystemExit(f"bench/cluster: {event}: nothing to hurt\n{open(log, errors='replace').read()[-2000:]}")
        time.sleep(0.05)
    stopped = hurt(hosts, processes, event)
    hurt_at = time.monotonic()
    ends, gone = [None, None], None
    while gone is None and time.monotonic() < hurt_at + LIMIT:
        for i, process in enumerate(processes):
            if ends[i] is None and process.poll() is not None:
                ends[i] = time.monotonic() - hurt_at
        if all(ends[i] is not None or processes[i].pid == stopped for i in (0, 1)) and \
                not [pid for i in (0, 1) for pid in hosts.pids(i) if not stopped or has_rank(pid)]:
            gone = time.monotonic() - hurt_at
        time.sleep(0.01)
    note = "" if stopped is None else " workers"  # the stopped launcher is still there, and its keepers
    launchers = [(s, p.poll()) for s, p in zip(ends, processes)]
    hosts.kill()
    for process in processes:
        process.wait()
    hosts.cable(1, "up")
    return {"launchers": launchers, "gone": gone, "note": note}
