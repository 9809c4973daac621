"""Loads, their figures, and a verdict in words. Pure: instants are seconds on one clock.

    Steady    an open loop: request n is due n / rate after the beginning, whatever comes back
    Window    a closed loop: always enough requests are under way to keep the contender busy

A latency counts from the instant when a request was due. If it counted from the instant when the request was sent, it
would hide everything that delays the sender, above all a stall that both sides feel (coordinated omission). A figure is
the contender's only if the load generator kept its pace; otherwise it is the generator's (`is_paced`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Limit = Literal["model", "encoding", "loop", "generator", "machine"]

# Seconds at the start of a closed loop that are not measured: its window fills, and batches find their size.
WARM_UP_S = 0.5
# A window holds the requests of so many seconds: no contender waits for the publisher, and a slow one ends it soon.
_AHEAD_S = 0.5
QUANTILES = {"p50": 0.5, "p99": 0.99}
# The delay that 99 of 100 requests may have when they are sent: in seconds, or as a share of the p99 latency.
_LATE_S, _LATE_SHARE = 0.002, 0.2
# A sender does not keep its pace if its window is half empty for more than this share of the time.
_STARVED = 0.5
# The share of the time from which on the model, or the loop, is the limit. A loop that shares processors never has all.
_BUSY, _BUSY_LOOP = 0.8, 0.4
# A batch makes each request wait for the others, so batching pays only if it gains a fifth.
_WORTH = 1.2


class Now(NamedTuple):
    """The progress of a load: seconds since its beginning, and requests so far."""

    elapsed: float
    sent: int
    answered: int

    @property
    def unanswered(self) -> int:
        return self.sent - self.answered


class Pace:
    """A rule for sending: how many requests may go now, if the load is over, and the seconds until the next one."""

    def ready(self, now: Now) -> int:
        raise NotImplementedError

    def is_over(self, now: Now) -> bool:
        raise NotImplementedError

    def until_next(self, now: Now) -> float:  # noqa: ARG002 - a closed loop depends on answers, not on time
        return 0.0


@dataclass(frozen=True, slots=True)
class Steady(Pace):
    """An open loop of `count` requests at `rate` per second."""

    rate: float
    count: int

    def ready(self, now: Now) -> int:
        return max(0, min(self.count, math.floor(now.elapsed * self.rate) + 1) - now.sent)

    def is_over(self, now: Now) -> bool:
        return now.sent >= self.count

    def until_next(self, now: Now) -> float:
        return max(0.0, now.sent / self.rate - now.elapsed)


@dataclass(frozen=True, slots=True)
class Window(Pace):
    """A closed loop: it keeps as many requests under way as half a second answers, for `seconds` after the warm-up.

    It keeps at least `least` requests, which fill batches, and at most `most`, which the broker can hold.
    """

    least: int
    most: int
    seconds: float

    def size(self, rate: float) -> float:
        """Returns the number of requests under way while `rate` are answered per second."""
        return min(self.most, max(self.least, _AHEAD_S * rate))

    def ready(self, now: Now) -> int:
        return max(0, int(self.size(now.answered / now.elapsed if now.elapsed else 0.0)) - now.unanswered)

    def is_over(self, now: Now) -> bool:
        return now.elapsed >= WARM_UP_S + self.seconds


class Sent(NamedTuple):
    """The sender's beginning, on the clock that all processes share, and each request's instant, counted from it."""

    began: float
    instants: Floats

    @property
    def requests(self) -> int:
        return len(self.instants)


class Heard(NamedTuple):
    """The first answer to each request: its number, instant and error code (empty for a result), in order of arrival.

    `error`: the text of the first error.
    """

    numbers: NDArray[np.int64]
    instants: Floats
    codes: Sequence[str] = ()
    repeated: int = 0
    error: str | None = None

    @property
    def errors(self) -> Counter[str]:
        return Counter(code for code in self.codes if code)


@dataclass(frozen=True, slots=True)
class Flow:
    """The figures of one load. `latency_ms` has the latencies in ms by the quantile's name.

    `is_paced`: the generator kept its pace, so the figures are the contender's.
    """

    requests_per_second: float
    unanswered: int
    latency_ms: Mapping[str, float]
    is_paced: bool


def steady_flow(pace: Steady, sent: Sent, heard: Heard, ended: float) -> Flow:
    """Computes the figures of an open loop. An unanswered request counts as one that waited until `ended`."""
    due = np.arange(sent.requests) / pace.rate
    received = np.full(sent.requests, ended)
    received[heard.numbers] = heard.instants
    quantiles = latency_ms(received - sent.began - due)
    late = _quantile(sent.instants - due, 0.99)
    seconds = max(pace.count / pace.rate, float(received.max(initial=0.0)) - sent.began)
    return Flow(
        requests_per_second=len(heard.numbers) / seconds,
        unanswered=sent.requests - len(heard.numbers),
        latency_ms=quantiles,
        is_paced=late <= max(_LATE_S, _LATE_SHARE * max(quantiles.values(), default=0.0) / 1000),
    )


def window_flow(pace: Window, sent: Sent, heard: Heard) -> Flow:
    """Computes the figures of a closed loop, from the answers between the warm-up and the last request."""
    begin = sent.began + WARM_UP_S
    end = begin + pace.seconds
    rate = float(np.count_nonzero((heard.instants >= begin) & (heard.instants < end))) / pace.seconds
    looks = np.linspace(begin, end, 200)
    waiting = np.searchsorted(sent.began + sent.instants, looks) - np.searchsorted(np.sort(heard.instants), looks)
    starved = float(np.mean(waiting < pace.size(rate) / 2))
    return Flow(rate, sent.requests - len(heard.numbers), {}, starved <= _STARVED)


def latency_ms(seconds: Floats) -> dict[str, float]:
    """Returns the quantiles that so many samples can show: p99 needs a hundred. Each is a latency that did occur."""
    told = {name: q for name, q in QUANTILES.items() if len(seconds) * (1 - q) >= 1 - 1e-9}
    return {name: _quantile(seconds, q) * 1000 for name, q in told.items()}


def _quantile(values: Floats, q: float) -> float:
    return float(np.quantile(values, q, method="higher")) if len(values) else 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds that a request costs at the worker's maximum.

    `model_us`: the time of one of its lanes. `loop_us`: the CPU time of the loop's thread, None if the system does not
    tell. `encoding_us`, a part of that: reading the request and writing its answer.
    """

    model_us: float
    encoding_us: float
    loop_us: float | None


