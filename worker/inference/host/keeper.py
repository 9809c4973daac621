"""Keeps a host running: starts the first, and another when one has ended, and knows when to give up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from worker.core.failures import BadConfiguration, ModelBroken
from worker.core.records import HostEnd
from worker.inference.facts import ModelFacts
from worker.inference.host.messages import Broken, CannotLoad, Job, Loaded, Ran
from worker.inference.host.process import Ended, HostProcess
from worker.inference.host.shared_memory import SharedMemory
from worker.ports import HostEvents

# Hosts in a row that end while they load the model and warm it up, until model or device count as broken, and the
# seconds from one such end to the next start.
MOST_FAILED_STARTS = 3
START_AGAIN_AFTER = 1.0
# A start may take so many times the first one, and these seconds beyond.
TIMES_THE_FIRST_START = 10.0
BEYOND_THE_FIRST_START = 60.0


class Keeper:
    """Owns the host. `is_ready`: it has loaded the model, and takes jobs."""

    def __init__(
        self,
        start: Callable[[], HostProcess],
        events: HostEvents,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the first host; `facts` waits for its model."""
        self._start = start
        self._events = events
        self._clock = clock
        self._facts: ModelFacts | None = None
        self._refusal: str | None = None
        self._first_start = 0.0  # seconds
        self._failed_starts = 0
        self._start_again_at = 0.0
        self._why = "the worker starts"
        self._host: HostProcess | None = start()
        self.is_ready = False

    @property
    def facts(self) -> ModelFacts:
        """The facts of the model, when the first host has loaded it.

        Raises `BadConfiguration` if the model is refused, and `ModelBroken` if the host ends before it is ready.
        """
        while self._facts is None:
            host = self._host
            assert host is not None
            host.look()
            self.receive(1.0)
            if not self.is_ready and host.is_over:
                ended = host.end()
                if self._refusal is not None:
                    raise BadConfiguration(self._refusal)
                raise ModelBroken(f"the model's process {ended.why}, while it loaded the model and warmed it up")
        return self._facts

    def give(self, job: Job) -> None:
        """Give a ready host a job."""
        assert self._host is not None
        self._host.give(job)

    def receive(self, timeout: float) -> Sequence[tuple[Ran, SharedMemory | None]]:
        """The runs that ended, after at most `timeout` seconds for the first message, with memory of their own."""
        ran: list[tuple[Ran, SharedMemory | None]] = []
        if self._host is not None:
            for message, memory in self._host.receive(timeout):
                if isinstance(message, tuple):
                    ran.append((message, memory))
                    continue
                match message:
                    case Loaded(facts):
                        self._loaded(self._host, facts)
                    case CannotLoad(why):
                        self._refusal = why
                        self._host.kill(HostEnd.CRASH, f"could not load the model: {why}")
                    case Broken(why):
                        self._host.kill(HostEnd.CRASH, f"lost its device: {why}")
        return ran

    def kill(self, cause: HostEnd, why: str) -> None:
        """End the host; `ended` tells of it soon."""
        if self._host is not None:
            self._host.kill(cause, why)

    def look(self) -> None:
        """Start a host if it is time, and end one that takes too long to start, or has exited without a word."""
        now, host = self._clock(), self._host
        if host is None:
            if now >= self._start_again_at:
                self._host = self._start()
            return
        host.look()
        if not self.is_ready and self._facts is not None:
            most = TIMES_THE_FIRST_START * self._first_start + BEYOND_THE_FIRST_START
            if now - host.started_at > most:
                host.kill(HostEnd.HANG, f"took longer than {most:.0f} s to load the model")

    def ended(self, batches: int) -> Ended | None:
        """How the host ended that was ready and ran so many batches; None while none has. A fresh one starts.

        Raises `ModelBroken` if several in a row ended before they were ready.
        """
        host = self._host
        if host is None or not host.is_over:
            return None
        ended = host.end()
        self._events.host_ended(ended.cause, ended.why, batches)
        self._why = f"the one before it {ended.why}"
        if self.is_ready:
            self._host, self.is_ready = self._start(), False
            return ended
        self._failed_starts += 1
        self._host, self._start_again_at = None, self._clock() + START_AGAIN_AFTER
        if self._failed_starts == MOST_FAILED_STARTS:
            raise ModelBroken(
                f"the model's process ended {MOST_FAILED_STARTS} times in a row before its warm-up was over, and that "
                f"went well at start: it {ended.why}. What it was to run is unanswered and will be read again; if a "
                "restart does not help, look at the model's file, the memory and the device (nvidia-smi, dmesg)"
            )
        return None

    def close(self, timeout: float) -> None:
        """End the host. It is killed if it does not end within `timeout` seconds, and at once if it is not ready."""
        if self._host is not None:
            self._host.end(timeout if self.is_ready else 0.0)
            self._host = None

    def _loaded(self, host: HostProcess, facts: ModelFacts) -> None:
        seconds = self._clock() - host.started_at
        if self._facts is None:
            self._facts, self._first_start = facts, seconds
        elif (why := _other(facts, self._facts)) is not None:
            host.kill(HostEnd.CRASH, why)
            return
        self._failed_starts = 0
        self.is_ready = True
        self._events.host_started(host.pid, seconds, self._why)


def _other(facts: ModelFacts, first: ModelFacts) -> str | None:
    """How a fresh host differs from the first one, in words that follow "the model's process"; None if it does not."""
    if facts.signature != first.signature:
        return "loaded another model than the worker began with: its file was replaced"
    if facts.device.name != first.device.name:
        return f"found {facts.device.name} where the worker began with {first.device.name}: {facts.device.reason}"
    return None
