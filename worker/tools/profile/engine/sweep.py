"""Batch sizes measured on a device: what a worker does to one batch, over and over, timed by its parts.

A batch is stacked from requests, run and split with the worker's own `Stacker`. Sizes take turns in short rounds, so
that a machine that slows down for a while slows all of them and not one; the median inference gives the rate. Each size
runs a few times before it is timed, because the first run of a size allocates and tunes. Reads the clock it is
given; the rows are the ones that the model is warmed up with, since shapes cost time and values hardly do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.core.failures import BadConfiguration, RunFailure
from worker.core.records import Array, ClosedBy, ModelKey, Partition, Record, Reply, Request, Tensor
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Stacker

Floats = NDArray[np.float64]

ROUNDS = 10  # slices that a size's time is cut into: a swing of a second falls on all sizes alike
WARM_UPS = 3  # runs before a size is timed: allocation at the first, a provider's tuning at the first or second
LONGEST_RUN = 1.0  # sizes stop growing at an inference of so many seconds: no budget has room for two of them

# At a p99 of so many medians, and later than them by more seconds than a scheduler takes from time to time, the machine
# had something else to do, or the device slowed down to cool.
UNSTEADY, UNSTEADY_BY = 5.0, 0.01

_RECORD = Record(Partition("profile", 0), 0, None, None, (), None)
_REPLY = Reply("application/octet-stream")
_MODEL = ModelKey("", "")


class SweptModel(Protocol):
    """What is measured: a `Model`."""

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure: ...
    def blank(self, rows: int) -> Mapping[str, Array]: ...


class Timing(NamedTuple):
    """One batch, seconds: stacked by the loop, run by a lane, split by the loop."""

    stack: float
    run: float
    split: float


@dataclass(slots=True)
class SizeTimings:
    """One batch size. `rounds` holds the timings of each round; stacking and splitting take their medians."""

    rows: int
    rounds: list[list[Timing]] = field(default_factory=list)

    @property
    def inferences(self) -> int:
        return sum(map(len, self.rounds))

    @property
    def runs(self) -> Floats:
        """Seconds of each inference, ascending."""
        return np.sort([timing.run for timing in itertools.chain(*self.rounds)])

    @property
    def rows_per_s(self) -> float:
        """At the median inference. Stacking and splitting do not count: the loop does them while the lane runs."""
        return self.rows / self.run_seconds(50)

    @property
    def stack_seconds(self) -> float:
        return float(np.median([timing.stack for timing in itertools.chain(*self.rounds)]))

    @property
    def split_seconds(self) -> float:
        return float(np.median([timing.split for timing in itertools.chain(*self.rounds)]))

    @property
    def is_unsteady(self) -> bool:
        """Its slowest runs say more about the machine than about the model."""
        p50, p99 = self.run_seconds(50), self.run_seconds(99)
        return p99 > max(UNSTEADY * p50, p50 + UNSTEADY_BY)

    def run_seconds(self, percent: float) -> float:
        """What so many percent of the inferences do not exceed."""
        return float(np.percentile(self.runs, percent, method="higher"))


class TooLarge(NamedTuple):
    """The first size that was left out, and why; none that is larger was tried."""

    rows: int
    reason: str


class Bench:
    """Makes and times batches of one model. Requests have `request_rows` rows, but for a batch's last.

    `of`: what is to be said of its rows, as in ` of length 64`.
    """

    def __init__(
        self, runner: SweptModel, stacker: Stacker, request_rows: int, clock: Callable[[], float], of: str = ""
    ) -> None:
        self._runner = runner
        self._stacker = stacker
        self._request_rows = request_rows
        self._clock = clock
        self._of = of

    def named(self, rows: int) -> str:
        """So many rows, for a sentence."""
        return f"{rows} row{'' if rows == 1 else 's'}{self._of}"

    def requests(self, rows: int) -> list[Request]:
        """So many rows in requests, as the codecs leave them."""
        specs = self._stacker.signature.inputs
        sizes = [min(self._request_rows, rows - first) for first in range(0, rows, self._request_rows)]
        blanks = {size: self._runner.blank(size) for size in set(sizes)}
        # A copy for each, as records are: one that is read over and over would lie in the processor's cache.
        return [_request(specs, blanks[size], size) for size in sizes]

    def time(self, requests: Sequence[Request]) -> Timing | RunFailure:
        clock = self._clock
        began = clock()
        batch, _ = self._stacker.stack(requests, ClosedBy.SIZE)
        assert batch is not None  # rows on which the model runs are finite
        stacked = clock()
        outputs = self._runner.run(batch.feeds)
        ran = clock()
        if isinstance(outputs, RunFailure):
            return outputs
        split = self._stacker.split(batch, outputs)
        return split if isinstance(split, RunFailure) else Timing(stacked - began, ran - stacked, clock() - ran)

    def time_for(self, seconds: float, requests: Sequence[Request]) -> list[Timing] | RunFailure:
        """Batches of them for so long: at least one."""
        timings: list[Timing] = []
        deadline = self._clock() + seconds
        while not timings or self._clock() < deadline:
            timing = self.time(requests)
            if isinstance(timing, RunFailure):
                return timing
            timings.append(timing)
        return timings


class Sweep(NamedTuple):
    """What was measured, ascending by rows, and what was not."""

    sizes: Sequence[SizeTimings]
    too_large: TooLarge | None


def sweep(bench: Bench, sizes: Sequence[int], seconds: float, tell: Callable[[int], None]) -> Sweep:
    """Measure each of these ascending sizes for so many seconds; `tell` gets the number of slices done.

    Raises `BadConfiguration` when the model fails at the smallest already, or later at one that it ran on.
    """
    return sweep_all({0: (bench, sizes)}, seconds, ROUNDS, tell)[0]


def sweep_all(
    benches: Mapping[int, tuple[Bench, Sequence[int]]], seconds: float, rounds: int, tell: Callable[[int], None]
) -> dict[int, Sweep]:
    """The same for several, each at its sizes, all in turns. `rounds`: slices that a size's time is cut into."""
    ready = {key: _warm(bench, sizes) for key, (bench, sizes) in benches.items()}
    found = {key: Sweep([SizeTimings(rows) for rows in warm], too_large) for key, (warm, too_large) in ready.items()}
    cells = [(key, size) for key, swept in found.items() for size in swept.sizes]
    there_and_back = itertools.cycle((cells, cells[::-1]))  # none always follows the same one
    turns = itertools.chain.from_iterable(itertools.islice(there_and_back, rounds))
    for done, (key, size) in enumerate(turns, 1):
        bench = benches[key][0]
        timings = bench.time_for(seconds / rounds, ready[key][0][size.rows])
        if isinstance(timings, RunFailure):
            raise BadConfiguration(f"the model ran on {bench.named(size.rows)}, and then failed: {timings.message}")
        size.rounds.append(timings)
        tell(done)
    return found


