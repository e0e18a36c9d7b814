# SPDX-License-Identifier: MIT
"""What the programs of this folder share: cases drawn from a seed, processes with a deadline, what they leave, counts.

A program has cases numbered from 0, and case I is drawn from the seed and I alone. CHAOS_SEED=N takes that seed,
CHAOS_CASE=I runs this case only, CHAOS_RUNS=N sets how many there are, CHAOS_SECONDS=N after how long no other begins
(how far it came stands in the summary), CHAOS_KEEP=DIR keeps the files of cases that fail.
"""
import ctypes
import multiprocessing
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

BUILD = os.getcwd()
SOURCE = os.path.abspath(os.environ.get("srcdir", "."))
LONG = os.environ.get("DDP_CHAOS") == "1"
LANES = max(1, min(2, len(os.sched_getaffinity(0))))  # cases at a time
PATIENCE = int(os.environ.get("CK_TIMEOUT_MULTIPLIER", "1"))  # of limits of time, as of the unit tests'
GONE_SECONDS = 5.0 * PATIENCE  # within which nothing is left of a job
DEADLY = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
# What a terminal would obey: control characters but for tabs and newlines, in UTF-8 those beyond ASCII too.
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


def program(name):
    """The program itself, not libtool's script around it, which would see the signals and faults too."""
    inner = os.path.join(BUILD, ".libs", name)
    return inner if os.path.exists(inner) else os.path.join(BUILD, name)


TRAINER = program("trainer")
DDPRUN = program("ddprun")
CHECKPOINT_TOOL = program("checkpoint_tool")


def environment():
    """As a user has it, with this build's library."""
    left_out = r"(DDP|CHAOS|RANK$|WORLD_SIZE$|LOCAL_|OMP_|MASTER_|TORCHELASTIC|GROUP_|ROLE_|CUDA_VISIBLE|LD_PRELOAD$)"
    env = {name: value for name, value in os.environ.items() if not re.match(left_out, name)}
    env["LD_LIBRARY_PATH"] = os.path.join(BUILD, ".libs")
    env["LC_ALL"] = "C"
    env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    return env


def documented_codes(page):
    """The exit codes that a page in man/ lists."""
    with open(os.path.join(SOURCE, "man", page)) as file:
        section = file.read().split("\n.Sh EXIT STATUS\n")[1].split("\n.Sh ")[0]
    return {int(code) for code in re.findall(r"^\.It (\d+)$", section, re.M)}


def children(pid):
    """The children of a process, of all its threads."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child] + descendants(child)
    return found


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def describe(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return f"{pid} {comm(pid)} {file.read().rsplit(')', 1)[1].split()[0]}"
    except OSError:
        return str(pid)


def normal_signals():
    """In a child: signals as at a terminal; a shell starts background commands with SIGINT ignored."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


class Job:
    """A started program. It leads a process group; what it and its children leave behind becomes a child of ours."""

    def __init__(self, case, command, env=None, limits=()):
        self.case, self.command = case, [os.fsencode(word) for word in command]
        self.out_path, self.err_path = case.path("out"), case.path("err")

        def prepare():
            normal_signals()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for kind, limit in limits:
                resource.setrlimit(kind, (limit, limit))

        self.begin = time.monotonic()
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=case.directory,
                env=env or case.env, start_new_session=True, preexec_fn=prepare)
        self.pid = self.process.pid
        self.code, self.hung, self.left = None, False, None

    def wait(self, seconds):
        """Waits for the end: whether it came in time."""
        fd = os.pidfd_open(self.pid)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        ended = bool(poll.poll(max(0, seconds * 1000)))
        os.close(fd)
        if ended:
            code = self.process.wait()
            self.code = code if code >= 0 else 128 - code
        return ended

    def finish(self, seconds=60):
        """Waits; kills what takes longer, or what is left. Sets code, hung, out, err and left. May be called again."""
        if self.left is not None:
            return self
        if self.code is None and not self.wait(seconds * PATIENCE):
            self.hung = True
            self.where = [describe(pid) for pid in [self.pid] + descendants(self.pid)]
            os.killpg(self.pid, signal.SIGKILL)
            self.wait(10)
        end = time.monotonic() + GONE_SECONDS
        while reap() and time.monotonic() < end:
            time.sleep(0.005)
        self.seconds = time.monotonic() - self.begin
        self.left = [] if self.hung else [describe(pid) for pid in descendants(os.getpid())]
        kill_all()
        self.out, self.err = self.case.read("out"), self.case.read("err")
        return self

    def finish_or_stop(self, patience):
        """As finish(), but what takes long is asked to end: it may have been told to do much. With a checkpoint the first request
        asks for the end of the step, which a worker that a fault has stopped never reaches, and the second for the end. Whether
        that ended it."""
        late = not self.wait(patience)
        for seconds in (10, 0) if late else ():
            if self.code is None:
                os.kill(self.pid, signal.SIGTERM)
                self.wait(seconds)
        self.finish(20)
        return late and self.code == 128 + signal.SIGTERM

    def crashed(self):
        return self.code is not None and self.code > 128 and self.code - 128 in DEADLY

    def trouble(self):
        """What no program may do, whatever was done to it; None where it did none of it."""
        if self.hung:
            return "hangs: " + ", ".join(self.where)
        if self.crashed() or re.search(rb"Sanitizer:|runtime error:", self.err + self.out):
            return f"crashes: exit code {self.code}"
        if self.left:
            return "left behind: " + ", ".join(self.left)
        tmp = [name for name in os.listdir(self.case.path("tmp")) if os.fsencode(name) not in self.err]
        return "left in TMPDIR, and not told: " + " ".join(tmp) if tmp else None

    def misspoken(self, codes, lines):
        """What is wrong with the exit code and the words; None where the pages say so: a documented code, for a failure
        1 to `lines` lines that a terminal shows."""
        if self.code not in codes:
            return f"exit code {self.code} is not documented"
        text = b"" if b"--generate" in self.command else self.out  # a model may say anything
        found = CONTROL.search(self.err) or CONTROL.search(text)
        if found:
            return f"a control character is printed: {found.group()!r}"
        said = [line for line in self.err.split(b"\n") if line]
        if self.code not in (0, 75) and not said:
            return f"exit code {self.code} without a message"
        if len(said) > lines:
            return f"{len(said)} lines of messages"
        return None


