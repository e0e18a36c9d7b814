# SPDX-License-Identifier: MIT
"""ddprun in an interactive shell on a pseudo-terminal: Ctrl-Z, fg, bg, Ctrl-C, Ctrl-\\, questions, progress bars."""
import glob
import os
import pty
import re
import select
import shutil
import signal
import socket
import sys
import tempfile
import time

SLOW = 20.0  # seconds for what takes milliseconds: the machine may be busy
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAIL:", text, flush=True)


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self):
        self.work = tempfile.mkdtemp()
        self.seen = ""
        self.all = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(PS1="<ready>", T=self.work, INPUTRC="/dev/null", TERM="dumb", HISTFILE="/dev/null")
            os.environ.pop("PROMPT_COMMAND", None)
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        self.expect("<ready>")

    def read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                text = os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                return False
            self.seen += text
            self.all += text
            return True
        return False

    def expect(self, pattern, seconds=SLOW):
        """Waits until the terminal shows the pattern, and returns its match; forgets what stood before."""
        end = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self.seen)
            if match:
                self.seen = self.seen[match.end():]
                return match
            if time.monotonic() > end:
                fail("the terminal does not show %r but %r" % (pattern, self.seen[-600:]))
                raise TimeoutError
            self.read(0.05)

    def type(self, text):
        os.write(self.fd, text.encode())

    def start(self, command, background=False):
        """Starts a job, with its processes writing their numbers to files, and waits for `workers` of them."""
        for path in glob.glob(self.work + "/pid.*"):
            os.unlink(path)
        self.seen = ""
        self.type(command + (" &" if background else "") + "\n")

    def workers(self, count):
        end = time.monotonic() + SLOW
        while True:
            paths = glob.glob(self.work + "/pid.*")
            texts = [open(path).read().strip() for path in sorted(paths)]
            if len(texts) == count and all(texts):
                return [int(text) for text in texts]
            if time.monotonic() > end:
                fail("%d workers have not started: %r" % (count, self.seen[-600:]))
                raise TimeoutError
            self.read(0.02)

    def code(self, wanted):
        self.type("echo code=$?\n")
        got = int(self.expect(r"code=(\d+)").group(1))
        if got != wanted:
            fail("exit code %d, not %d" % (got, wanted))

    def close(self):
        os.close(self.fd)
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)
        shutil.rmtree(self.work)


