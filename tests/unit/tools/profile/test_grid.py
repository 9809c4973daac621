"""Lengths measured by a clock that is passed in, on a model that takes as long as its rows are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.fakes import Clock
from tests.unit.tools.profile.builders import measured
from worker.core.failures import BadConfiguration, Code, RunFailure
from worker.core.records import Array
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.core.tensors.signature import Signature
from worker.core.tensors.specs import TensorSpec
from worker.core.tensors.stacking import Stacker
from worker.tools.profile.engine.axes import LengthAxis
from worker.tools.profile.engine.costs import HAND_OVER_SECONDS
from worker.tools.profile.engine.grid import ROUNDS, AtLength, LengthCosts, batch_sizes, powers_between
from worker.tools.profile.engine.sweep import Bench, Sweep, TooLarge, sweep_all

SIGNATURE = Signature("m", "1", (TensorSpec("x", "INT64", (None,)),), (TensorSpec("y", "FP32", (1,)),))
AXIS = LengthAxis(WantedAxis("x", 1, ()), (Spot(0, 0),))


class Ragged:
    """A millisecond for each element. It remembers the shapes that it ran, and refuses a value or long rows if told."""

    def __init__(self, clock: Clock, *, refuses: int | None = None, longest: int = 1 << 30) -> None:
        self._clock = clock
        self._refuses = refuses
        self._longest = longest
        self.lasts = 1 << 30
        self.ran: list[tuple[int, ...]] = []

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array] | RunFailure:
        x = feeds["x"]
        if x.flat[0] == self._refuses or x.shape[1] > self._longest or len(self.ran) >= self.lasts:
            return RunFailure("out of its table", Code.INTERNAL)
        self.ran.append(x.shape)
        self._clock.now += x.size / 1000
        return (np.zeros((len(x), 1), np.float32),)

    def blank(
        self, rows: int, lengths: Mapping[Spot, int] | None = None, value: int | None = None
    ) -> Mapping[str, Array]:
        return {"x": np.full((rows, (lengths or {})[Spot(0, 0)]), value, np.int64)}


def benches(
    model: Ragged, clock: Clock, lengths: Sequence[int], sizes: Sequence[int]
) -> dict[int, tuple[Bench, Sequence[int]]]:
    return {
        length: (Bench(AtLength(model, AXIS, length), Stacker(SIGNATURE), 1, clock, f" of length {length}"), sizes)
        for length in lengths
    }


def swept(model: Ragged, clock: Clock, lengths: Sequence[int], sizes: Sequence[int] = (1, 4)) -> dict[int, Sweep]:
    return sweep_all(benches(model, clock, lengths, sizes), 1.0, ROUNDS, lambda _: None)


def test_each_length_is_measured_at_each_size() -> None:
    """In turns, there and back: a machine that slows down slows them all."""
    clock = Clock()
    model = Ragged(clock)

    found = swept(model, clock, [8, 16])

    assert list(found) == [8, 16]
    assert [size.rows for size in found[16].sizes] == [1, 4]
    assert found[16].sizes[1].run_seconds(50) == pytest.approx(0.064)
    assert found[8].sizes[0].inferences == pytest.approx(125, abs=ROUNDS)
    first, last = model.ran.index((4, 16)), len(model.ran) - model.ran[::-1].index((1, 8))
    assert first < last


def test_progress_is_told_slice_by_slice() -> None:
    """One call for each size at each length in each round."""
    clock, told = Clock(), list[int]()

    sweep_all(benches(Ragged(clock), clock, [8, 16], [1]), 1.0, ROUNDS, told.append)

    assert told == list(range(1, 2 * ROUNDS + 1))


def test_rows_are_ones_where_the_model_takes_them() -> None:
    """A mask of zeros may cost less than one of a real row."""
    clock = Clock()

    assert AtLength(Ragged(clock), AXIS, 4).blank(2)["x"].tolist() == [[1] * 4] * 2
    assert AtLength(Ragged(clock, refuses=1), AXIS, 4).blank(2)["x"].tolist() == [[0] * 4] * 2


def test_a_size_that_takes_too_long_is_left_out_at_its_length() -> None:
    """The shorter ones are measured at it all the same."""
    clock = Clock()

    found = swept(Ragged(clock), clock, [8, 400])

    assert found[8].too_large is None
    assert [size.rows for size in found[400].sizes] == [1]
    assert found[400].too_large == (4, "one inference takes 1.6 s")


def test_a_length_on_which_the_model_fails_is_told() -> None:
    """A table of positions ends somewhere."""
    clock = Clock()

    with pytest.raises(BadConfiguration, match="the model does not run on 1 row of length 600: out of its table"):
        swept(Ragged(clock, longest=512), clock, [8, 600])


def test_a_model_that_fails_later_is_told() -> None:
    """A length that was warm does not vanish in silence."""
    clock = Clock()
    model = Ragged(clock)
    ready = benches(model, clock, [8], [1])
    model.lasts = len(model.ran) + 10

    with pytest.raises(BadConfiguration, match="the model ran on 1 row of length 8, and then failed: out of its table"):
        sweep_all(ready, 1.0, ROUNDS, lambda _: None)


@pytest.mark.parametrize(
    ("most", "request_rows", "sizes"),
    [(32, 1, [1, 2, 8, 32]), (1, 1, [1]), (1024, 1, [1, 64, 256, 1024]), (32, 16, [16, 32]), (8, 100, [100])],
)
def test_a_few_sizes_stand_for_all(most: int, request_rows: int, sizes: list[int]) -> None:
    """One request, and the largest batch with what is a quarter of it, and a quarter again."""
    assert batch_sizes(most, request_rows) == sizes


@pytest.mark.parametrize(
    ("shortest", "longest", "lengths"),
    [(4, 256, [4, 8, 16, 32, 64, 128, 256]), (5, 40, [8, 16, 32, 40]), (7, 7, [7]), (1, 1, [1])],
)
def test_lengths_double_up_to_the_longest(shortest: int, longest: int, lengths: list[int]) -> None:
    """From one that holds the shortest."""
    assert powers_between(shortest, longest) == lengths


def test_costs_lie_between_what_was_measured() -> None:
    """On straight lines; beyond, a row costs what it does at the nearest."""
    costs = LengthCosts(
        {
            10: Sweep(measured({1: [0.001], 4: [0.004]}), None),
            20: Sweep(measured({1: [0.003], 4: [0.012]}), TooLarge(8, "no memory")),
        }
    )

    lengths, rows = np.array([10, 20, 15, 5, 40, 20]), np.array([1.0, 1.0, 1.0, 1.0, 1.0, 16.0])
    found = costs.row_seconds(lengths, rows)

    between = HAND_OVER_SECONDS / np.minimum(rows, 4)
    assert found - between == pytest.approx([0.001, 0.003, 0.002, 0.001, 0.003, 0.003])


def test_one_length_costs_the_same_whatever_is_asked() -> None:
    """There is nothing to draw a line to."""
    costs = LengthCosts({10: Sweep(measured({1: [0.001]}), None)})

    assert costs.row_seconds(np.array([3, 10, 70]), 1.0) == pytest.approx([0.001 + HAND_OVER_SECONDS] * 3)
