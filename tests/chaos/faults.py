# SPDX-License-Identifier: MIT
"""Lets one call of the C library fail, in the trainer or in ddprun: memory, files, processes, threads.

Whatever fails, and whenever: the job succeeds with the same bits, or ends with a documented exit code and a message;
nothing crashes, hangs or stays, the checkpoints from before are whole, and a job without the fault goes on from them.
"""
import errno
import os
import sys

import chain
import chaos
import data

LIBRARY = chaos.program("libchaos_faults.so")
MEMORY = {"malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "posix_memalign", "mmap"}
# C++ ends the process when memory runs out.
SPARED = "libstdc++"
FILE_ERRORS = ["EIO", "ENOSPC", "EACCES", "EROFS", "ENOENT"]
ERRORS = {
    "write": ["EIO", "ENOSPC", "EDQUOT", "EINTR", "short"],
    "read": ["EIO", "EINTR", "short"],
    "pread": ["EIO", "EINTR", "short"],
    "open": ["EMFILE", "ENFILE", "EACCES", "ENOENT"],
    "openat": ["EMFILE", "ENFILE", "EACCES", "ENOENT"],
    "fopen": ["EMFILE", "EACCES"],
    "opendir": ["EMFILE", "EACCES"],
    "fdopendir": ["ENOMEM"],
    "close": ["EIO", "ENOSPC"],
    "fsync": ["EIO", "ENOSPC"],
    "fallocate": ["ENOSPC", "EOPNOTSUPP", "EINTR"],
    "posix_fallocate": ["ENOSPC", "EINTR"],
    "ftruncate": ["ENOSPC", "EIO"],
    "flock": ["ENOLCK", "EWOULDBLOCK"],
    "fork": ["EAGAIN", "ENOMEM"],
    "pthread_create": ["EAGAIN", "ENOMEM"],
    "memfd_create": ["EMFILE", "ENOMEM", "ENOSYS"],
    "pipe2": ["EMFILE", "ENFILE"],
    "eventfd": ["EMFILE", "ENOMEM"],
    "signalfd": ["EMFILE", "ENOMEM"],
    "poll": ["ENOMEM", "EINTR"],
    "setpgid": ["EPERM"],
    "execve": ["EACCES", "ENOMEM", "E2BIG"],
    "dup2": ["EBUSY"],
    "getrandom": ["ENOSYS", "EINTR"],
    "lseek": ["ESPIPE"],
}
ONCE = {"EINTR", "poll"}  # for ever, it is a loop that nobody can leave
# 141: a worker wrote to a pipe that ddprun could not read from any longer.
CODES = chaos.documented_codes("trainer.1") | chaos.documented_codes("ddprun.1") | {141}
# Each call of a kind in turn, before those that are drawn: (model, mode, program, its rank, call, error, repeat).
SWEEPS = [
    ("gpt2", "ddp", "trainer", "1", "fallocate", "ENOSPC", "once"),
    ("article", "ddp", "ddprun", None, "malloc", "ENOMEM", "on"),
]
sweep = []
scenarios = []  # (training, mode, options, program that has the fault, its rank, how often it makes each call)


def counts_of(path, program):
    """How often a program called what: {call: count}, of the process that called most."""
    counts = {}
    with open(path) as file:
        for line in file:
            name, call, count = line.split()
            if name == program and int(count):
                counts[call] = max(counts.get(call, 0), int(count))
    os.unlink(path)
    return counts


def add(shared, training, mode, program, rank=None, options=()):
    case = chaos.Case("faults", 0, len(scenarios))
    case.env.update(LD_PRELOAD=LIBRARY, CHAOS_FAULT_SPARE=SPARED, CHAOS_COUNTS=case.path("counts"))
    links = chain.Chain(case, training)
    job = links.start_late(mode, options).finish()
    if job.code != 0:
        print(f"without a fault: exit code {job.code}: {job.err}")
        sys.exit(99)
    scenarios.append((training, mode, options, program, rank, counts_of(case.path("counts"), program)))
    case.close()


def fill_sweep():
    for model, mode, program, rank, call, how, repeat in SWEEPS:
        for scenario in scenarios:
            if (scenario[0].name, scenario[1], scenario[3], scenario[4]) == (model, mode, program, rank):
                sweep.extend((scenario, call, n, how, repeat) for n in range(1, scenario[5].get(call, 0) + 1))
                break


def draw_fault(draw):
    """(scenario, call, which of its calls, error, once or from then on)"""
    scenario = draw.choice(scenarios)
    counts = scenario[5]
    if draw.random() < 0.3:
        call = draw.choice([call for call in counts if call in MEMORY])
    else:
        call = draw.choice([call for call in counts if call not in MEMORY])
    errors = ERRORS.get(call, ["ENOMEM"] if call in MEMORY else FILE_ERRORS)
    if scenario[3] == "ddprun" and call == "read":
        errors = ["EINTR", "short"]  # it reads pipes, which know no other
    how = draw.choice(errors)
    repeat = "once" if how in ONCE or call in ONCE else draw.choice(["once", "once", "on"])
    return scenario, call, draw.randint(1, counts[call]), how, repeat


def work(case):
    (training, mode, options, program, rank, counts), call, n, how, repeat = \
        sweep[case.index] if case.index < len(sweep) else draw_fault(case.random)
    number = how if how == "short" else getattr(errno, how)
    links = chain.Chain(case, training)
    links.fill_late()
    newest = links.look(None)
    case.env.update(LD_PRELOAD=LIBRARY, CHAOS_FAULT_SPARE=SPARED, CHAOS_HITS=case.path("hits"))
    case.env["CHAOS_FAULT"] = f"{program}:{call}:{n}:{number}:{repeat}"
    if rank is not None:
        case.env["CHAOS_FAULT_RANK"] = rank
    job = links.start(mode, options).finish(30)
    for name in ("LD_PRELOAD", "CHAOS_FAULT"):
        del case.env[name]
    hit = bool(case.read("hits"))
    case.count("faults" if hit else "faults that were not reached")
    where = program if rank is None else f"{program} of rank {rank}"
    what = f"{training.name} {mode}, {where}: {call} {n} of {counts[call]} {how} {repeat}: "
    trouble = job.trouble() or job.misspoken(CODES, 12 if mode == "ddp" else 4)
    if trouble:
        case.fail(what + trouble, job)
    elif job.code != 0 and not hit:
        case.fail(f"{what}exit code {job.code} without a fault", job)
    if links.look(job) < newest:
        case.fail(what + "a checkpoint is gone", job)
    if job.code == 0:
        case.count("succeeded all the same", hit)
        links.is_complete(job)
    else:
        case.count("ended with a message", not trouble)
        again = links.start(mode, options).finish(30)
        if again.code != 0:
            case.fail(f"{what}then, without a fault: exit code {again.code}", again)
        else:
            links.is_complete(again)


def prepare(shared):
    if os.environ.get("DDP_SANITIZE"):
        print("skipped: sanitizers have a malloc() of their own")
        sys.exit(77)
    article = chain.article(shared, 20, 4)
    images = data.images(os.path.join(shared, "tiny"), 40, 6)
    mlp = chain.Training("mlp", ["--data", images, "--hidden", "40", "--batch-size", "4", "--global-batch", "16"], 20, 4)
    gpt2 = chain.gpt2(shared, 20, 4)
    for training in (article, mlp, gpt2):
        training.prepare(shared)
    logs = ("--trace", "trace", "--tensorboard", "events")
    for training in (article, mlp, gpt2):
        add(shared, training, "accum", "trainer", options=logs)
        add(shared, training, "dp", "trainer")
        add(shared, training, "ddp", "trainer", rank="1")
        add(shared, training, "ddp", "trainer", rank="0", options=logs)
        add(shared, training, "ddp", "trainer")
        add(shared, training, "ddp", "ddprun")
        add(shared, training, "ddp", "ddprun", options=logs)
    fill_sweep()


if __name__ == "__main__":
    chaos.play_all("faults", work, runs=(60, 600), seconds=(5, 50), prepare=prepare)
