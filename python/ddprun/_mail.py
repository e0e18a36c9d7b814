# SPDX-License-Identifier: MIT
"""Messages between two ranks: headers, tags and matching over the byte streams of ddp_mail.

Whoever waits for a transfer moves all of its Post; a thread moves those that nobody waits for, so
that a send completes while its rank computes or waits elsewhere."""

import collections
import ctypes
import struct
import threading
import time

from torch import distributed as dist

from . import _lib
from ._lib import lib

_header = struct.Struct("<qqQ")  # number of the group, tag, bytes
_WAIT_MS = 20  # until the peers of transfers are looked after


class Transfer(dist.Work):
    """A message that is sent or received. `tensor` keeps its memory; after() is called when it is
    complete, by whoever waits for it."""

    def __init__(self, box, peer, tag, tensor, deadline, after=None):
        super().__init__()
        self.box, self.post = box, box.post
        self.peer = None if peer is None else box.ranks[peer]
        self.tag = box.number, tag
        self.tensor, self.deadline, self.after = tensor, deadline, after
        self.address, self.at = tensor.data_ptr(), 0
        self.nbytes = tensor.numel() * tensor.element_size()
        self.done = False
        self.failure = None

    def wait(self, timeout=None):
        self.post.drive(self)
        if self.failure:
            raise self.failure
        if self.after:
            self.after()
            self.after = None
        return True

    def is_completed(self):
        return self.done or self.post.progress(self)

    def is_success(self):
        return self.done and self.failure is None

    def exception(self):
        return self.failure

    def _source_rank(self):
        return self.box.ranks.index(self.peer)

    source_rank = _source_rank


class Box:
    """The part of a group in a Post, which several groups may share. `ranks`: the group's, as the
    Post numbers them; `number` is theirs alone."""

    def __init__(self, post, rank, ranks, number=0):
        self.post, self.rank, self.ranks, self.number = post, rank, ranks, number
        self.count = 0  # of exchanges: their tag

    def send(self, tensor, peer, tag, deadline):
        return self.post.send(Transfer(self, peer, tag, tensor.contiguous(), deadline))

    def receive(self, tensor, peer, tag, deadline):
        whole = tensor.contiguous()
        after = None if whole is tensor else lambda: tensor.copy_(whole)
        return self.post.receive(Transfer(self, peer, tag, whole, deadline, after))

    def exchange(self, sends, receives, timeout_ms):
        """Tensors by rank: what each rank gets, and gives. All at the same time."""
        self.count += 1
        arguments = self.count, time.monotonic() + timeout_ms / 1000
        works = [self.receive(t, r, *arguments) for r, t in receives.items() if r != self.rank]
        works += [self.send(t, r, *arguments) for r, t in sends.items() if r != self.rank]
        if self.rank in receives:
            mine = receives[self.rank]
            mine.copy_(sends[self.rank].view_as(mine))
        for work in works:
            work.wait()


class _Incoming:
    """The stream from a rank: a header, then the bytes of the message."""

    def __init__(self):
        self.header = ctypes.create_string_buffer(_header.size)
        self.at = 0  # bytes of the header
        self.tag, self.nbytes = None, 0
        self.target = None  # the Transfer, or the bytearray of a message that nobody awaits yet
        self.got = 0
        self.unexpected = []  # (tag, bytearray)


