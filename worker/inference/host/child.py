"""The host: a process that has the model and its lanes, and nothing else. `process.py` starts it.

It loads the model of its order, answers with the facts, and then runs batches until its socket is closed or its parent
dies. Each lane is a thread that takes a job from the socket, runs it, and answers; the kernel gives each job to one.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, Thread

from worker.core.failures import BadConfiguration, DeviceLost, RunFailure
from worker.core.records import Array
from worker.inference.facts import ModelFacts, Runnable, fails_in_lanes
from worker.inference.host.memory_limit import be_killed_first
from worker.inference.host.messages import (
    LONGEST,
    STOPPING,
    Broken,
    CannotLoad,
    Job,
    Loaded,
    Message,
    Order,
    Place,
    Places,
    Ran,
)
from worker.inference.host.page_locking import page_locked
from worker.inference.host.shared_memory import SharedMemory, get, packed, put, room_for

_PR_SET_PDEATHSIG = 1
# How often all lanes run the warm-up batch together before the first request, on a GPU. With this many, runs of 0.2 ms
# overlapped in 40 of 40 starts. After one time a batch set up cuDNN again in 21 to 28 of them, after three in 3
# (measured 2026, on a stand-in for CUDA).
PROBES_OF_LANES = 10


def main() -> None:
    """Load the model, and run batches until the worker is done with us. The argument is our end of the socket."""
    sys.stdout = sys.stderr  # which keeps nothing back that our end would lose
    channel = socket.socket(fileno=int(sys.argv[1]))
    order: Order = pickle.loads(channel.recv(LONGEST))  # noqa: S301  # from the worker
    for fd in (channel.fileno(), order.memory):
        os.set_inheritable(fd, False)
    _be_a_child(order)
    # What this process imports next may take long, and needs none of it to be refused.
    from worker.inference.served_model import load_served  # noqa: PLC0415

    try:
        model, facts = load_served(order.model, order.batching, order.records, order.states)
    except (BadConfiguration, DeviceLost) as refusal:
        with suppress(ConnectionError):  # the worker was refused for another reason meanwhile
            send(channel, Broken(refusal.why) if isinstance(refusal, DeviceLost) else CannotLoad(str(refusal)))
        os._exit(0)
    _give_back_memory()
    memory = SharedMemory(order.memory)
    if facts.device.name.startswith("cuda"):
        facts = replace(facts, page_locked=page_locked(memory, order.batching.max_inflight_bytes))
    host = Host(channel, memory, model, order.batching.lanes)
    host.serve(facts, probes=PROBES_OF_LANES if facts.is_accelerated else 0)


def _be_a_child(order: Order) -> None:
    """Leave signals to the worker, die when it dies, and take no more memory than we may."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # the worker drains
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order.parent:  # it died before
        os._exit(1)
    be_killed_first()
    if order.memory_limit is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = order.memory_limit if hard == resource.RLIM_INFINITY else min(order.memory_limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _give_back_memory() -> None:
    """Give the system what loading took and freed: 42 MB of 224 with a model of 126 MB (2026-11)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Host:
    """Runs a model on as many threads as there are lanes. Owns the threads. `leave` ends the process."""

    def __init__(
        self,
        channel: socket.socket,
        memory: SharedMemory,
        model: Runnable,
        lanes: int,
        leave: Callable[[int], object] = os._exit,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._channel = channel
        self._memory = memory
        self._begun = memory.begun()
        self._model = model
        self._lanes = Barrier(lanes)
        self._leave = leave
        self._clock = clock  # nanoseconds
        self._locked = 0  # bytes at the begin of the memory that are page-locked
        self._failure: str | None = None

    def serve(self, facts: ModelFacts, *, probes: int) -> None:
        """Send the facts, and run batches until the worker is done with us.

        Before, all lanes run the warm-up batch so many times together, so that CUDA's libraries set themselves up for
        each thread and for runs side by side.
        """
        if facts.page_locked is not None and facts.page_locked.why is None:
            self._locked = facts.page_locked.size
        for lane in range(1, self._lanes.parties):
            Thread(target=self._serve, args=(probes,), name=f"lane-{lane}", daemon=True).start()
        self._serve(probes, facts)

    def _serve(self, probes: int, facts: ModelFacts | None = None) -> None:
        """Be a lane; the one with the facts sends them. However it ends, the process ends with it."""
        buffer, status = bytearray(LONGEST), 0
        try:
            self._probe(probes)
            if facts is not None:
                send(self._channel, Loaded(facts) if self._failure is None else CannotLoad(self._failure))
            while self._channel.recv_into(buffer):
                self._run(pickle.loads(buffer))  # noqa: S301  # from the worker
        except ConnectionError:  # the worker is done with us, before the end of a run
            pass
        except DeviceLost as lost:
            with suppress(ConnectionError):
                send(self._channel, Broken(lost.why))
        except BaseException:  # noqa: BLE001  # a lane must not die alone and in silence
            traceback.print_exc()
            status = 1
        self._leave(status)

    def _probe(self, times: int) -> None:
        for _ in range(times):
            self._lanes.wait()
            outcome = self._model.probe()
            if isinstance(outcome, RunFailure):
                self._failure = fails_in_lanes(self._lanes.parties, outcome)
        self._lanes.wait()

    def _run(self, job: Job) -> None:
        number, feeds, start, room = job
        began = self._clock()
        self._begun[number] = began
        outcome = self._model.probe() if feeds is None else self._model.run(self._feeds(feeds))
        seconds = (self._clock() - began) / 1e9
        failure, given = (outcome, outcome.outputs) if isinstance(outcome, RunFailure) else (None, outcome)
        if given is None:
            send(self._channel, (number, seconds, None, failure))
            return
        failure = failure and replace(failure, outputs=None)
        outputs = [packed(output) for output in given]
        size = room_for(outputs)
        if size <= room:
            send(self._channel, (number, seconds, put(outputs, self._memory.bytes[start : start + room]), failure))
            return
        fd = os.memfd_create("inference-outputs")
        try:
            os.ftruncate(fd, size)
            ran: Ran = (number, seconds, put(outputs, SharedMemory(fd).bytes), failure)
            socket.send_fds(self._channel, [pickle.dumps(ran)], [fd])
        finally:
            os.close(fd)

    def _feeds(self, places: Places) -> dict[str, Array]:
        feeds = dict[str, Array]()
        for name, place in places.items():
            feed = self._feed(place)
            if isinstance(name, str):
                feeds[name] = feed
            else:
                feeds.update(zip(name, feed, strict=True))
        return feeds

    def _feed(self, place: Place) -> Array:
        _, _, start, size = place
        feed = get(place, self._memory.bytes)
        # CUDA refuses to copy from memory of which only a part is page-locked.
        return feed.copy() if start < self._locked < start + size else feed


def send(channel: socket.socket, message: Message) -> None:
    """Send a message, and wait while the worker has not fetched the ones before it."""
    channel.send(pickle.dumps(message))
