"""What a measurement says: latencies from due instants, rates from arrivals, and whether they are the worker's.

A figure is the worker's only if the load generator kept its pace and its reader kept up; where it did not, the figure
is the generator's, and said to be. Pure: instants are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worker.tools.load.pace import WARM_UP_S, Sent, Steady, Window

Floats = NDArray[np.float64]

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}

# How late 99 of 100 requests may leave: so many seconds, or such a part of the p99 latency.
LATE_S = 0.002
LATE_SHARE = 0.2
# A queue grows when both hold: fewer answers than this for each request due in the second half of a steady load; and in
# its last quarter more latency than in its first, by more than this part of the load's time.
KEEPS_UP, GROWS = 0.9, 0.05
# A reader whose reads are full more often than this is behind; so is a sender whose window is half empty that often.
BEHIND = 0.5
# A backlog's rate is taken between these parts of its answers: the first come from cold caches, and at the end one
# partition is empty before the other.
_MIDDLE = (0.1, 0.95)


class Heard(NamedTuple):
    """What a reader saw: of each first answer the request's number and the instant, in the order in which they came.

    `behind`: the share of reads that brought as much as one read can bring. `errors` counts error answers by their
    code, `error` is the first one's text. `findings`: what the generator's `examine` found, one for each answer.
    """

    numbers: NDArray[np.int64]
    instants: Floats
    repeated: int = 0
    behind: float = 0.0
    errors: Mapping[str, int] = {}
    error: str | None = None
    findings: Sequence[Any] = ()


class Flow(NamedTuple):
    """One load: requests answered per second, their latencies, and whether the figures are the worker's.

    `latency_ms`: by name of the quantile, those that the number of requests can tell; empty where latency says nothing.
    `lateness_ms`: of the sender, 99 of 100 requests left within it. `is_paced`: the generator kept its pace and read in
    time, so the figures are the worker's. `keeps_up`: no queue grows.
    """

    rate: float
    requests: int
    unanswered: int
    latency_ms: Mapping[str, float]
    lateness_ms: float
    is_paced: bool
    keeps_up: bool


def steady_flow(pace: Steady, sent: Sent, heard: Heard, ended: float) -> Flow:
    """Of an open loop, watched until `ended`.

    A request without an answer counts as answered then: it waited at least so long.
    """
    due = sent.began + np.arange(sent.requests) / pace.rate
    received = np.full(sent.requests, ended)
    received[heard.numbers] = heard.instants
    quantiles = latency_ms(received - due)
    late = _quantile(sent.instants - np.arange(sent.requests) / pace.rate, 0.99)
    allowed = max(LATE_S, LATE_SHARE * quantiles.get("p99", quantiles.get("p50", 0.0)) / 1000)
    seconds = max(pace.due(pace.count), float(received.max(initial=0.0)) - sent.began)
    return Flow(
        rate=len(heard.numbers) / seconds,
        requests=sent.requests,
        unanswered=sent.requests - len(heard.numbers),
        latency_ms=quantiles,
        lateness_ms=late * 1000,
        is_paced=late <= allowed and heard.behind <= BEHIND,
        keeps_up=sent.requests == pace.count and _keeps_up(pace, sent, heard, received - due),
    )


def _keeps_up(pace: Steady, sent: Sent, heard: Heard, latencies: Floats) -> bool:
    """Whether answers of the second half come as fast as they are due, or at least no later than those before.

    A machine that is busy for a moment delays answers, and no queue grows.
    """
    end = sent.began + pace.due(pace.count)
    middle = (sent.began + end) / 2
    answered = np.count_nonzero((heard.instants >= middle) & (heard.instants < end))
    quarter = max(1, len(latencies) // 4)
    growth = float(np.median(latencies[-quarter:]) - np.median(latencies[:quarter]))
    is_as_fast = answered >= max(1, KEEPS_UP * (pace.count - pace.count // 2) - 1)
    return len(heard.numbers) > 0 and (bool(is_as_fast) or growth <= GROWS * pace.due(pace.count))


def window_flow(pace: Window, sent: Sent, heard: Heard) -> Flow:
    """Of a closed loop: answers between the warm-up and the last request."""
    begin = sent.began + WARM_UP_S
    end = begin + pace.seconds
    rate = float(np.count_nonzero((heard.instants >= begin) & (heard.instants < end))) / pace.seconds
    looks = np.linspace(begin, end, 200)
    waiting = np.searchsorted(sent.began + sent.instants, looks) - np.searchsorted(np.sort(heard.instants), looks)
    starved = float(np.mean(waiting < pace.size(rate) / 2))
    return _closed(rate, sent, heard, is_paced=starved <= BEHIND)


def backlog_flow(sent: Sent, heard: Heard) -> Flow:
    """Of a backlog: the middle of its answers, by the time that they took. 0 where there are none."""
    instants = np.sort(heard.instants)
    first, last = (int(part * len(instants)) for part in _MIDDLE)
    if last <= first or instants[last] <= instants[first]:
        return _closed(0.0, sent, heard, is_paced=False)
    return _closed((last - first) / float(instants[last] - instants[first]), sent, heard, is_paced=True)


def _closed(rate: float, sent: Sent, heard: Heard, *, is_paced: bool) -> Flow:
    unanswered = sent.requests - len(heard.numbers)
    is_believed = is_paced and heard.behind <= BEHIND
    return Flow(rate, sent.requests, unanswered, {}, 0.0, is_paced=is_believed, keeps_up=not unanswered)


def latency_ms(seconds: Floats) -> dict[str, float]:
    """The quantiles that so many samples can show: p99.9 needs a thousand. Each is a latency that did occur."""
    told = {name: q for name, q in QUANTILES.items() if len(seconds) * (1 - q) >= 1 - 1e-9}
    return {name: _quantile(seconds, q) * 1000 for name, q in told.items()}


def _quantile(values: Floats, q: float) -> float:
    return float(np.quantile(values, q, method="higher")) if len(values) else 0.0