class Post:
    def __init__(self, comm, background):
        """`background`: a thread moves transfers that nobody waits for."""
        mail = ctypes.c_void_p()
        status = lib.ddp_mail_open(ctypes.byref(mail), comm.comm)
        if status != _lib.OK:
            raise comm.error(status, "opening the mail")
        self.comm, self.mail = comm, mail
        self.sends = [collections.deque() for _ in range(comm.size)]
        self.receives = []
        self.streams = [_Incoming() for _ in range(comm.size)]
        self.lock = threading.Lock()
        self.wake = threading.Event()
        self.waiters = 0
        self.background, self.thread = background, None
        self.closed = False

    # --- posting ---

    def send(self, transfer):
        head = bytearray(_header.pack(*transfer.tag, transfer.nbytes))
        with self.lock:
            self.sends[transfer.peer].append((transfer, head))
        return self._begin(transfer)

    def receive(self, transfer):
        """From any rank if the peer is None."""
        with self.lock:
            self.receives.append(transfer)
        return self._begin(transfer)

    def _begin(self, transfer):
        if not self.progress(transfer) and self.background:
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, daemon=True)
                self.thread.start()
            self.wake.set()
        return transfer

    # --- moving, under the lock ---

    def _complete(self, transfer, failure=None):
        transfer.failure = failure
        transfer.done = True

    def _send_some(self, peer):
        queue, moved = self.sends[peer], False
        while queue:
            transfer, head = queue[0]
            if head:
                raw = (ctypes.c_char * len(head)).from_buffer(head)
                count = lib.ddp_mail_write(self.mail, peer, raw, len(head))
                del raw
                del head[:count]
                moved = moved or count > 0
                if head:
                    break
            left = transfer.nbytes - transfer.at
            if left:
                count = lib.ddp_mail_write(self.mail, peer, transfer.address + transfer.at, left)
                transfer.at += count
                moved = moved or count > 0
                if count < left:
                    break
            queue.popleft()
            self._complete(transfer)
        return moved

    def _take(self, peer, tag):
        """The receive for a message, which then is its own."""
        for i, transfer in enumerate(self.receives):
            if transfer.tag == tag and transfer.peer in (peer, None):
                return self.receives.pop(i)
        return None

    def _fits(self, transfer, peer, nbytes):
        transfer.peer = peer
        if transfer.nbytes == nbytes:
            return True
        self._complete(
            transfer,
            _lib.Error(
                _lib.INVALID,
                f"rank {peer} of {self.comm.size} sent {nbytes} bytes, "
                f"this rank receives {transfer.nbytes}",
            ),
        )
        return False

    def _match_unexpected(self):
        for peer, stream in enumerate(self.streams):
            kept = []
            for tag, data in stream.unexpected:
                transfer = self._take(peer, tag)
                if transfer is None:
                    kept.append((tag, data))
                elif self._fits(transfer, peer, len(data)):
                    if data:
                        raw = (ctypes.c_char * len(data)).from_buffer(data)
                        ctypes.memmove(transfer.address, raw, len(data))
                    self._complete(transfer)
            stream.unexpected = kept

    def _begin_message(self, peer, stream):
        *tag, stream.nbytes = _header.unpack(stream.header.raw)
        stream.tag = tuple(tag)
        transfer = self._take(peer, stream.tag)
        if transfer is None or not self._fits(transfer, peer, stream.nbytes):
            transfer = bytearray(stream.nbytes)
            if not stream.nbytes:
                stream.unexpected.append((stream.tag, transfer))
        elif not stream.nbytes:
            self._complete(transfer)
        stream.target, stream.got = transfer, 0

    def _end_message(self, stream):
        if isinstance(stream.target, Transfer):
            self._complete(stream.target)
        else:
            stream.unexpected.append((stream.tag, stream.target))
        stream.target, stream.at = None, 0

    def _receive_some(self, peer):
        stream, moved = self.streams[peer], False
        while True:
            if stream.target is None:
                base = ctypes.addressof(stream.header) + stream.at
                count = lib.ddp_mail_read(self.mail, peer, base, _header.size - stream.at)
                stream.at += count
                if stream.at < _header.size:
                    return moved or count > 0
                moved = True
                self._begin_message(peer, stream)
                if not stream.nbytes:
                    stream.target, stream.at = None, 0
                    continue
            if isinstance(stream.target, Transfer):
                raw, base = None, stream.target.address
            else:
                raw = (ctypes.c_char * stream.nbytes).from_buffer(stream.target)
                base = ctypes.addressof(raw)
            left = stream.nbytes - stream.got
            count = lib.ddp_mail_read(self.mail, peer, base + stream.got, left)
            del raw
            stream.got += count
            if count < left:
                return moved or count > 0
            moved = True
            self._end_message(stream)

    def _awaited(self):
        """The ranks without whose help transfers do not complete."""
        peers = {peer for peer, queue in enumerate(self.sends) if queue}
        for transfer in self.receives:
            others = (r for r in transfer.box.ranks if r != self.comm.rank)
            peers.update(others if transfer.peer is None else (transfer.peer,))
        peers.update(
            peer for peer, s in enumerate(self.streams) if isinstance(s.target, Transfer)
        )
        return peers

    def _open_transfers(self):
        found = [t for queue in self.sends for t, _ in queue] + self.receives
        return found + [s.target for s in self.streams if isinstance(s.target, Transfer)]

    def _fail_all(self, failure):
        for transfer in self._open_transfers():
            self._complete(transfer, failure)
        for queue in self.sends:
            queue.clear()
        self.receives.clear()
        for stream in self.streams:
            stream.target = None

    def _move(self):
        self._match_unexpected()
        moved = False
        for peer in self._awaited():
            moved = self._send_some(peer) or moved
            moved = self._receive_some(peer) or moved
        return moved

    def _look_after(self, status):
        """What is late, and whose rank has gone, fails; a broken stream cannot be used again.
        `status`: of waiting."""
        if status != _lib.TIMEOUT:
            self._fail_all(self.comm.error(status, "send or receive"))
            return
        now = time.monotonic()
        for transfer in self._open_transfers():
            if now > transfer.deadline:
                who = "any rank" if transfer.peer is None else f"rank {transfer.peer}"
                late = _lib.Error(_lib.TIMEOUT, f"Timed out in a send or receive with {who}")
                if transfer not in self.receives:
                    self._fail_all(late)
                    return
                self.receives.remove(transfer)
                self._complete(transfer, late)
        peers = self._awaited()
        for peer in peers:
            status = lib.ddp_job_check_rank(self.comm.job, peer)
            if status != _lib.OK:
                self._move()  # what had arrived before
                self._fail_all(self.comm.error(status, "send or receive"))
                return

    # --- driving ---

    def progress(self, transfer):
        with self.lock:
            while not transfer.done and self._move():
                pass
        return transfer.done

    def drive(self, transfer):
        with self.lock:
            self.waiters += 1
        try:
            while not transfer.done:
                seen = lib.ddp_mail_changes(self.mail)
                if not self.progress(transfer):
                    self._sleep(seen)
        finally:
            with self.lock:
                self.waiters -= 1
            self.wake.set()

    def _sleep(self, seen):
        status = lib.ddp_mail_wait(self.mail, seen, _WAIT_MS)
        if status != _lib.OK:
            with self.lock:
                self._look_after(status)

    def _run(self):
        """Moves what nobody waits for."""
        while not self.closed:
            with self.lock:
                idle = self.waiters or not self._open_transfers()
            if idle:
                self.wake.wait()
                self.wake.clear()
                continue
            seen = lib.ddp_mail_changes(self.mail)
            with self.lock:
                moved = self._move()
            if not moved:
                self._sleep(seen)

    def close(self):
        self.closed = True
        self.wake.set()
        if self.thread:
            self.thread.join()
        lib.ddp_mail_close(self.mail)
        self.mail = None
