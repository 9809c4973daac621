"""Batch sizes measured by a clock that is passed in, on a model with the test's run times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.fakes import Clock
from worker.codecs.examples import EncodingName
from worker.core.failures import BadConfiguration, Code, RunFailure
from worker.core.records import Array
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Stacker
from worker.tools.profile.sweep import ROUNDS, WARM_UPS, Bench, Sweep, sweep

SIGNATURE = Signature("m", "1", (TensorSpec("x", "FP32", (2,)),), (TensorSpec("y", "FP32", (1,)),))


class Slow:
    """A model whose inference takes a fixed time and a time per row; it remembers its row counts."""

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
        return {"x": np.zeros((rows, 2), np.float32)}


def bench(model: Slow, clock: Clock, request_rows: int = 1) -> Bench:
    return Bench(model.run, model.blank, Stacker(SIGNATURE), request_rows, clock)


def swept(model: Slow, clock: Clock, *sizes: int, told: list[int] | None = None) -> Sweep:
    return sweep(bench(model, clock), sizes, 1.0, (told if told is not None else []).append)


def test_each_size_is_measured_for_its_time() -> None:
    """Each size gets so many seconds, and has rows/s and latency; progress is reported slice by slice."""
    clock, told = Clock(), list[int]()

    found = swept(Slow(clock, fixed=0.008, per_row=0.002), clock, 1, 4, told=told)

    one, four = found.sizes
    assert (one.rows, four.rows) == (1, 4)
    assert one.inferences == pytest.approx(100, abs=10)
    assert one.rows_per_s == pytest.approx(100)
    assert four.rows_per_s == pytest.approx(250)
    assert four.p99 == pytest.approx(0.016)
    assert found.too_large is None
    assert told == list(range(1, 2 * ROUNDS + 1))


def test_sizes_take_turns() -> None:
    """Rounds go up and down again, so a machine that slows down slows all sizes."""
    clock = Clock()
    model = Slow(clock, fixed=0.125)  # one inference fills a round

    swept(model, clock, 1, 2, 3)

    warm, rounds = model.ran[: 3 * WARM_UPS], model.ran[3 * WARM_UPS :]
    assert warm == [1] * WARM_UPS + [2] * WARM_UPS + [3] * WARM_UPS
    assert rounds == [1, 2, 3, 3, 2, 1] * (ROUNDS // 2)


@pytest.mark.parametrize(
    ("model", "measured", "left_out"),
    [
        ({"fails_from": 8}, [1, 4], (8, "no memory left")),
        ({"fixed": 0.0, "per_row": 0.6}, [1], (4, "one inference takes 2.4 s")),
        ({"fixed": 3.0}, [1], (4, "one inference takes 3.0 s")),
    ],
)
def test_sizes_stop_where_the_model_cannot_go_on(
    model: dict[str, float], measured: list[int], left_out: tuple[int, str]
) -> None:
    """The model fails, or takes too long for any latency budget; the smaller sizes are still measured."""
    clock = Clock()

    found = swept(Slow(clock, **model), clock, 1, 4, 8, 16)  # type: ignore[arg-type]  # a row count is a number too

    assert [size.rows for size in found.sizes] == measured
    assert found.too_large == left_out


def test_a_model_that_fails_is_refused() -> None:
    """It may fail on the fewest rows, or later on a warm size: neither silently leaves the table."""
    clock = Clock()

    class Tired(Slow):
        def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
            return RunFailure("overheated") if len(self.ran) > 2 * WARM_UPS else super().run(feeds)

    with pytest.raises(BadConfiguration, match="does not run on 8 rows: no memory left"):
        swept(Slow(clock, fails_from=8), clock, 8, 16)
    with pytest.raises(BadConfiguration, match="ran on 1 rows, and then failed: overheated"):
        swept(Tired(clock), clock, 1, 2)


@pytest.mark.parametrize("encoding", list(EncodingName))
def test_a_request_is_measured_in_every_encoding(encoding: EncodingName) -> None:
    """The worker's own codecs decode and answer it; each look at the clock takes a second."""

    class Ticking(Clock):
        """A clock on which each look takes a second."""

        def __call__(self) -> float:
            self.now += 1.0
            return self.now

    clock = Ticking()
    model = Slow(clock, fixed=0.0)

    cost = bench(model, clock, 2).request_cost(encoding, 1.0, 128)

    assert set(model.ran) == {128}
    assert (cost.decode, cost.encode) == (1 / 64, 1 / 64)
    assert cost.encoding == encoding
    assert (cost.size == 16) == (encoding is EncodingName.ROWS)


def test_a_model_that_fails_on_example_requests_is_told() -> None:
    """There is nothing to advise then."""
    clock = Clock()

    with pytest.raises(BadConfiguration, match="the model cannot be asked in json: no memory left"):
        bench(Slow(clock, fails_from=1), clock).request_cost(EncodingName.JSON, 1.0, 64)
