"""What is reported of a measurement: each figure's median over the rounds, with the least and the most.

The keys of the JSON document are stable: the README names them. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from worker.tools.bench.columns import Column
from worker.tools.bench.course import Findings, Load, Measured
from worker.tools.load.figures import QUANTILES


class Spread(NamedTuple):
    """One figure over the rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """None where no round has the figure."""
        found = [value for value in values if value is not None]
        return cls(statistics.median(found), min(found), max(found)) if found else None


@dataclass(frozen=True, slots=True)
class Cost:
    """What answering took. None: not known of this contender, or on this system.

    `batch_fill`: rows of a batch as a part of the most. `lane_busy`: the part of the time in which inference ran.
    """

    rows_per_batch: Spread | None
    batch_fill: Spread | None
    lane_busy: Spread | None
    cpu_seconds_per_million_rows: Spread | None
    peak_memory_bytes: Spread | None


@dataclass(frozen=True, slots=True)
class LoadLine:
    """One contender under one load, or (`load` None) at its maximum.

    `rate`: answers per second; None for a load that is more than its maximum, and was not tried. `is_paced`: in most
    rounds the load generator kept its pace, so the figures are the contender's. Latencies in milliseconds, of those
    rounds, by the quantile's name.
    """

    load: Load | None
    rounds: int
    rate: Spread | None
    latency_ms: Mapping[str, Spread]
    lateness_ms: Spread | None
    is_paced: bool
    keeps_up: bool
    unanswered: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class Part:
    """One contender. `max_batch_size`: as set, or what its model was exported for; `lanes`: of all its replicas."""

    column: Column
    max_batch_size: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Account:
    """One contender's figures: `errors` and `repeated` over all of its loads, `error` the first error's text."""

    part: Part
    maximum: LoadLine | None
    steady: tuple[LoadLine, ...]
    errors: Mapping[str, int]
    error: str | None
    repeated: int


def accounts_of(found: Findings, parts: Sequence[Part]) -> tuple[Account, ...]:
    return tuple(_account(found, part) for part in parts)


def _account(found: Findings, part: Part) -> Account:
    name = part.column.name
    maxima = found.maxima.get(name, [])
    steady = {load: found.steady.get((name, load), []) for load in found.loads}
    heard = [measured.heard for runs in (maxima, *steady.values()) for measured in runs]
    errors: dict[str, int] = {}
    for one in heard:
        for code, count in one.errors.items():
            errors[code] = errors.get(code, 0) + count
    return Account(
        part,
        _line(None, maxima, part) if maxima else None,
        tuple(_line(load, runs, part) for load, runs in steady.items()) if maxima else (),
        errors,
        next((one.error for one in heard if one.error), None),
        sum(one.repeated for one in heard),
    )


def _line(load: Load | None, runs: Sequence[Measured], part: Part) -> LoadLine:
    flows = [run.flow for run in runs]
    paced = [flow for flow in flows if flow.is_paced]
    is_paced = 2 * len(paced) > len(flows) or not flows
    latencies = {name: Spread.of([flow.latency_ms.get(name) for flow in paced]) for name in QUANTILES}
    return LoadLine(
        load,
        len(runs),
        Spread.of([flow.rate for flow in flows]),
        {name: spread for name, spread in latencies.items() if spread is not None and is_paced},
        Spread.of([flow.lateness_ms for flow in flows]) if load else None,
        is_paced,
        2 * sum(flow.keeps_up for flow in flows) > len(flows),
        sum(flow.unanswered for flow in flows),
        _cost(runs, part),
    )


def _cost(runs: Sequence[Measured], part: Part) -> Cost:
    def spread(figure: Callable[[Measured], float | None], unit: float = 1.0) -> Spread | None:
        found = [figure(run) for run in runs]
        return Spread.of([None if value is None else value / unit for value in found])

    return Cost(
        spread(lambda run: run.rows_per_batch),
        spread(lambda run: run.rows_per_batch, part.max_batch_size),
        spread(lambda run: run.busy_seconds_per_second, part.lanes),
        spread(lambda run: run.cpu_seconds_per_million_rows),
        spread(lambda run: run.peak_bytes),
    )


def document(accounts: Sequence[Account], facts: Mapping[str, Any]) -> dict[str, Any]:
    """For machines: the facts of the measurement, then the contenders."""
    return {**facts, "contenders": [_contender(account) for account in accounts]}


def _contender(account: Account) -> dict[str, Any]:
    column = account.part.column
    return {
        "name": column.name,
        "kind": column.kind.value,
        "settings": dict(column.settings),
        "maximum": None if account.maximum is None else _figures(account.maximum),
        "steady": [_figures(line) for line in account.steady],
        "errors": dict(account.errors),
        "repeated": account.repeated,
    }


def _figures(line: LoadLine) -> dict[str, Any]:
    cost = {name: _spread(getattr(line.cost, name)) for name in Cost.__dataclass_fields__}
    shared = {
        "rounds": line.rounds,
        "requests_per_second": _spread(line.rate),
        "is_of_generator": not line.is_paced,
        "unanswered": line.unanswered,
    }
    return {**shared, **cost} if line.load is None else {**_open_loop(line, line.load), **shared, **cost}


def _open_loop(line: LoadLine, load: Load) -> dict[str, Any]:
    return {
        "asked_per_second": load.rate,
        "part_of_maximum": load.asked.number if load.asked.is_part else None,
        "is_over_maximum": not line.rounds,
        "keeps_up": line.keeps_up,
        "latency_ms": {name: _spread(line.latency_ms.get(name)) for name in QUANTILES},
        "generator_lateness_ms": _spread(line.lateness_ms),
    }


def _spread(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else {"median": _r(spread.median), "min": _r(spread.least), "max": _r(spread.most)}


def _r(value: float) -> float:
    return round(value, 4)


def warnings(accounts: Sequence[Account]) -> Iterator[str]:
    """What readers of the figures must know, one sentence each."""
    lines = [(a.part.column.name, line) for a in accounts for line in (a.maximum, *a.steady) if line and line.rounds]
    if late := [_where(name, line) for name, line in lines if not line.is_paced]:
        yield (
            f"The load generator did not keep up, so these figures are its own, not the worker's (*): {_all(late)}. "
            "Give it more processors, or a lower rate."
        )
    if over := [_where(name, line) for name, line in lines if line.load and not line.keeps_up]:
        yield f"A queue grows, so the latency does with every second (†): {_all(over)}."
    if lost := [f"{_where(name, line)} {line.unanswered:,}" for name, line in lines if line.unanswered]:
        yield f"Requests that had no answer when the load was given up: {_all(lost)}."
    for account in accounts:
        if account.repeated:
            yield f"{account.part.column.name}: {account.repeated:,} answers came twice, as at-least-once allows."


def _where(name: str, line: LoadLine) -> str:
    return f"{name} at {'its maximum' if line.load is None else f'{line.load.rate:,.0f}/s'}"


def _all(places: Sequence[str]) -> str:
    return "; ".join(places)
