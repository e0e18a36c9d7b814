# SPDX-License-Identifier: MIT
"""Flips one bit of one worker's parameters while it trains, as a fault of its memory would, through /proc/PID/mem.

usage: replicas.py RANKS VICTIM WEIGHTS COMMAND...    (the command starts the job, with a learning rate of 0)
WEIGHTS is a safetensors file of the same model: what the parameters are. Prints the job's messages, ends with its code.
"""
import json
import os
import struct
import subprocess
import sys
import time


def needle(path, name):
    """64 bytes from the middle of a tensor."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        begin, end = json.loads(file.read(length))[name]["data_offsets"]
        file.seek(8 + length + (begin + end) // 2 // 64 * 64)
        return file.read(64)


def worker(job, rank):
    """The process of a rank: a descendant of the job's that has RANK in its environment and runs the trainer."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                parents[int(pid)] = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"RANK=%d" % rank in variables and words[0].endswith(b"trainer"):
            ancestor = int(pid)
            while ancestor in parents and ancestor != job:
                ancestor = parents[ancestor]
            if ancestor == job:
                return int(pid)
    return None


def flip(pid, pattern):
    """Flips a bit in each place where the pattern lies in writable memory. Returns how many there were."""
    count = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps.readlines():
            span, access = line.split()[:2]
            if "rw" not in access:
                continue
            begin, end = (int(x, 16) for x in span.split("-"))
            if end - begin > 1 << 30:  # the terabytes that a sanitizer sets aside
                continue
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except (OSError, OverflowError, ValueError):
                continue
            at = data.find(pattern)
            while at >= 0:
                memory.seek(begin + at + 20)
                memory.write(bytes([data[at + 20] ^ 4]))
                count += 1
                at = data.find(pattern, at + 1)
    return count


ranks, victim, weights = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
pattern = needle(weights, "fc2.weight")
job = subprocess.Popen(sys.argv[4:])
end = time.monotonic() + 40
try:
    # Not before it trains: what rank 0 begins with goes to all ranks.
    log = sys.argv[sys.argv.index("--log") + 1]
    while not (os.path.exists(log) and '"event":"step"' in open(log).read()) and job.poll() is None:
        time.sleep(0.1)
    # Again and again, for the copy that trains is made from others, which may be found first.
    while job.poll() is None and time.monotonic() < end:
        pid = worker(job.pid, victim)
        try:
            if pid:
                flip(pid, pattern)
        except PermissionError:
            sys.exit(77)
        except OSError:
            pass  # it has just ended
        time.sleep(0.1)
    sys.exit(job.wait(10))
finally:
    job.kill()