def _warm(bench: Bench, sizes: Sequence[int]) -> tuple[dict[int, list[Request]], TooLarge | None]:
    """Requests of each of these ascending sizes that the model has run on, and the first size left out."""
    ready: dict[int, list[Request]] = {}
    for rows in sizes:
        requests = bench.requests(rows)
        last = [bench.time(requests) for _ in range(WARM_UPS)][-1]
        if isinstance(last, RunFailure):
            if not ready:
                raise BadConfiguration(f"the model does not run on {bench.named(rows)}: {last.message}")
            return ready, TooLarge(rows, last.message)
        if last.run > LONGEST_RUN and ready:
            return ready, TooLarge(rows, f"one inference takes {last.run:.1f} s")
        ready[rows] = requests
    return ready, None


def _request(specs: Sequence[TensorSpec], feeds: Mapping[str, Array], rows: int) -> Request:
    arrays = [feeds[spec.name] for spec in specs]
    tensors = tuple(_tensor(spec, array) for spec, array in zip(specs, arrays, strict=True))
    shapes = tuple(array.shape[1:] for array in arrays)
    return Request(_RECORD, rows, tensors, shapes, _REPLY, sum(array.nbytes for array in arrays), _MODEL)


def _tensor(spec: TensorSpec, array: Array) -> Tensor:
    return array.reshape(-1) if spec.is_text else array.tobytes()
