"""The verdict on a measurement: what batching buys here, and what the limit is, in words and as figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from worker.terminal.terminal import milliseconds
from worker.tools.bench.loads import Flow

# From such a part of the time on, that is what sets the limit. A loop that shares its processors never gets all of it.
_BUSY, _BUSY_LOOP = 0.8, 0.4
# A batch makes each of its requests wait for the others, so it should buy a fifth.
_WORTH = 1.2


class Limit(StrEnum):
    """The thing that keeps the worker from answering more."""

    MODEL = "model"
    ENCODING = "encoding"
    LOOP = "loop"
    GENERATOR = "generator"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of a request at the worker's maximum.

    `model_us`: by one of its lanes; `loop_us`: the processor time of the loop's thread, None where
    the system does not tell; `encoding_us`, within that: reading the request and writing its answer.
    """

    model_us: float
    encoding_us: float
    loop_us: float | None
    rows_per_batch: float


@dataclass(frozen=True, slots=True)
class Contender:
    """One contender's figures. `steady` None: the rate is more than its maximum."""

    name: str
    maximum: Flow
    steady: Flow | None
    errors: Mapping[str, int]
    error: str | None
    repeated: int


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


def limit_of(figures: Figures) -> Limit:
    """The limit that the worker's maximum shows."""
    costs, each = figures.costs, figures.us
    loop = each if costs.loop_us is None else costs.loop_us
    if costs.model_us >= _BUSY * each:
        return Limit.MODEL
    if not figures.contenders[0].maximum.is_paced:
        return Limit.GENERATOR
    if loop < _BUSY_LOOP * each:
        return Limit.MACHINE
    # Plain rows are the cheapest, and the worker reads them by the batch.
    is_encoding = figures.encoding != "rows" and costs.encoding_us >= loop / 2
    return Limit.ENCODING if is_encoding else Limit.LOOP


def verdict(figures: Figures) -> Iterator[str]:
    """Sentences: what batching buys, what it costs who waits, the limit, and what else a reader must know."""
    worker, *loops = figures.contenders
    rate = worker.maximum.requests_per_second
    gains = [(loop.name, rate / max(1.0, loop.maximum.requests_per_second)) for loop in loops]
    pays = "Batching pays here" if gains[-1][1] >= _WORTH else "Batching buys little here"
    told = ", ".join(f"{gain:.1f} times as many as {name}" for name, gain in gains)
    yield f"{pays}: the worker answers {rate:,.0f} requests a second, {told}."
    steady = [(each.name, each.steady) for each in figures.contenders if each.steady is not None]
    if p99s := [f"{name} {milliseconds(flow.latency_ms['p99'])}" for name, flow in steady if "p99" in flow.latency_ms]:
        yield f"The p99 at {figures.rate:,.0f} a second: {', '.join(p99s)}."
    yield _limit(figures)
    if late := [name for name, flow in steady if not flow.is_paced]:
        yield f"The load generator did not keep its pace (*): these latencies are its own: {', '.join(late)}."
    if queued := [name for name, flow in steady if not flow.keeps_up]:
        yield f"A queue grows, so the latency does with every second (†): {', '.join(queued)}."


def _limit(figures: Figures) -> str:
    costs = figures.costs
    model = f"The model needs {_us(min(costs.model_us, figures.us))} of the {_us(figures.us)} µs a request"
    loop = figures.us if costs.loop_us is None else costs.loop_us
    reading = "" if figures.encoding == "rows" else f", of which {figures.encoding} {_us(min(loop, costs.encoding_us))}"
    whole = f"{model}, the worker's loop {_us(loop)}{reading}"
    match limit_of(figures):
        case Limit.MODEL:
            return f"{model}: the model is your limit. Look for a better batch with `profile`, or add replicas."
        case Limit.ENCODING:
            return f"{whole}: the encoding is your limit. Plain rows or protobuf cost less; or add replicas."
        case Limit.LOOP:
            return f"{whole}: the loop, with Kafka's client, is your limit. Add replicas."
        case Limit.GENERATOR:
            return f"{whole}: the load generator is the limit (*), and the worker can do more."
        case Limit.MACHINE:
            return f"{whole}: the broker is the limit, or the processors, which all of this shares."


def _us(us: float) -> str:
    return f"{us:,.0f}" if us >= 10 else f"{us:.1f}"


def document(figures: Figures, facts: Mapping[str, Any]) -> dict[str, Any]:
    """For machines: the facts of the measurement, its figures, the limit and the verdict."""
    return {**facts, **asdict(figures), "limit": limit_of(figures).value, "verdict": list(verdict(figures))}
