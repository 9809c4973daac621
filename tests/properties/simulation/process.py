"""A process as the rest of the world sees it: requests on a wire, and a life that may end before any step.

A step is a worker's call to the outside, the arrival of its request at the broker, or an answer that it hears. At each
step it can die. Requests that have not arrived by then fare as in a socket's buffer: they are lost, or (`last_words`)
still on their way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from tests.fakes import Clock

T = TypeVar("T")


class Died(BaseException):
    """The process ended in the middle of its work. No `Exception`: the worker must not catch it."""


class Fate(NamedTuple):
    """The fate of one request: seconds to the broker and back, and its trouble.

    `refusal`: the broker refuses, for this reason. `is_lost`: it never arrives. `heard_after`: the answer does not come
    back; the client gives up so many seconds after it asked, even if the request has arrived.
    """

    there: float = 0.001
    back: float = 0.001
    refusal: str | None = None
    is_lost: bool = False
    heard_after: float | None = None


@dataclass
class Weather:
    """The fates of requests on their way, by kind; a kind that is not named has no trouble."""

    fates: dict[str, Callable[[], Fate]] = field(default_factory=dict)

    def fate(self, kind: str) -> Fate:
        made = self.fates.get(kind)
        return made() if made else Fate()

    def clear(self) -> None:
        self.fates.clear()


TIMED_OUT = "timed out"
MOST_READS = 5000  # of the clock at one instant; an honest turn reads it some ten times


class Spinning(AssertionError):
    """The code waits for something without letting time pass."""


class WatchedClock(Clock):
    """A clock that notices endless readings at one instant."""

    def __init__(self) -> None:
        super().__init__()
        self._read_at, self._reads = 0.0, 0

    def __call__(self) -> float:
        if self.now > self._read_at:
            self._read_at, self._reads = self.now, 0
        self._reads += 1
        if self._reads > MOST_READS:
            raise Spinning(f"the clock was read {MOST_READS} times at {self.now}")
        return self.now


class World:
    """The clock and the history of one simulation, shared by all its parts."""

    def __init__(self) -> None:
        self.clock = WatchedClock()
        self.history: list[str] = []
        self.changes = 0  # of all that outlives a process: two crashes without a change between them are one

    def note(self, who: str, what: str) -> None:
        self.history.append(f"{self.clock.now - 1000.0:9.4f} {who}: {what}")


class Process:
    """One process: alive, stalled or dead. `is_running`: its own code runs at this moment."""

    def __init__(self, name: str, world: World, weather: Weather) -> None:
        self.name = name
        self.world = world
        self.clock = world.clock
        self.weather = weather
        self.is_alive = True
        self.is_running = False
        self.last_words = False
        self.stalled_until = 0.0
        self.steps: list[int] = []  # for each step, the number of changes in the world before it
        self.dies_before: int | None = None  # this step
        self.mishaps: dict[int, Callable[[], None]] = {}  # before these steps
        self._channels: dict[str, float] = {}

    def step(self, what: str) -> None:
        """Count a call to the outside before it is made. Raises `Died`."""
        self._count(what)
        self._raise_if_dead()

    def die(self, why: str, *, last_words: bool = False) -> None:
        """Stop for ever; only its `last_words` may still arrive."""
        self.is_alive, self.last_words = False, last_words
        self.world.note(self.name, f"dies: {why}, last words {'arrive' if last_words else 'are lost'}")

    def ask(
        self,
        channel: str,
        kind: str,
        effect: Callable[[], T | str],
        heard: Callable[[T | str], None] | None = None,
        refuse: Callable[[str], str] = str,
        lost: Callable[[Fate], object] = lambda _: None,
    ) -> None:
        """Send a request. Requests on one channel arrive in order. `heard` gets `effect`'s result or the trouble.

        The broker calls `refuse` where its fate is a refusal; it returns the reason. `lost` is called, instead of the
        arrival, where its fate is to be lost.
        """
        fate = self.weather.fate(kind)
        if fate.refusal is not None:
            effect = partial(refuse, fate.refusal)
        self.world.changes += 1
        when = self._channels[channel] = max(self.clock.now + fate.there, self._channels.get(channel, 0.0))
        self.clock.at(when, lambda: self._arrive(kind, fate, effect, heard, lost))
        if heard is not None and fate.heard_after is not None:
            self.later(fate.heard_after, f"{kind} timed out", lambda: heard(TIMED_OUT))

    def later(self, seconds: float, what: str, action: Callable[[], None]) -> None:
        """Schedule an action of its own, if it lives and is not stalled then."""
        self.clock.at(self.clock.now + seconds, lambda: self._wake(what, action))

    def _arrive(
        self,
        kind: str,
        fate: Fate,
        effect: Callable[[], T | str],
        heard: Callable[[T | str], None] | None,
        lost: Callable[[Fate], object],
    ) -> None:
        self._count(f"{kind} arrives")
        if fate.is_lost and self.is_alive:
            lost(fate)
        if (self.is_alive or self.last_words) and not fate.is_lost:
            answer = effect()
            self.world.changes += 1
            self.world.note(self.name, f"{kind} arrives, {answer if isinstance(answer, str) else 'and is taken'}")
            if heard is not None and fate.heard_after is None:
                self.later(fate.back, f"{kind} is heard", lambda: heard(answer))
        self._raise_if_dead()

    def _wake(self, what: str, action: Callable[[], None]) -> None:
        if not self.is_alive:
            return
        if self.clock.now < self.stalled_until:
            self.later(self.stalled_until - self.clock.now, what, action)
            return
        self._count(what)
        if self.is_alive:
            action()
        self._raise_if_dead()

    def _count(self, what: str) -> None:
        if not self.is_alive:
            return
        self.steps.append(self.world.changes)
        if (mishap := self.mishaps.get(len(self.steps))) is not None:
            mishap()
        if len(self.steps) == self.dies_before:
            self.die(f"before step {self.dies_before}, {what}", last_words=self.last_words)

    def _raise_if_dead(self) -> None:
        if not self.is_alive and self.is_running:
            raise Died(self.name)

    def __repr__(self) -> str:
        return f"<Process {self.name} alive={self.is_alive} steps={len(self.steps)}>"


class Watched:
    """Makes every call of a client a step of its process. Other attributes are handed through."""

    def __init__(self, process: Process, client: object) -> None:
        self._process = process
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._process.step(name)
            return found(*args, **kwargs)

        self.__dict__[name] = call
        return call


def watched(process: Process, client: T) -> T:
    """The client with each call as a step at which its process may die."""
    return cast("T", Watched(process, client))
