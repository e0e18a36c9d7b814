# SPDX-License-Identifier: MIT
"""Jobs on several nodes, which are ddpruns on this machine: signals and kills anywhere, bad connections, strangers, nodes
that are not started alike, little of everything.

Each case is one job. Whatever is done to it, every ddprun ends, with the same exit code and the same cause, nothing is
left, no control characters are printed, and after exit code 0 the weights are those of a run that was left alone. What it
leaves behind is resumed, again to the same bits.
"""
import os
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import chain
import chaos

KEY = "a-key-of-this-program-only"
END_SECONDS = 45  # 5 until a node is lost, and the grace of workers; joining takes 4 at most
SHAPES = [(2, 1), (2, 2), (2, 2), (3, 1), (2, 3), (3, 2)]  # nodes, workers of each
trainings = []


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """Between the other nodes and node 0: passes bytes on, and does to them what a fault says."""

    def __init__(self, target, fault, draw):
        self.target, self.fault, self.draw = target, fault, draw
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.pairs, self.passed, self.over, self.stalled, self.kept = [], 0, False, False, b""
        self.limit = draw.choice([draw.randrange(0, 300), draw.randrange(300, 2500), draw.randrange(2500, 40000)])
        self.wake = os.pipe()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def pass_on(self, source, target):
        data = source.recv(4096)
        if not data:
            return False
        before, self.passed = self.passed, self.passed + len(data)
        if before <= self.limit < self.passed:
            at = self.limit - before
            if self.fault == "truncate":
                target.sendall(data[:at])
                return False
            if self.fault == "reset":
                for end in (source, target):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            if self.fault == "corrupt":
                data = data[:at] + bytes([data[at] ^ 1 << self.draw.randrange(8)]) + data[at + 1:]
            if self.fault == "duplicate":
                data = data[:at] + data[at:] + data[at:]
            if self.fault == "drop":
                data = data[:at] + data[at + self.draw.choice([1, 8, 40]):]
            if self.fault == "swap":  # with what comes next, from whichever side
                self.kept = data[at:]
                data = data[:at]
            if self.fault == "insert":
                data = data[:at] + self.draw.randbytes(self.draw.randrange(1, 5000)) + data[at:]
            self.stalled = self.stalled or self.fault == "stall"
        elif self.kept:
            data, self.kept = data + self.kept, b""
        if self.stalled:
            return True
        if self.fault == "split":
            for i in range(0, len(data), 7):
                target.sendall(data[i:i + 7])
        else:
            if self.fault == "delay":
                time.sleep(self.draw.choice([0, 0.002, 0.05]))
            target.sendall(data)
        return True

    def run(self):
        while not self.over:
            ends = {end: other for pair in self.pairs for end, other in (pair, pair[::-1])}
            ready = select.select([self.listener, self.wake[0]] + list(ends), [], [], 1)[0]
            for end in ready:
                if end is self.listener:
                    near = self.listener.accept()[0]
                    far = socket.socket()
                    try:
                        far.connect(("127.0.0.1", self.target))
                        self.pairs.append((near, far))
                    except OSError:
                        near.close()
                        far.close()
                elif end in ends and end.fileno() >= 0:
                    try:
                        goes_on = self.pass_on(end, ends[end])
                    except OSError:
                        goes_on = False
                    if not goes_on:
                        self.drop(end)

    def drop(self, end):
        for pair in [pair for pair in self.pairs if end in pair]:
            self.pairs.remove(pair)
            for one in pair:
                one.close()

    def close(self):
        self.over = True
        os.write(self.wake[1], b".")
        self.thread.join(5)
        for end in [self.listener] + [end for pair in self.pairs for end in pair]:
            end.close()
        for fd in self.wake:
            os.close(fd)


