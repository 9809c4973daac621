"""Hosts whose lanes are threads of the test's process, so that a test steers each run and each end.

All else is real: the keeper, the heap, the messages over a pair of sockets, the lanes of `host/child.py`. A host that
ends closes its socket, as the kernel does for a process.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Semaphore, Thread

import numpy as np

from tests.chunks import signature
from worker.core.chunk import Finished
from worker.core.failures import RunFailure
from worker.core.records import Array, HostEnd
from worker.inference.facts import Device, Independence, ModelFacts, Runnable
from worker.inference.host.child import Host, send
from worker.inference.host.keeper import Keeper
from worker.inference.host.lanes import HostLanes
from worker.inference.host.messages import Loaded
from worker.inference.host.process import Ended, HostProcess
from worker.inference.host.shared_memory import Heap, SharedMemory

PATIENCE = 60.0  # longer than any machine needs; a test that waits so long fails
CRASH = Ended(HostEnd.CRASH, "died of SIGSEGV")
KILLED = Ended(HostEnd.KILLED, "was killed by SIGKILL")
FACTS = ModelFacts(signature(), Device("cpu", "it is a test"), False, (1,), None, None, {}, Independence())


class SteeredRunner:
    """Runs a batch when the test lets it; notes the order of runs. A probe is noted as -1."""

    def __init__(self) -> None:
        self.began: SimpleQueue[int] = SimpleQueue()
        self.permits: SimpleQueue[RunFailure | BaseException | Sequence[Array] | None] = SimpleQueue()

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        return self._wait(int(feeds["x"][0, 0]), feeds["x"])

    def probe(self) -> Sequence[Array] | RunFailure:
        return self._wait(-1, np.zeros((1, 4)))

    def _wait(self, number: int, output: Array) -> Sequence[Array] | RunFailure:
        self.began.put(number)
        word = self.permits.get(timeout=PATIENCE)
        if isinstance(word, BaseException):
            raise word
        return [output] if word is None else word


class ThreadHost(HostProcess):
    """A host on `lanes` threads of this process. `ends`: the test ends it, as a signal would."""

    def __init__(
        self, memory: int, model: Runnable, lanes: int, facts: ModelFacts | None, clock: Callable[[], float]
    ) -> None:
        """A host with no facts never gets ready; one with no lanes gets ready and takes no job."""
        self.started_at = clock()
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._talk_over(ours)
        self.ended: Ended | None = None
        self._lanes_left = Semaphore(0)
        self._lanes = 0 if facts is None else lanes
        self._host: Host | None = None
        if facts is not None and not lanes:
            send(self._theirs, Loaded(facts))
        elif facts is not None:
            self._host = Host(self._theirs, SharedMemory(memory), model, lanes, self._leave, lambda: int(clock() * 1e9))
            Thread(target=self._host.serve, args=(facts,), kwargs={"probes": 0}, name="lane-0", daemon=True).start()

    @property
    def pid(self) -> int:
        return 1

    def ends(self, ended: Ended = CRASH) -> None:
        self.ended = self.ended or ended
        with suppress(OSError):  # it has ended already
            self._theirs.shutdown(socket.SHUT_RDWR)

    def look(self) -> None:
        self._is_gone = self.ended is not None

    def kill(self, cause: HostEnd, why: str) -> None:
        self._verdict = self._verdict or Ended(cause, why)
        self.ends(KILLED)

    def end(self, patience: float = 0.0) -> Ended:
        self.ends(Ended(HostEnd.CRASH, f"was closed after {patience} s"))
        self._channel.close()
        if self._host is not None:  # a process would write nothing any more
            elsewhere = Heap(len(self._host._memory.bytes))
            self._host._memory, self._host._begun = elsewhere.memory, elsewhere.memory.begun()
            elsewhere.close()
        assert self.ended is not None
        return self._verdict or self.ended

    def close(self) -> None:
        """Wait for the end of the threads. The lanes have let go of this host."""
        assert self._channel.fileno() < 0
        for _ in range(self._lanes):
            assert self._lanes_left.acquire(timeout=PATIENCE)
        self._theirs.close()

    def _leave(self, status: int) -> None:
        self.ends(Ended(HostEnd.CRASH, f"ended with exit status {status}"))
        self._lanes_left.release()


class Hosts:
    """`HostLanes` over such hosts: `at` is the newest. Each has a runner of its own, unless one is given.

    `clock` is the monotonic clock, which the test moves on by `later` seconds. `facts` and `of_lanes` are those
    of the next hosts.
    """

    ahead = 1  # batches that are given to a host before a lane is idle, so that nothing overtakes them

    def __init__(
        self,
        lanes: int = 1,
        run_timeout: float = 60.0,
        runner: Runnable | None = None,
        memory: int = 1 << 24,
        of_lanes: int | None = None,
        facts: ModelFacts = FACTS,
    ) -> None:
        self.heap = Heap(memory)
        self.later = 0.0
        self.facts: ModelFacts | None = facts
        self.hosts: list[ThreadHost] = []
        self.runners: list[SteeredRunner] = []
        self.started: list[str] = []  # why
        self.ended: list[tuple[HostEnd, str, int]] = []
        self.of_lanes, self._runner = lanes if of_lanes is None else of_lanes, runner
        self.keeper = Keeper(self._start, self, self.clock)
        self.lanes = HostLanes(self.keeper, self.heap, lanes, run_timeout, self.clock)
        assert self.keeper.facts == facts

    @property
    def at(self) -> ThreadHost:
        return self.hosts[-1]

    @property
    def runner(self) -> SteeredRunner:
        return self.runners[-1]

    def clock(self) -> float:
        return time.monotonic() + self.later

    def host_started(self, pid: int, seconds: float, why: str) -> None:  # of `HostEvents`
        self.started.append(why)

    def host_ended(self, end: HostEnd, why: str, batches: int) -> None:
        self.ended.append((end, why, batches))

    def let(self, *words: RunFailure | BaseException | Sequence[Array] | None) -> None:
        """Let the newest host's next runs end so."""
        for word in words:
            self.runner.permits.put(word)

    def began(self) -> int:
        """The number of the batch that begins next in the newest host."""
        return self.runner.began.get(timeout=PATIENCE)

    def fetch(self, count: int) -> list[Finished]:
        """The next finished runs."""
        home: list[Finished] = []
        give_up = time.monotonic() + PATIENCE
        while len(home) < count:
            home += self.lanes.finished(0.01)
            assert time.monotonic() < give_up, "nothing came home"
        return home

    def turn_until(self, is_so: Callable[[], object]) -> list[Finished]:
        """Fetch again and again until it is so, because a host's threads go their own way."""
        home: list[Finished] = []
        give_up = time.monotonic() + PATIENCE
        while not is_so():
            home += self.lanes.finished(0.01)
            assert time.monotonic() < give_up, "it did not come to pass"
        return home

    def close(self) -> None:
        for runner in self.runners:
            for _ in range(20):
                runner.permits.put(None)
        self.lanes.close(0.0)
        self.heap.close()
        for host in self.hosts:
            host.close()

    def _start(self) -> ThreadHost:
        self.runners.append(SteeredRunner())
        model = self._runner or self.runner
        self.hosts.append(ThreadHost(self.heap.memory.fd, model, self.of_lanes, self.facts, self.clock))
        return self.hosts[-1]
