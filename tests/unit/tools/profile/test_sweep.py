"""Batch sizes measured by a clock that is passed in, on a model that takes as long as the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from tests.fakes import Clock
from worker.core.failures import BadConfiguration, Code, RunFailure
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Stacker
from worker.tools.profile.engine.sweep import ROUNDS, WARM_UPS, Bench, SizeTimings, Sweep, Timing, sweep

SIGNATURE = Signature("m", "1", (TensorSpec("x", "FP32", (2,)),), (TensorSpec("y", "FP32", (1,)),))


class Slow:
    """A model whose inference takes a fixed time, and by the row; it remembers what it ran."""

    def __init__(self, clock: Clock, *, fixed: float = 0.01, per_row: float = 0.0, fails_from: int = 1 << 30) -> None:
        self._clock = clock
        self._fixed = fixed
        self._per_row = per_row
        self._fails_from = fails_from
        self.ran: list[int] = []

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        rows = len(feeds["x"])
        if rows >= self._fails_from:
            return RunFailure("no memory left", Code.RESOURCE_EXHAUSTED)
        self.ran.append(rows)
        self._clock.now += self._fixed + self._per_row * rows
        return (np.zeros((rows, 1), np.float32),)

    def blank(self, rows: int) -> Mapping[str, Array]:
        return {"x": np.ones((rows, 2), np.float32)}


def swept(model: Slow, clock: Clock, sizes: Sequence[int], tell: Callable[[int], None] = lambda _: None) -> Sweep:
    return sweep(Bench(model, Stacker(SIGNATURE), 1, clock), sizes, 1.0, tell)


def test_each_size_is_measured_for_its_time() -> None:
    """So many seconds each, with rows/s and latency by size."""
    clock = Clock()

    found = swept(Slow(clock, fixed=0.008, per_row=0.002), clock, [1, 4])

    one, four = found.sizes
    assert (one.rows, four.rows) == (1, 4)
    assert one.inferences == pytest.approx(100, abs=10)
    assert one.rows_per_s == pytest.approx(100)
    assert four.rows_per_s == pytest.approx(250)
    assert four.run_seconds(99) == pytest.approx(0.016)
    assert found.too_large is None


def test_sizes_take_turns() -> None:
    """In rounds, there and back: a machine that slows down slows them all."""
    clock = Clock()
    model = Slow(clock, fixed=0.125)  # one inference fills a round

    swept(model, clock, [1, 2, 3])

    warm, rounds = model.ran[: 3 * WARM_UPS], model.ran[3 * WARM_UPS :]
    assert warm == [1] * WARM_UPS + [2] * WARM_UPS + [3] * WARM_UPS
    assert rounds == [1, 2, 3, 3, 2, 1] * (ROUNDS // 2)


def test_progress_is_told_slice_by_slice() -> None:
    """One for each size and round."""
    clock, told = Clock(), list[int]()

    swept(Slow(clock), clock, [1, 2], told.append)

    assert told == list(range(1, 2 * ROUNDS + 1))


def test_sizes_stop_at_one_that_the_model_fails_on() -> None:
    """Not enough memory for many rows is a finding; the smaller ones are measured all the same."""
    clock = Clock()

    found = swept(Slow(clock, fails_from=8), clock, [1, 4, 8, 16])

    assert [size.rows for size in found.sizes] == [1, 4]
    assert found.too_large == (8, "no memory left")


def test_sizes_stop_at_an_inference_that_takes_too_long() -> None:
    """No latency budget has room for it."""
    clock = Clock()

    found = swept(Slow(clock, fixed=0.0, per_row=0.6), clock, [1, 2, 4])

    assert [size.rows for size in found.sizes] == [1]
    assert found.too_large == (2, "one inference takes 1.2 s")


def test_a_model_that_is_slow_from_the_first_row_is_measured() -> None:
    """However long one inference takes."""
    clock = Clock()

    found = swept(Slow(clock, fixed=3.0), clock, [1, 2])

    assert [(size.rows, size.inferences) for size in found.sizes] == [(1, ROUNDS)]


def test_a_model_that_fails_on_the_fewest_rows_is_refused() -> None:
    """There is nothing to tell then but why."""
    clock = Clock()

    with pytest.raises(BadConfiguration, match="does not run on 8 rows: no memory left"):
        swept(Slow(clock, fails_from=8), clock, [8, 16])


def test_a_model_that_fails_later_is_told() -> None:
    """A size that was warm does not vanish from the table in silence."""
    clock = Clock()

    class Tired(Slow):
        def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
            return RunFailure("overheated") if len(self.ran) > 2 * WARM_UPS else super().run(feeds)

    with pytest.raises(BadConfiguration, match="ran on 1 row, and then failed: overheated"):
        swept(Tired(clock), clock, [1, 2])


def test_a_batch_is_stacked_from_requests_as_the_codecs_leave_them() -> None:
    """Of so many rows each; the last has what is left."""
    bench = Bench(Slow(Clock()), Stacker(SIGNATURE), 4, Clock())

    requests = bench.requests(10)

    assert [request.rows for request in requests] == [4, 4, 2]
    assert [request.size for request in requests] == [32, 32, 16]
    assert requests[0].tensors == (np.ones((4, 2), np.float32).tobytes(),)
    assert requests[0].shapes == ((2,),)


def test_the_median_inference_makes_the_rate() -> None:
    """One that was held up does not."""
    size = SizeTimings(10, [[Timing(0.0, 0.1, 0.0)] * 3, [Timing(0.0, 5.0, 0.0)]])

    assert size.rows_per_s == pytest.approx(100.0)
    assert size.run_seconds(99) == 5.0
    assert size.inferences == 4