class Node:
    def __init__(self, case, number, command, limits, env):
        self.number, self.command = number, command
        self.paths = [case.path(f"out{number}"), case.path(f"err{number}")]

        def prepare():
            chaos.normal_signals()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for kind, limit in limits:
                resource.setrlimit(kind, (limit, limit))

        with open(self.paths[0], "wb") as out, open(self.paths[1], "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=case.directory,
                                            env=env, start_new_session=True, preexec_fn=prepare)
        self.pid, self.code, self.killed, self.err, self.out = self.process.pid, None, False, b"", b""
        self.signals = []

    def poll(self):
        if self.code is None:
            code = self.process.poll()
            self.code = code if code is None or code >= 0 else 128 - code
        return self.code is not None


class Nodes:
    """A job: its ddpruns, and what was done to it, in words."""

    def __init__(self, case, count, workers, command, options=(), own=None, limits=None, proxy=None, skip=()):
        self.case, self.did, self.workers = case, [], count * workers
        self.port = free_port()
        self.proxy = Proxy(self.port, proxy, case.random) if proxy else None
        env = dict(case.env, DDPRUN_KEY=KEY, DDP_PLUGIN_PATH=os.path.join(chaos.BUILD, ".libs"))
        self.nodes = []
        order = [n for n in range(count) if n not in skip]
        case.random.shuffle(order)
        for n in order:
            port = self.proxy.port if self.proxy and n > 0 else self.port
            mine = own.get(n, {}) if own else {}
            words = [chaos.DDPRUN, "--nnodes", str(count), "--node-rank", str(n), "--master-addr", "127.0.0.1",
                     "--master-port", str(port), "-n", str(workers), "--node-timeout", "4", "--grace", "3", *options,
                     *mine.get("options", ()), *mine.get("command", command)]
            self.nodes.append(Node(case, n, words, (limits or {}).get(n, ()), dict(env, **mine.get("env", {}))))
        self.nodes.sort(key=lambda node: node.number)

    def say(self, text):
        self.did.append(text)

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all([node.poll() for node in self.nodes]):
                return True
            time.sleep(0.003)
        return all([node.poll() for node in self.nodes])

    def processes(self):
        """[(name, pid, node)] of all that runs."""
        found = []
        for node in self.nodes:
            if node.code is None:
                found.append((f"ddprun {node.number}", node.pid, node))
                for pid in chaos.children(node.pid):
                    kind = chaos.comm(pid)
                    kind = kind if kind.startswith("job-") else "worker"
                    found.append((f"{kind} of {node.number}", pid, None))
        return found

    def finish(self, seconds=END_SECONDS):
        self.hung = not self.wait(seconds * chaos.PATIENCE)
        self.where = [chaos.describe(pid) for pid in chaos.descendants(os.getpid())] if self.hung else []
        if self.hung:
            chaos.kill_all()
            self.wait(5)
        end = time.monotonic() + chaos.GONE_SECONDS
        while chaos.reap() and time.monotonic() < end:
            time.sleep(0.005)
        self.left = [] if self.hung else [chaos.describe(pid) for pid in chaos.descendants(os.getpid())]
        chaos.kill_all()
        if self.proxy:
            self.proxy.close()
        for node in self.nodes:
            node.out, node.err = [self.case.read(os.path.basename(path)) for path in node.paths]
        return self

    def fail(self, text):
        text = f"{'; '.join(self.did)}: {text}; exit codes {[node.code for node in self.nodes]}"
        for node in self.nodes:
            text += f"\n    {node.number}: " + " ".join(chaos.shown(word) for word in node.command)
            for line in node.err.split(b"\n")[:12]:
                text += "\n    | " + ascii(line[:240].decode(errors="replace"))[1:-1] if line else ""
        self.case.fail(text)

    def judge(self, alike=True):
        """What no job may do. `alike`: the nodes know of each other, and end alike."""
        if self.hung:
            self.fail("hangs: " + ", ".join(self.where))
            return
        if self.left:
            self.fail("left behind: " + ", ".join(self.left))
        tmp = os.listdir(self.case.path("tmp"))
        if tmp:
            self.fail(f"left in TMPDIR: {tmp}")
        for node in self.nodes:
            if re.search(rb"Sanitizer:|runtime error:|[Aa]ssertion|[Bb]acktrace|UCX  (DEBUG|DIAG|FATAL)", node.err + node.out):
                self.fail(f"node {node.number} crashes, or UCX speaks: {node.out[-300:]!r}")
            found = chaos.CONTROL.search(node.err) or chaos.CONTROL.search(node.out)
            if found:
                self.fail(f"a control character is printed: {found.group()!r}")
            if node.process.returncode is not None and -node.process.returncode in chaos.DEADLY:
                self.fail(f"node {node.number} crashes")
            said = [line for line in node.err.split(b"\n") if line]
            if len(said) > 120:
                self.fail(f"{len(said)} lines of node {node.number}")
            if node.code not in (0, 75) and node.code - 128 not in node.signals and not said:
                self.fail(f"node {node.number} says nothing")
        alive = [node for node in self.nodes if not node.killed]
        ended_by = {node.code for node in alive if node.code - 128 in node.signals}
        unlike_codes = len({node.code for node in alive}) > 1
        if unlike_codes and len(ended_by) > 1:  # each took its own for what ends the job
            self.case.count("were ended by several signals")
        elif unlike_codes and ended_by and all(node.code in ended_by or APART.search(node.err) for node in alive):
            self.case.count("were ended before they met")
        elif alike and unlike_codes:
            self.fail("they end with different codes")
        elif alike:
            # What a signal has ended is not ended for what failed before.
            causes = {tuple(cause(node)) for node in alive if not refused(node) and not ended_by}
            if len(causes) > 1:
                self.fail(f"they name different causes: {causes}")
            elif any(len(names) > 1 for names in causes):
                self.fail(f"they name several causes: {causes}")


