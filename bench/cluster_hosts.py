# SPDX-License-Identifier: MIT
"""Hosts out of network namespaces, for bench/cluster: as root, on Linux with iproute2 and util-linux.

Each has its own network, host name and /etc/hosts; they share processors, memory, files and process numbers. A bridge in a
namespace of its own joins them, and a token bucket at each host's interface shapes what it sends.
"""
import json
import os
import re
import signal
import subprocess
import time

BURST = {"1gbit": "256kb", "10gbit": "4mb"}  # with 256 KiB a wire of 10 Gbit/s loses a fifth
ENTER = 'hostname "$0" && mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/nsswitch.conf && shift 2 && exec "$@"'


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench/cluster: {' '.join(command)}: {done.stdout.strip()}")
    return done.stdout


def left_behind():
    """Namespaces of runs that were killed at once."""
    found = re.findall(r"^(ddpbench(\d+)\w+)", run("ip", "netns", "list"), re.M)
    return [space for space, pid in found if not os.path.exists(f"/proc/{pid}")]


class Hosts:
    """node0, node1, ... at 10.77.0.10, 10.77.0.11, ...; `work` is a directory for their files."""

    def __init__(self, count, work):
        self.count, self.work, self.tag = count, work, f"ddpbench{os.getpid()}"
        self.spaces = left_behind()
        self.__exit__()
        self.file("nsswitch.conf", "hosts: files\n")
        self.file("hosts", "127.0.0.1 localhost\n" + "".join(f"{self.address(i)} {self.name(i)}\n" for i in range(count)))

    def __enter__(self):
        try:
            switch = self.space("sw")
            run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", switch, "link", "set", "br0", "up")
            for i in range(self.count):
                space = self.space(self.name(i))
                run("ip", "link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"p{i}", "netns", switch)
                run("ip", "-n", switch, "link", "set", f"p{i}", "master", "br0", "up")
                run("ip", "-n", space, "link", "set", "lo", "up")
                run("ip", "-n", space, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
                run("ip", "-n", space, "link", "set", "eth0", "up")
            self.agent = self.file("agent", "#!/bin/sh\n# Open MPI's rsh agent: [option]... HOST COMMAND...\n"
                                   "while [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n"
                                   f"exec nsenter --net=/run/netns/{self.tag}$host unshare --uts --mount sh -c '{ENTER}'"
                                   f" $host {self.work}/hosts {self.work}/nsswitch.conf sh -c \"$*\"\n")
            os.chmod(self.agent, 0o755)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.kill()
        while self.spaces:
            subprocess.run(["ip", "netns", "del", self.spaces.pop()], stderr=subprocess.DEVNULL)

    def file(self, name, text):
        path = os.path.join(self.work, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def space(self, name):
        self.spaces.append(self.tag + name)  # a signal may come between the two
        run("ip", "netns", "add", self.tag + name)
        return self.tag + name

    @staticmethod
    def name(i):
        return f"node{i}"

    @staticmethod
    def address(i):
        return f"10.77.0.{10 + i}"

    def rate(self, rate):
        """What each host can send: 1gbit, 10gbit or none."""
        for i in range(self.count):
            space = self.tag + self.name(i)
            subprocess.run(["tc", "-n", space, "qdisc", "del", "dev", "eth0", "root"], stderr=subprocess.DEVNULL)
            if rate != "none":
                run("tc", "-n", space, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", BURST[rate],
                    "latency", "20ms")

    def sent(self, i):
        """Bytes that host i has sent, with the headers of Ethernet."""
        link, = json.loads(run("ip", "-n", self.tag + self.name(i), "-s", "-j", "link", "show", "eth0"))
        return link["stats64"]["tx"]["bytes"]

    def cable(self, i, state):
        run("ip", "-n", self.tag + self.name(i), "link", "set", "eth0", state)

    def on(self, i, *command):
        """The command as it runs on host i."""
        return ["nsenter", f"--net=/run/netns/{self.tag}{self.name(i)}", "unshare", "--uts", "--mount", "sh", "-c", ENTER,
                self.name(i), f"{self.work}/hosts", f"{self.work}/nsswitch.conf", *command]

    def start(self, i, command, log, **more):
        """A process on host i; its output goes to the file `log`. Its environment: `more`."""
        with open(log, "ab") as out:
            return subprocess.Popen(self.on(i, *command), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    start_new_session=True, env={**os.environ, **more})

    def pids(self, i):
        return self.pids_of(self.tag + self.name(i))

    @staticmethod
    def pids_of(space):
        listing = subprocess.run(["ip", "netns", "pids", space], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return [int(pid) for pid in listing.stdout.split()]

    def kill(self):
        """Every process on every host."""
        for _ in range(50):
            pids = [pid for space in self.spaces for pid in self.pids_of(space)]
            if not pids:
                return
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.1)
