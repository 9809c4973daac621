"""Loads, and the figures that come of them. Pure: instants are seconds on one clock, and time is passed in.

    Steady    an open loop: request n is due n / rate after the beginning, whatever comes back
    Window    a closed loop: so many are under way that the contender always has something to do
    Backlog   all at once, as fast as they go

A latency counts from the instant a request was due. Counted from the instant it was sent, it would hide everything that
delays the sender, most of all a stall that both sides feel (coordinated omission). A figure is the worker's only if the
load generator kept its pace and its reader kept up; otherwise it is the generator's (`is_paced`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The first part of a closed loop is not measured, seconds: its window fills, and batches find their size.
WARM_UP_S = 0.5
# A window is so deep, seconds: no contender waits for the publisher, and a slow one has soon worked it off.
_AHEAD_S = 0.5
QUANTILES = {"p50": 0.5, "p99": 0.99}
# How late 99 of 100 requests may leave: so many seconds, or such a part of the p99 latency.
_LATE_S, _LATE_SHARE = 0.002, 0.2
# A queue grows when fewer of the answers than this are there at the end of a steady load.
_KEEPS_UP = 0.9
# A reader whose reads are full more often than this is behind. So is a sender whose window is half empty that often.
_BEHIND = 0.5


class Now(NamedTuple):
    """How far a load is: seconds since its beginning, and requests so far."""

    elapsed: float
    sent: int
    answered: int

    @property
    def unanswered(self) -> int:
        return self.sent - self.answered


class Pace:
    """The requests that may go now, whether that was all, and the seconds until the next is due."""

    def ready(self, now: Now) -> int:
        raise NotImplementedError

    def is_over(self, now: Now) -> bool:
        raise NotImplementedError

    def until_next(self, now: Now) -> float:  # noqa: ARG002 - where it hangs on answers, or none has to wait
        return 0.0


@dataclass(frozen=True, slots=True)
class Steady(Pace):
    """`count` requests at `rate` per second. It ends with `most` unanswered: the broker keeps no more."""

    rate: float
    count: int
    most: float = math.inf

    def ready(self, now: Now) -> int:
        return max(0, min(self.count, math.floor(now.elapsed * self.rate) + 1) - now.sent)

    def is_over(self, now: Now) -> bool:
        return now.sent >= self.count or now.unanswered >= self.most

    def until_next(self, now: Now) -> float:
        return max(0.0, now.sent / self.rate - now.elapsed)


@dataclass(frozen=True, slots=True)
class Window(Pace):
    """As many requests under way as are answered in half a second, for `seconds` after the warm-up.

    Never fewer than `least`, which fills batches, nor more than `most`, which the broker keeps.
    """

    least: int
    most: int
    seconds: float

    def size(self, rate: float) -> float:
        """Requests under way while `rate` are answered per second."""
        return min(self.most, max(self.least, _AHEAD_S * rate))

    def ready(self, now: Now) -> int:
        return max(0, int(self.size(now.answered / now.elapsed if now.elapsed else 0.0)) - now.unanswered)

    def is_over(self, now: Now) -> bool:
        return now.elapsed >= WARM_UP_S + self.seconds


@dataclass(frozen=True, slots=True)
class Backlog(Pace):
    """`count` requests as fast as they go."""

    count: int

    def ready(self, now: Now) -> int:
        return self.count - now.sent

    def is_over(self, now: Now) -> bool:
        return now.sent >= self.count


class Sent(NamedTuple):
    """The sender's beginning, on the clock that all processes share, and the instant of each request after that."""

    began: float
    instants: Floats

    @property
    def requests(self) -> int:
        return len(self.instants)


class Heard(NamedTuple):
    """Each first answer's request number and instant, in the order in which they came.

    `behind`: the share of reads that brought as much as one read can bring. `errors` counts error answers by their
    code, `error` is the first one's text. `findings`: the results of the generator's `examine`, one for each answer.
    """

    numbers: NDArray[np.int64]
    instants: Floats
    repeated: int = 0
    behind: float = 0.0
    errors: Mapping[str, int] = {}
    error: str | None = None
    findings: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """One load: requests answered per second, latencies in ms by the quantile's name, and whether to believe them.

    `is_paced`: the generator kept its pace and read in time, so the figures are the contender's. `keeps_up`: no queue
    grows.
    """

    requests_per_second: float
    unanswered: int
    latency_ms: Mapping[str, float]
    is_paced: bool
    keeps_up: bool


def steady_flow(pace: Steady, sent: Sent, heard: Heard, ended: float) -> Flow:
    """An open loop's figures, watched until `ended`. A request without an answer waited until then at least."""
    due = np.arange(sent.requests) / pace.rate
    received = np.full(sent.requests, ended)
    received[heard.numbers] = heard.instants
    quantiles = latency_ms(received - sent.began - due)
    late = _quantile(sent.instants - due, 0.99)
    end = sent.began + pace.count / pace.rate
    seconds = max(pace.count / pace.rate, float(received.max(initial=0.0)) - sent.began)
    return Flow(
        requests_per_second=len(heard.numbers) / seconds,
        unanswered=sent.requests - len(heard.numbers),
        latency_ms=quantiles,
        is_paced=late <= max(_LATE_S, _LATE_SHARE * max(quantiles.values(), default=0.0) / 1000)
        and heard.behind <= _BEHIND,
        keeps_up=bool(np.count_nonzero(heard.instants <= end) >= _KEEPS_UP * pace.count - 1),
    )


def window_flow(pace: Window, sent: Sent, heard: Heard) -> Flow:
    """A closed loop's figures: answers between the warm-up and the last request."""
    begin = sent.began + WARM_UP_S
    end = begin + pace.seconds
    rate = float(np.count_nonzero((heard.instants >= begin) & (heard.instants < end))) / pace.seconds
    looks = np.linspace(begin, end, 200)
    waiting = np.searchsorted(sent.began + sent.instants, looks) - np.searchsorted(np.sort(heard.instants), looks)
    starved = float(np.mean(waiting < pace.size(rate) / 2))
    unanswered = sent.requests - len(heard.numbers)
    is_paced = starved <= _BEHIND and heard.behind <= _BEHIND
    return Flow(rate, unanswered, {}, is_paced=is_paced, keeps_up=not unanswered)


def latency_ms(seconds: Floats) -> dict[str, float]:
    """The quantiles that so many samples can show: p99 needs a hundred. Each is a latency that did occur."""
    told = {name: q for name, q in QUANTILES.items() if len(seconds) * (1 - q) >= 1 - 1e-9}
    return {name: _quantile(seconds, q) * 1000 for name, q in told.items()}


def _quantile(values: Floats, q: float) -> float:
    return float(np.quantile(values, q, method="higher")) if len(values) else 0.0