HEAD = re.compile(rb"^ddprun: error: (?!  \||\s)(.*)$", re.M)


APART = re.compile(rb"has not come|have not come|given up|cannot reach node 0|while the nodes came together")


def cause(node):
    """The errors that ddprun says, but for their details."""
    last = node.err.rsplit(b"restarting all workers", 1)[-1]
    return [line for line in HEAD.findall(last) if re.search(rb"ending (the|all)|; ending|all \d+ workers|is lost", line)]


def refused(node):
    """Its workers have said why themselves."""
    return re.search(rb"^\[\d+\]: trainer: rank \d+: error: ", node.err, re.M) and not cause(node)


def send(job, name, pid, node, number):
    try:
        os.kill(pid, number)
    except OSError:
        return
    job.say(f"{signal.Signals(number).name} to {name}")
    if node:
        node.killed = node.killed or number == signal.SIGKILL
        node.signals.append(number)


def await_moment(job, draw):
    moment = draw.choice(["start", "join", "any", "any", "late"])
    if job.wait({"start": draw.uniform(0, 0.03), "join": draw.uniform(0, 0.15), "any": draw.uniform(0, 0.6),
                 "late": draw.uniform(0.3, 1.5)}[moment]):
        return
    job.say(moment)


def disturb(job, draw, numbers):
    """Signals to one or two processes in one breath."""
    await_moment(job, draw)
    there = job.processes()
    for name, pid, node in draw.sample(there, min(len(there), draw.choice([1, 1, 2, 3]))):
        number = draw.choice(numbers)
        if number == signal.SIGSTOP:
            send(job, name, pid, node, signal.SIGSTOP)
            time.sleep(draw.choice([0, 0.01, 0.3]))
            send(job, name, pid, node, draw.choice([signal.SIGCONT, signal.SIGCONT, signal.SIGKILL]))
        else:
            send(job, name, pid, node, number)
        time.sleep(draw.choice([0, 0, 0.001, 0.02]))


KILLS = [signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]
STOPS = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP]


def command_of(case, training, name="weights"):
    return [chaos.TRAINER, *training.options, "--checkpoint", case.path("checkpoints"), "--checkpoint-every",
            str(training.every), "--resume", "--save", case.path(name), "--quiet"]


def weights_of(training, shared):
    return os.path.join(shared, training.name + ".weights")