@dataclass(frozen=True, slots=True)
class Contender:
    """One contender's figures. `steady` is None if the rate is above its maximum."""

    name: str
    maximum: Flow
    steady: Flow | None
    errors: Mapping[str, int]
    error: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of all contenders, the worker first. `rate`: requests a second of the steady load."""

    contenders: Sequence[Contender]
    costs: Costs
    rate: float
    encoding: str

    @property
    def us(self) -> float:
        """Microseconds of a request at the worker's maximum."""
        return 1e6 / max(1.0, self.contenders[0].maximum.requests_per_second)

    @property
    def loop_us(self) -> float:
        """The loop's part of `us`, or all of it if the system does not tell."""
        return self.us if self.costs.loop_us is None else self.costs.loop_us

    @property
    def limit(self) -> Limit:
        """The part that keeps the worker from answering more."""
        if self.costs.model_us >= _BUSY * self.us:
            return "model"
        if not self.contenders[0].maximum.is_paced:
            return "generator"
        if self.loop_us < _BUSY_LOOP * self.us:
            return "machine"
        # Plain rows are the cheapest, and the worker reads them by the batch.
        return "encoding" if self.encoding != "rows" and self.costs.encoding_us >= self.loop_us / 2 else "loop"


def verdict(figures: Figures) -> Iterator[str]:
    """Yields sentences: the gain of batching, the limit, and a warning if the generator was late."""
    worker, *loops = figures.contenders
    rate = worker.maximum.requests_per_second
    gains = [(loop.name, rate / max(1.0, loop.maximum.requests_per_second)) for loop in loops]
    pays = "Batching pays here" if gains[-1][1] >= _WORTH else "Batching buys little here"
    told = ", ".join(f"{gain:.1f} times as many as {name}" for name, gain in gains)
    yield f"{pays}: the worker answers {rate:,.0f} requests a second, {told}."
    yield _limit(figures)
    if late := [each.name for each in figures.contenders if each.steady is not None and not each.steady.is_paced]:
        yield f"The load generator did not keep its pace (*): these latencies are its own: {', '.join(late)}."


_CURES: Mapping[Limit, str] = {
    "model": "the model is your limit. Look for a better batch with `profile`, or add replicas.",
    "encoding": "the encoding is your limit. Plain rows or protobuf cost less; or add replicas.",
    "loop": "the loop, with Kafka's client, is your limit. Add replicas.",
    "generator": "the load generator is the limit (*), and the worker can do more.",
    "machine": "the broker is the limit, or the processors, which all of this shares.",
}


def _limit(figures: Figures) -> str:
    costs, loop = figures.costs, figures.loop_us
    model = f"The model needs {_us(min(costs.model_us, figures.us))} of the {_us(figures.us)} µs a request"
    reading = "" if figures.encoding == "rows" else f", of which {figures.encoding} {_us(min(loop, costs.encoding_us))}"
    rest = "" if figures.limit == "model" else f", the worker's loop {_us(loop)}{reading}"
    return f"{model}{rest}: {_CURES[figures.limit]}"


def _us(us: float) -> str:
    return f"{us:,.0f}" if us >= 10 else f"{us:.1f}"


def document(figures: Figures, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the measurement for machines: its facts, figures, limit and verdict."""
    return {**facts, **asdict(figures), "limit": figures.limit, "verdict": list(verdict(figures))}
