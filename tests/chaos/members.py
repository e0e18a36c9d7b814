# SPDX-License-Identifier: MIT
"""A training over nodes that come and go: ddpruns are killed, node 0's too, cut off, asked to leave and started, workers are
killed, at any moment. Whoever is left keeps the state in memory, and ends in the weights of a run that was left alone; nothing is
left behind."""
import filecmp
import os
import re
import signal
import sys
import time

import chaos
import data
import memory
import nodes

MOST = 4  # nodes
FAILURES = 9  # for which workers are started again: more than there will be
END_SECONDS = 120  # a node that comes may have to wait
trainings = []


class Members(nodes.Nodes):
    """A job, whose nodes are started one by one. Each has a cable of its own to node 0, as far as ddpruns go."""

    def __init__(self, case, sizes, command):
        self.case, self.did, self.sizes = case, [], sizes
        self.proxy, self.nodes = None, []
        self.port = 12000 + (os.getpid() * 127 + case.index) % 8000  # no other lane's, nor what the kernel gives away
        self.command = ["--nnodes", f"1:{MOST}", "--master-addr", "127.0.0.1", "--oversubscribe", "--grace", "3", "--node-timeout", "10",
                        "--max-restarts", str(FAILURES), *command]
        self.env = dict(case.env, DDPRUN_KEY=nodes.KEY, DDP_PLUGIN_PATH=os.path.join(chaos.BUILD, ".libs"))
        self.add()

    def add(self):
        number = len(self.nodes)
        cable = nodes.Proxy(self.first()[1], "none", self.case.random) if number > 0 else None
        where = ["--master-port", str(cable.port)] if cable else ["--node-rank", "0", "--master-port", str(self.port)]
        workers = self.case.random.choice(self.sizes)
        node = nodes.Node(self.case, number, [chaos.DDPRUN, *where, "-n", str(workers), *self.command], (), self.env)
        node.cable, node.lost = cable, False
        self.nodes.append(node)
        self.say(f"node {number} comes with {workers}")

    def over(self):
        return all([node.poll() for node in self.nodes])

    def first(self):
        """Node 0, as far as can be seen, and where it listens."""
        for node in self.nodes:
            numbers = node.poll() or re.findall(rb"of which this is number (\d+)", self.case.read(f"err{node.number}"))
            if numbers is not True and numbers and numbers[-1] == b"0":
                ports = re.findall(rb"--master-port (\d+)", self.case.read(f"err{node.number}"))
                return node, int(ports[-1]) if ports else self.port
        return None, self.port

    def others(self, first):
        """Members but node 0, to which nothing has happened yet."""
        return [node for node in self.nodes if node is not first and not node.poll() and not node.lost
                and b"of which this is number" in self.case.read(f"err{node.number}")]

    def finish(self, seconds=END_SECONDS):
        super().finish(seconds)
        for node in self.nodes:
            if node.cable:
                node.cable.close()
        return self


def lose(job, draw):
    """A node, and how. Node 0 is killed only where others are left: who was just cut off cannot go on alone."""
    first = job.first()[0]
    if not first or first.lost:  # there is none now
        return
    others = job.others(first)
    there = [node for node in job.nodes if node is not first and not node.poll() and not node.lost]
    if others and draw.random() < 0.4:
        node, how = first, "kill node 0"
    elif there:
        node, how = draw.choice(there), draw.choice(["kill", "kill", "leave", "cut", "reset"])
    else:
        return
    if how in ("cut", "reset") and not node.cable:
        return
    if how == "cut" and any(other.cable and other.cable.stalled and not other.poll() for other in job.nodes):
        return  # two at one moment can be most of the members: then nobody goes on
    node.lost = True
    job.case.count(how)
    if how == "leave":
        nodes.send(job, f"ddprun {node.number}", node.pid, node, signal.SIGTERM)
    elif "kill" in how:
        nodes.send(job, f"ddprun {node.number}", node.pid, node, signal.SIGKILL)
    elif how == "cut":
        node.cable.stalled = True
    else:
        node.cable.limit, node.cable.fault = node.cable.passed, "reset"
    job.say(f"{how} of node {node.number}")


def fail_worker(job, draw):
    there = [(name, pid) for name, pid, _ in job.processes() if name.startswith("worker")]
    if there:
        name, pid = draw.choice(there)
        job.case.count("worker")
        nodes.send(job, name, pid, None, signal.SIGKILL)


def pause(job, draw):
    """A process stands still, and is waited for, or, a launcher for long, counts as lost."""
    first = job.first()[0]
    there = [(pid, node) for name, pid, node in job.processes() if not node or node is not first]
    if not there:
        return
    pid, node = draw.choice(there)
    seconds = draw.choice([0.2, 1, 2, 13 if node and not node.lost else 2])
    if seconds > 10:
        node.lost = True
    job.case.count(f"pause of {seconds} s")
    job.say(f"{'ddprun' if node else 'worker'} {pid} stands still for {seconds} s")
    for number in (signal.SIGSTOP, signal.SIGCONT):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        time.sleep(seconds if number == signal.SIGSTOP else 0)