def complete(case, training, workers, what):
    """Runs undisturbed to the end: the same bits."""
    path = case.path("weights")
    done = case.run([chaos.DDPRUN, "-n", str(workers)] + command_of(case, training), 120)
    if done.code != 0:
        case.fail(f"{what}: what is left cannot be resumed: {done.code}", done)
    elif not same(path, training):
        case.fail(f"{what}: resumed to other bits", done)
    else:
        case.count("resumed to the same bits")
    shutil.rmtree(case.path("checkpoints"), ignore_errors=True)


def same(path, training):
    with open(path, "rb") as one, open(weights_of(training, training.shared), "rb") as two:
        return one.read() == two.read()


def after(job, training, resume=True):
    """The weights, and what is left."""
    case = job.case
    if training and all(node.code == 0 for node in job.nodes):
        case.count("ended with 0")
        if not os.path.exists(case.path("weights")):
            job.fail("exit code 0 and no weights")
        elif not same(case.path("weights"), training):
            job.fail("other bits")
    if training and resume:
        complete(case, training, job.workers, "; ".join(job.did))


def shape(draw):
    return draw.choice(SHAPES)


def signals(case, draw):
    training = draw.choice(trainings)
    count, workers = shape(draw)
    options = draw.choice([(), (), ("--max-restarts", "1"), ("--max-restarts", "3")])
    job = Nodes(case, count, workers, command_of(case, training), options)
    numbers = draw.choice([KILLS, STOPS, KILLS + STOPS, [signal.SIGTERM], [signal.SIGUSR1, signal.SIGTERM]])
    for _ in range(draw.choice([1, 1, 2, 3])):
        disturb(job, draw, numbers)
    job.finish()
    job.judge()
    after(job, training)


def shells(case, draw):
    """Programs of another kind: they sleep, fail, or know nothing of the job."""
    count, workers = shape(draw)
    options = draw.choice([(), ("--max-restarts", "2"), ("--timeout", "2", "--setup-timeout", "2")])
    text = draw.choice(["sleep 0.%d; exit $((RANK %% 3))" % draw.randrange(10), "exit $RANK", "kill -9 $$",
                        "sleep 0.2; test $RANK != 1 || exit 7; sleep 30", "trap '' TERM INT; sleep 1; exit 3",
                        "sleep 0.5", "test $RANK = 0 && exit 0; sleep 1; exit 5", "echo x; sleep 0.3; kill -SEGV $$"])
    job = Nodes(case, count, workers, ["sh", "-c", text], options)
    job.say(text)
    for _ in range(draw.choice([0, 1, 2, 3])):
        disturb(job, draw, draw.choice([KILLS, STOPS, KILLS + STOPS]))
    if draw.random() < 0.7:
        job.wait(draw.uniform(2, 6))
        for name, pid, node in job.processes():
            if node:
                send(job, name, pid, node, signal.SIGTERM)
    job.finish()
    job.judge()


def pauses(case, draw):
    """Signals around restarts: while workers end, in the pause, when the next attempt begins."""
    count, workers = shape(draw)
    slow = draw.choice(["", "trap 'sleep 0.4; exit' TERM; ", "trap '' TERM; test $RANK = 0 && "])
    text = slow + f"sleep 0.{draw.randrange(3)}; test $RANK = {draw.randrange(count * workers)} && exit 3; sleep 5 & wait"
    job = Nodes(case, count, workers, ["sh", "-c", text], ("--max-restarts", "4"))
    job.say(text)
    numbers = [draw.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])]
    numbers += [signal.SIGSTOP] * (draw.random() < 0.3) + [signal.SIGKILL] * (draw.random() < 0.1)
    for _ in range(draw.choice([1, 2])):
        if not job.wait(draw.uniform(0.1, 3)):
            ddpruns = [process for process in job.processes() if process[2]]
            for name, pid, node in draw.sample(ddpruns, draw.randrange(1, len(ddpruns) + 1)):
                send(job, name, pid, node, draw.choice(numbers))
                time.sleep(draw.choice([0, 0, 0.001, 0.02]))
            for name, pid, node in ddpruns:
                if signal.SIGSTOP in node.signals:
                    time.sleep(draw.choice([0, 0.2]))
                    send(job, name, pid, node, signal.SIGCONT)
    if not job.wait(20):
        for name, pid, node in job.processes():
            if node:
                send(job, name, pid, node, signal.SIGTERM)
    job.finish()
    job.judge()


