# SPDX-License-Identifier: MIT
"""Kills training with SIGKILL, one or two of its processes: ddprun, its keeper, workers; some are stopped before.

A case is a chain of links, as in stops.py. After each kill all processes are gone, every checkpoint is whole, and the
next link goes on; at the end the weights are those of a run that was left alone.
"""
import os
import signal
import time

import chain
import chaos

LINKS = 12
WORKERS = 3
trainings = []


def processes(job):
    """{name: pid} of a job, as far as it has come: ddprun, keeper, rank0, ..."""
    found = {"ddprun": job.pid}
    for pid in chaos.children(job.pid):
        if chaos.comm(pid) == "job-keeper":
            found["keeper"] = pid
        elif chaos.comm(pid).endswith("trainer"):
            found[f"rank{len(found) - ('keeper' in found) - 1}"] = pid
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def kill(links):
    case, draw = links.case, links.case.random
    job = links.start("ddp")
    time.sleep(draw.choice([draw.uniform(0, 0.02), draw.uniform(0, 0.3)]))
    there = processes(job)
    victims = draw.sample(sorted(there), min(len(there), draw.choice([1, 2, 2])))
    stopped = [victim for victim in victims if draw.random() < 0.4]
    # A stopped worker alone would hold the job up for ever: what is stopped is killed too, but for the keeper.
    spared = [victim for victim in stopped if victim == "keeper" and len(victims) > 1 and draw.random() < 0.5]
    for victim in stopped:
        send(there[victim], signal.SIGSTOP)
    if stopped:
        time.sleep(draw.choice([0, 0.02]))
    gap = draw.choice([0, 0, 0.001, 0.01])
    for victim in victims:
        if victim not in spared:
            send(there[victim], signal.SIGKILL)
            time.sleep(gap)
    what = " and ".join(victims) + " killed" + (", stopped before: " + " and ".join(stopped) if stopped else "")
    what += ", not killed: keeper" if spared else ""
    # Without its keeper, or of a keeper alone, the job goes on.
    goes_on = set(victims) <= {"keeper"}
    job.finish(60)
    case.count("kills")
    trouble = job.trouble()
    if trouble:
        case.fail(f"{what}: {trouble}", job)
    links.look(job)
    if job.code == 0:
        links.is_complete(job)
    elif goes_on:
        case.fail(f"{what}: exit code {job.code}", job)
    elif job.code != 137 and not trouble:
        case.fail(f"{what}: exit code {job.code}", job)


def work(case):
    links = chain.Chain(case, trainings[0])
    for _ in range(LINKS):
        if case.is_over():
            break
        kill(links)
    job = links.start("ddp").finish(120)
    if job.trouble() or job.code != 0:
        case.fail(f"the last run: {job.trouble()}, exit code {job.code}", job)
    else:
        links.is_complete(job)


def prepare(shared):
    training = chain.article(shared, 4000 if chaos.LONG else 1500, 50)
    training.prepare(shared)
    trainings.append(training)


if __name__ == "__main__":
    chaos.play_all("kills", work, runs=(2, 20), seconds=(5, 25), prepare=prepare)