def come(job, draw):
    if len(job.nodes) < 2 * MOST:
        job.case.count("come")
        job.add()


def await_moment(job, training, log):
    """Often while steps are made: as soon as some more are, or later."""
    draw, before = job.case.random, size(log)
    end = time.monotonic() + draw.choice([0, 20, 20])
    while time.monotonic() < end and size(log) < before + 4000 and not job.over():
        time.sleep(0.01)
    time.sleep(draw.choice([0, draw.uniform(0, 0.1), draw.uniform(0, training.seconds / 3)]))


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def work(case):
    draw, training = case.random, trainings[case.index % len(trainings)]
    saved, log = case.path("saved"), case.path("log")
    more = draw.choice([[], [], ["--copy-every", "1"], ["--copy-every", "20"]])
    if draw.random() < 0.3:
        more = [*more, "--checkpoint", case.path("checkpoints"), "--checkpoint-every", "40"]
    sizes = [2] if "pipeline" in training.name else [1, 1, 2]  # together at most as many as lanes
    job = Members(case, sizes, [chaos.TRAINER, *training.options, "--save", saved, "--log", log, *more])
    for _ in range(draw.randint(0, 2)):
        job.add()
    for _ in range(draw.randint(2, 6)):
        await_moment(job, training, log)
        if job.over():
            break
        draw.choice([come, come, lose, lose, fail_worker] + [pause] * chaos.LONG)(job, draw)
    job.finish()
    job.judge(alike=False)
    codes = [node.code for node in job.nodes]
    early = [not node.err and node.code - 128 in node.signals for node in job.nodes]  # asked before it could hear
    if 0 not in codes or any(code not in (0, 75, 125) and not node.killed and not soon
                             for node, code, soon in zip(job.nodes, codes, early)):
        job.fail(f"{training.name}: ends badly")
    elif not os.path.exists(saved):
        job.fail(f"{training.name}: no weights")
    elif "local" not in training.name and not filecmp.cmp(saved, training.weights, shallow=False):
        job.fail(f"{training.name}: other weights than without")


def prepare(shared):
    text = data.text(os.path.join(shared, "text"))
    images = data.images(os.path.join(shared, "images"), 400, 12)
    colours = data.cifar(os.path.join(shared, "cifar"))
    base = os.path.join(shared, "base")
    small = ["--data", text, "--seq-len", "16", "--batch-size", "2", "--no-eval"]
    llama = ["--model", "llama", "--size", "d2", *small]
    gpt2 = ["--model", "gpt2", "--layers", "2", "--heads", "2", "--channels", "32", "--dropout", "0.1", *small]
    mlp = ["--data", images, "--hidden", "64", "--batch-size", "2", "--optimizer", "adam", "--schedule", "cosine"]
    chaos.need([chaos.TRAINER, *llama, "--steps", "1", "--quiet", "--export", base])
    rows = (("mlp", mlp, 1, 1500), ("mlp zero 0", mlp + ["--zero", "0"], 2, 1500),
            ("cnn", ["--model", "cnn", "--data", images, "--batch-size", "2", "--no-eval"], 1, 300),
            ("gpt2", gpt2, 1, 500), ("gpt2 zero 0", gpt2 + ["--zero", "0"], 1, 500),
            ("gpt2 pipeline", gpt2 + ["--mode", "pipeline", "--stages", "2"], 2, 400), ("llama", llama, 1, 200),
            ("lora", ["--load", base, "--lora", "r=2,dropout=0.1", *small], 1, 250), ("gpt2 zero 2", gpt2 + ["--zero", "2"], 1, 500),
            ("gpt2 zero 3", gpt2 + ["--zero", "3"], 1, 500), ("llama bf16", llama + ["--dtype", "bf16"], 1, 200),
            ("resnet", ["--model", "resnet", "--data", colours, "--augment", "flip", "--batch-size", "2", "--no-eval"], 1, 12))
    local = ["--sync-every", "4"]  # the weights depend on the number of workers
    rows += (("mlp local", mlp + local, 1, 1500), ("gpt2 local", gpt2 + local, 1, 500))
    for row in rows:
        trainings.append(memory.Training(shared, *row))
        trainings[-1].measure()


if __name__ == "__main__":
    if os.environ.get("DDP_SANITIZE"):
        print("skipped: with sanitizers three nodes take minutes for a training: check_link and nodes.py look at their memory")
        sys.exit(77)
    if not os.path.exists(os.path.join(chaos.BUILD, ".libs", "libddp-ucx.so")):
        print("skipped: CPUs of several nodes need libddp-ucx.so, which was not built")
        sys.exit(77)
    chaos.play_all("members", work, runs=(2, 120), seconds=(10, 300), prepare=prepare)