def connections(case, draw):
    training = draw.choice(trainings)
    count, workers = shape(draw)
    fault = draw.choice(["truncate", "reset", "corrupt", "duplicate", "insert", "drop", "swap", "stall", "split", "delay"])
    job = Nodes(case, count, workers, command_of(case, training), draw.choice([(), ("--max-restarts", "1")]), proxy=fault)
    job.say(f"{fault} at byte {job.proxy.limit}")
    if draw.random() < 0.3:
        disturb(job, draw, STOPS)
    job.finish()
    job.judge(alike=False)
    if any(node.code == 0 and b"arrives damaged" in node.err for node in job.nodes):
        job.fail("damage ends with 0")
    if fault in ("split", "delay") and not any(" to " in text for text in job.did):
        if [node.code for node in job.nodes] != [0] * count:
            job.fail("a slow connection ends the job")
    failed = [node for node in job.nodes if node.code != 0]
    if failed and len(failed) < count:  # unless the word of a good end was lost: nobody can know that it was
        alone = all(b"node 0 (" in node.err and b"is lost" in node.err for node in failed)
        if not alone or not same(case.path("weights"), training):
            job.fail("some end with 0")
    after(job, training)


def pester(port, draw, end):
    """A stranger that says something, or nothing."""
    held = []
    while time.monotonic() < end:
        one = socket.socket()
        one.settimeout(0.2)
        try:
            one.connect(("127.0.0.1", port))
            kind = draw.randrange(6)
            if kind == 0:
                one.sendall(draw.randbytes(draw.randrange(1, 3000)))
            elif kind == 1:  # a header, and no more
                one.sendall(struct.pack("<II", draw.choice([0, 152, 4000000000]), draw.choice([1, 2, 3, 23, 99])))
            elif kind == 2:  # a hello that is not one
                one.sendall(struct.pack("<II", 152, 1) + b"ddrplink" + draw.randbytes(144))
            elif kind == 3:
                one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            if kind < 5:
                held.append(one)
            else:
                one.close()
        except OSError:
            one.close()
        if len(held) > 150 or draw.random() < 0.02:
            for old in held:
                old.close()
            held = []
        time.sleep(draw.choice([0, 0, 0.001, 0.01]))
    for one in held:
        one.close()


def strangers(case, draw):
    training = draw.choice(trainings)
    count, workers = shape(draw)
    late = draw.random() < 0.5
    limits = {0: [(resource.RLIMIT_NOFILE, draw.choice([40, 64, 1024]))]} if draw.random() < 0.5 else {}
    skip = (count - 1,) if draw.random() < 0.2 else ()
    job = Nodes(case, count, workers, command_of(case, training), limits=limits, skip=skip)
    job.say(f"strangers, {limits}, without {skip}")
    pester(job.port, draw, time.monotonic() + (draw.uniform(0.5, 2) if late else 0.5))
    job.finish()
    job.judge()
    if not skip and [node.code for node in job.nodes] != [0] * count and not limits:
        job.fail("strangers end the job")
    if skip and {node.code for node in job.nodes} != {125}:
        job.fail("a node is missing")
    after(job, training, resume=False)