def state(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "-"


def groups(pids):
    """The processes that lead these groups, and the others in them."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) in pids:
            found.append(int(path.split("/")[2]))
    return found


def wait_states(pids, letters, what):
    end = time.monotonic() + SLOW
    while True:
        states = {pid: state(pid) for pid in pids}
        if all(letter in letters for letter in states.values()):
            return
        if time.monotonic() > end:
            fail("%s: %r, not %s" % (what, states, letters))
            return
        time.sleep(0.01)


def gone(pids, what):
    wait_states(pids, "-Z", what + ": not gone")


MARK = "echo $$ >$T/pid.$RANK; "


def stop_and_go(shell):
    shell.start("./ddprun -n 3 sh -c '%s sleep 60; sleep 60'" % MARK)
    leaders = shell.workers(3)
    time.sleep(0.1)
    everybody = groups(leaders)
    if len(everybody) != 6:
        fail("stop and go: %d processes, not 3 shells and 3 sleeps" % len(everybody))
    shell.type("\x1a")
    shell.expect("Stopped")
    shell.expect("<ready>")
    wait_states(everybody, "T", "after Ctrl-Z")
    shell.type("jobs -p\n")
    ddprun = int(shell.expect(r"(\d+)\r").group(1))
    wait_states([ddprun], "T", "ddprun after Ctrl-Z")
    shell.type("bg\n")
    wait_states(everybody + [ddprun], "SR", "after bg")
    shell.type("fg\n")
    time.sleep(0.2)
    shell.type("\x1a")
    shell.expect("Stopped")
    wait_states(everybody + [ddprun], "T", "after a second Ctrl-Z")
    shell.type("fg\n")
    wait_states(everybody + [ddprun], "SR", "after fg")
    time.sleep(0.1)
    shell.type("\x03")
    shell.expect("SIGINT: ending 3 workers")
    shell.expect("<ready>")
    shell.code(130)
    gone(everybody, "after Ctrl-C")


def second_interrupt(shell):
    shell.start("./ddprun -n 2 --grace 30 sh -c 'trap \"\" INT TERM; %s sleep 60; sleep 60'" % MARK)
    leaders = shell.workers(2)
    shell.type("\x03")
    shell.expect("SIGINT: ending 2 workers")
    time.sleep(0.3)
    wait_states(leaders, "SR", "workers that ignore one Ctrl-C")
    start = time.monotonic()
    shell.type("\x03")
    shell.expect("SIGINT: killing 2 workers")
    shell.expect("<ready>")
    took = time.monotonic() - start
    if took > 5:
        fail("a second Ctrl-C takes %.1f s" % took)
    shell.code(137)
    gone(leaders, "after a second Ctrl-C")


def interrupted_training(shell):
    """The first Ctrl-C saves."""
    for start in ("./trainer", "./ddprun -n 2 ./trainer"):
        shutil.rmtree(shell.work + "/dir", ignore_errors=True)
        if os.path.exists(shell.work + "/log"):
            os.unlink(shell.work + "/log")
        shell.start(start + " --model article --steps 100000000 --log $T/log "
                    "--checkpoint $T/dir --checkpoint-every 10000000")
        end = time.monotonic() + SLOW
        while not (os.path.exists(shell.work + "/log") and '"step"' in open(shell.work + "/log").read()):
            if time.monotonic() > end:
                fail("%s makes no step: %r" % (start, shell.seen[-600:]))
                return
            shell.read(0.02)
        shell.type("\x03")
        shell.expect("SIGINT: stopping after this step; again: ending at once")
        shell.expect("to continue: the same command with --resume")
        shell.expect("<ready>")
        shell.code(75)
        if len(glob.glob(shell.work + "/dir/step-*")) != 1:
            fail("%s: %r after Ctrl-C" % (start, os.listdir(shell.work + "/dir")))


def quit(shell):
    shell.start("./ddprun -n 2 sh -c '%s ulimit -c 0; sleep 60; sleep 60'" % MARK)
    leaders = shell.workers(2)
    time.sleep(0.1)
    shell.type("\x1c")
    shell.expect("thread \\d+ \\(sh\\) waiting")
    shell.type("\x03") # the job has gone on
    shell.expect("<ready>")
    shell.code(130)
    gone(leaders, "after Ctrl-\\")


QUESTION = MARK + "test $RANK = 0 || exec sleep 60; until test -s $T/pid.1; do sleep 0.05; done; " \
    "read answer; echo \"<$answer>\"; exit 4"


def question(shell):
    shell.start("./ddprun -n 2 sh -c '%s'" % QUESTION)
    leaders = shell.workers(2)
    time.sleep(0.2)
    shell.type("to rank 0\n")
    shell.expect("<to rank 0>")
    shell.expect("<ready>")
    shell.code(4)
    gone(leaders, "after a question")


def stopped_question(shell):
    """Ctrl-Z while rank 0 has the terminal."""
    shell.start("./ddprun -n 2 sh -c '%s'" % QUESTION)
    leaders = shell.workers(2)
    time.sleep(0.3)
    shell.type("\x1a")
    shell.expect("Stopped")
    wait_states(leaders, "T", "Ctrl-Z at a question")
    shell.type("fg\n")
    wait_states(leaders, "SR", "fg at a question")
    shell.type("after a stop\n")
    shell.expect("<after a stop>")
    shell.expect("<ready>")
    shell.code(4)
    gone(leaders, "after a stopped question")


def two_nodes():
    """The commands of node 0 and of the other, which has no terminal."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    node = "./ddprun -n 1 --nnodes 2 --master-addr 127.0.0.1 --master-port %d --insecure-link --node-rank %%d sh -c '%s'" \
        % (port, QUESTION)
    return node % 0, "%s </dev/null >$T/other 2>&1 &" % (node % 1)


def nodes_question(shell):
    """The same where the job has two nodes: it goes on, because the other node would miss this one."""
    first, other = two_nodes()
    shell.start("%s %s" % (other, first))
    leaders = shell.workers(2)
    time.sleep(0.3)
    shell.type("\x1a")
    shell.expect("Ctrl-Z has no effect")
    shell.type("after no stop\n")
    shell.expect("<after no stop>")
    shell.expect("<ready>")
    shell.code(4)
    gone(leaders, "after a question of a node")


def nodes_background_question(shell):
    first, other = two_nodes()
    shell.start("%s %s" % (other, first), background=True)
    leaders = shell.workers(2)
    shell.expect("rank 0 uses the terminal, but the job is in the background")
    shell.expect("rank 0 .* was killed by SIGHUP")
    gone(leaders, "after a question of a node in the background")


def interrupted_question(shell):
    shell.start("./ddprun -n 2 sh -c '%s'" % QUESTION)
    leaders = shell.workers(2)
    time.sleep(0.3)
    shell.type("\x03")
    shell.expect("<ready>")
    shell.code(130)
    gone(leaders, "Ctrl-C at a question")


def background_question(shell):
    """A background job that reads is stopped as a whole, until fg."""
    shell.start("./ddprun -n 2 sh -c '%s'" % QUESTION, background=True)
    leaders = shell.workers(2)
    wait_states(leaders, "T", "a question in the background")
    end = time.monotonic() + SLOW
    while True:
        shell.seen = ""
        shell.type("jobs -l\n")
        shell.expect("ddprun")
        if re.search("Stopped", shell.all[-400:]):
            break
        if time.monotonic() > end:
            fail("a background job that reads is not stopped")
            return
        time.sleep(0.1)
    shell.type("fg\n")
    wait_states(leaders, "SR", "a question in the foreground")
    shell.type("at last\n")
    shell.expect("<at last>")
    shell.expect("<ready>")
    shell.code(4)
    gone(leaders, "after a question in the background")


def orphaned_question(shell):
    """Who asks where nobody can ever answer is ended, and nothing spins."""
    shell.start("(./ddprun -n 2 sh -c 'sleep 0.3; %s' </dev/tty &)" % QUESTION)
    leaders = shell.workers(2)
    shell.expect("rank 0 uses the terminal, but there is no shell")
    shell.expect("rank 0 .* was killed by SIGHUP")
    gone(leaders, "after a question that nobody can answer")


def progress_bar(shell):
    """Rank 0 has the terminal itself, of the same size; what it writes is not changed by a byte."""
    shell.type("stty rows 31 cols 97\n")
    shell.expect("<ready>")
    shell.start("./ddprun -n 3 sh -c 'test -t 1 && test -t 2 && stty size </dev/tty; "
                "test -t 1 || test -t 2 || printf \"%s\\n\" \"pipe of $RANK\"; "
                "test $RANK = 0 && { sleep 0.2; printf \"a 10%%\\ra 20%%\\ra 100%%\\n\"; }; true'")
    shell.expect("<ready>")
    shown = shell.all[-1000:]
    for wanted in ("31 97\r\n", r"[1]: pipe of 1", r"[2]: pipe of 2", "a 10%\ra 20%\ra 100%\r\n"):
        if wanted not in shown:
            fail("progress bar: %r is not in %r" % (wanted, shown))
    shell.code(0)


def slow_data(path, count=200000):
    """Samples of an epoch that lasts."""
    for name, width in (("/x.npy", 4), ("/y.npy", 1)):
        shape = "(%d, 4)" % count if width == 4 else "(%d,)" % count
        header = "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }" % shape
        header += " " * (117 - len(header)) + "\n"
        with open(path + name, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
            file.write(bytes(k * 7 // 5 % 2 for k in range(width * 1000)) * (count // 1000))
    return "./trainer --data $T/x.npy,$T/y.npy --no-eval --threads 1 --hidden 256,256 --batch-size 1 --lr 0 "


def interrupted_bar(shell):
    """Neither the bar nor the ^C that the terminal shows is left before a message or a prompt."""
    train = slow_data(shell.work, 2000000)
    gone_then = "\\^C(\r\x1b\\[J)+"  # by the trainer, by ddprun, or by both
    for start, last in ((train, "\r\n<ready>"),
                        (train + "--checkpoint $T/one", "trainer: SIGINT: stopping after this step"),
                        ("./ddprun -n 2 " + train, "ddprun: SIGINT: ending 2 workers"),
                        ("./ddprun -n 2 " + train + "--checkpoint $T/two",
                         "ddprun: SIGINT: stopping after this step")):
        shell.start("TERM=xterm " + start)
        shell.expect(r"epoch 1/5 (\[[=> ]+\] )?\d+/\d+ ")
        shell.type("\x03")
        shell.expect(gone_then + last)
        if "<ready>" not in last:
            shell.expect("<ready>")
    shell.start("./ddprun -n 2 sh -c '%s sleep 60; sleep 60'" % MARK)
    shell.workers(2)
    shell.type("\x03")
    shell.expect(re.escape("^C\r\nddprun: SIGINT: ending 2 workers"))
    shell.expect("<ready>")


def messages_and_bar(shell):
    """A line of ddprun or of another worker takes the bar's place."""
    train = slow_data(shell.work)
    shell.start("TERM=xterm DDP_FAULTS=kill:rank=1,step=9000 ./ddprun -n 2 " + train + "--steps 400000")
    shell.expect(r"step (\[[=> ]+\] )?\d+/400000 ")
    shell.type("\n")
    shell.expect(r"\x1b\[Jddprun: error: rank 1 .* was killed by SIGKILL")
    shell.expect("<ready>")
    shell.start("TERM=xterm ./ddprun -n 2 sh -c 'test $RANK = 0 || { sleep 2; echo a line >&2; } & "
                "exec %s --steps 400000'" % train)
    shell.expect(r"\x1b\[J\[1\]: a line")
    shell.type("\x03")
    shell.expect("<ready>")


def narrow_bar(shell):
    """The window's width is asked each time, and the ^C has room."""
    train = slow_data(shell.work)
    for columns in (70, 33, 14):
        shell.type("stty cols %d\n" % columns)
        shell.expect("<ready>")
        shell.start("TERM=xterm " + train)
        shell.expect("/200000")
        shell.seen = ""
        shell.expect(r"\x1b\[J[^\r]*/200000.*?\r")
        shell.type("\x03")
        shell.expect("<ready>")
        bars = re.findall(r"\x1b\[J([^\r\n]*\d+/200000[^\r\n^]*)", shell.all[shell.all.rfind("\nmemory"):])
        if not bars or max(map(len, bars)) > columns - 3:
            fail("bars in %d columns: %r" % (columns, bars))


def generated_text(shell):
    """What a model writes cannot take over the terminal; elsewhere it is left as it is."""
    shell.type("unset RANK; set +H; printf '%0300d' 7 >$T/text; ./trainer -q --model gpt2 --data $T/text --no-eval "
               "--layers 1 --heads 1 --channels 8 --seq-len 8 --steps 1 --save $T/w\n")
    shell.expect("<ready>")
    shell.type("P=$(printf 'a\\033[31m\\303\\251\\302\\233\\351z'); "
               "./trainer --generate 1 --temperature 0 --prompt \"$P\" --load $T/w; echo end\n")
    shell.expect("\r\nend")
    shown = shell.all[shell.all.rfind("echo end"):]
    if "a\\x1b[31m\u00e9\\u009b\\xe9z" not in shown or "\x1b[31" in shown:
        fail("generated text on a terminal: %r" % shown)
    shell.type("./trainer --generate 1 --temperature 0 --prompt \"$P\" --load $T/w >$T/out; echo end; echo end\n")
    shell.expect("\r\nend")
    with open(shell.work + "/out", "rb") as file:
        written = file.read()
    if not written.startswith(b"a\x1b[31m\xc3\xa9\xc2\x9b\xe9z"):
        fail("generated text in a file: %r" % written)


def closed_terminal(shell):
    """The window is closed."""
    shell.start("./ddprun -n 2 sh -c '%s sleep 60; sleep 60'" % MARK)
    leaders = shell.workers(2)
    everybody = groups(leaders)
    os.close(shell.fd)
    gone(everybody, "after the terminal was closed")
    shell.fd = os.open("/dev/null", os.O_RDONLY)


def main():
    for test in (stop_and_go, second_interrupt, interrupted_training, quit, question, stopped_question,
                 nodes_question, nodes_background_question, interrupted_question, background_question, orphaned_question, progress_bar, interrupted_bar,
                 messages_and_bar, narrow_bar, generated_text, closed_terminal):
        if len(sys.argv) > 1 and test.__name__ not in sys.argv[1:]:
            continue
        print("#", test.__name__, flush=True)
        before = failures
        shell = Shell()
        try:
            test(shell)
        except TimeoutError:
            pass
        if failures > before:
            print("    the terminal's last lines: %r" % shell.all[-1500:])
        shell.close()
    return failures > 0


sys.exit(main())
