"""Learns from the last arrivals how long a batch's first request should wait for company.

Waiting helps where a burst would otherwise be cut in two: its first request starts an inference alone, and all others
wait until that is over. Waiting harms where no further request comes. So once a second a simulation serves the last
arrivals again, once with each sensible wait: with the real number of lanes, batch size and measured run times. The best
wait is in force from then on.

    arrivals ──replayed with 0, 1, 2, 3, 5 … ms──▶ latency² and lane time with each ──▶ the wait in force

- The latency counts squared, because the longest waits make the p99. Earlier looks count too, and fade within seconds;
  after a change from many requests to a few it takes up to half a minute.
- Among waits with latency within 3 % of the best, the cheapest for the lanes win, and the shortest of them counts.
- A wait is never longer than a full batch's inference, because a later request would wait less without it. So a model
  that takes less than a millisecond never waits, nor does one whose run times are not known yet.
- A wait leaves enough of the latency budget for a full batch's inference.
- The wait in force stays while its latency is as good and its lane time within a tenth of the least.

A busy machine sees arrivals late, and the simulation cannot know that. The batcher owns it. Times: monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from heapq import heapreplace
from math import inf
from typing import NamedTuple

from worker.core.records import BatchKind
from worker.core.run_times import RunTimes

Expected = Callable[[BatchKind, int], float]
Arrival = tuple[float, BatchKind, int]  # when, and how many rows for which kind of batch

# A poll waits whole milliseconds. Each wait is about half as long again as the one before, so one suits each burst.
WAITS = (0.0, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1)
# To replay these with every wait takes the loop 1.5 to 2.5 ms (measured 2026): a four-hundredth of its time.
ARRIVALS = 256
LOOK_EVERY = 1.0  # seconds
FADE = 0.8  # the weight that earlier costs keep at every look: after three seconds about half of it
AS_GOOD = 1.03**2  # a squared latency, relative to the best, that counts as good: p99s differ by less than 5 % then
AS_SPARING = 1.05  # lane time relative to the least that is still low enough for the shortest wait
STAYS = 1.1  # lane time relative to the least up to which the wait in force stays


class Cost(NamedTuple):
    """One wait's cost, relative to the best wait's, times rows: squared latencies, and the lanes' time."""

    squares: float
    lane: float


class Linger:
    """Owns the arrivals since the last look, the cost of each wait, and the wait in force."""

    def __init__(self, max_rows: Callable[[BatchKind], int], *, lanes: int = 1, budget: float = inf) -> None:
        """`max_rows`: the rows of a full batch. `budget`: the latency budget in seconds."""
        self.wait = 0.0  # seconds, for groups that open from now on
        self._times = RunTimes()
        self._max_rows = max_rows
        self._lanes = lanes
        self._budget = budget
        self._arrivals: list[Arrival] = []
        self._next_look = -inf
        self._found = dict.fromkeys(WAITS, Cost(0.0, 0.0))

    def arrived(self, now: float, kind: BatchKind, rows: int) -> None:
        """Note that a request came. Only rows of one `kind` share a batch."""
        if len(self._arrivals) < ARRIVALS:
            self._arrivals.append((now, kind, rows))

    def ran(self, kind: BatchKind, rows: int, seconds: float, now: float) -> None:
        """Note how long an inference took that has just ended."""
        self._times.note(kind, rows, seconds, now)

    def look(self, now: float) -> None:
        """Choose the wait again, if it is time. Called after a batch, when the rest of its burst has come."""
        if now < self._next_look or not self._arrivals:
            return
        arrivals, self._arrivals, self._next_look = self._arrivals, [], now + LOOK_EVERY
        max_rows = {kind: self._max_rows(kind) for _, kind, _ in arrivals}
        full = max(self._times.mean(kind, rows) for kind, rows in max_rows.items())
        longest = min(full, self._budget - full)
        if longest < WAITS[1]:
            self.wait = 0.0
            return
        self._learn(arrivals, max_rows)
        self.wait = self._chosen([wait for wait in WAITS if wait <= longest])

    def _learn(self, arrivals: Sequence[Arrival], max_rows: Mapping[BatchKind, int]) -> None:
        expected = cache(self._times.mean)  # asked for few sizes, again and again
        found = {wait: SimulatedLanes(wait, max_rows, self._lanes, expected).serve(arrivals) for wait in WAITS}
        # Relative to the least: otherwise slow seconds would count more than later ones.
        rows = sum(arrival[2] for arrival in arrivals)
        squares, lane = (rows / min(each) for each in zip(*found.values(), strict=True))
        for wait, now in found.items():
            before = self._found[wait]
            self._found[wait] = Cost(
                FADE * before.squares + squares * now.squares, FADE * before.lane + lane * now.lane
            )

    def _chosen(self, waits: Sequence[float]) -> float:
        """The shortest wait whose latency is as good as the best, and whose lane time is about the least of these."""
        best = min(self._found[wait].squares for wait in waits)
        good = [wait for wait in waits if self._found[wait].squares <= AS_GOOD * best]
        least = min(self._found[wait].lane for wait in good)
        if self.wait in good and self._found[self.wait].lane <= STAYS * least:
            return self.wait
        return next(wait for wait in good if self._found[wait].lane <= AS_SPARING * least)

    def __repr__(self) -> str:
        return f"<Linger wait={self.wait * 1000:g}ms>"