def unlike(case, draw):
    """Nodes that are not started alike."""
    training = draw.choice(trainings)
    count, workers = shape(draw)
    odd = draw.randrange(count)
    kind = draw.choice(["nproc", "nnodes", "rank", "key", "missing", "restarts", "program", "true", "id", "model"])
    options, more, env, skip = draw.choice([(), ("--max-restarts", "1")]), (), {}, ()
    plain = command_of(case, training)
    command = plain
    if kind == "nproc":
        more = ("-n", str(workers + 1))
    elif kind == "nnodes":
        more = ("--nnodes", str(count + 1))
    elif kind == "rank":
        more = ("--node-rank", str((odd + 1) % count))
    elif kind == "key":
        env = {"DDPRUN_KEY": "another-key-of-nobody"}
    elif kind == "missing":
        skip = (odd,)
    elif kind == "restarts":
        more = ("--max-restarts", draw.choice(["0", "2"]))
        case.env["DDP_FAULTS"] = f"exit:rank={draw.randrange(count * workers)},step=5"
    elif kind == "program":
        command = ["/no/such/program"]
    elif kind == "true":
        command = ["true"]
        options += ("--timeout", "3", "--setup-timeout", "3")  # they alone end a worker that waits for one that never comes
    elif kind == "id":
        more = ("--rdzv-id", "other")
    elif kind == "model":
        command = plain + ["--lr", "0.25"]
    job = Nodes(case, count, workers, plain, options, own={odd: {"options": more, "env": env, "command": command}}, skip=skip)
    case.env.pop("DDP_FAULTS", None)
    job.say(f"{kind} of node {odd} is unlike")
    job.finish()
    job.judge(alike=kind in ("true", "model"))
    if kind not in ("nproc", "restarts") and 0 in {node.code for node in job.nodes}:
        job.fail("it ends with 0")


def limited(case, draw):
    training = draw.choice(trainings)
    count, workers = shape(draw)
    odd = draw.randrange(count)
    kind, limit = draw.choice([(resource.RLIMIT_NOFILE, draw.randrange(3, 60)),
                               (resource.RLIMIT_FSIZE, draw.choice([20000, 200000, 3000000])),
                               (resource.RLIMIT_AS, draw.choice([10, 30, 100, 300, 600]) << 20),
                               (resource.RLIMIT_MEMLOCK, 0)])
    sanitized = b"asan" in open(chaos.DDPRUN, "rb").read()
    if sanitized and kind == resource.RLIMIT_AS:
        return
    job = Nodes(case, count, workers, command_of(case, training), draw.choice([(), ("--max-restarts", "1")]),
                limits={odd: [(kind, limit)]})
    job.say(f"limit {kind} of node {odd} is {limit}")
    job.finish()
    job.judge(alike=False)
    codes = {node.code for node in job.nodes}
    if 0 in codes and codes != {0}:
        job.fail("some end with 0")
    after(job, training)


def faults(case, draw):
    """Faults, with restarts."""
    training = draw.choice(trainings)
    count, workers = shape(draw)
    options = ["--max-restarts", str(draw.choice([0, 1, 2]))]
    drawn = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        rank, step = draw.randrange(count * workers), draw.randrange(1, training.steps + 4)
        drawn.append(draw.choice([f"kill:rank={rank},step={step}", f"exit:rank={rank},step={step},code=7",
                                  f"exit:step={step}", f"kill:step={step}", f"slow:rank={rank},ms=30,step={step}"]))
    case.env["DDP_FAULTS"] = " ".join(drawn)
    job = Nodes(case, count, workers, command_of(case, training), options)
    job.say(" ".join(options) + " DDP_FAULTS=" + case.env.pop("DDP_FAULTS"))
    if draw.random() < 0.4:
        disturb(job, draw, draw.choice([KILLS, STOPS]))
    job.finish()
    job.judge()
    after(job, training)


KINDS = [signals, signals, signals, shells, shells, pauses, pauses, connections, connections, strangers, unlike, limited,
         faults, faults]


def work(case):
    draw = case.random
    kind = draw.choice(KINDS)
    case.count(kind.__name__)
    kind(case, draw)


def prepare(shared):
    for training in (chain.article(shared, 300, 40), chain.wide(shared, 24, 5)):
        for name, value in (("--batch-size", "2"), ("--global-batch", "24")):
            training.options[training.options.index(name) + 1] = value
        chaos.need([chaos.TRAINER, *training.options, "--quiet", "--save", weights_of(training, shared)])
        training.shared = shared
        trainings.append(training)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(chaos.BUILD, ".libs", "libddp-ucx.so")):
        print("skipped: CPUs of several nodes need libddp-ucx.so, which was not built")
        sys.exit(77)
    chaos.play_all("nodes", work, runs=(6, 120), seconds=(10, 240), prepare=prepare)
