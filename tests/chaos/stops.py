# SPDX-License-Identifier: MIT
"""Asks training to stop, at every moment of its life: it stops with 75 and a checkpoint, and resumes to the same bits.

A case is a chain of links: training starts or resumes, alone, with replicas or on two workers, one or more stop signals
come at a random moment (before the program has begun, while data are read, in a step, while a checkpoint is written,
after the last step), and the next link goes on from there.

Each case begins with jobs on one node or two, with checkpoints or without, that get a signal in the first moments of their
life: ddprun, one worker, or all processes, as a batch system sends it. Every ddprun ends with the same code, and with a
documented one; where checkpoints are written and ddprun could take the request, that is 75.
"""
import os
import shutil
import signal
import time

import chain
import chaos
import nodes

LINKS = 12
EARLY = 10  # jobs of a case that are asked at once
EARLY_SECONDS = 0.2
SIGNALS = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]
AT_ONCE = (128 + signal.SIGINT, 128 + signal.SIGKILL)  # what a second SIGINT leads to
MOMENTS = ["start", "any", "any", "step", "step", "step", "save", "late"]
trainings = []
cpu_limit_ns = 0


def cpu_ns(pid):
    """What the first thread of a process has computed."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[0])
    except OSError:
        return 0


def minds(pid, number):
    """Whether a process catches a signal, or has it blocked, to take it otherwise."""
    try:
        with open(f"/proc/{pid}/status") as file:
            masks = dict(line.rstrip("\n").split(":\t") for line in file if line.startswith("Sig") and "Q" not in line)
    except (OSError, ValueError):
        return True  # it has ended
    return any(int(masks[which], 16) >> (number - 1) & 1 for which in ("SigCgt", "SigBlk"))


def is_young(job, mode, number):
    """Whether main() may not have begun in the program or in one of its workers, where nobody can take a signal yet: no
    more was computed than `--version` takes, and the signal would still end the process."""
    pids = [job.pid]
    if mode == "ddp":
        workers = [pid for pid in chaos.children(job.pid) if chaos.comm(pid).endswith("trainer")]
        if len(workers) < 2:  # the others have not executed it yet
            return True
        pids += workers
    return any(cpu_ns(pid) < cpu_limit_ns and not minds(pid, number) for pid in pids)


def measure_start():
    """How much `--version` computes, with a margin."""
    global cpu_limit_ns
    most = 0
    for program in (chaos.TRAINER, chaos.DDPRUN):
        for _ in range(5):
            pid = os.posix_spawn(program, [program, "--version"], chaos.environment(),
                                 file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
            used = os.wait4(pid, 0)[2]
            most = max(most, used.ru_utime + used.ru_stime)
    cpu_limit_ns = int(1.5e9 * most) + 2_000_000


def await_moment(links, job, moment):
    draw = links.case.random
    if moment == "start":
        time.sleep(draw.uniform(0, 0.03))
    elif moment == "any":
        time.sleep(draw.uniform(0, 0.4))
    else:
        def there():
            if moment == "save":
                return links.is_saving()
            return links.steps_done() > (links.training.steps - 2 if moment == "late" else 0)
        end = time.monotonic() + 5
        while not there() and time.monotonic() < end and not job.wait(0):
            time.sleep(0.001)
        time.sleep(draw.choice([0, draw.uniform(0, 0.01), draw.uniform(0, 0.1)]))


def stop(links, mode, moment):
    """One link. Whether the chain can go on."""
    case = links.case
    number, burst = case.random.choice(SIGNALS), case.random.choice([1, 1, 1, 2, 3])
    gaps = [case.random.choice([0, 0.001, 0.005, 0.03, 0.1]) for _ in range(burst)]
    job = links.start_late(mode) if moment == "late" else links.start(mode)
    await_moment(links, job, moment)
    young = False
    for gap in gaps:
        if job.wait(0):
            break
        young = young or is_young(job, mode, number)
        os.kill(job.pid, number)
        time.sleep(gap)
    job.finish(60)
    case.count("stops")
    what = f"{links.training.name} {mode}, {burst} x {signal.Signals(number).name}, {moment}: "
    trouble = job.trouble()
    if trouble:
        case.fail(what + trouble, job)
    done = links.steps_done()
    before = links.newest
    found = links.look(job)
    if job.code == 0:
        case.count("ended with 0 before or after the signal")
        links.is_complete(job)
    elif job.code == 75:
        case.count("ended with 75")
        if found < max(done, before):
            case.fail(f"{what}{done} steps were done, the newest checkpoint is that of {found}", job)
    elif job.code in AT_ONCE and number == signal.SIGINT and burst > 1:
        case.count("ended at once by a second SIGINT")
    elif job.code == 128 + number and young:
        case.count("came too early")
    elif not trouble:
        case.fail(f"{what}exit code {job.code}", job)


def early(case):
    """One job, and one signal in its first moments."""
    draw = case.random
    count = draw.choice([1, 2]) if os.path.exists(os.path.join(chaos.BUILD, ".libs", "libddp-ucx.so")) else 1
    keeps, target = draw.random() < 0.5, draw.choice(["ddprun", "ddprun", "worker", "all"])
    number = draw.choice(SIGNALS + [signal.SIGHUP, signal.SIGQUIT])
    command = [chaos.TRAINER, "--model", "article", "--steps", "100000000", "--threads", "1", "--quiet"]
    command += ["--checkpoint", case.path("early"), "--checkpoint-every", "100000000"] if keeps else []
    job = nodes.Nodes(case, count, 2 // count, command, ("--node-timeout", "30", "--grace", "20"))
    moment = draw.uniform(0, EARLY_SECONDS)
    job.say(f"early, {count} nodes, checkpoints {keeps}, {moment * 1000:.0f} ms")
    time.sleep(moment)
    # A keeper that was just made looks like a worker that has not executed its program.
    there = [one for one in job.processes() if one[2] or chaos.comm(one[1]).endswith("trainer")]
    chosen = there if target == "all" else [one for one in there if bool(one[2]) == (target == "ddprun")]
    if target != "all":
        chosen = draw.sample(chosen, min(1, len(chosen)))
    young = not all(minds(pid, number) for _, pid, node in chosen if node)  # nobody can take it yet
    for name, pid, node in chosen:
        nodes.send(job, name, pid, node, number)
    asked = 128 + number
    if not chosen or (number == signal.SIGQUIT and all(node for _, _, node in chosen)):  # the job goes on
        time.sleep(0.05)
        node = draw.choice(job.nodes)
        young = young or not minds(node.pid, signal.SIGTERM)
        nodes.send(job, "ddprun", node.pid, node, signal.SIGTERM)
        asked = 128 + signal.SIGTERM
    job.finish()
    job.judge(alike=not young)
    codes = {node.code for node in job.nodes}
    stops = asked - 128 in SIGNALS
    if young:
        allowed = {75, 125, asked, 128 + number}
    elif not stops:
        allowed = {asked}
    elif target == "ddprun" or not chosen:
        allowed = {75} if keeps else {asked}
    else:
        allowed = {75, asked}  # a worker alone may be killed before it can take it
        allowed |= {1} if count > 1 else set()  # ... and another one may be the first to say that it cannot reach it
    if codes - allowed:
        job.fail(f"not {sorted(allowed)}")
    case.count("asked at once")
    case.count("... before ddprun could take it" if young else f"... ended with {'/'.join(map(str, sorted(codes)))}")
    shutil.rmtree(case.path("early"), ignore_errors=True)


def work(case):
    for _ in range(EARLY):
        early(case)
        if case.is_over():
            return
    links = chain.Chain(case, trainings[case.index % 2])
    for _ in range(LINKS):
        if case.is_over():
            break
        stop(links, case.random.choice(chain.MODES), case.random.choice(MOMENTS))
    job = links.start(case.random.choice(chain.MODES)).finish(120)
    if job.trouble() or job.code != 0:
        case.fail(f"the last run: {job.trouble()}, exit code {job.code}", job)
    else:
        links.is_complete(job)


def prepare(shared):
    measure_start()
    steps = 400 if chaos.LONG else 80 if os.environ.get("DDP_SANITIZE") else 200
    trainings.extend([chain.wide(shared, steps, 40), chain.gpt2(shared, steps, 40)])
    for training in trainings:
        training.prepare(shared)


if __name__ == "__main__":
    chaos.play_all("stops", work, runs=(2, 25), seconds=(10, 70), prepare=prepare)