class _Company:
    """Rows that share a batch, with sums of how much later than the first each came, and of the squares of that."""

    __slots__ = ("due_at", "kind", "later", "later_squared", "opened_at", "rows")

    def __init__(self, kind: BatchKind, opened_at: float, due_at: float) -> None:
        self.kind = kind
        self.opened_at = opened_at
        self.due_at = due_at
        self.rows = 0
        self.later = self.later_squared = 0.0

    def add(self, at: float, rows: int) -> None:
        later = at - self.opened_at
        self.rows += rows
        self.later += rows * later
        self.later_squared += rows * later * later

    def waited_squared(self, until: float) -> float:
        first = until - self.opened_at
        return (self.rows * first - 2 * self.later) * first + self.later_squared


class SimulatedLanes:
    """Simulates the batcher's rules and some lanes with one wait."""

    def __init__(self, wait: float, max_rows: Mapping[BatchKind, int], lanes: int, expected: Expected) -> None:
        self._wait = wait
        self._max_rows = max_rows
        self._expected = expected
        self._idle_at = [-inf] * lanes  # a heap
        self._open: dict[BatchKind, _Company] = {}  # in the order they were opened, which is the order they are due
        self._full: deque[_Company] = deque()
        self._squares = self._lane = 0.0

    def serve(self, arrivals: Sequence[Arrival]) -> Cost:
        """The sum of all rows' squared latencies in square seconds, and of all inferences in seconds."""
        for at, kind, rows in arrivals:
            self._run_until(at)
            self._add(at, kind, rows)
        self._run_until(inf)
        return Cost(self._squares, self._lane)

    def _add(self, at: float, kind: BatchKind, rows: int) -> None:
        company = self._open.get(kind)
        if company is not None and company.rows + rows > self._max_rows[kind]:
            self._fill(company, at)
            company = None
        if company is None:
            company = self._open[kind] = _Company(kind, at, at + self._wait)
        company.add(at, rows)
        if company.rows >= self._max_rows[kind]:
            self._fill(company, at)

    def _fill(self, company: _Company, at: float) -> None:
        company.due_at = at
        self._full.append(self._open.pop(company.kind))

    def _run_until(self, now: float) -> None:
        """Begin the groups that are due before `now`, as far as lanes are idle."""
        while self._full or self._open:
            company = self._full[0] if self._full else next(iter(self._open.values()))
            begins_at = max(company.due_at, self._idle_at[0])
            if begins_at >= now:
                return
            if self._full:
                self._full.popleft()
            else:
                del self._open[company.kind]
            seconds = self._expected(company.kind, company.rows)
            ends_at = begins_at + seconds
            self._lane += seconds
            heapreplace(self._idle_at, ends_at)
            self._squares += company.waited_squared(ends_at)
