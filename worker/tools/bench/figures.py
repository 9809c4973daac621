"""Loads, the figures that come of them, and what they say in words. Pure: instants are seconds on one clock.

    Steady    an open loop: request n is due n / rate after the beginning, whatever comes back
    Window    a closed loop: so many are under way that the contender always has something to do

A latency counts from the instant a request was due. Counted from the instant it was sent, it would hide everything that
delays the sender, most of all a stall that both sides feel (coordinated omission). A figure is the contender's only if
the load generator kept its pace; otherwise it is the generator's (`is_paced`).
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

# The first part of a closed loop is not measured, seconds: its window fills, and batches find their size.
WARM_UP_S = 0.5
# A window is so deep, seconds: no contender waits for the publisher, and a slow one has soon worked it off.
_AHEAD_S = 0.5
QUANTILES = {"p50": 0.5, "p99": 0.99}
# How late 99 of 100 requests may leave: so many seconds, or such a part of the p99 latency.
_LATE_S, _LATE_SHARE = 0.002, 0.2
# A sender whose window is half empty more often than this does not keep its pace.
_STARVED = 0.5
# From such a part of the time on, that is what sets the limit. A loop that shares its processors never gets all of it.
_BUSY, _BUSY_LOOP = 0.8, 0.4
# A batch makes each of its requests wait for the others, so it should buy a fifth.
_WORTH = 1.2


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

    def until_next(self, now: Now) -> float:  # noqa: ARG002 - where it hangs on answers
        return 0.0


@dataclass(frozen=True, slots=True)
class Steady(Pace):
    """`count` requests at `rate` per second."""

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


class Sent(NamedTuple):
    """The sender's beginning, on the clock that all processes share, and the instant of each request after that."""

    began: float
    instants: Floats

    @property
    def requests(self) -> int:
        return len(self.instants)


class Heard(NamedTuple):
    """Each first answer's request number, instant and error code (empty for a result), in the order they came in.

    `error`: the first error's text.
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
    """One load: requests answered per second, latencies in ms by the quantile's name, and whether to believe them.

    `is_paced`: the generator kept its pace, so the figures are the contender's.
    """

    requests_per_second: float
    unanswered: int
    latency_ms: Mapping[str, float]
    is_paced: bool


def steady_flow(pace: Steady, sent: Sent, heard: Heard, ended: float) -> Flow:
    """An open loop's figures, watched until `ended`. A request without an answer waited until then at least."""
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
    """A closed loop's figures: answers between the warm-up and the last request."""
    begin = sent.began + WARM_UP_S
    end = begin + pace.seconds
    rate = float(np.count_nonzero((heard.instants >= begin) & (heard.instants < end))) / pace.seconds
    looks = np.linspace(begin, end, 200)
    waiting = np.searchsorted(sent.began + sent.instants, looks) - np.searchsorted(np.sort(heard.instants), looks)
    starved = float(np.mean(waiting < pace.size(rate) / 2))
    return Flow(rate, sent.requests - len(heard.numbers), {}, starved <= _STARVED)


def latency_ms(seconds: Floats) -> dict[str, float]:
    """The quantiles that so many samples can show: p99 needs a hundred. Each is a latency that did occur."""
    told = {name: q for name, q in QUANTILES.items() if len(seconds) * (1 - q) >= 1 - 1e-9}
    return {name: _quantile(seconds, q) * 1000 for name, q in told.items()}


def _quantile(values: Floats, q: float) -> float:
    return float(np.quantile(values, q, method="higher")) if len(values) else 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of a request at the worker's maximum.

    `model_us`: by one of its lanes; `loop_us`: the processor time of the loop's thread, None where
    the system does not tell; `encoding_us`, within that: reading the request and writing its answer.
    """

    model_us: float
    encoding_us: float
    loop_us: float | None


@dataclass(frozen=True, slots=True)
class Contender:
    """One contender's figures. `steady` None: the rate is more than its maximum."""

    name: str
    maximum: Flow
    steady: Flow | None
    errors: Mapping[str, int]
    error: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """The whole measurement, the worker first. `rate`: of the steady load, requests a second."""

    contenders: Sequence[Contender]
    costs: Costs
    rate: float
    encoding: str

    @property
    def us(self) -> float:
        """The time of a request at the worker's maximum, microseconds."""
        return 1e6 / max(1.0, self.contenders[0].maximum.requests_per_second)

    @property
    def loop_us(self) -> float:
        """The loop's part of it, or all of it where the system does not tell."""
        return self.us if self.costs.loop_us is None else self.costs.loop_us

    @property
    def limit(self) -> Limit:
        """What keeps the worker from answering more."""
        if self.costs.model_us >= _BUSY * self.us:
            return "model"
        if not self.contenders[0].maximum.is_paced:
            return "generator"
        if self.loop_us < _BUSY_LOOP * self.us:
            return "machine"
        # Plain rows are the cheapest, and the worker reads them by the batch.
        return "encoding" if self.encoding != "rows" and self.costs.encoding_us >= self.loop_us / 2 else "loop"


def verdict(figures: Figures) -> Iterator[str]:
    """Sentences: what batching buys, the limit, and what else a reader must know."""
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
    """For machines: the facts of the measurement, its figures, the limit and the verdict."""
    return {**facts, **asdict(figures), "limit": figures.limit, "verdict": list(verdict(figures))}
