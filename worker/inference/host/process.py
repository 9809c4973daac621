"""The worker's hold on one host process: starts it, talks to it, ends it, and knows how it ended."""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from worker.core.records import HostEnd
from worker.inference.host.messages import LONGEST, STOPPING, Job, Message, Order
from worker.inference.host.shared_memory import SharedMemory

# Seconds from the end of its socket to its end; a process that is killed by the kernel needs a few milliseconds.
LAST_MOMENTS = 1.0

# It imports from where we do. With `-m` it would look into the folder that we stand in first, which may have a
# `worker.py` of its own.
PROGRAM = "import sys; sys.path[:] = {}; from worker.inference.host.child import main; main()"


class Ended(NamedTuple):
    """The end of a host: `why` in words that follow "the model's process"."""

    cause: HostEnd
    why: str


class HostProcess:
    """One child process. Used by the loop's thread, which must be the one that made it: the child dies with it."""

    def __init__(self, order: Order) -> None:
        """Start the process; `receive` brings its first message when the model is loaded."""
        self.started_at = time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        ours.send(pickle.dumps(order))  # before there is a process, which may end at once
        with theirs:
            passed = theirs.fileno()
            # A stop may come to all of a service's processes. The child ignores it, and until it does, it waits.
            unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            # A process group of its own: what the model starts is killed with it, and Ctrl-C does not reach it.
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, "-c", PROGRAM.format(list(map(str, sys.path))), str(passed)],
                stdin=subprocess.DEVNULL,
                stdout=sys.__stderr__,
                pass_fds=(passed, order.memory),
                process_group=0,
                env=_environment(order.model.intra_op_num_threads),
            )
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        self._talk_over(ours)

    def _talk_over(self, channel: socket.socket) -> None:
        """Talk over this end of a pair of sockets from now on."""
        self._channel = channel
        self._buffer = bytearray(LONGEST)
        self._waiting = select.poll()
        self._waiting.register(channel, select.POLLIN)
        self._is_gone = False
        self.is_over = False  # nothing more comes
        self._verdict: Ended | None = None  # why we ended it

    @property
    def pid(self) -> int:
        return self._process.pid

    def give(self, job: Job) -> None:
        """Send a job. If the process is gone, `receive` tells so."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._channel.send(pickle.dumps(job))

    def receive(self, timeout: float) -> Sequence[tuple[Message, SharedMemory | None]]:
        """The messages that came, after at most `timeout` seconds for the first, each with the memory it brought."""
        messages: list[tuple[Message, SharedMemory | None]] = []
        patience = 0 if self._is_gone else timeout * 1000
        while not self.is_over and self._waiting.poll(patience):
            patience = 0
            try:
                count, extra, *_ = self._channel.recvmsg_into([self._buffer], _ONE_DESCRIPTOR, socket.MSG_CMSG_CLOEXEC)
            except ConnectionResetError:  # it ended with a job unread; what it said before comes next
                continue
            if not count:
                self.is_over = True
                break
            message: Message = pickle.loads(self._buffer)  # noqa: S301  # from our child
            messages.append((message, _memory_of(extra) if extra else None))
        self.is_over = self.is_over or self._is_gone
        return messages

    def look(self) -> None:
        """Let the next `receive` be the last one if the process is gone. What it started may still hold its socket."""
        self._is_gone = self._process.poll() is not None

    def kill(self, cause: HostEnd, why: str) -> None:
        """End it at once, and all that it started."""
        self._verdict = self._verdict or Ended(cause, why)
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self, patience: float = LAST_MOMENTS) -> Ended:
        """Close the socket, and kill the process if it does not end within `patience` seconds. Returns why it ended."""
        self.is_over = True
        self._channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        status = self._process.poll()
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._verdict is not None:
            return self._verdict
        if status is None:
            return Ended(HostEnd.HANG, "closed its socket and did not end")
        if status >= 0:
            return Ended(HostEnd.CRASH, f"ended with exit status {status}")
        if status == -signal.SIGKILL:
            return Ended(HostEnd.KILLED, "was killed by SIGKILL, which no model sends itself: is there enough memory?")
        return Ended(HostEnd.CRASH, f"died of {signal.Signals(-status).name}")


def _environment(threads: int) -> dict[str, str]:
    """Our environment, with a limit to the threads of numpy's OpenBLAS.

    When it is imported it takes 40 MB of a process's `RLIMIT_DATA` for each core, 2.5 GB on 64 of them.
    """
    return {"OPENBLAS_NUM_THREADS": str(threads), **os.environ} if threads else {**os.environ}


_ONE_DESCRIPTOR = socket.CMSG_SPACE(4)


def _memory_of(extra: Sequence[tuple[int, int, bytes]]) -> SharedMemory:
    """The memory whose descriptor came with a message."""
    fd = int.from_bytes(extra[0][2][:4], sys.byteorder)
    try:
        return SharedMemory(fd)
    finally:
        os.close(fd)
