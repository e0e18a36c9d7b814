# SPDX-License-Identifier: MIT
"""libddp through ctypes, which gives the interpreter free while a call runs."""

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p

F32, F64, I32, I64, BF16 = range(5)
SUM, MIN, MAX = range(3)

OK, INVALID, MEMORY, TIMEOUT, ABORTED, UNSUPPORTED = 0, -1, -2, -6, -7, -9

ADDRESS_BYTES = 64


class Error(RuntimeError):
    """A call of libddp failed; `status` is its enum ddp_status."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def _load():
    """libddp that DDP_LIBRARY names, of the wheel, in whose tree this file lies, or else the system's."""
    for folder in pathlib.Path(__file__).resolve().parents:
        path = folder / "libexec" / "ddprun" / "libddp.so.0"
        if path.exists():
            os.environ.setdefault("DDP_PLUGIN_PATH", str(path.parent))
            break
    else:
        path = None
    path = os.environ.get("DDP_LIBRARY") or path
    if path:
        return ctypes.CDLL(str(path))
    try:
        return ctypes.CDLL("libddp.so.0")
    except OSError as error:
        raise ImportError(
            f"{error}: install libddp, or set LD_LIBRARY_PATH to its folder"
        ) from None


lib = _load()

for _name, _result, _arguments in (
    ("ddp_version", c_char_p, []),
    ("ddp_status_string", c_char_p, [c_int]),
    ("ddp_job_open", c_int, [POINTER(c_void_p)]),
    ("ddp_job_host", c_int, [POINTER(c_void_p), c_int, c_char_p]),
    ("ddp_job_join", c_int, [POINTER(c_void_p), c_char_p, c_int]),
    ("ddp_job_close", None, [c_void_p]),
    ("ddp_job_rank", c_int, [c_void_p]),
    ("ddp_job_world_size", c_int, [c_void_p]),
    ("ddp_job_local_rank", c_int, [c_void_p]),
    ("ddp_job_check_rank", c_int, [c_void_p, c_int]),
    ("ddp_job_culprit", c_int, [c_void_p]),
    ("ddp_job_abort", None, [c_void_p]),
    ("ddp_comm_create", c_int, [POINTER(c_void_p), c_void_p, c_char_p]),
    ("ddp_comm_destroy", None, [c_void_p]),
    ("ddp_comm_set_timeout", None, [c_void_p, c_int]),
    ("ddp_comm_allreduce", c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int]),
    ("ddp_comm_reduce_scatter", c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int]),
    ("ddp_comm_all_gather", c_int, [c_void_p, c_void_p, c_void_p, c_size_t, c_int]),
    ("ddp_comm_broadcast", c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int]),
    ("ddp_comm_barrier", c_int, [c_void_p]),
    ("ddp_mail_open", c_int, [POINTER(c_void_p), c_void_p]),
    ("ddp_mail_close", None, [c_void_p]),
    ("ddp_mail_write", c_size_t, [c_void_p, c_int, c_void_p, c_size_t]),
    ("ddp_mail_read", c_size_t, [c_void_p, c_int, c_void_p, c_size_t]),
    ("ddp_mail_changes", c_uint32, [c_void_p]),
    ("ddp_mail_wait", c_int, [c_void_p, c_uint32, c_int]),
):
    _function = getattr(lib, _name)
    _function.restype = _result
    _function.argtypes = _arguments

VERSION = lib.ddp_version().decode()


class Comm:
    """A job and the communicator over all its ranks. One thread uses it at a time."""

    def __init__(self, job):
        comm = c_void_p()
        self.job = job
        self.comm = None
        self.rank = lib.ddp_job_rank(job)
        self.size = lib.ddp_job_world_size(job)
        self.timeout_ms = -1
        status = lib.ddp_comm_create(byref(comm), job, None)
        if status != OK:
            error = self.error(status, "setting up the communicator")
            self.close()
            raise error
        self.comm = comm

    def error(self, status, what):
        """What to raise; the library has logged the cause."""
        culprit = lib.ddp_job_culprit(self.job)
        if status == ABORTED and culprit >= 0:
            return Error(status, f"{what}: rank {culprit} of {self.size} has ended or given up")
        if status == TIMEOUT:
            return Error(status, f"{what}: Timed out after {self.timeout_ms} ms")
        return Error(status, f"{what}: {lib.ddp_status_string(status).decode()}")

    def call(self, function, what, *arguments):
        status = function(self.comm, *arguments)
        if status != OK:
            raise self.error(status, what)

    def set_timeout(self, timeout_ms):
        if timeout_ms != self.timeout_ms:
            self.timeout_ms = timeout_ms
            lib.ddp_comm_set_timeout(self.comm, timeout_ms)

    def all_reduce(self, address, count, dtype, op):
        self.call(lib.ddp_comm_allreduce, "all-reduce", address, count, dtype, op)

    def reduce_scatter(self, send, receive, count, dtype, op):
        self.call(lib.ddp_comm_reduce_scatter, "reduce-scatter", send, receive, count, dtype, op)

    def all_gather(self, send, receive, nbytes):
        """An even number of bytes: libddp moves elements, and its smallest have two."""
        self.call(lib.ddp_comm_all_gather, "all-gather", send, receive, nbytes // 2, BF16)

    def broadcast(self, address, nbytes, root):
        """An even number of bytes."""
        self.call(lib.ddp_comm_broadcast, "broadcast", address, nbytes // 2, BF16, root)

    def barrier(self):
        self.call(lib.ddp_comm_barrier, "barrier")

    def close(self):
        if self.job:
            lib.ddp_comm_destroy(self.comm)
            lib.ddp_job_close(self.job)
        self.job = self.comm = None


def _checked(status, what):
    if status != OK:
        raise Error(status, f"{what}: {lib.ddp_status_string(status).decode()}")


def open_job():
    """The job that ddprun started; without ddprun a world of one."""
    job = c_void_p()
    _checked(lib.ddp_job_open(byref(job)), "joining the job of ddprun")
    return job


def host_job(size):
    """A job without ddprun, and the address at which the other ranks join it."""
    job = c_void_p()
    address = ctypes.create_string_buffer(ADDRESS_BYTES)
    _checked(lib.ddp_job_host(byref(job), size, address), "making a job")
    return job, address.value


def join_job(address, rank):
    job = c_void_p()
    _checked(lib.ddp_job_join(byref(job), address, rank), f"joining a job as rank {rank}")
    return job