def reap():
    """Buries dead children; whether there are children."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def kill_all():
    for _ in range(50):
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if not reap():
            return
        time.sleep(0.01)


class Case:
    """One case: its number, its random numbers, its directory, what it counted and what failed."""

    def __init__(self, name, seed, index):
        self.name, self.seed, self.index = name, seed, index
        self.random = random.Random(f"{name} {seed} {index}")
        self.directory = tempfile.mkdtemp(prefix="chaos-")
        self.env = environment()
        self.env["TMPDIR"] = self.path("tmp")
        os.mkdir(self.env["TMPDIR"])
        self.counts, self.failures = {}, []

    def path(self, name):
        return os.path.join(self.directory, name)

    def read(self, name):
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except OSError:
            return b""

    def is_over(self):
        """Whether the program's time is over: a long case comes to its end then."""
        return time.monotonic() > self.end

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def close(self):
        """Its files go, unless they are to be looked at."""
        keep = os.environ.get("CHAOS_KEEP")
        if self.failures and keep:
            shutil.move(self.directory, os.path.join(keep, f"{self.name}-{self.seed}-{self.index}"))
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, command, **rest):
        return Job(self, command, **rest)

    def run(self, command, seconds=60, **rest):
        return self.start(command, **rest).finish(seconds)

    def fail(self, text, job=None):
        if job is not None:
            text += "\n    " + " ".join(shown(word) for word in job.command)
            for line in (job.err or job.out).split(b"\n")[:6]:
                text += "\n    | " + shown(line[:300]) if line else ""
        self.failures.append(text)


def shown(word):
    """A word for our own output, whatever is in it; long ones are cut."""
    text = os.fsdecode(word)
    if re.fullmatch(r"[-\w./=,:@%+]+", text, re.A) and len(text) < 400:
        return text
    return ascii(text) if len(text) < 400 else ascii(text[:80]) + f"...({len(text)})"


def need(command):
    """Runs what the cases stand on, which has to work."""
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=120 * PATIENCE)
    if done.returncode != 0:
        print(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout.decode(errors='replace')}")
        sys.exit(99)


def begin_lane():
    """A process that runs cases: orphans of the programs that it starts become its children."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def play(arguments):
    name, work, seed, index, end = arguments
    if time.monotonic() > end and index >= LANES:
        return None
    case = Case(name, seed, index)
    case.end = end
    try:
        work(case)
    except Exception:  # a case that cannot go on is a failure of this case, not of all
        case.fail(traceback.format_exc())
    finally:
        kill_all()
        case.close()
    return index, case.counts, case.failures


def play_all(name, work, runs, seconds, prepare=None):
    """Plays the cases, prints what failed and one line that sums up: the program's end.

    runs, seconds: how many cases there are, and after how long no other begins: (in `make check`, in `make check-chaos`)
    prepare: called once before, with a directory that cases find as `case.shared`
    """
    fewer = 3 if os.environ.get("DDP_SANITIZE") else 1
    runs = int(os.environ.get("CHAOS_RUNS", max(1, runs[LONG] // fewer)))
    seconds = float(os.environ.get("CHAOS_SECONDS", seconds[LONG]))
    seed = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(1 << 31) if LONG else 1))
    print(f"{name}: CHAOS_SEED={seed}", flush=True)
    begin = time.monotonic()
    only = os.environ.get("CHAOS_CASE")
    indices = [int(only)] if only else range(runs)
    shared = tempfile.mkdtemp(prefix="chaos-")
    counts, played, failed = {}, 0, 0
    try:
        begin_lane()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Case.shared = shared
        if prepare:
            prepare(shared)
        end = float("inf") if only else time.monotonic() + seconds
        with multiprocessing.get_context("fork").Pool(LANES, begin_lane) as pool:
            tasks = [(name, work, seed, index, end) for index in indices]
            for result in pool.imap_unordered(play, tasks):
                if result is None:
                    continue
                index, counted, failures = result
                played += 1
                failed += bool(failures)
                for what, number in counted.items():
                    counts[what] = counts.get(what, 0) + number
                for text in failures:
                    print(f"FAIL: {name}, CHAOS_SEED={seed} CHAOS_CASE={index}: {text}", flush=True)
    finally:
        kill_all()
        shutil.rmtree(shared, ignore_errors=True)
    told = "".join(f", {number} {what}" for what, number in sorted(counts.items()))
    took = time.monotonic() - begin
    print(f"{name}: {played} of {len(indices)} cases in {took:.0f} s{told}, {failed} failed")
    sys.exit(1 if failed or not played else 0)
